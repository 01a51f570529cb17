//! Reads any bytes as a program. They are read or refused; if read, a segment refuses them or holds them wholly.
#![no_main]

use atoll_segment::Image;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(image) = Image::parse(bytes)
        && image.fits(0, 0x10000, 1 << 30).is_ok()
    {
        let (first, end) = image.extent();
        assert!(first >= 0x10000 && end <= 1 << 30);
    }
});
