//! Profiles written and read again: whole, cut off, damaged, from the future.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use atoll_record::profile::{
    Access, Batches, CodeLine, Event, Header, Kind, ModuleNames, Names, Profile, ProfileError, ProfileWriter,
    Sample, SamplerInfo, Trailer,
};
use proptest::prelude::*;

const PATH: &str = "/usr/bin/app";

fn header() -> Header {
    let sampler = SamplerInfo { name: "timer".into(), ..SamplerInfo::default() };
    Header { format: 1, samplers: vec![sampler], ..Header::default() }
}

fn names() -> Names {
    let line = CodeLine { function: "main".into(), file: "/src/app.c".into(), line: 12, target: "a".into() };
    let global = atoll_record::profile::names::Global {
        address: 0x4000,
        bytes: 0x100,
        name: "table".into(),
        ..Default::default()
    };
    let module = ModuleNames {
        segments: vec![(0, 0x2000, 0x1000)],
        globals: vec![global],
        lines: [(0x1010, line)].into(),
    };
    Names { modules: [(PATH.to_owned(), module)].into() }
}

fn sample(time_ns: u64, address: u64) -> Sample {
    Sample { time_ns, address, access: Access::Read, ..Sample::default() }
}

/// Makes a profile in which a block is allocated and freed, and its address used again by a mapping.
fn whole() -> Vec<u8> {
    let mut writer = ProfileWriter::new(Vec::new(), &header()).unwrap();
    let bias = 0x55_0000_0000;
    let code = bias + 0x1000;
    let events = [
        Event::Worker { time_ns: 0, space: 9, pid: 9, tid: 9, number: 0, node: 0, name: "app".into() },
        Event::Map {
            time_ns: 1,
            space: 9,
            start: code,
            bytes: 0x2000,
            offset: 0,
            path: PATH.into(),
            code: true,
        },
        Event::Block { time_ns: 10, space: 9, start: 0x7000_0000, bytes: 0x10000, site: code + 0x10 },
        Event::RegionBegin { time_ns: 20, space: 9, function: code + 0x10 },
        Event::RegionEnd { time_ns: 30, space: 9 },
        Event::Free { time_ns: 40, space: 9, start: 0x7000_0000 },
        Event::Map {
            time_ns: 50,
            space: 9,
            start: 0x7000_0000,
            bytes: 0x1000,
            offset: 0,
            path: "//anon".into(),
            code: false,
        },
    ];
    for event in &events {
        writer.event(event).unwrap();
    }
    for (time, address) in
        [(5, 0x7000_0000), (15, 0x7000_ffff), (25, bias + 0x4010), (45, 0x7000_0000), (55, 0x7000_0fff)]
    {
        writer.sample(0, sample(time, address)).unwrap();
    }
    writer.finish(&names(), None, None, &Trailer { wall_seconds: 1.0, ..Trailer::default() }).unwrap()
}

fn all(bytes: &[u8]) -> Vec<Sample> {
    Batches::new(bytes).unwrap().flat_map(|batch| batch.unwrap().samples).collect()
}

#[test]
fn an_address_used_again_is_the_later_ones() {
    let bytes = whole();
    let profile = Profile::read(&*bytes).unwrap();
    assert!(profile.cut.is_none());
    let mut locator = profile.locator();
    let found: Vec<_> = all(&bytes)
        .iter()
        .map(|s| {
            let place = locator.place(s);
            let variable = place.variable.map(|v| &profile.variables[v as usize]);
            (variable.map(|v| (v.kind, v.name.as_str(), v.place())), place.region)
        })
        .collect();
    let heap = || Some((Kind::Heap, "a", "app.c:12".to_owned()));
    assert_eq!(
        found,
        [
            (None, None),
            (heap(), None),
            (Some((Kind::Global, "table", String::new())), Some(0)),
            (None, None),
            (Some((Kind::Anonymous, "anonymous memory", String::new())), None),
        ]
    );
    assert_eq!(profile.regions[0].name, "main");
    assert_eq!(profile.phases[0].end_ns, 30);
}

#[test]
fn what_was_cut_off_is_read_up_to_there() {
    let bytes = whole();
    let mut readable = 0;
    for len in 0..bytes.len() {
        if let Ok(profile) = Profile::read(&bytes[..len]) {
            assert!(profile.cut.is_some(), "cut at {len}");
            readable += usize::from(profile.samples == 5 && all(&bytes[..len]).len() == 5);
        }
    }
    assert!(readable > 10);
}

#[test]
fn a_profile_of_the_future_is_refused() {
    let bytes = ProfileWriter::new(Vec::new(), &Header { format: 2, ..header() }).unwrap();
    let bytes = bytes.finish(&Names::default(), None, None, &Trailer::default()).unwrap();
    assert!(matches!(Profile::read(&*bytes), Err(ProfileError::LaterFormat(2))));
}

#[test]
fn a_sampler_that_the_header_does_not_name_is_refused() {
    let mut writer = ProfileWriter::new(Vec::new(), &header()).unwrap();
    assert!(writer.sample(1, Sample::default()).is_err());
}

/// Returns the bytes with all checksums recomputed, as no mutation finds them.
fn with_checksums(mut bytes: Vec<u8>) -> Vec<u8> {
    let mut at = 16;
    while at + 24 <= bytes.len() {
        let len = u64::from_le_bytes(bytes[at + 8..at + 16].try_into().unwrap()) as usize;
        let Some(payload) = bytes.get(at + 24..).and_then(|rest| rest.get(..len)) else { break };
        let sum = crc32fast::hash(payload);
        bytes[at + 16..at + 20].copy_from_slice(&sum.to_le_bytes());
        let sum = crc32fast::hash(&bytes[at..at + 20]);
        bytes[at + 20..at + 24].copy_from_slice(&sum.to_le_bytes());
        at += 24 + len;
    }
    bytes
}

proptest! {
    #[test]
    fn changed_bytes_end_in_a_profile_or_an_error(changes in proptest::collection::vec((any::<usize>(), any::<u8>()), 1..6)) {
        let mut bytes = whole();
        for (at, to) in changes {
            let at = 16 + at % (bytes.len() - 16);
            bytes[at] = to;
        }
        let bytes = with_checksums(bytes);
        if let Ok(profile) = Profile::read(&*bytes) {
            let mut locator = profile.locator();
            for batch in Batches::new(&*bytes).unwrap().flatten() {
                for sample in &batch.samples {
                    locator.place(sample);
                }
            }
        }
    }
}
