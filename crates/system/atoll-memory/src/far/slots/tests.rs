//! The allocator against a model, and under contention.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum Step {
    Alloc(u32, u32),
    Free(usize),
    Gather,
}

fn steps(unit: u32) -> impl Strategy<Value = Vec<Step>> {
    let alloc = (0..3_u32, 1..=unit).prop_map(|(s, b)| Step::Alloc(s, b));
    // Sizes of one kind fill whole chunks; mixed ones exercise the classes.
    let same = (0..3_u32, Just(unit / 2)).prop_map(|(s, b)| Step::Alloc(s, b));
    prop::collection::vec(
        prop_oneof![2 => alloc, 2 => same, 3 => any::<usize>().prop_map(Step::Free), 1 => Just(Step::Gather)],
        1..600,
    )
}

fn check(unit: u32, limit: Option<u64>, steps: Vec<Step>) {
    let slots = Slots::new(unit, 256, 2, limit).unwrap();
    let base = slots.data.base() as usize;
    let mut held: BTreeMap<usize, (usize, u64)> = BTreeMap::new();
    for step in steps {
        match step {
            Step::Alloc(shard, bytes) => {
                let Some(at) = slots.alloc(shard, bytes, true) else {
                    assert!(limit.is_some() || held.len() >= 256);
                    continue;
                };
                let start = slots.pointer(at) as usize - base;
                let end = start + bytes as usize;
                if let Some((_, (e, _))) = held.range(..=start).next_back() {
                    assert!(*e <= start, "overlaps the slot before");
                }
                if let Some((s, _)) = held.range(start + 1..).next() {
                    assert!(end <= *s, "overlaps the slot after");
                }
                held.insert(start, (end, at));
            }
            Step::Free(pick) if !held.is_empty() => {
                let key = *held.keys().nth(pick % held.len()).unwrap();
                slots.free(held.remove(&key).unwrap().1);
            }
            Step::Free(_) => {}
            Step::Gather => {
                let memory = slots.bytes();
                for (start, (end, at)) in std::mem::take(&mut held) {
                    let to = slots.denser(at).unwrap_or(at);
                    if to != at {
                        slots.free(at);
                    }
                    let start_now = slots.pointer(to) as usize - base;
                    assert!(held.insert(start_now, (start_now + end - start, to)).is_none());
                }
                assert!(slots.bytes() <= memory);
            }
        }
        assert!(slots.bytes() <= limit.unwrap_or(u64::MAX));
    }
    for (_, at) in held.into_values() {
        slots.free(at);
    }
    assert_eq!(slots.pool().in_use.load(Relaxed), slots.pool().warm_count.load(Relaxed), "chunks are lost");
    for list in 0..CLASSES * slots.shards {
        assert_eq!(slots.list(list).head.load(Relaxed), 0);
    }
}

/// Chunks of which one slot in eight was used were held for ever: 28M of memory for 16M of blobs in a group of 76M.
#[test]
fn chunks_that_are_part_empty_come_together() {
    let slots = Slots::new(4096, 8192, 1, None).unwrap();
    let mut held: Vec<u64> = (0..8192).map(|_| slots.alloc(0, 1024, true).unwrap()).collect();
    let full = slots.bytes();
    let mut index = 0;
    held.retain(|at| {
        index += 1;
        let stays = index % 8 == 0;
        if !stays {
            slots.free(*at);
        }
        stays
    });
    assert_eq!(slots.bytes(), full, "every chunk has a slot in use");
    assert!((0..LOOK_CALLS).any(|_| slots.is_scattered()));
    for at in &mut held {
        if let Some(to) = slots.denser(*at) {
            slots.free(*at);
            *at = to;
        }
    }
    // Some empty chunks stay warm.
    assert!(slots.bytes() < full / 3, "{} of {full}", slots.bytes());
    for _ in 0..LOOK_CALLS {
        let _ = slots.is_scattered();
    }
    assert!(!slots.was_scattered());
    held.into_iter().for_each(|at| slots.free(at));
}

#[test]
fn memory_that_is_to_grow_no_more_has_room_in_its_free_slots() {
    let slots = Slots::new(4096, 256, 1, None).unwrap();
    assert_eq!(slots.alloc(0, 500, false), None);
    let first = slots.alloc(0, 1000, true).unwrap();
    let memory = slots.bytes();
    let second = slots.alloc(0, 500, false).unwrap();
    assert_eq!(slots.bytes(), memory);
    slots.free(first);
    slots.free(second);
}

#[test]
fn workers_at_once_never_get_the_same_slot() {
    let slots = Slots::new(4096, 4096, 1, None).unwrap();
    let work = |worker: u64| {
        let mut held = [None::<u64>; 37];
        for turn in 0..2_000_000_u64 {
            let spot = &mut held[(turn * 17 % 37) as usize];
            let tag = |at: u64| at << 8 | worker;
            if let Some(at) = spot.take() {
                // SAFETY: the slot is ours and has 64 bytes at least.
                assert_eq!(unsafe { slots.pointer(at).cast::<u64>().read_volatile() }, tag(at));
                slots.free(at);
            } else if let Some(at) = slots.alloc(0, 64 * (1 + turn as u32 / 64 % 3), true) {
                // SAFETY: as above.
                unsafe { slots.pointer(at).cast::<u64>().write_volatile(tag(at)) };
                *spot = Some(at);
            }
        }
        held.into_iter().flatten().for_each(|at| slots.free(at));
    };
    std::thread::scope(|s| (0..4).for_each(|w| drop(s.spawn(move || work(w)))));
    assert_eq!(slots.pool().in_use.load(Relaxed), slots.pool().warm_count.load(Relaxed));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn slots_never_overlap_and_all_come_back(steps in steps(4096)) {
        check(4096, None, steps);
    }

    #[test]
    fn a_limit_holds(steps in steps(65536)) {
        check(65536, Some(3 << 20), steps);
    }
}
