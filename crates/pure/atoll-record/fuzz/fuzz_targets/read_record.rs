//! Reading any bytes ends in a record or an error; a record survives being written again.
#![no_main]

use atoll_record::Record;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(record) = Record::read(bytes) {
        let mut again = Vec::new();
        record.write(&mut again).expect("writing to memory");
        assert!(Record::read(&again[..]).is_ok());
    }
});
