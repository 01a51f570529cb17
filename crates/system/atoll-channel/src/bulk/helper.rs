//! A thread that copies while its owner does something else: an engine that runs others.
//!
//! `memcpy.rs` and `process.rs` are done when `start` returns, since the processor itself copies. In a helper they are under
//! way, as with a device that copies. It costs waking a thread, and a processor that would otherwise be idle.
//!
//! Source: the barrelfish paper, section 5.4.6 (a copy engine also frees the processor).

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::bulk::engine::{Engine, Finished, Started};
use crate::bulk::error::CopyError;
use crate::bulk::memcpy::Memcpy;
use crate::bulk::memory::Memory;
use crate::bulk::process::ProcessVm;
use crate::bulk::transfer::Transfer;

/// The most transfers that wait for the thread or are in it.
const DEPTH: usize = 8;

/// A transfer, which keeps its memories alive.
struct Work {
    number: u64,
    to: Memory,
    to_offset: u64,
    from: Memory,
    from_offset: u64,
    bytes: u64,
}

/// The engine: copies between mappings, and between a mapping and another process, in a thread of its own.
pub struct Helper {
    /// The sender of work; `None` once the thread is to end.
    work: Option<Sender<Work>>,
    done: Receiver<Finished>,
    under_way: usize,
    thread: Option<JoinHandle<()>>,
    process: u32,
}

/// Makes a transfer in the thread.
fn run(mut memcpy: Memcpy, transfer: &Transfer<'_>) -> Result<(), CopyError> {
    if memcpy.reaches(transfer.to(), transfer.from()) {
        memcpy.copy(transfer)
    } else {
        ProcessVm.copy(transfer)
    }
}

impl Helper {
    /// Starts the thread, which copies between mappings by `memcpy`.
    pub fn new(memcpy: Memcpy) -> io::Result<Helper> {
        let (work, to_do) = channel::<Work>();
        let (finished, done) = channel();
        let thread = std::thread::Builder::new().name("atoll-bulk".into()).spawn(move || {
            for work in to_do {
                let Work { number, to, to_offset, from, from_offset, bytes } = work;
                let transfer = Transfer::new(&to, to_offset, &from, from_offset, bytes);
                let outcome = transfer.and_then(|transfer| run(memcpy, &transfer));
                // Dropped before the end is reported.
                drop((to, from));
                // If the helper was dropped, nobody listens any more.
                let _ = finished.send((number, outcome));
            }
        })?;
        let process = std::process::id();
        Ok(Helper { work: Some(work), done, under_way: 0, thread: Some(thread), process })
    }
}

impl Engine for Helper {
    fn name(&self) -> &'static str {
        "helper"
    }

    fn reaches(&self, to: &Memory, from: &Memory) -> bool {
        Memcpy::PLAIN.reaches(to, from) || ProcessVm.reaches(to, from)
    }

    fn depth(&self) -> usize {
        DEPTH
    }

    fn start(&mut self, transfer: &Transfer<'_>, number: u64) -> Result<Started, CopyError> {
        if !self.reaches(transfer.to(), transfer.from()) {
            return Err(CopyError::unreachable(transfer));
        }
        if self.under_way >= DEPTH {
            return Err(CopyError::Full);
        }
        let work = Work {
            number,
            to: transfer.to().clone(),
            to_offset: transfer.to_offset(),
            from: transfer.from().clone(),
            from_offset: transfer.from_offset(),
            bytes: transfer.bytes(),
        };
        // The thread ends only after its sender is dropped.
        self.work.as_ref().and_then(|thread| thread.send(work).ok()).ok_or(CopyError::Abandoned)?;
        self.under_way += 1;
        Ok(Started::Pending)
    }

    fn progress(&mut self, finished: &mut Vec<Finished>, wait: Duration) {
        let before = finished.len();
        finished.extend(self.done.try_iter());
        if finished.len() == before && self.under_way > 0 && !wait.is_zero() {
            finished.extend(self.done.recv_timeout(wait).ok());
        }
        self.under_way -= finished.len() - before;
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.work = None;
        // In a forked child, the copy of a helper has no thread.
        if let Some(thread) = self.thread.take().filter(|_| self.process == std::process::id()) {
            let _ = thread.join();
        }
    }
}
