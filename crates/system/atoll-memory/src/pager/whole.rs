//! Stretches of neighbouring pages that are named as victims together, one stretch after the other.
//!
//! Used by `leaving` where threads share a page table and far pages stay where they lie behind guards (`in_place`). A page that leaves costs
//! nothing there but its mapping, and most of that is the interruption of the other threads' CPUs, one for all that a stretch has. To drop the
//! mappings of single pages, to see which are used, takes more time than the faults that it saves.
//!
//! The policy says where: a stretch is the one around its victim. Pages of the last faults of the worker that makes room stay, and so do those that
//! the policy keeps.
//!
//! Rules: no allocation, no locks the program could hold, no arena access, no printing.

use atoll_pages::{AnyPolicy, Policy, pacing, victims};

use super::Pager;
use super::evict::{Lockable, Victim};
use super::executor::Lately;
use super::room::Room;

impl Pager {
    /// Asks the policy for victims and locks them. Where far pages stay behind guards they are chosen along the stretch that leaves now, and along
    /// the next ones; a huge page among them goes to [`Leaving::huge`](super::leaving::Leaving), and is the last. `target`: frames that near memory has.
    pub(super) fn choose_by_policy(
        &self,
        room: &mut Room,
        lately: &Lately,
        victims: &mut [Victim],
        target: u32,
    ) -> usize {
        if !self.guards_far_pages() {
            return self.choose_now(room, lately, victims);
        }
        let mut count = 0;
        while count < victims.len() {
            if let Some(page) = room.leaving.stretch.next() {
                // The policy keeps what it knows of a page that is not asked for.
                if lately.has(page) {
                    continue;
                }
                let mut near = Lockable::new(self, lately, &mut victims[count..]);
                let goes = victims::take(&mut room.policy, &mut near, page.into(), AnyPolicy::evict_this);
                if goes && self.huge.is_huge(page) {
                    room.leaving.huge = Some(victims[count]);
                    break;
                }
                count += usize::from(goes);
                continue;
            }
            if self.choose_now(room, lately, &mut victims[count..=count]) == 0 {
                break;
            }
            if self.huge.is_huge(victims[count].page) {
                room.leaving.huge = Some(victims[count]);
                break;
            }
            let stretch = pacing::stretch(victims[count].page, target, self.places.shift);
            room.leaving.stretch = stretch.start..stretch.end.min(self.pages.count() as u32);
            count += 1;
        }
        count
    }
}
