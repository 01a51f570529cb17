//! The events that a profiler is told: large blocks, regions, workers, faults, and touches of pages that were dropped for
//! sampling.
//!
//! Called by `heap`, `hooks`, `state` and `start::signal`; the journal's format is `atoll-profile-wire`'s. Without a profiler
//! each call only checks a pointer.
//!
//! Rules: no allocation, no locks, no arena access.

use std::cell::Cell;
use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use atoll_memory::sys;
use atoll_profile_wire::{Journal, What};

static JOURNAL: AtomicPtr<Journal> = AtomicPtr::new(std::ptr::null_mut());
static PID: AtomicU32 = AtomicU32::new(0);
/// The depth of nesting of the regions that the first worker is in.
static DEPTH: AtomicU32 = AtomicU32::new(0);

/// Maps the journal whose descriptor the environment names. Called before the program's first instruction.
pub(crate) fn open(descriptor: Option<&CStr>) {
    let Some(fd) = descriptor.and_then(|d| d.to_str().ok()?.parse::<i32>().ok()) else { return };
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new shared mapping of a file that is long enough, or no journal; never unmapped. The system calls are made
    // directly, as libc's functions of these names are our own and serve the program.
    unsafe {
        if let Ok(at) = sys::mmap(0, Journal::BYTES, protection, libc::MAP_SHARED, fd, 0)
            && let Some(journal) = Journal::at(at as *const u8)
        {
            sys::in_core_files(at, Journal::BYTES, false);
            let pid = sys::syscall(libc::SYS_getpid, [0; 6]).unwrap_or(0);
            PID.store(pid as u32, Ordering::Relaxed);
            JOURNAL.store(std::ptr::from_ref(journal).cast_mut(), Ordering::Release);
        }
        let _ = sys::syscall(libc::SYS_close, [fd as usize, 0, 0, 0, 0, 0]);
    }
}

/// Stops telling, in a process that the program forked.
pub(crate) fn stop() {
    JOURNAL.store(std::ptr::null_mut(), Ordering::Relaxed);
}

#[inline]
fn mark(what: impl FnOnce() -> What) {
    // SAFETY: null, or a journal that stays mapped in every worker.
    if let Some(journal) = unsafe { JOURNAL.load(Ordering::Acquire).as_ref() } {
        journal.mark(PID.load(Ordering::Relaxed), what());
    }
}

/// Tells that a large block was made or resized by the call that returns to `caller`.
#[inline]
pub(crate) fn block(start: usize, bytes: usize, caller: usize) {
    let site = caller.saturating_sub(1) as u64;
    mark(|| What::Block { start: start as u64, bytes: bytes as u64, site });
}

/// Tells that a large block was freed.
#[inline]
pub(crate) fn free(start: usize) {
    mark(|| What::Free { start: start as u64 });
}

/// Tells that the first worker enters a region.
#[inline]
pub(crate) fn region_enter(function: usize) {
    if DEPTH.fetch_add(1, Ordering::Relaxed) == 0 {
        mark(|| What::RegionBegin { function: function as u64 });
    }
}

/// Tells that the first worker leaves a region.
#[inline]
pub(crate) fn region_leave() {
    if DEPTH.fetch_sub(1, Ordering::Relaxed) == 1 {
        mark(|| What::RegionEnd);
    }
}

/// Tells that the calling thread is worker `number`.
pub(crate) fn worker(number: usize) {
    mark(|| What::Worker { tid: tid(), number: number as u32 });
    fault_stack();
}

/// Tells which alternate signal stack the calling thread handles its faults on.
pub(crate) fn fault_stack() {
    if let Some(stack) = crate::start::signal::stack()
        && !stack.ss_sp.is_null()
    {
        let (start, bytes) = (stack.ss_sp as u64, stack.ss_size as u64);
        mark(|| What::FaultStack { tid: tid(), start, bytes });
    }
}

/// The least number of clock ticks, about half a millisecond, between two faults of a thread that are told. Samples are further
/// apart, so each has a fault near it, and telling costs next to nothing.
const FAULT_TICKS: u64 = 1_000_000;

thread_local! {
    /// When the thread last told of a fault, in clock ticks.
    static TOLD: Cell<u64> = const { Cell::new(0) };
}

/// Tells that the calling thread has handled a fault.
#[inline]
pub(crate) fn faulted(address: usize, write: bool, ip: u64) {
    if JOURNAL.load(Ordering::Relaxed).is_null() {
        return;
    }
    let now = sys::ticks();
    if now.wrapping_sub(TOLD.get()) >= FAULT_TICKS {
        TOLD.set(now);
        mark(|| What::Fault { address: address as u64, write, tid: tid(), ip });
    }
}

/// Tells that the calling thread touched a page that was dropped for sampling.
pub(crate) fn touched(address: usize, write: bool, ip: u64) {
    mark(|| What::Touch { address: address as u64, write, tid: tid(), ip });
}

fn tid() -> u32 {
    // SAFETY: no arguments.
    unsafe { sys::syscall(libc::SYS_gettid, [0; 6]) }.unwrap_or(0) as u32
}
