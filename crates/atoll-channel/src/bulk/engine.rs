//! What copies: the trait of all engines.
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

/// What became of a transfer that was started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Started {
    /// It is finished.
    Done,
    /// It is under way; `progress` tells when it is finished. The engine holds both memories until then.
    Pending,
}

/// A transfer that is finished: the number it was started with, and how it ended.
pub type Finished = (u64, Result<(), CopyError>);

/// Something that copies between registered memories. It belongs to the thread that uses it, and to the process
/// that made it: a forked child makes its own.
pub trait Engine: Send {
    /// Its name in tables and in the cache of costs: one word, the same for ever.
    fn name(&self) -> &'static str;

    /// Whether it can copy to `to` from `from` at all.
    fn reaches(&self, to: &Memory, from: &Memory) -> bool;

    /// Most transfers that can be under way at once; 1 for an engine that is done when `start` returns.
    fn depth(&self) -> usize {
        1
    }

    /// Begins a transfer, which `number` tells from the others under way. An error means that it is over.
    /// `CopyError::Full` means that it was not begun, and can be after `progress`.
    fn start(&mut self, transfer: &Transfer<'_>, number: u64) -> Result<Started, CopyError>;

    /// Appends what has finished since to `finished`, in any order. Waits for one of them up to `wait` if
    /// anything is under way and nothing has finished.
    fn progress(&mut self, finished: &mut Vec<Finished>, wait: Duration) {
        let _ = (finished, wait);
    }

    /// Makes one transfer, from begin to end. Only for an engine that has nothing under way.
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
