//! Reading any bytes ends in a profile or an error, and all samples of the profile are placed. The bytes are tried as a file
//! and, as no fuzzer finds checksums, as the insides of its chunks.
#![no_main]

use atoll_record::container::Writer;
use atoll_record::profile::{self, Batches, Profile};
use libfuzzer_sys::fuzz_target;

fn read(bytes: &[u8]) {
    let Ok(profile) = Profile::read(bytes) else { return };
    let mut locator = profile.locator();
    for batch in Batches::new(bytes).into_iter().flatten().flatten() {
        for sample in &batch.samples {
            locator.place(sample);
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    read(bytes);
    let mut writer = Writer::new(Vec::new()).expect("writing to memory");
    writer.chunk(profile::TAG_HEADER, b"{}").expect("writing to memory");
    let (raw, tag) = match bytes.split_first() {
        Some((0, rest)) => (rest, profile::TAG_EVENTS),
        Some((_, rest)) => (rest, profile::TAG_SAMPLES),
        None => return,
    };
    let mut payload = Vec::new();
    if tag == profile::TAG_SAMPLES {
        payload.extend_from_slice(&0u32.to_le_bytes());
        payload.extend_from_slice(&(raw.len() as u32 / 9).to_le_bytes());
    }
    payload.extend_from_slice(&(raw.len() as u32).to_le_bytes());
    payload.extend_from_slice(&zstd::bulk::compress(raw, 1).expect("compressing in memory"));
    writer.chunk(tag, &payload).expect("writing to memory");
    read(&writer.finish().expect("writing to memory"));
});
