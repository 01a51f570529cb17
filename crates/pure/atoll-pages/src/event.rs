//! What a worker notes for the replacement policy while it resolves faults, and how the policy is told.
//!
//! A worker keeps a log of events, as the policy stands behind a lock that a fault does not take. Whoever asks the policy for
//! victims tells it all logs before. `atoll-memory` keeps its logs in shared memory, the simulator in vectors.

use crate::policy::Policy;

/// Something the policy must hear of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A page came into the frame, mapped by this many page tables (0: fetched ahead of its use).
    Inserted(u32, u32),
    /// A page that had been evicted with this token came into the frame: mapped by one (`true`) or fetched ahead.
    Returned(u32, bool, u32),
    /// A huge page of 2 to this power pages came into the frame and those of its other pages; with the token of its eviction, if it had been
    /// evicted.
    Huge(u32, u32, Option<u32>),
    /// One more page table maps the page in the frame: this many now.
    Mapped(u32, u32),
}

impl Event {
    /// A page came into `frame`: asked for by a fault, or fetched ahead. `token`: that of its eviction, if it had been evicted.
    #[inline]
    pub fn arrived(frame: u32, is_asked: bool, token: Option<u32>) -> Event {
        match token {
            Some(token) => Event::Returned(frame, is_asked, token),
            None => Event::Inserted(frame, u32::from(is_asked)),
        }
    }

    /// Tells the policy of this event.
    pub fn tell(self, policy: &mut impl Policy) {
        match self {
            Event::Inserted(frame, mappers) => policy.insert(frame, mappers),
            Event::Returned(frame, is_asked, token) => {
                policy.insert_again(frame, u32::from(is_asked), token);
            }
            Event::Huge(frame, order, token) => policy.insert_huge(frame, 1 << order, token),
            Event::Mapped(frame, mappers) => policy.mapped(frame, mappers),
        }
    }
}
