//! Any bytes as a program: read or refused, and if read, either refused by a segment or wholly inside it.
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
