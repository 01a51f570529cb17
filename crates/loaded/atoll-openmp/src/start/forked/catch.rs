//! How libc's `fork` is made to fork as `child` does: the one system call by which it duplicates the process comes here.
//!
//! libc prepares a fork and cleans up after it in both processes, and nobody but libc can. But its code runs on a stack and with
//! thread-local data that workers share, so a process that the kernel duplicated in the midst of it would write into its parent's
//! memory. Between [`arm`] and [`disarm`] the kernel sends the calling thread's system calls to a handler (syscall user dispatch,
//! Linux 5.11), but for those of this library.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

use atoll_memory::arch as processor;
use atoll_memory::signals;
use atoll_memory::sys::{self, Errno};

use super::child;
use super::plan::Plan;
use crate::arch;
use crate::start::{objects, signal};

const PR_SET_SYSCALL_USER_DISPATCH: usize = 59;
const OFF: usize = 0;
const ON: usize = 1;
/// Values of [`SELECTOR`]: the kernel makes the calls, or sends them to the handler.
const ALLOW: u8 = 0;
const BLOCK: u8 = 1;

/// The byte by which the kernel decides.
static SELECTOR: AtomicU8 = AtomicU8::new(ALLOW);
/// The plan of the fork that is under way.
static PLAN: AtomicPtr<Plan> = AtomicPtr::new(std::ptr::null_mut());

fn dispatch(mode: usize) -> Result<(), Errno> {
    let (start, bytes) = if mode == ON { objects::own_code() } else { (0, 0) };
    let selector = if mode == ON { SELECTOR.as_ptr() as usize } else { 0 };
    let words = [PR_SET_SYSCALL_USER_DISPATCH, mode, start, bytes, selector, 0];
    // SAFETY: the byte is a static of this library's.
    unsafe { sys::syscall(libc::SYS_prctl, words).map(drop) }
}

/// Whether the kernel can send system calls to a handler.
///
/// # Errors
/// The kernel's.
pub(super) fn check() -> Result<(), Errno> {
    dispatch(ON)?;
    dispatch(OFF)
}

fn exchange_action(new: Option<&[u64; 4]>, old: Option<&mut [u64; 4]>) {
    let new = new.map_or(0, |action| action.as_ptr() as usize);
    let old = old.map_or(0, |action| action.as_mut_ptr() as usize);
    // SAFETY: the kernel's structure is four words, with eight mask bytes.
    let _ = unsafe { sys::syscall(libc::SYS_rt_sigaction, [libc::SIGSYS as usize, new, old, 8, 0, 0]) };
}

/// The calling thread's next fork goes by `plan`. The caller has blocked signals.
///
/// # Safety
/// The plan stays until [`disarm`].
pub(super) unsafe fn arm(plan: *mut Plan) {
    // SAFETY: the caller's promise, and nobody else has the plan.
    exchange_action(None, Some(unsafe { &mut (*plan).action }));
    // SAFETY: plain data.
    let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    action.sa_sigaction = on_sigsys as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: a valid set.
    unsafe { libc::sigfillset(&raw mut action.sa_mask) };
    signal::real_sigaction(libc::SIGSYS, &action);
    PLAN.store(plan, Ordering::Relaxed);
    // The kernel would end the process if the signal were blocked.
    signals::unblock(libc::SIGSYS);
    if dispatch(ON).is_ok() {
        SELECTOR.store(BLOCK, Ordering::Relaxed);
    }
}

/// The opposite of [`arm`], in both processes.
pub(super) fn disarm(plan: &Plan) {
    SELECTOR.store(ALLOW, Ordering::Relaxed);
    let _ = dispatch(OFF);
    exchange_action(Some(&plan.action), None);
    PLAN.store(std::ptr::null_mut(), Ordering::Relaxed);
}

unsafe extern "C" fn on_sigsys(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel's signal frame.
    let frame = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    let (number, arguments) = processor::call(frame);
    let result = match number {
        _ if let Some(place) = arch::forks(number, arguments) => fork(place),
        libc::SYS_rt_sigprocmask => {
            let mask = (&raw mut frame.uc_sigmask).cast::<u64>();
            // SAFETY: the set's first word is the kernel's; the rest is what libc asks.
            unsafe { change_mask(&mut *mask, arguments) }
        }
        _ => {
            // SAFETY: what libc asks of the kernel.
            let result = unsafe { sys::syscall(number, arguments) };
            result.map_or_else(|e| -e.0 as isize, |value| value as isize)
        }
    };
    processor::set_result(frame, result);
}

/// Forks by the plan; `number_at` is where libc wants the number of its thread.
fn fork(number_at: usize) -> isize {
    let plan = PLAN.load(Ordering::Relaxed);
    SELECTOR.store(ALLOW, Ordering::Relaxed);
    // SAFETY: the plan of `arm`, which one thread uses; all signals are blocked in the handler.
    unsafe {
        (*plan).number_at = number_at;
        child::clone(plan)
    }
}

/// Does what `rt_sigprocmask` does to the mask with which the interrupted code goes on. SIGSYS stays open, as the calls to come
/// arrive by it.
///
/// # Safety
/// The arguments are valid for that call.
unsafe fn change_mask(mask: &mut u64, [how, set, old, ..]: [usize; 6]) -> isize {
    let unblockable = 1u64 << (libc::SIGKILL - 1) | 1 << (libc::SIGSTOP - 1) | 1 << (libc::SIGSYS - 1);
    let before = *mask;
    if set != 0 {
        // SAFETY: the caller's promise.
        let set = unsafe { *(set as *const u64) };
        *mask = match how as c_int {
            libc::SIG_BLOCK => before | set,
            libc::SIG_UNBLOCK => before & !set,
            libc::SIG_SETMASK => set,
            _ => return -libc::EINVAL as isize,
        } & !unblockable;
    }
    if old != 0 {
        // SAFETY: the caller's promise.
        unsafe { *(old as *mut u64) = before };
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_change_as_the_kernel_changes_them() {
        let (mut mask, mut old) = (0b101u64, 0u64);
        let mut change = |how: c_int, set: Option<u64>| {
            let set = set.as_ref().map_or(0, |set| std::ptr::from_ref(set) as usize);
            // SAFETY: two words, or none.
            let result =
                unsafe { change_mask(&mut mask, [how as usize, set, (&raw mut old) as usize, 8, 0, 0]) };
            (result, mask, old)
        };
        assert_eq!(change(libc::SIG_BLOCK, Some(0b10)), (0, 0b111, 0b101));
        assert_eq!(change(libc::SIG_UNBLOCK, Some(0b1)), (0, 0b110, 0b111));
        assert_eq!(change(libc::SIG_SETMASK, Some(1 << 30)), (0, 0, 0b110));
        assert_eq!(change(libc::SIG_BLOCK, None), (0, 0, 0));
        assert_eq!(change(9, Some(1)).0, -libc::EINVAL as isize);
    }
}
