//! The tests that every engine must pass, whatever it copies between.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use atoll_channel::bulk::{CopyError, Engine, Finished, Memory, Started, Transfer};

use crate::rig::{Make, Rig};

type Test = fn(&Make);

/// The tests of the suite.
pub(crate) const TESTS: &[(&str, Test)] = &[
    ("copies_sizes_around_boundaries", copies_sizes_around_boundaries),
    ("copies_at_any_alignment", copies_at_any_alignment),
    ("many_transfers_under_way", many_transfers_under_way),
    ("memory_dropped_under_a_transfer", memory_dropped_under_a_transfer),
    ("an_engine_dropped_with_transfers", an_engine_dropped_with_transfers),
    ("refuses_what_it_does_not_reach", refuses_what_it_does_not_reach),
];

const SECOND: Duration = Duration::from_secs(1);
const LARGE: u64 = 2 << 20;

/// Bytes that differ by their seed and position.
pub(crate) fn pattern(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut all = Vec::with_capacity(bytes + 8);
    while all.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        all.extend_from_slice(&state.to_le_bytes());
    }
    all.truncate(bytes);
    all
}

/// Copies, and checks the bytes that arrived and a line before and behind them.
fn copy_and_check(rig: &mut Rig, to: u64, from: u64, bytes: u64) {
    const AROUND: u64 = 64;
    let sent = pattern(bytes + from, bytes as usize);
    rig.from.put(from, &sent);
    let before = to.min(AROUND);
    let whole = (before + bytes + AROUND) as usize;
    let old = pattern(!bytes, whole);
    rig.to.put(to - before, &old);
    let transfer = Transfer::new(&rig.to.memory, to, &rig.from.memory, from, bytes).unwrap();
    rig.engine.copy(&transfer).unwrap();
    let got = rig.to.get(to - before, whole);
    let (begin, end) = (before as usize, (before + bytes) as usize);
    let what = format!("{bytes} bytes from {from} to {to}");
    assert!(got[..begin] == old[..begin], "{what}: bytes before were changed");
    assert!(got[begin..end] == sent, "{what}: other bytes arrived");
    assert!(got[end..] == old[end..], "{what}: bytes behind were changed");
}

fn copies_sizes_around_boundaries(make: &Make) {
    let mut rig = make(3 * LARGE);
    let sizes = [0, 1, 2, 63, 64, 65, 255, 256, 257, 1023, 1024, 1025, 4095, 4096, 4097];
    let large = [(64 << 10) - 1, 64 << 10, (64 << 10) + 1, LARGE - 3, LARGE, LARGE + 3];
    for bytes in sizes.into_iter().chain(large) {
        copy_and_check(&mut rig, 4096, 4096, bytes);
        copy_and_check(&mut rig, 0, 1, bytes);
    }
}

fn copies_at_any_alignment(make: &Make) {
    let mut rig = make(1 << 18);
    for to in [0, 1, 7, 31, 63, 64, 4095] {
        for from in [0, 1, 8, 33, 63, 4097] {
            for bytes in [1, 64, 300, 4096, 70_001] {
                copy_and_check(&mut rig, to, from, bytes);
            }
        }
    }
}

/// Lets the engine work until `count` transfers have finished.
fn finish(engine: &mut dyn Engine, finished: &mut Vec<Finished>, count: usize) {
    let end = Instant::now() + 20 * SECOND;
    while finished.len() < count {
        engine.progress(finished, SECOND);
        assert!(Instant::now() < end, "{} of {count} finished", finished.len());
    }
}

fn many_transfers_under_way(make: &Make) {
    const EACH: u64 = 5000;
    const COUNT: u64 = 300;
    let mut rig = make(COUNT * EACH);
    let sent = pattern(5, (COUNT * EACH) as usize);
    rig.from.put(0, &sent);
    let mut finished = Vec::new();
    let mut under_way = 0;
    let mut most = 0;
    for step in 0..COUNT {
        let number = step * 7 % COUNT;
        let at = number * EACH;
        let transfer = Transfer::new(&rig.to.memory, at, &rig.from.memory, at, EACH).unwrap();
        loop {
            match rig.engine.start(&transfer, number) {
                Ok(Started::Done) => finished.push((number, Ok(()))),
                Ok(Started::Pending) => under_way += 1,
                Err(CopyError::Full) => {
                    let before = finished.len();
                    assert_eq!(under_way, rig.engine.depth(), "full before its depth was reached");
                    finish(&mut *rig.engine, &mut finished, before + 1);
                    under_way -= finished.len() - before;
                    continue;
                }
                Err(e) => panic!("{e}"),
            }
            break;
        }
        most = most.max(under_way);
    }
    assert!(most <= rig.engine.depth());
    finish(&mut *rig.engine, &mut finished, COUNT as usize);
    assert!(finished.iter().all(|(_, outcome)| outcome.is_ok()));
    let numbers: BTreeSet<u64> = finished.iter().map(|(number, _)| *number).collect();
    assert_eq!((numbers.len(), finished.len()), (COUNT as usize, COUNT as usize), "each finishes once");
    assert!(rig.to.get(0, sent.len()) == sent);
    // Nothing is left: this call does not wait for transfers that never come.
    rig.engine.progress(&mut finished, 20 * SECOND);
    assert_eq!(finished.len(), COUNT as usize);
}

fn memory_dropped_under_a_transfer(make: &Make) {
    for _ in 0..20 {
        let Rig { mut engine, to, from } = make(LARGE);
        let transfer = Transfer::new(&to.memory, 0, &from.memory, 0, LARGE).unwrap();
        let started = engine.start(&transfer, 9).unwrap();
        drop((to, from));
        // The next mapping may get the addresses; no copy may be written to it.
        let (next, zeros) = (Memory::new(LARGE).unwrap(), vec![0; LARGE as usize]);
        if started == Started::Pending {
            let mut finished = Vec::new();
            finish(&mut *engine, &mut finished, 1);
            assert_eq!(finished[0].0, 9);
        }
        let mut got = vec![1; LARGE as usize];
        next.read(0, &mut got).unwrap();
        assert!(got == zeros);
    }
}

fn an_engine_dropped_with_transfers(make: &Make) {
    for _ in 0..20 {
        let Rig { mut engine, to, from } = make(LARGE);
        for piece in 0..8 {
            let at = piece * LARGE / 8;
            let transfer = Transfer::new(&to.memory, at, &from.memory, at, LARGE / 8).unwrap();
            match engine.start(&transfer, piece) {
                Ok(_) | Err(CopyError::Full) => {}
                Err(e) => panic!("{e}"),
            }
        }
        drop((to, from));
        drop(engine);
        let (next, zeros) = (Memory::new(LARGE).unwrap(), vec![0; LARGE as usize]);
        let mut got = vec![1; LARGE as usize];
        next.read(0, &mut got).unwrap();
        assert!(got == zeros);
    }
}

fn refuses_what_it_does_not_reach(make: &Make) {
    let mut rig = make(4096);
    let nowhere = Memory::of_transport(Box::new("no transport"), 4096, rig.to.memory.access()).unwrap();
    for (to, from) in [(&rig.to.memory, &nowhere), (&nowhere, &rig.from.memory)] {
        assert!(!rig.engine.reaches(to, from));
        let transfer = Transfer::new(to, 0, from, 0, 64).unwrap();
        assert!(matches!(rig.engine.start(&transfer, 0), Err(CopyError::Unreachable { .. })));
    }
    assert!(rig.engine.reaches(&rig.to.memory, &rig.from.memory));
}
