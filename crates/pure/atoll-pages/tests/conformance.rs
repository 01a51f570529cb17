//! What holds for every policy, under any sequence of events: one suite for all implementations.
#![allow(clippy::unwrap_used, reason = "a test ends where something is missing")]

mod reference;

use std::collections::BTreeSet;

use atoll_pages::replay::{Reference, Replay};
use atoll_pages::{OwnedStorage, Policy, PolicySpec};
use proptest::prelude::*;
use reference::{Kind, Slow};

const FRAMES: u32 = 48;

#[derive(Debug, Clone, Copy)]
enum Event {
    Insert { frame: u32, mappers: u32 },
    Again { frame: u32, mappers: u32, token: u32 },
    Mapped { frame: u32, mappers: u32 },
    Evict,
    EvictAlso { frame: u32 },
    EvictAndRestore { mappers: u32 },
    Remove { frame: u32 },
    Huge { frame: u32, token: Option<u32> },
    Split { frame: u32 },
    Scan,
    Mark { id: u32 },
}

fn event() -> impl Strategy<Value = Event> {
    let (frame, mappers) = (0..FRAMES, prop_oneof![0..4_u32, 0..2000_u32]);
    prop_oneof![
        5 => (frame.clone(), mappers.clone()).prop_map(|(frame, mappers)| Event::Insert { frame, mappers }),
        2 => (frame.clone(), mappers.clone(), prop_oneof![0..100_u32, any::<u32>()])
            .prop_map(|(frame, mappers, token)| Event::Again { frame, mappers, token }),
        5 => (frame.clone(), mappers.clone()).prop_map(|(frame, mappers)| Event::Mapped { frame, mappers }),
        3 => Just(Event::Evict),
        2 => frame.clone().prop_map(|frame| Event::EvictAlso { frame }),
        1 => mappers.prop_map(|mappers| Event::EvictAndRestore { mappers }),
        1 => frame.clone().prop_map(|frame| Event::Remove { frame }),
        2 => (frame.clone(), prop::option::of(any::<u32>()))
            .prop_map(|(frame, token)| Event::Huge { frame, token }),
        1 => frame.prop_map(|frame| Event::Split { frame }),
        1 => Just(Event::Scan),
        3 => (0..3_u32).prop_map(|id| Event::Mark { id }),
    ]
}

/// Every policy as it is and at the ends of its options.
fn specs() -> Vec<PolicySpec> {
    let more =
        ["lru:scan=1", "lru:scan=7", "lru:linux", "lru:linux,scan=7", "cmcp:p=0", "cmcp:p=0.1", "cmcp:p=1"];
    PolicySpec::ALL.iter().copied().chain(more.map(|text| text.parse().unwrap())).collect()
}

fn conform(spec: PolicySpec, events: &[Event]) {
    let mut storage = OwnedStorage::new(spec, FRAMES);
    let mut policy = storage.policy();
    let mut held = BTreeSet::new();
    for event in events {
        match *event {
            Event::Insert { frame, mappers } => {
                policy.insert(frame, mappers);
                held.insert(frame);
            }
            Event::Again { frame, mappers, token } => {
                policy.insert_again(frame, mappers, token);
                held.insert(frame);
            }
            Event::Huge { frame, token } => {
                policy.insert_huge(frame, 8, token);
                held.insert(frame);
            }
            Event::Split { frame } => policy.split_huge(frame),
            Event::Mapped { frame, mappers } => policy.mapped(frame, mappers),
            Event::Mark { id } => policy.mark(id),
            Event::Evict => {
                let next = policy.peek();
                assert_eq!(policy.peek(), next, "looking changes nothing");
                assert_eq!(policy.evict(), next, "the victim is the one that was named");
                assert_eq!(next.is_some(), !held.is_empty());
                assert!(next.is_none_or(|victim| held.remove(&victim)), "the victim was held");
            }
            Event::EvictAlso { frame } => {
                if policy.evict_also(frame) {
                    assert!(held.remove(&frame), "what is evicted as well was held");
                }
            }
            Event::EvictAndRestore { mappers } => {
                if let Some(victim) = policy.evict() {
                    assert!(!policy.contains(victim));
                    policy.restore(victim, mappers);
                }
            }
            Event::Remove { frame } => {
                policy.remove(frame);
                held.remove(&frame);
            }
            Event::Scan => {
                let mut unmapped = BTreeSet::new();
                policy.scan(&mut |frame| assert!(unmapped.insert(frame), "unmapped once a tick"));
                assert!(unmapped.is_subset(&held), "only what is held is unmapped");
            }
        }
        assert_eq!(policy.len(), held.len());
        assert_eq!(policy.is_empty(), held.is_empty());
        assert!((0..FRAMES).all(|frame| policy.contains(frame) == held.contains(&frame)));
    }
    while let Some(victim) = policy.evict() {
        assert!(held.remove(&victim), "every frame comes out once");
    }
    assert!(held.is_empty() && policy.is_empty(), "every frame comes out");
}

fn trace() -> impl Strategy<Value = Vec<Reference>> {
    let one = (0..6_usize, 0..60_u64, any::<bool>());
    let one = one.prop_map(|(worker, page, write)| Reference { worker, page, write });
    prop::collection::vec(one, 1..600)
}

proptest! {
    #[test]
    fn every_policy_conforms(events in prop::collection::vec(event(), 1..400)) {
        for spec in specs() {
            conform(spec, &events);
        }
    }

    #[test]
    fn policies_decide_as_their_slow_references(trace in trace(), tick in 1..40_usize, frames in 1..50_u32) {
        let scan = 8;
        for (spec, kind) in [
            ("fifo", Kind::Fifo),
            ("lru:scan=8", Kind::Lru { scan, linux: false }),
            ("lru:linux,scan=8", Kind::Lru { scan, linux: true }),
            ("cmcp:p=0", Kind::Fifo),
            ("cmcp:p=1", Kind::Cmcp { limit: frames as usize }),
            ("cmcp:p=0.5", Kind::Cmcp { limit: frames.div_ceil(2) as usize }),
        ] {
            let mut storage = OwnedStorage::new(spec.parse().unwrap(), frames);
            let mut replay = Replay::new(storage.policy(), frames);
            let mut slow = Slow::new(kind, frames as usize);
            for (index, reference) in trace.iter().enumerate() {
                replay.reference(*reference);
                slow.reference(*reference);
                if index % tick == 0 {
                    replay.tick();
                    slow.tick();
                }
                prop_assert_eq!(replay.counts(), slow.counts, "{} at reference {}", spec, index);
            }
            prop_assert_eq!(replay.distribution(), slow.distribution());
        }
    }
}

/// A run with much near memory spent 3 ms a GiB to write the links of frames that it never used.
#[test]
fn words_of_frames_that_no_page_uses_stay_zero() {
    for spec in specs() {
        let mut words = vec![0; spec.words(FRAMES)];
        let storage = atoll_pages::Storage::new(&spec, FRAMES, &mut words).unwrap();
        atoll_pages::AnyPolicy::new(spec, storage).insert(0, 1);
        let written = words.iter().filter(|word| **word != 0).count();
        assert!(written <= 8, "{spec}: {written} words");
    }
}

#[test]
fn storage_that_is_too_small_is_refused() {
    for spec in specs() {
        let mut words = vec![0; spec.words(FRAMES) + 3];
        let enough = spec.words(FRAMES);
        assert!(atoll_pages::Storage::new(&spec, FRAMES, &mut words[..enough - 1]).is_none());
        let storage = atoll_pages::Storage::new(&spec, FRAMES, &mut words).unwrap();
        assert!(atoll_pages::AnyPolicy::new(spec, storage).peek().is_none());
    }
}
