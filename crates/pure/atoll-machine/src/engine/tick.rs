//! The policy's periodic scan, which no worker of the team does.
//!
//! [`access`](super::access) calls this when every clock has passed the tick. The paper gives the scan hardware threads of its
//! own (`papers/cmcp.txt`, section 5.1), so it takes no worker's time except that of its interrupts. For each page whose use
//! the scan wants to see, it clears the accessed bit where there is one, and else unmaps the page. Both need TLB invalidations.

use atoll_pages::{CoreSet, Policy};

use super::Engine;
use super::evict::Sender;
use crate::setup::Tables;
use crate::watch::Watch;

impl<W: Watch> Engine<'_, W> {
    /// Does one tick.
    pub(super) fn tick(&mut self) {
        // Each thread that shares the scan takes the next frame in turn.
        let mut clocks = vec![self.next_tick; self.costs.scanners];
        let mut frames = Vec::new();
        self.drain_notes();
        if let Some(policy) = self.policy() {
            policy.scan(&mut |frame| frames.push(frame));
        }
        for (frame, scanner) in frames.into_iter().zip((0..clocks.len()).cycle()) {
            let mut clock = clocks[scanner];
            let id = self.room.held[frame as usize];
            self.scanned += 1;
            if self.tables == Tables::Shared {
                clock = clock.max(self.table_free);
            }
            let mut targets = CoreSet::new();
            // A program cannot look at accessed bits.
            let unmap = !self.costs.accessed_bit || self.is_atoll;
            self.invalidate(None, clock, id, &mut targets, unmap);
            self.pages.all[id as usize].unseen = !unmap;
            self.interrupt(Sender::Scanner(scanner), &mut clock, &targets, 1);
            clocks[scanner] = clock;
        }
        let clock = clocks.into_iter().max().unwrap_or(self.next_tick);
        // If a scan takes longer than the period, the next one waits.
        self.next_tick = (self.next_tick + self.costs.period).max(clock);
    }
}
