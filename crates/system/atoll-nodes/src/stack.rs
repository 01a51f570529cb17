//! Work on a stack whose pages no other node can take: the main stack is paged memory as the rest, since regions' arguments and
//! shared variables lie on it.
//!
//! Whoever holds a lock that a fault may need leaves a paged stack before. Workers of the origin run a region below the page that holds
//! its arguments, or every spilled register would fetch that page back. The runtime moves the stack itself. Where tasks travel, workers
//! have paged stacks, too, as a task may use a variable on the stack of whoever made it.
//!
//! Rules: no allocation, no locks.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::arch;
use atoll_memory::managed;
use atoll_memory::signals::{self, SignalsBlocked};

/// The end of the stack on which the program's first thread handles signals.
static OF_SIGNALS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Where a worker that runs on a paged stack left its own: the address below which that is free; 0 elsewhere.
    static OWN: Cell<usize> = const { Cell::new(0) };
}

/// Room for the frames between the address noted in `OWN` and the paged stack.
const FRAMES: usize = 4096;

/// Is the calling worker on a paged stack that it was given ([`call_paged`])?
#[inline]
pub fn is_given() -> bool {
    OWN.get() != 0
}

/// A worker calls `function(data)` with a paged stack that ends at `top`, a multiple of 16.
///
/// # Safety
/// The stack is the worker's alone, and nothing lies on it.
#[inline(never)]
pub unsafe fn call_paged(function: extern "C" fn(*mut u8), data: *mut u8, top: usize) {
    let here = 0u8;
    let before = OWN.replace((&raw const here as usize - FRAMES) & !15);
    // SAFETY: the two types are pointers, and the caller promises the rest.
    unsafe {
        let function = std::mem::transmute::<extern "C" fn(*mut u8), extern "C" fn(*mut c_void)>(function);
        call_at(function, data.cast(), top);
    }
    OWN.set(before);
}

/// Notes that the program's first thread handles signals on the stack that ends at `top`, a multiple of 16, which is not paged.
pub fn handles_signals_below(top: usize) {
    OF_SIGNALS.store(top, Ordering::Relaxed);
}

/// Runs `work` on a stack whose pages no other node can take: the caller's, or on the origin's main stack the one on which its
/// thread handles signals, or on a worker's paged stack the worker's own. Signals are blocked meanwhile.
///
/// For whatever holds a lock that a fault may need: a page's, the room's, one that the agent takes, whose part a worker that
/// waits for a page of its own stack takes itself. What `work` refers to may not be on the stack either; what it owns is moved.
pub fn off_paged<R, W: FnOnce() -> R>(work: W) -> R {
    let _blocked = (!signals::is_handling()).then(SignalsBlocked::new);
    off_paged_blocked(work)
}

/// Runs `work` as [`off_paged`] does, where the caller has blocked signals.
pub(crate) fn off_paged_blocked<R, W: FnOnce() -> R>(work: W) -> R {
    let here = 0u8;
    let top = match managed::executor_index() {
        _ if !crate::active() => 0,
        0 => OF_SIGNALS.load(Ordering::Relaxed),
        _ => OWN.get(),
    };
    let is_paged = || managed::pager().is_some_and(|pager| pager.page_at(&raw const here as usize).is_some());
    if top != 0 && is_paged() {
        // SAFETY: signals are blocked, and this is not that stack: nobody uses it below its top.
        unsafe { on_stack(top, work) }
    } else {
        work()
    }
}

/// Runs `work` on the stack that ends at `top`, a multiple of 16.
///
/// # Safety
/// Below `top` is room that nobody uses meanwhile.
pub unsafe fn on_stack<R, W: FnOnce() -> R>(top: usize, work: W) -> R {
    let mut job = Job { work: Some(work), result: None };
    // SAFETY: by the caller; the job waits here.
    unsafe { call_at(Job::<W, R>::run, (&raw mut job).cast::<c_void>(), top) };
    // `run` puts it there, or the process ends.
    job.result.unwrap_or_else(|| unreachable!("the work was done"))
}

/// Work to be done on another stack.
struct Job<W, R> {
    work: Option<W>,
    result: Option<R>,
}

impl<R, W: FnOnce() -> R> Job<W, R> {
    /// Does the work of the job at `place`, whose stack is not used meanwhile.
    extern "C" fn run(place: *mut c_void) {
        let place = place.cast::<Self>();
        // SAFETY: `on_stack`'s, which waits.
        let work = unsafe { (*place).work.take() };
        let result = work.map(|work| work());
        // SAFETY: as above.
        unsafe { (*place).result = result };
    }
}

/// Calls `function(data)` with a stack that begins in the page below.
#[unsafe(naked)]
pub extern "C" fn call_below(function: extern "C" fn(*mut u8), data: *mut u8) {
    arch::call_below!()
}

/// Calls `function(data)` with a stack that ends at `top`, a multiple of 16.
///
/// # Safety
/// Below `top` is room that nobody uses meanwhile.
#[unsafe(naked)]
pub unsafe extern "C" fn call_at(function: extern "C" fn(*mut c_void), data: *mut c_void, top: usize) {
    arch::call_at!()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_runs_on_the_stack_that_it_is_given() {
        let mut room = vec![0u128; 64 << 10];
        let range = room.as_mut_ptr_range();
        // SAFETY: nobody else uses the room.
        let at = unsafe {
            on_stack(range.end as usize, || {
                let here = 0u8;
                std::hint::black_box(&raw const here) as usize
            })
        };
        assert!((range.start as usize..range.end as usize).contains(&at));
    }

    #[test]
    fn work_runs_in_the_page_below() {
        extern "C" fn note(place: *mut u8) {
            let here = 0u8;
            // SAFETY: the caller's word.
            unsafe { *place.cast::<usize>() = std::hint::black_box(&raw const here) as usize };
        }
        let mut at = 0usize;
        call_below(note, (&raw mut at).cast());
        let here = &raw const at as usize;
        assert!(at < here && at / 4096 < here / 4096, "{at:x} {here:x}");
    }
}
