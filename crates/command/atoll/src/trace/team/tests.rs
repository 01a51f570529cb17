use atoll_record::trace::{Header, Reader, Writer};

use super::*;
use crate::trace::output::Limits;

const STEP: u64 = 0x1000;
const WALL: u64 = 0x2000;

fn begin(worker: u16, team: u32) -> [u64; 2] {
    [word::member(Kind::Begin, worker, team), STEP]
}

fn end(worker: u16, team: u32) -> [u64; 2] {
    [word::member(Kind::End, worker, team), STEP]
}

fn wall() -> [u64; 2] {
    [word::with_amount(Kind::Barrier, 0), WALL]
}

/// Returns the events that blocks of threads become, without compute.
fn events(limits: Limits, most_kept: usize, blocks: &[(u32, Vec<u64>)]) -> Vec<Event> {
    let writer = Writer::new(Vec::new(), &Header::default()).unwrap();
    let mut out = Output::new(writer, limits, true);
    let mut teams = Teams { most_kept, ..Teams::default() };
    for (thread, words) in blocks {
        teams.block(*thread, words, &mut out);
    }
    teams.end(&mut out);
    let bytes = out.finish().unwrap();
    let (mut reader, mut events) = (Reader::new(&bytes[..]).unwrap(), Vec::new());
    while reader.next_chunk(&mut events).unwrap() {}
    events.retain(|event| !matches!(event, Event::Compute { .. }));
    events
}

/// Returns events in short: `r0` begin, `e0` end, `b0` barrier, `0:7` worker 0 touches page 7.
fn short(events: &[Event]) -> String {
    let words: Vec<String> = events
        .iter()
        .map(|event| match event {
            Event::RegionBegin { worker, .. } => format!("r{worker}"),
            Event::RegionEnd { worker, .. } => format!("e{worker}"),
            Event::Barrier { worker, .. } => format!("b{worker}"),
            Event::Access { worker, page, .. } => format!("{worker}:{page}"),
            other => format!("{other:?}"),
        })
        .collect();
    words.join(" ")
}

/// Makes a region of two workers with a barrier, whose threads 0 and 7 ran one after the other.
fn region() -> Vec<(u32, Vec<u64>)> {
    let touch = |page, elapsed| word::access(page, true, elapsed);
    let mut first = vec![touch(1, 5)];
    first.extend(begin(0, 2));
    first.extend([touch(2, 100), touch(3, 100)]);
    first.extend(wall());
    first.extend([touch(4, 10), touch(5, 30)]);
    first.extend(end(0, 2));
    let mut second = begin(1, 2).to_vec();
    second.extend([touch(20, 50), touch(30, 100)]);
    second.extend(wall());
    second.extend([touch(40, 20)]);
    second.extend(end(1, 2));
    vec![(0, first), (7, second), (0, vec![touch(6, 1)]), (7, vec![touch(60, 1)])]
}

const WHOLE: &str = "0:1 r0 r1 1:20 0:2 1:30 0:3 b0 b1 0:4 1:40 0:5 e0 e1 0:6 1:60";

#[test]
fn workers_that_ran_one_after_the_other_are_told_as_if_at_once() {
    let whole = short(&events(Limits::default(), 100, &region()));
    // The end of a region has the clock of the last word before it.
    assert_eq!(whole.replace("1:40 e1 0:5 e0", "1:40 0:5 e0 e1"), WHOLE);
}

#[test]
fn regions_not_asked_for_are_left_out() {
    let mut blocks = region();
    blocks.insert(1, (3, vec![word::with_amount(Kind::Map, 9), 77]));
    let only = |regions: &str| {
        let limits = Limits { regions: Some(regions.parse().unwrap()), iterations: None };
        short(&events(limits, 100, &blocks))
    };
    let map = "Map { first: 77, pages: 9 }";
    assert_eq!(only("2"), map);
    assert_eq!(only("0x2000"), map);
    assert_eq!(only("1"), format!("{map} r0 r1 1:20 0:2 1:30 0:3 b0 b1 0:4 1:40 e1 0:5 e0"));
}

#[test]
fn recording_ends_before_the_mark_that_would_be_one_too_many() {
    let twice: Vec<_> = region().into_iter().chain(region()).collect();
    let some = |iterations| {
        let limits = Limits { regions: None, iterations: Some(iterations) };
        short(&events(limits, 100, &twice))
    };
    let once = short(&events(Limits::default(), 100, &region()));
    assert_eq!(some(1), format!("{once} 0:1"));
    assert_eq!(some(2), short(&events(Limits::default(), 100, &twice)));
}

#[test]
fn too_much_to_keep_is_told_early_and_barriers_stay_in_order() {
    let few = events(Limits::default(), 3, &region());
    let mut sorted = short(&few).split(' ').map(str::to_owned).collect::<Vec<_>>();
    let at = |word: &str| short(&few).split(' ').position(|w| w == word).unwrap();
    for before in ["0:2", "0:3", "1:20", "1:30"] {
        assert!(at(before) < at("b0") && at("b1") < at("0:4"), "{}", short(&few));
    }
    sorted.sort();
    let mut whole: Vec<_> = WHOLE.split(' ').map(str::to_owned).collect();
    whole.sort();
    assert_eq!(sorted, whole);
}

#[test]
fn a_program_that_ends_in_a_region_loses_nothing() {
    let cut: Vec<_> = region().into_iter().take(1).collect();
    assert_eq!(short(&events(Limits::default(), 100, &cut)), "0:1 r0 0:2 0:3 b0 0:4 0:5 e0");
    // A thread that never was a worker keeps its own number; words outside of regions pass.
    let lone = vec![(9, vec![word::access(3, false, 0)]), (9, wall().to_vec())];
    assert_eq!(short(&events(Limits::default(), 100, &lone)), "9:3 b9");
}
