//! Engines, which copy: the trait of all of them.
//!
//! Engines: `memcpy.rs` (mappings), `process.rs` (another process's memory), `helper.rs` (both, in a thread),
//! `file.rs` and `uring.rs` (files), and `remote.rs` (memory of other nodes, by any transport). `manager.rs`
//! picks one for each transfer; `tests/bulk` runs all through one suite.
//!
//! Source: the barrelfish paper, section 6.9.1 (one interface to different devices: device, channel, request).

use std::time::Duration;

use crate::bulk::error::CopyError;
use crate::bulk::memory::Memory;
use crate::bulk::transfer::Transfer;

/// The state of a transfer that was started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Started {
    /// The transfer is finished.
    Done,
    /// The transfer is under way; `progress` reports its end. The engine holds both memories until then.
    Pending,
}

/// A transfer that is finished: the number it was started with, and its result.
pub type Finished = (u64, Result<(), CopyError>);

/// An engine, which copies between registered memories. It belongs to the thread that uses it, and to the process that made it:
/// a forked child makes its own.
pub trait Engine: Send {
    /// The engine's name in tables and in the cache of costs: one word that never changes.
    fn name(&self) -> &'static str;

    /// Whether it can copy to `to` from `from` at all.
    fn reaches(&self, to: &Memory, from: &Memory) -> bool;

    /// The most transfers that can be under way at once; 1 for an engine that is done when `start` returns.
    fn depth(&self) -> usize {
        1
    }

    /// Begins a transfer, which is told from others under way by `number`. An error means that it has ended, except
    /// `CopyError::Full`: it was not begun, and can be after `progress`.
    fn start(&mut self, transfer: &Transfer<'_>, number: u64) -> Result<Started, CopyError>;

    /// Appends the transfers that have finished since to `finished`, in any order. If some are under way and none has finished,
    /// waits for one for at most `wait`.
    fn progress(&mut self, finished: &mut Vec<Finished>, wait: Duration) {
        let _ = (finished, wait);
    }

    /// Makes one transfer from begin to end. Only for an engine with nothing under way.
    fn copy(&mut self, transfer: &Transfer<'_>) -> Result<(), CopyError> {
        if self.start(transfer, 0)? == Started::Done {
            return Ok(());
        }
        let mut finished = Vec::new();
        loop {
            self.progress(&mut finished, Duration::from_secs(1));
            if let Some((_, outcome)) = finished.pop() {
                return outcome;
            }
        }
    }
}
