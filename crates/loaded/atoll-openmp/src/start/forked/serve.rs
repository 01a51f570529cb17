//! How a forked process gets its memory: the thread that forked fills it, with what its own memory held at the fork.
//!
//! `child` has told the kernel that the new process's memory is missing. A page that the process touches is copied at once, while
//! the thread that forked waits, so that nobody changes what is to be copied. A process that executes another program soon, as
//! most do, costs the pages that it touched. One that goes on gets all the rest after [`WINDOW_NS`], and then the thread returns.

use std::sync::atomic::Ordering;

use atoll_memory::pager::Pager;
use atoll_memory::sys::{self, Errno};
use atoll_memory::uffd::{EVENT_PAGEFAULT, Uffd};

use super::child;
use super::plan::{BOUNCE_BYTES, Plan, Range, What};
use crate::state::{self, SignalsBlocked};

/// The nanoseconds after which all memory is copied.
const WINDOW_NS: u64 = 10_000_000;
/// The nanoseconds that a process for whose copy there is no memory has to execute another program.
const LONG_NS: u64 = 3_000_000_000;
/// The nanoseconds between two looks whether the new process still has its memory.
const TICK_NS: i64 = 200_000;
/// Bytes around a fault that are copied at once.
const AROUND: usize = 64 << 10;
const PAGE: usize = 4096;

/// The end of the copying.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// The new process has all its memory, of which this many bytes were copied.
    Complete(u64),
    /// The new process ended, or executed another program.
    Gone,
    /// There is no memory for the rest.
    NoMemory,
}

/// Copies the new process's memory, all of which fits if `fits`.
pub(super) fn serve(pager: &Pager, plan: &Plan, fits: bool) -> End {
    let faults = Uffd(plan.meeting().faults.load(Ordering::Relaxed));
    let mut copy = Copy { pager, plan, faults, range: 0, at: 0, bytes: 0 };
    let end = copy.run(fits).unwrap_or_else(|end| end);
    // The kernel forgets what was missing, and wakes whoever waits for it.
    sys::close(faults.0);
    let complete = &plan.meeting().complete;
    // Release: pairs with the Acquire in `await_memory`.
    complete.store(1, Ordering::Release);
    child::wake(complete.as_ptr() as usize);
    end
}

struct Copy<'a> {
    pager: &'a Pager,
    plan: &'a Plan,
    faults: Uffd,
    /// Where the copying of everything is: the stretch, and an address in it.
    range: usize,
    at: usize,
    bytes: u64,
}

impl Copy<'_> {
    fn run(&mut self, fits: bool) -> Result<End, End> {
        let begin = sys::clock_ns(libc::CLOCK_MONOTONIC);
        let hurries = || self.plan.meeting().hurry.load(Ordering::Relaxed) != 0;
        let mut late = self.plan.waits;
        loop {
            self.serve_faults()?;
            if late && fits {
                if !self.step(BOUNCE_BYTES)? {
                    return Ok(End::Complete(self.bytes));
                }
                continue;
            }
            if !wait(self.faults.0, TICK_NS) && !self.step(PAGE)? {
                return Ok(End::Complete(self.bytes));
            }
            if !fits {
                // The same page again: the answer tells whether the process still has its memory.
                (self.range, self.at) = (0, 0);
            }
            let waited = sys::clock_ns(libc::CLOCK_MONOTONIC).saturating_sub(begin);
            late = waited > WINDOW_NS || hurries();
            if !fits && waited > LONG_NS {
                return Err(End::NoMemory);
            }
        }
    }

    fn serve_faults(&mut self) -> Result<(), End> {
        while let Ok(message) = self.faults.read() {
            if message.event == EVENT_PAGEFAULT {
                self.fault(message.address as usize)?;
            }
        }
        Ok(())
    }

    /// Fills the page at `address`, for which the new process waits, and what is around it.
    fn fault(&mut self, address: usize) -> Result<(), End> {
        let filled = |range: &&Range| matches!(range.what, What::Paged | What::Pinned(_));
        let mut ranges = self.plan.ranges().iter().filter(filled);
        let page = address & !(PAGE - 1);
        if let Some(&range) = ranges.find(|range| (range.start..range.end).contains(&address)) {
            let (from, to) = (address & !(AROUND - 1), (address & !(AROUND - 1)) + AROUND);
            let (mut at, to) = (from.max(range.start), to.min(range.end));
            while let Some((start, end)) = self.next(&range, at, to) {
                self.copy(&range, start, end)?;
                at = end;
            }
        }
        // A page that nobody used reads as zeros.
        check(self.faults.zero(page, PAGE))?;
        self.faults.wake(page & !(AROUND - 1), AROUND);
        Ok(())
    }

    /// Copies the next stretch, at most `bytes` of it; `false` if there is none left.
    fn step(&mut self, bytes: usize) -> Result<bool, End> {
        while let Some(&range) = self.plan.ranges().get(self.range) {
            let from = self.at.max(range.start);
            if matches!(range.what, What::Paged | What::Pinned(_))
                && from < range.end
                && let Some((start, end)) = self.next(&range, from, range.end)
            {
                let end = end.min(start + bytes);
                self.copy(&range, start, end)?;
                self.faults.wake(start, end - start);
                self.at = end;
                return Ok(true);
            }
            (self.range, self.at) = (self.range + 1, 0);
        }
        Ok(false)
    }

    /// The first part of `from..to`, in `range`, that does not read as zeros only because nobody has used it.
    fn next(&self, range: &Range, from: usize, to: usize) -> Option<(usize, usize)> {
        if from >= to {
            return None;
        }
        let What::Pinned(offset) = range.what else { return self.next_paged(from, to) };
        let place = |address: usize| offset + (address - range.start) as u64;
        let (start, end) = sys::next_data(self.plan.pinned, place(from), place(to))?;
        let address = |place: u64| range.start + (place - offset) as usize;
        Some((address(start), address(end)))
    }

    /// The same for pages of the arena, which may belong to several globals.
    fn next_paged(&self, from: usize, to: usize) -> Option<(usize, usize)> {
        let mut at = from;
        while at < to {
            let (start, end) = self.pager.first_paged(at, to - at)?;
            let held = self.pager.next_held(start, end);
            if held.is_some() {
                return held;
            }
            at = end;
        }
        None
    }

    /// Copies `start..end`, whole pages of `range`.
    fn copy(&mut self, range: &Range, start: usize, end: usize) -> Result<(), End> {
        let bounce = self.plan.bounce();
        for from in (start..end).step_by(BOUNCE_BYTES) {
            let bytes = BOUNCE_BYTES.min(end - from);
            // SAFETY: the source is memory that this process shares with workers; only this thread uses the other memory.
            unsafe {
                match range.what {
                    What::Pinned(offset) => {
                        let place = offset + (from - range.start) as u64;
                        sys::pread_exact(self.plan.pinned, bounce, bytes, place)
                            .map_err(|_| End::NoMemory)?;
                    }
                    _ if self.pager.allowed_bytes(from, bytes, false) < bytes => {
                        self.read_forbidden(from, bounce, bytes);
                    }
                    // Far pages come near for it, a page at a time.
                    _ => std::ptr::copy_nonoverlapping(from as *const u8, bounce, bytes),
                }
            }
            self.fill(from, bounce, bytes)?;
        }
        Ok(())
    }

    /// Copies `bytes` bytes at `from`, which the program forbids itself to read, past the rights of their mapping.
    ///
    /// # Safety
    /// `to` is valid for writes of `bytes`.
    unsafe fn read_forbidden(&self, from: usize, to: *mut u8, bytes: usize) {
        let _blocked = SignalsBlocked::new();
        // SAFETY: signals are blocked and no memory that faults is touched while the reference lives.
        let x = unsafe { self.pager.executor(state::executor_index()) };
        // SAFETY: the caller's promise.
        if let Err(e) = unsafe { self.pager.read_past_rights(x, state::table(), from, to, bytes) } {
            atoll_memory::ending::end(e);
        }
    }

    /// Makes pages at `start` of what `source` holds, but for those that are there.
    fn fill(&mut self, start: usize, source: *const u8, bytes: usize) -> Result<(), End> {
        let mut done = 0;
        while done < bytes {
            // SAFETY: the memory at `source` has `bytes` bytes, and is registered nowhere.
            let result = unsafe { self.faults.copy(start + done, source.add(done), bytes - done, false) };
            let filled = result.map_or_else(|(filled, _)| filled, |()| bytes - done);
            self.bytes += filled as u64;
            done += filled;
            match result {
                Ok(()) => return Ok(()),
                Err((_, Errno(libc::EAGAIN))) => sys::yield_now(),
                Err((_, Errno(libc::EEXIST))) => done += PAGE,
                other => return check(other),
            }
        }
        Ok(())
    }
}

/// What the kernel's answer means for the copying: memory that the new process has filled or mapped over by itself is left out.
fn check(result: Result<(), (usize, Errno)>) -> Result<(), End> {
    match result {
        Ok(()) | Err((_, Errno(libc::EEXIST | libc::ENOENT | libc::EINVAL | libc::EAGAIN))) => Ok(()),
        Err((_, Errno(libc::ENOMEM))) => Err(End::NoMemory),
        Err(_) => Err(End::Gone),
    }
}

/// Waits until the descriptor can be read, `nanoseconds` at most; whether it can.
pub(super) fn wait(fd: i32, nanoseconds: i64) -> bool {
    let mut polled = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let timeout = libc::timespec { tv_sec: 0, tv_nsec: nanoseconds };
    // SAFETY: one entry and a time.
    let ready = unsafe {
        let words = [(&raw mut polled) as usize, 1, (&raw const timeout) as usize, 0, 8, 0];
        sys::syscall(libc::SYS_ppoll, words)
    };
    ready.is_ok() && polled.revents & libc::POLLIN != 0
}
