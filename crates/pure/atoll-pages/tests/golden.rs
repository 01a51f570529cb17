//! Exact counts on fixed traces, each confirmed by a slow independent implementation of the same policy.
//!
//! A change here means that a policy decides otherwise than before. Then say in the change why that is right.
#![allow(clippy::unwrap_used, reason = "a test ends where something is missing")]

mod reference;
mod traces;

use atoll_pages::replay::{Counts, Reference, Replay};
use atoll_pages::{OwnedStorage, Policy};
use reference::{Kind, Slow};

/// Replays a trace with a tick after every `tick` references; faults major and minor, and remote invalidations.
fn golden(spec: &str, frames: u32, tick: usize, trace: &[Reference]) -> (u64, u64, u64) {
    let mut storage = OwnedStorage::new(spec.parse().unwrap(), frames);
    let mut replay = Replay::new(storage.policy(), frames);
    for (index, reference) in trace.iter().enumerate() {
        replay.reference(*reference);
        if (index + 1) % tick == 0 {
            replay.tick();
        }
    }
    let counts = replay.counts();
    if let Some((slow, distribution)) = slow(spec, frames as usize, tick, trace) {
        assert_eq!(counts, slow, "{spec} and its slow reference differ");
        assert_eq!(replay.distribution(), distribution);
    }
    (counts.major, counts.minor, counts.remote_invalidations)
}

fn slow(spec: &str, frames: usize, tick: usize, trace: &[Reference]) -> Option<(Counts, Vec<u64>)> {
    let kind = match spec.split_once('=').unwrap_or((spec, "")) {
        ("fifo", _) => Kind::Fifo,
        ("lru", _) => Kind::Lru { scan: 1024, linux: false },
        ("lru:scan", scan) => Kind::Lru { scan: scan.parse().unwrap(), linux: false },
        ("lru:linux", _) => Kind::Lru { scan: 1024, linux: true },
        ("lru:linux,scan", scan) => Kind::Lru { scan: scan.parse().unwrap(), linux: true },
        ("cmcp:p", p) => Kind::Cmcp { limit: (p.parse::<f64>().unwrap() * frames as f64).round() as usize },
        _ => return None,
    };
    let mut slow = Slow::new(kind, frames);
    for (index, reference) in trace.iter().enumerate() {
        slow.reference(*reference);
        if (index + 1) % tick == 0 {
            slow.tick();
        }
    }
    Some((slow.counts, slow.distribution()))
}

const NEVER: usize = usize::MAX;

#[test]
fn beladys_anomaly() {
    let pages = [1, 2, 3, 4, 1, 2, 5, 1, 2, 3, 4, 5];
    let trace = traces::pages(&pages);
    assert_eq!(golden("fifo", 3, NEVER, &trace), (9, 0, 0));
    assert_eq!(golden("fifo", 4, NEVER, &trace), (10, 0, 0));
    assert_eq!(golden("cmcp:p=0", 4, NEVER, &trace), (10, 0, 0));
    assert_eq!((reference::min(&pages, 3), reference::min(&pages, 4)), (7, 6));
}

#[test]
fn a_cyclic_sweep_defeats_fifo_and_lru() {
    let trace = traces::cyclic(100, 10);
    let specs = ["fifo", "lru", "cmcp:p=0", "cmcp:p=0.5", "cmcp:p=1", "adaptive"];
    // Without ticks nothing ages, and half of the frames keep what came first: 100 + 9 * 60. Without marks the
    // adaptive policy keeps part of what passes while that pays.
    assert_eq!(
        table(&specs, 80, NEVER, &trace),
        [
            ("fifo", 1000, 0, 0),
            ("lru", 1000, 0, 0),
            ("cmcp:p=0", 1000, 0, 0),
            ("cmcp:p=0.5", 640, 0, 0),
            ("cmcp:p=1", 1000, 0, 0),
            ("adaptive", 607, 0, 0)
        ]
    );
    // The scan is done by nobody of the team, so the pages it unmaps cost their one worker a remote invalidation.
    assert_eq!(
        table(&specs, 80, 50, &trace),
        [
            ("fifo", 1000, 0, 0),
            ("lru", 1000, 0, 1000),
            ("cmcp:p=0", 1000, 0, 0),
            ("cmcp:p=0.5", 640, 0, 0),
            ("cmcp:p=1", 1000, 0, 0),
            ("adaptive", 607, 0, 0)
        ]
    );
}

/// What every policy costs on one trace: its specification and the three counts.
fn table(
    specs: &[&'static str],
    frames: u32,
    tick: usize,
    trace: &[Reference],
) -> Vec<(&'static str, u64, u64, u64)> {
    let line = |spec: &&'static str| {
        let (major, minor, remote) = golden(spec, frames, tick, trace);
        (*spec, major, minor, remote)
    };
    specs.iter().map(line).collect()
}

#[test]
fn two_workers_and_their_halo() {
    let specs = ["fifo", "lru", "lru:scan=8", "cmcp:p=0.125", "cmcp:p=0.5", "cmcp:p=1", "adaptive"];
    assert_eq!(
        table(&specs, 64, 100, &traces::halo(2, 40, 8, 20)),
        [
            ("fifo", 1760, 160, 232),
            ("lru", 1760, 160, 1390),
            ("lru:scan=8", 1760, 160, 384),
            ("cmcp:p=0.125", 1601, 12, 24),
            ("cmcp:p=0.5", 1144, 8, 4),
            ("cmcp:p=1", 1616, 16, 77),
            ("adaptive", 961, 65, 454)
        ]
    );
}

#[test]
fn skewed_use_by_eight_workers() {
    let specs = [
        "fifo",
        "lru",
        "lru:scan=16",
        "lru:linux",
        "lru:linux,scan=16",
        "cmcp:p=0.25",
        "cmcp:p=0.5",
        "cmcp:p=1",
        "adaptive",
    ];
    assert_eq!(
        table(&specs, 200, 200, &traces::skewed(8, 400, 20_000)),
        [
            ("fifo", 6180, 7705, 11869),
            ("lru", 5296, 11512, 16808),
            ("lru:scan=16", 5412, 6534, 10693),
            ("lru:linux", 5491, 11317, 16808),
            ("lru:linux,scan=16", 6189, 8015, 12564),
            ("cmcp:p=0.25", 5442, 4430, 8113),
            ("cmcp:p=0.5", 5221, 3244, 6587),
            ("cmcp:p=1", 5334, 1477, 4691),
            ("adaptive", 6063, 6587, 10715)
        ]
    );
}

#[test]
fn the_distribution_counts_pages_by_workers() {
    let trace = traces::halo(4, 25, 6, 2);
    let mut storage = OwnedStorage::new("fifo".parse().unwrap(), 16);
    let mut replay = Replay::new(storage.policy(), 16);
    trace.iter().for_each(|reference| {
        replay.reference(*reference);
    });
    assert_eq!(replay.distribution(), [0, 100, 0, 0, 6]);
    replay.free(500);
    replay.free(500);
    assert_eq!(replay.distribution(), [0, 100, 0, 0, 5]);
}

/// Priority pages were pushed out of the group by ticks, however little the program had done meanwhile: the same sweep
/// brought more pages on a slower machine, where more ticks pass.
#[test]
fn cmcp_aged_by_the_clock() {
    let trace = traces::halo(2, 40, 8, 20);
    let spec = "cmcp:p=0.5";
    assert_eq!(golden(spec, 64, 1, &trace), golden(spec, 64, NEVER, &trace));
    // While nothing leaves, nothing ages either: all that two workers map stays first.
    let mut storage = OwnedStorage::new(spec.parse().unwrap(), 64);
    let mut policy = storage.policy();
    for frame in 0..64 {
        policy.insert(frame, 1 + u32::from(frame < 32));
    }
    for _ in 0..1000 {
        policy.scan(&mut |_| {});
    }
    assert_eq!((0..32).map_while(|_| policy.evict()).filter(|&frame| frame < 32).count(), 0);
}

/// A page came as inactive and left before the scan could see its second use, which `lru:linux` waits for.
#[test]
fn lru_gave_new_pages_no_round_of_the_scan() {
    // Sixteen pages, all of them twice, then sixteen others, over 24 frames.
    let twice = |first: u64| (first..first + 16).chain(first..first + 16);
    let pages: Vec<u64> = (0..50).flat_map(|round| twice(round % 2 * 16)).collect();
    let trace = traces::pages(&pages);
    let [lru, linux] = ["lru:scan=24", "lru:linux,scan=24"].map(|spec| golden(spec, 24, 8, &trace).0);
    assert!(linux < lru, "{linux} and {lru}");
}
