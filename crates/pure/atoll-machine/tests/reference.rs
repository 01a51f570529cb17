//! Compares the fast simulator with the slow one, event for event, on random traces: every policy, both kinds of page tables,
//! every page size.
#![allow(clippy::unwrap_used, reason = "a test ends where something is missing")]

mod slow;

use std::convert::Infallible;

use atoll_machine::{
    Engine, Happening, Machine, Memory, PageMode, Pager, Replacement, Setup, Tables, Worker,
};
use atoll_pages::OwnedStorage;
use atoll_record::trace::Event;
use proptest::prelude::*;
use slow::Slow;

const MACHINE: &str = include_str!("small.toml");
const WORKERS: usize = 5;
/// The number of 4K pages that traces use: 4 MiB and some behind, so that two pages of 2M and some of 64K are among them.
const PAGES: u64 = 1100;

fn event() -> impl Strategy<Value = Event> {
    let worker = 0..WORKERS as u16;
    // Few pages are used often, and many seldom.
    let page = prop_oneof![4 => 0..24_u64, 2 => 0..PAGES, 1 => (0..PAGES / 16).prop_map(|page| page * 16)];
    prop_oneof![
        20 => (worker.clone(), page, any::<bool>())
            .prop_map(|(worker, page, write)| Event::Access { worker, page, write }),
        8 => (worker.clone(), 0..5000_u64)
            .prop_map(|(worker, instructions)| Event::Compute { worker, instructions }),
        1 => (worker.clone(), 0..3_u64).prop_map(|(worker, name)| Event::Barrier { worker, name }),
        1 => (worker.clone(), 0..3_u64).prop_map(|(worker, name)| Event::RegionBegin { worker, name }),
        1 => (worker, 0..3_u64).prop_map(|(worker, name)| Event::RegionEnd { worker, name }),
        1 => (0..PAGES, 1..700_u64).prop_map(|(first, pages)| Event::Map { first, pages }),
        1 => (0..PAGES, 1..200_u64).prop_map(|(first, pages)| Event::Unmap { first, pages }),
    ]
}

fn setup() -> impl Strategy<Value = Setup> {
    let page = prop::sample::select(vec!["4K", "64K", "2M", "mixed", "segment"]);
    let tables = prop::sample::select(vec![Tables::Private, Tables::Shared]);
    let policies = vec![
        "fifo",
        "lru:scan=4",
        "lru:scan=40",
        "lru:linux,scan=40",
        "cmcp:p=0.3",
        "cmcp:p=1",
        "adaptive",
        "newest",
        "none",
        "min",
    ];
    let policy = prop::sample::select(policies);
    let near = prop::option::weighted(0.9, 1..40_u64);
    let pager =
        prop_oneof![3 => (1..4_u32).prop_map(|batch| Pager::Kernel { batch }), 2 => Just(Pager::Atoll)];
    (page, tables, policy, near, pager).prop_map(|(page, tables, policy, near, mut pager)| {
        let page: PageMode = page.parse().unwrap();
        let mut policy: Replacement = policy.parse().unwrap();
        if page == PageMode::Mixed && policy == Replacement::Min {
            policy = Replacement::None;
        }
        let unit = page.smallest().bytes() as u64;
        if policy == Replacement::Min || !matches!(page, PageMode::One(_)) {
            pager = Pager::Kernel { batch: 2 };
        }
        // Atoll's pager leaves each worker some frames of its own.
        let least = if pager == Pager::Atoll { 16 + 8 * WORKERS as u64 } else { 0 };
        let near = near.map(|frames| ((least + frames) * unit).max(page.largest().bytes() as u64));
        Setup { workers: WORKERS, near, page, tables, policy, pager }
    })
}

type Result = (Vec<(u64, Happening)>, Vec<Worker>, Vec<u64>);

fn fast(machine: &Machine, setup: &Setup, trace: &[Event]) -> Result {
    let mut memory = Memory::new(setup).unwrap();
    let mut engine = Engine::new(machine.node(), setup, &mut memory, Vec::new()).unwrap();
    // Events come in chunks, as a reader gives them.
    let mut chunks = trace.chunks(37);
    let next = |into: &mut Vec<Event>| {
        let chunk = chunks.next();
        into.extend(chunk.unwrap_or_default());
        Ok::<_, Infallible>(chunk.is_some())
    };
    engine.run(next).unwrap();
    let outcome = engine.outcome();
    (engine.watched(), outcome.workers, outcome.distribution)
}

fn slow(machine: &Machine, setup: &Setup, trace: &[Event]) -> Result {
    let frames = setup.near.map(|near| (near / setup.page.smallest().bytes() as u64) as u32);
    let mut storage = match (setup.policy, frames) {
        (Replacement::Policy(spec), Some(frames)) if setup.page != PageMode::Segment => {
            Some(OwnedStorage::new(spec, frames))
        }
        _ => None,
    };
    let mut slow = Slow::new(machine.node(), *setup, storage.as_mut());
    slow.run(trace);
    let distribution = slow.distribution();
    (slow.log, slow.workers, distribution)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_fast_simulator_does_what_the_slow_one_does(
        setup in setup(),
        trace in prop::collection::vec(event(), 1..900),
        accessed in any::<bool>(),
        rounds in 1..4_u32,
        all_cores in any::<bool>(),
    ) {
        let text = MACHINE.replace("ACCESSED_BIT", &accessed.to_string()).replace("ROUNDS", &rounds.to_string()).replace("ALL_CORES", &all_cores.to_string());
        let machine = Machine::read("tests/small.toml", &text).unwrap();
        let (fast, slow) = (fast(&machine, &setup, &trace), slow(&machine, &setup, &trace));
        for (index, (fast, slow)) in fast.0.iter().zip(&slow.0).enumerate() {
            prop_assert_eq!(fast, slow, "event {} under {:?}", index, setup);
        }
        prop_assert_eq!(fast.0.len(), slow.0.len());
        prop_assert_eq!(fast.1, slow.1);
        prop_assert_eq!(fast.2, slow.2);
    }
}

/// The scan interrupted every worker that maps a page. With the paper's conjugate gradients the first worker, which fills the matrix
/// alone, was so interrupted for each page of it for ever, and all others waited for it.
#[test]
fn a_scan_interrupted_workers_that_had_not_used_the_page_since_the_last_one() {
    let text = MACHINE.replace("ACCESSED_BIT", "true").replace("ROUNDS", "1").replace("ALL_CORES", "false");
    let machine = Machine::read("tests/small.toml", &text).unwrap();
    let (page, policy) = ("4K".parse().unwrap(), "lru:scan=40".parse().unwrap());
    let pager = Pager::Kernel { batch: 1 };
    let setup = Setup { workers: 2, near: Some(64 << 12), page, tables: Tables::Private, policy, pager };
    // Both use the page once. Then the second worker uses it, again and again, and ticks pass.
    let mut trace = vec![Event::Access { worker: 0, page: 0, write: false }];
    for _ in 0..100 {
        trace.push(Event::Access { worker: 1, page: 0, write: false });
        trace.extend([0, 1].map(|worker| Event::Compute { worker, instructions: 1_000_000 }));
    }
    let (_, workers, _) = fast(&machine, &setup, &trace);
    let [first, second] = [0, 1].map(|worker| workers[worker].counts.remote_invalidations);
    assert!(first <= 1 && second > 10, "{first} and {second} invalidations");
}
