//! The first steps of a forked process, before it executes an instruction of libc's or the program's: it exchanges what it shares
//! with its parent for memory of its own.
//!
//! `catch` calls [`clone`] in place of the system call that libc makes. The new process begins on a stack of the plan's, exchanges
//! its memory, the stack it goes on with among it, and only then returns. Meanwhile the parent waits at the same place.
//!
//! Rules for the new process: no allocation, no libc, no thread-local data, no write to this library's data: all of these are
//! being exchanged.

use std::sync::atomic::Ordering;

use atoll_memory::sys::{self, Errno};
use atoll_memory::uffd::Uffd;

use super::plan::{Meeting, Plan, Range, What};
use super::watch;
use crate::arch;

/// From this many bytes on, a stretch is left out of core files, as it is in the parent.
const LEFT_OUT_OF_CORES: usize = 1 << 30;
/// The nanoseconds after which the parent looks whether the new process still exists.
const LOOK_NS: i64 = 50_000_000;

/// Forks. Returns the new process's number, or an error's negative number; 0 in the new process, whose memory is its own then.
///
/// # Safety
/// Called once for a plan, in place of the system call that libc makes in `fork`, with all signals blocked.
pub(super) unsafe fn clone(plan: *const Plan) -> isize {
    // The new process shares the table of descriptors until it has opened the one that the parent needs.
    let flags = libc::SIGCHLD as usize | libc::CLONE_FILES as usize;
    // SAFETY: the plan's stack is used by nobody else.
    unsafe { clone_on(plan, flags, (*plan).stack) }
}

/// Makes the system call with a stack for the new process, which returns on the caller's stack once that is its own.
#[unsafe(naked)]
unsafe extern "C" fn clone_on(plan: *const Plan, flags: usize, stack: usize) -> isize {
    arch::fork_on!(become_own, wait_for)
}

fn futex(word: usize, operation: i32, value: u32, nanoseconds: i64) {
    let time = libc::timespec { tv_sec: 0, tv_nsec: nanoseconds };
    let words = [word, operation as usize, value as usize, (&raw const time) as usize, 0, 0];
    // SAFETY: a word in a page that both processes have, and a time.
    let _ = unsafe { sys::syscall(libc::SYS_futex, words) };
}

/// Waits a while for the word at `word` to be other than `value`.
pub(super) fn wait_while(word: usize, value: u32) {
    futex(word, libc::FUTEX_WAIT, value, LOOK_NS);
}

/// Wakes whoever waits for the word at `word`.
pub(super) fn wake(word: usize) {
    futex(word, libc::FUTEX_WAKE, i32::MAX as u32, 0);
}

/// Waits, in the parent, until the new process has exchanged what it goes on with; `result` is what the system call returned.
extern "C" fn wait_for(plan: *const Plan, result: isize) -> isize {
    if result < 0 {
        return result;
    }
    // SAFETY: the plan stays until the fork is over.
    let plan = unsafe { &*plan };
    plan.process.store(result as i32, Ordering::Relaxed);
    let state = &plan.meeting().state;
    loop {
        // Acquire: pairs with the Release in `become_own`.
        match state.load(Ordering::Acquire) {
            0 => wait_while(state.as_ptr() as usize, 0),
            1 => return result,
            error => {
                reap(result as i32);
                plan.process.store(0, Ordering::Relaxed);
                return error as isize;
            }
        }
        if has_ended(result as i32) {
            return result;
        }
    }
}

/// Whether this child has ended; it stays for the program to wait for.
pub(super) fn has_ended(process: i32) -> bool {
    let mut info = [0u32; 32];
    let options = (libc::WEXITED | libc::WNOHANG | libc::WNOWAIT) as usize;
    let words = [libc::P_PID as usize, process as usize, info.as_mut_ptr() as usize, options, 0, 0];
    // SAFETY: room for the kernel's description.
    let asked = unsafe { sys::syscall(libc::SYS_waitid, words) };
    asked.is_err() || info[0] != 0
}

/// Waits for the end of a child that the program is not to know of.
pub(super) fn reap(process: i32) {
    // SAFETY: values only.
    let wait = || unsafe { sys::syscall(libc::SYS_wait4, [process as usize, 0, 0, 0, 0, 0]) };
    while wait() == Err(Errno(libc::EINTR)) {}
}

/// Exchanges the memory of the new process. On an error the process ends, and the parent is told.
extern "C" fn become_own(plan: *const Plan) {
    // SAFETY: the plan is this process's own copy.
    let plan = unsafe { &*plan };
    let meeting = plan.meeting();
    let state = &meeting.state;
    if let Err(e) = exchange(plan) {
        state.store(-e.0, Ordering::Release);
        wake(state.as_ptr() as usize);
        loop {
            // SAFETY: ends this process.
            let _ = unsafe { sys::syscall(libc::SYS_exit_group, [1, 0, 0, 0, 0, 0]) };
        }
    }
    // Release: pairs with the Acquire in `wait_for`.
    state.store(1, Ordering::Release);
    wake(state.as_ptr() as usize);
    if plan.waits {
        await_memory(meeting);
    }
    // SAFETY: where libc keeps the number of its thread, as it told the kernel; now this process's own memory.
    unsafe {
        let number = sys::syscall(libc::SYS_set_tid_address, [plan.number_at, 0, 0, 0, 0, 0]).unwrap_or(0);
        if plan.number_at != 0 {
            (plan.number_at as *mut i32).write(number as i32);
        }
    }
}

/// Waits until this process has all of its memory. If its parent ends before that, `watch` ends it.
pub(super) fn await_memory(meeting: &Meeting) {
    // Acquire: pairs with the Release in `serve`.
    while meeting.complete.load(Ordering::Acquire) == 0 {
        wait_while(meeting.complete.as_ptr() as usize, 0);
    }
}

fn exchange(plan: &Plan) -> Result<(), Errno> {
    let (faults, _) = Uffd::of_copy()?;
    for range in plan.ranges() {
        match range.what {
            What::Paged | What::Pinned(_) | What::Empty => renew(range)?,
            What::Copied(offset) => copy(range, plan.pinned, offset)?,
        }
    }
    // What was copied over a part of a stretch is left out by that alone: it has been filled.
    for range in plan.ranges().iter().filter(|range| matches!(range.what, What::Paged | What::Pinned(_))) {
        register(plan, faults, range)?;
    }
    plan.meeting().faults.store(faults.0, Ordering::Relaxed);
    // SAFETY: values only. From here on the descriptors are this process's own.
    unsafe { sys::syscall(libc::SYS_unshare, [libc::CLONE_FILES as usize, 0, 0, 0, 0, 0])? };
    watch::begin(plan.meeting, faults.0, plan.parent)?;
    sys::close(faults.0);
    plan.closed.iter().filter(|fd| **fd >= 0).for_each(|fd| sys::close(*fd));
    Ok(())
}

/// Has faults in the stretch go to the parent, but for the parts that were copied.
fn register(plan: &Plan, faults: Uffd, range: &Range) -> Result<(), Errno> {
    let mut at = range.start;
    while at < range.end {
        let copied = |copied: &&Range| matches!(copied.what, What::Copied(_)) && copied.end > at;
        let next = plan.ranges().iter().filter(copied).min_by_key(|copied| copied.start);
        let (to, then) =
            next.map_or((range.end, range.end), |next| (next.start.min(range.end), next.end.min(range.end)));
        if at < to {
            faults.register_missing(at, to - at)?;
        }
        at = then.max(to);
    }
    Ok(())
}

/// Maps private memory over the stretch.
fn renew(range: &Range) -> Result<(), Errno> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
    let bytes = range.end - range.start;
    // SAFETY: takes the place of memory that the parent fills this process's with.
    unsafe { sys::mmap(range.start, bytes, range.prot, flags, -1, 0)? };
    if bytes >= LEFT_OUT_OF_CORES {
        sys::in_core_files(range.start, bytes, false);
    }
    Ok(())
}

/// Puts a private copy of the stretch, read from `offset` of `file`, into its place.
fn copy(range: &Range, file: i32, offset: u64) -> Result<(), Errno> {
    let bytes = range.end - range.start;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping.
    let at = unsafe { sys::mmap(0, bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)? };
    let mut next = offset;
    while let Some((from, to)) = sys::next_data(file, next, offset + bytes as u64) {
        let place = (at + (from - offset) as usize) as *mut u8;
        // SAFETY: a part of the new mapping.
        unsafe { sys::pread_exact(file, place, (to - from) as usize, from)? };
        next = to;
    }
    let moved = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as usize;
    // SAFETY: the copy takes the place of the memory it is a copy of, with its protection.
    unsafe {
        if range.prot != libc::PROT_READ | libc::PROT_WRITE {
            sys::syscall(libc::SYS_mprotect, [at, bytes, range.prot as usize, 0, 0, 0])?;
        }
        sys::syscall(libc::SYS_mremap, [at, bytes, bytes, moved, range.start, 0]).map(drop)
    }
}
