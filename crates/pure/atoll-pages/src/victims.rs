//! Choosing the pages that leave together: the policy's victims, and neighbours of theirs that it gives up as well.
//!
//! `atoll-memory` chooses a batch of evictions with [`choose`], and the simulator does so where it simulates that pager. What an
//! eviction costs is the number of holes punched more than their size, and pages that left together come back together.

use crate::neighbours;
use crate::pacing::VICTIMS;
use crate::policy::Policy;

/// What [`choose`] asks of whoever keeps the resident pages.
pub trait Near {
    /// The page in `frame`.
    fn page_in(&self, frame: u32) -> u64;
    /// The frame that holds `page`; `None` where it is not near.
    fn frame_of(&self, page: u64) -> Option<u32>;
    /// Takes the page for leaving, with the policy's token; `false` where it must stay, as somebody uses it.
    fn take(&mut self, page: u64, frame: u32, token: u32) -> bool;
    /// Asked of a page that was not taken: whether it stays near for long, so that whoever keeps it there gives it back to the policy later.
    fn set_aside(&mut self, page: u64, frame: u32) -> bool {
        let _ = (page, frame);
        false
    }
    /// The core-map count of the page in `frame`.
    fn mappers(&self, frame: u32) -> u32;
}

/// Takes up to `most` victims of the policy. `with_neighbours`: as far as the policy gives them up, the pages around each victim, in
/// its block, go with it. Those that must stay go back to the policy, but for those that are set aside. Returns how many were taken.
pub fn choose<P: Policy>(policy: &mut P, near: &mut impl Near, most: usize, with_neighbours: bool) -> usize {
    let mut count = 0;
    let mut skipped = [0u32; VICTIMS];
    let mut skips = 0;
    while count < most && skips < VICTIMS {
        let Some(frame) = policy.evict() else { break };
        let page = near.page_in(frame);
        if !near.take(page, frame, policy.token()) {
            if !near.set_aside(page, frame) {
                skipped[skips] = frame;
                skips += 1;
            }
            continue;
        }
        count += 1;
        if with_neighbours {
            neighbours::walk(page, |neighbour| {
                let goes = count < most && take(policy, near, neighbour, P::evict_also);
                count += usize::from(goes);
                goes
            });
        }
    }
    // Only now: each would else be the next victim again.
    for &frame in &skipped[..skips] {
        policy.restore(frame, near.mappers(frame));
    }
    count
}

/// Takes `page`, if it is near, the policy gives up its frame, by `gives_up`, and it may leave. A page that must stay goes back to the policy,
/// unless it is set aside.
pub fn take<P: Policy>(
    policy: &mut P,
    near: &mut impl Near,
    page: u64,
    gives_up: impl FnOnce(&mut P, u32) -> bool,
) -> bool {
    let Some(frame) = near.frame_of(page) else { return false };
    if !gives_up(policy, frame) {
        return false;
    }
    let taken = near.take(page, frame, policy.token());
    if !taken && !near.set_aside(page, frame) {
        policy.restore(frame, near.mappers(frame));
    }
    taken
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;
    use crate::{AnyPolicy, OwnedStorage, PolicySpec};

    /// Page and frame have the same number.
    struct Same {
        frames: u32,
        stay: Vec<u32>,
        taken: Vec<u64>,
    }

    impl Near for Same {
        fn page_in(&self, frame: u32) -> u64 {
            frame.into()
        }

        fn frame_of(&self, page: u64) -> Option<u32> {
            (page < self.frames.into()).then_some(page as u32)
        }

        fn take(&mut self, page: u64, frame: u32, _token: u32) -> bool {
            let goes = !self.stay.contains(&frame);
            self.taken.extend(goes.then_some(page));
            goes
        }

        fn mappers(&self, _frame: u32) -> u32 {
            1
        }
    }

    fn full(policy: &mut AnyPolicy<'_>, frames: u32) {
        (0..frames).for_each(|frame| policy.insert(frame, 1));
    }

    #[test]
    fn what_must_stay_goes_back_to_the_policy_after_the_batch() {
        let mut storage = OwnedStorage::new("fifo".parse::<PolicySpec>().unwrap(), 8);
        let mut policy = storage.policy();
        full(&mut policy, 8);
        let mut near = Same { frames: 8, stay: Vec::from([0, 2]), taken: Vec::new() };
        assert_eq!(choose(&mut policy, &mut near, 3, true), 3);
        assert_eq!(near.taken, [1, 3, 4]);
        assert!([0, 2, 5, 6, 7].iter().all(|&frame| policy.contains(frame)) && policy.len() == 5);
    }

    /// Pages that stayed for long were the next victims again and again, before any that could leave.
    #[test]
    fn what_stays_for_long_is_no_victim_until_it_is_given_back() {
        struct Pinned(Same);
        impl Near for Pinned {
            fn page_in(&self, frame: u32) -> u64 {
                self.0.page_in(frame)
            }
            fn frame_of(&self, page: u64) -> Option<u32> {
                self.0.frame_of(page)
            }
            fn take(&mut self, page: u64, frame: u32, token: u32) -> bool {
                self.0.take(page, frame, token)
            }
            fn set_aside(&mut self, _page: u64, _frame: u32) -> bool {
                true
            }
            fn mappers(&self, frame: u32) -> u32 {
                self.0.mappers(frame)
            }
        }
        let mut storage = OwnedStorage::new("adaptive".parse::<PolicySpec>().unwrap(), 400);
        let mut policy = storage.policy();
        full(&mut policy, 400);
        let mut near = Pinned(Same { frames: 400, stay: (0..300).collect(), taken: Vec::new() });
        assert_eq!(choose(&mut policy, &mut near, 2, false), 2);
        assert_eq!((near.0.taken.as_slice(), policy.len()), ([300, 301].as_slice(), 98));
    }

    #[test]
    fn neighbours_go_with_a_victim_where_the_policy_gives_them_up() {
        let mut storage = OwnedStorage::new("adaptive".parse::<PolicySpec>().unwrap(), 40);
        let mut policy = storage.policy();
        full(&mut policy, 40);
        let mut near = Same { frames: 40, stay: Vec::from([20]), taken: Vec::new() };
        let count = choose(&mut policy, &mut near, 12, true);
        assert_eq!((count, near.taken.len(), policy.len()), (12, 12, 28));
        let mut again = Same { frames: 40, stay: (0..40).collect(), taken: Vec::new() };
        assert_eq!(choose(&mut policy, &mut again, 12, true), 0);
        assert_eq!(policy.len(), 28);
    }
}
