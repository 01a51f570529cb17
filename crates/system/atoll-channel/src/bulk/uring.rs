//! The engine for files that has many transfers under way: io_uring.
//!
//! Transfers that are started wait in the ring until `progress`, which hands all of them to the kernel in one call. The kernel
//! writes to memory until an operation completes, so each holds its memories until then, and a dropped ring waits for
//! operations that it cannot take back. Buffers are not registered with the kernel: that would save the pinning of pages only
//! for files that bypass the page cache (O_DIRECT), and would count against the limit of locked memory.
//!
//! Source: io_uring(7); the descriptor rings of the barrelfish paper, section 6.9.1.

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use io_uring::types::{CancelBuilder, Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode, squeue};

use crate::bulk::engine::{Engine, Finished, Started};
use crate::bulk::error::CopyError;
use crate::bulk::file::{FileCopy, FileIo, MOST};
use crate::bulk::memory::Memory;
use crate::bulk::transfer::Transfer;
use atoll_transport::clock::LONG;

/// The most operations under way.
const DEPTH: usize = 32;
/// How often an operation is tried again after the kernel said to try later.
const TRIES: u8 = 100;
/// The time that a dropped ring waits for the kernel to release memory.
const PATIENCE: Duration = Duration::from_secs(10);
/// The number of completions that belong to no transfer.
const NOBODY: u64 = u64::MAX;

/// A transfer under way.
struct Slot {
    number: u64,
    rest: FileCopy,
    tries: u8,
    _to: Memory,
    _from: Memory,
}

/// The engine: copies between a file and a mapping, in either direction.
pub struct Uring {
    ring: IoUring,
    slots: Vec<Option<Slot>>,
    free: Vec<usize>,
    /// The slots whose operations are in the ring and not yet handed to the kernel, in this order.
    queued: VecDeque<u64>,
    /// Whether the kernel refuses calls: the rest is then done by `pread` and `pwrite`.
    refused: bool,
    process: u32,
}

// SAFETY: the addresses in its slots are of mappings that the slots keep, and belong to no thread.
unsafe impl Send for Uring {}

impl Uring {
    /// Makes a ring. Fails where the kernel has no io_uring, or a filter of system calls or `kernel.io_uring_disabled` forbids
    /// it.
    pub fn new() -> io::Result<Uring> {
        // The flag avoids interrupting a thread that computes while the kernel copies; older kernels do not know it.
        let ring = match IoUring::builder().setup_coop_taskrun().build(DEPTH as u32) {
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => IoUring::new(DEPTH as u32)?,
            other => other?,
        };
        if !ring.params().is_feature_ext_arg() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let mut made = Uring {
            ring,
            slots: (0..DEPTH).map(|_| None).collect(),
            free: (0..DEPTH).collect(),
            queued: VecDeque::new(),
            refused: false,
            process: std::process::id(),
        };
        // A filter may allow rings to be made but not used.
        made.push(&opcode::Nop::new().build(), NOBODY);
        made.ring.submit_and_wait(1)?;
        made.queued.clear();
        made.ring.completion().next();
        Ok(made)
    }

    fn under_way(&self) -> usize {
        DEPTH - self.free.len()
    }

    /// Puts an operation into the ring. There is room: one for each slot, and other operations are only put into an empty ring.
    fn push(&mut self, entry: &squeue::Entry, slot: u64) {
        let entry = entry.clone().user_data(slot);
        // SAFETY: a slot's operation names memory and a file that the slot keeps until it completes; others
        // name nothing.
        if self.refused || unsafe { self.ring.submission().push(&entry) }.is_ok() {
            self.queued.push_back(slot);
        }
    }

    /// Puts the rest of a slot's transfer into the ring.
    fn queue(&mut self, slot: usize) {
        let Some(Some(Slot { rest, .. })) = self.slots.get(slot) else { return };
        let (file, bytes) = (Fd(rest.file), rest.bytes.min(MOST) as u32);
        let entry = if rest.reading {
            opcode::Read::new(file, rest.memory, bytes).offset(rest.offset).build()
        } else {
            opcode::Write::new(file, rest.memory, bytes).offset(rest.offset).build()
        };
        self.push(&entry, slot as u64);
    }

    /// Takes completed operations; returns whether there were any.
    fn reap(&mut self, finished: &mut Vec<Finished>) -> bool {
        let before = finished.len();
        while let Some(entry) = { self.ring.completion().next() } {
            self.completed(entry.user_data(), entry.result(), finished);
        }
        finished.len() > before
    }

    fn completed(&mut self, slot: u64, result: i32, finished: &mut Vec<Finished>) {
        let slot = slot as usize;
        let Some(Some(under_way)) = self.slots.get_mut(slot) else { return };
        let outcome = match u64::try_from(result) {
            Ok(copied) if copied >= under_way.rest.bytes => Ok(()),
            Ok(0) => Err(under_way.rest.nothing()),
            Ok(copied) => {
                under_way.rest = under_way.rest.rest(copied);
                return self.queue(slot);
            }
            Err(_) if matches!(-result, libc::EINTR | libc::EAGAIN) && under_way.tries < TRIES => {
                under_way.tries += 1;
                return self.queue(slot);
            }
            Err(_) => Err(under_way.rest.error(-result)),
        };
        self.finish(slot, outcome, finished);
    }

    fn finish(&mut self, slot: usize, outcome: Result<(), CopyError>, finished: &mut Vec<Finished>) {
        if let Some(done) = self.slots.get_mut(slot).and_then(Option::take) {
            self.free.push(slot);
            finished.push((done.number, outcome));
        }
    }

    /// Hands queued operations to the kernel, and waits for at most `wait` for a completion.
    fn enter(&mut self, wait: Duration, finished: &mut Vec<Finished>) {
        // The kernel refuses times that it cannot represent.
        let timeout = Timespec::from(wait.min(LONG));
        let entered = if wait.is_zero() {
            self.ring.submit()
        } else {
            self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&timeout))
        };
        match entered {
            Ok(taken) => drop(self.queued.drain(..taken.min(self.queued.len()))),
            Err(e) => match e.raw_os_error() {
                // With a timeout the kernel does not return how many operations it took before it waited; the ring tells.
                Some(libc::ETIME | libc::EINTR | libc::EAGAIN | libc::EBUSY) => {}
                _ => self.refuse(finished),
            },
        }
        let waiting = self.ring.submission().len();
        let taken = self.queued.len().saturating_sub(waiting);
        self.queued.drain(..taken);
    }

    /// Stops calling the kernel's ring: copies by other calls what it was not given.
    fn refuse(&mut self, finished: &mut Vec<Finished>) {
        if !self.refused {
            let waiting = self.ring.submission().len();
            let taken = self.queued.len().saturating_sub(waiting);
            self.queued.drain(..taken);
            self.refused = true;
        }
        for slot in std::mem::take(&mut self.queued) {
            let Some(Some(left)) = self.slots.get(slot as usize) else { continue };
            // SAFETY: the slot keeps both memories, and the kernel never saw its operation.
            let outcome = unsafe { left.rest.run() };
            self.finish(slot as usize, outcome, finished);
        }
    }
}

impl Engine for Uring {
    fn name(&self) -> &'static str {
        "io_uring"
    }

    fn reaches(&self, to: &Memory, from: &Memory) -> bool {
        FileIo.reaches(to, from)
    }

    fn depth(&self) -> usize {
        DEPTH
    }

    fn start(&mut self, transfer: &Transfer<'_>, number: u64) -> Result<Started, CopyError> {
        let rest = FileCopy::new(transfer)?;
        if self.refused || rest.bytes == 0 {
            return FileIo.start(transfer, number);
        }
        let slot = self.free.pop().ok_or(CopyError::Full)?;
        let (to, from) = (transfer.to().clone(), transfer.from().clone());
        if let Some(place) = self.slots.get_mut(slot) {
            *place = Some(Slot { number, rest, tries: 0, _to: to, _from: from });
        }
        self.queue(slot);
        Ok(Started::Pending)
    }

    fn progress(&mut self, finished: &mut Vec<Finished>, wait: Duration) {
        let some = self.reap(finished);
        if self.under_way() == 0 {
            return;
        }
        if self.refused {
            // Operations that the kernel has complete without a call; the rest of a short one does not.
            self.refuse(finished);
            std::thread::sleep(wait.min(Duration::from_millis(1)));
        } else {
            self.enter(if some { Duration::ZERO } else { wait }, finished);
        }
        self.reap(finished);
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        // In a forked child, the copy of a ring is not its own.
        let ours = self.process == std::process::id();
        if ours && self.under_way() > 0 {
            let _ = self.ring.submitter().register_sync_cancel(None, CancelBuilder::any());
            let end = Instant::now() + PATIENCE;
            let mut finished = Vec::new();
            while self.under_way() > 0 && Instant::now() < end {
                self.progress(&mut finished, Duration::from_millis(100));
            }
        }
        // Memory that the kernel may still write to is never unmapped.
        for slot in self.slots.drain(..).flatten() {
            std::mem::forget(slot);
        }
    }
}
