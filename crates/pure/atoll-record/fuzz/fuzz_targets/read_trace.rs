//! Reading any bytes ends in events or an error; the events survive being written again. The bytes are tried as a file and, as
//! no fuzzer finds checksums, as the inside of a chunk.
#![no_main]

use std::collections::BTreeMap;

use atoll_record::trace::codec::Decoder;
use atoll_record::trace::{Event, Header, Reader, Writer};
use libfuzzer_sys::fuzz_target;

fn file(bytes: &[u8]) -> Option<Vec<Event>> {
    let mut reader = Reader::new(bytes).ok()?;
    let mut events = Vec::new();
    while reader.next_chunk(&mut events).ok()? {}
    Some(events)
}

fuzz_target!(|bytes: &[u8]| {
    file(bytes);
    let Some((events, inside)) = bytes.split_first_chunk::<2>() else { return };
    let mut decoded = Vec::new();
    if Decoder::default().decode(inside, u32::from(u16::from_le_bytes(*events)), &mut decoded).is_ok() {
        let mut writer = Writer::new(Vec::new(), &Header::default()).expect("writing to memory");
        for event in &decoded {
            writer.push(event).expect("writing to memory");
        }
        let again = writer.finish(0, BTreeMap::new()).expect("writing to memory");
        assert_eq!(file(&again).as_ref(), Some(&decoded));
    }
});
