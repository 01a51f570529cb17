//! Gives near memory back to the machine where the limit is lowered, or what else counts against it grows, and nothing faults.
//!
//! `evict` makes room at faults. A program whose data is all near has none, so its first worker looks here between regions; the runtime's
//! `wrap::growth` does before a process comes, and `start::growing_stacks` while stacks grow.
//!
//! Rules: no allocation, no locks the program could hold, no arena access, no printing.

use std::sync::atomic::Ordering;

use super::evict::{NO_VICTIM, VICTIMS};
use super::executor::Executor;
use super::{FaultError, Pager};

/// Beyond the limit by less than one part in this number is within it: the next faults settle that.
const SLACK_PART: u64 = 128;

impl Pager {
    /// Whether near memory is beyond the limit that the launcher chose lately; `false` where the user set the limit.
    #[inline]
    pub fn is_beyond_limit(&self) -> bool {
        self.control.settings.near_automatic != 0 && self.exceeds_limit()
    }

    /// Whether near memory is beyond its limit, whoever set it.
    #[inline]
    pub fn exceeds_limit(&self) -> bool {
        let near = self.control.near();
        self.control.totals.held_bytes() > near.saturating_add(near / SLACK_PART)
    }

    /// Evicts pages until near memory is within the limit. It stops early where no page can leave now.
    ///
    /// # Errors
    /// [`FaultError::Lost`]: a page's content is lost.
    #[cold]
    pub fn give_back(&self, x: &mut Executor) -> Result<(), FaultError> {
        loop {
            let target = self.frame_target();
            let mut victims = [NO_VICTIM; VICTIMS];
            let (count, huge) = {
                let mut room = self.near.room.lock();
                self.drain_logs(&mut room);
                self.shrink(x, &mut room, target, 0);
                let surplus = self.near.taken.load(Ordering::Relaxed).saturating_sub(target) as usize;
                let victims = &mut victims[..surplus.min(VICTIMS)];
                let count = match victims {
                    [] => 0,
                    victims => self.choose_by_policy(&mut room, &x.lately, victims, target),
                };
                (count, room.leaving.huge.take())
            };
            let (result, huge_left) = self.evict_chosen(x, &mut victims[..count], huge);
            match result {
                Err(lost @ FaultError::Lost(_)) => return Err(lost),
                // Far memory takes nothing: the next fault says so if it needs room.
                Err(_) => return Ok(()),
                Ok(()) if count == 0 && !huge_left => return Ok(()),
                Ok(()) => {}
            }
        }
    }
}
