//! Signals: SIGBUS stays with the pager, whatever the program asks for.
//!
//! What the program wants done with SIGBUS is remembered and done for those that are its own. No mask ever blocks
//! it, no handler runs with it blocked, and the alternate stack of a worker stays ours.

use std::cell::Cell;
use std::ffi::{c_int, c_void};

use super::lend::{self, Argument as _};
use crate::start::signal;
use crate::state;

const SIGBUS: u64 = 1 << (libc::SIGBUS - 1);

fn fail(errno: c_int) -> c_int {
    // SAFETY: errno is this thread's.
    unsafe { *libc::__errno_location() = errno };
    -1
}

/// A copy of a signal set without SIGBUS.
///
/// # Safety
/// `set` must be valid or null.
unsafe fn without(set: *const u64) -> [u64; 16] {
    let mut copy = [0; 16];
    // SAFETY: a sigset_t is 16 words, of which the kernel knows one; by the caller.
    unsafe { copy[0] = *set & !SIGBUS };
    copy
}

type Sigaction = unsafe extern "C" fn(c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int;

/// `sigaction`.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn sigaction(
    number: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    let call = real!("sigaction", Sigaction);
    if state::pager().is_none() {
        // SAFETY: the caller's arguments.
        return unsafe { call(number, new, old) };
    }
    // SAFETY: the caller's structures.
    unsafe {
        if number != libc::SIGBUS {
            if new.is_null() {
                return call(number, new, old);
            }
            let mut action = *new;
            libc::sigdelset(&raw mut action.sa_mask, libc::SIGBUS);
            let result = call(number, &raw const action, old);
            if result == 0 {
                super::replay::action(number);
            }
            return result;
        }
        let before = if new.is_null() {
            signal::program_handler()
        } else {
            signal::set_program_handler((*new).sa_sigaction, (*new).sa_flags)
        };
        if !old.is_null() {
            old.write(std::mem::zeroed());
            (*old).sa_sigaction = before.0;
            (*old).sa_flags = before.1;
        }
        0
    }
}

/// glibc's other name of `sigaction`.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn __sigaction(
    number: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    // SAFETY: by the caller.
    unsafe { sigaction(number, new, old) }
}

macro_rules! signal_functions {
    ($($name:ident $flags:expr;)*) => {$(
        /// See libc.
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C" fn $name(number: c_int, handler: usize) -> usize {
            let call = real!(stringify!($name), unsafe extern "C" fn(c_int, usize) -> usize);
            if number == libc::SIGBUS && state::pager().is_some() {
                return signal::set_program_handler(handler, $flags).0;
            }
            // SAFETY: the caller's handler.
            let before = unsafe { call(number, handler) };
            if state::pager().is_some() {
                super::replay::action(number);
            }
            before
        }
    )*};
}

signal_functions! {
    signal libc::SA_RESTART;
    bsd_signal libc::SA_RESTART;
    ssignal libc::SA_RESTART;
    sysv_signal libc::SA_RESETHAND | libc::SA_NODEFER;
    __sysv_signal libc::SA_RESETHAND | libc::SA_NODEFER;
    sigset 0;
}

macro_rules! refused_for_sigbus {
    ($($name:ident ( $($more:ident),* );)*) => {$(
        /// See libc.
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C" fn $name(number: c_int $(, $more: usize)*) -> c_int {
            let call = real!(stringify!($name), unsafe extern "C" fn(c_int $(, wrap!(@usize $more))*) -> c_int);
            if number == libc::SIGBUS && state::pager().is_some() {
                return 0;
            }
            // SAFETY: values only.
            unsafe { call(number $(, $more)*) }
        }
    )*};
}

refused_for_sigbus! {
    sighold();
    sigignore();
    siginterrupt(flag);
}

type Mask = unsafe extern "C" fn(c_int, *const u64, *mut u64) -> c_int;

macro_rules! masks {
    ($($name:ident;)*) => {$(
        /// See libc.
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C" fn $name(how: c_int, set: *const u64, old: *mut u64) -> c_int {
            let call = real!(stringify!($name), Mask);
            // SAFETY: the caller's sets, near for the call.
            unsafe {
                if set.is_null() || how == libc::SIG_UNBLOCK || state::pager().is_none() {
                    let set = lend::memory(set as usize, 8, false);
                    let old = lend::memory(old as usize, 8, true);
                    return call(how, set.at() as *const u64, old.at() as *mut u64);
                }
                let copy = without(set);
                let old = lend::memory(old as usize, 8, true);
                call(how, copy.as_ptr(), old.at() as *mut u64)
            }
        }
    )*};
}

masks! {
    sigprocmask;
    pthread_sigmask;
}

/// Calls that wait with another mask: the arguments, of which the one between semicolons is the set.
macro_rules! with_mask {
    ($($name:ident ( $($before:ident : $kind:ident $(($size:expr))?),* ; $mask:ident ; $($after:ident),* );)*) => {$(
        /// See libc.
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C" fn $name($($before: usize,)* $mask: *const u64 $(, $after: usize)*) -> usize {
            let call = real!(
                stringify!($name),
                unsafe extern "C" fn($(wrap!(@usize $before),)* *const u64 $(, wrap!(@usize $after))*) -> usize
            );
            // SAFETY: the caller's arguments.
            unsafe {
                if state::pager().is_none() {
                    return call($($before,)* $mask $(, $after)*);
                }
                let ($($before,)*) = ($(wrap!(@lend $before $kind $(($size))?),)*);
                if $mask.is_null() {
                    return call($($before.at(),)* $mask $(, $after)*);
                }
                let copy = without($mask);
                call($($before.at(),)* copy.as_ptr() $(, $after)*)
            }
        }
    )*};
}

const TIME: usize = size_of::<libc::timespec>();
const SET: usize = size_of::<libc::fd_set>();

with_mask! {
    sigsuspend(; set;);
    ppoll(fds: w(8 * n), n: v, timeout: r(TIME); set;);
    __ppoll_chk(fds: w(8 * n), n: v, timeout: r(TIME); set; size);
    pselect(n: v, reads: w(SET), writes: w(SET), others: w(SET), timeout: r(TIME); set;);
    epoll_pwait(fd: v, events: w(12 * (n & 0x7fff_ffff)), n: v, timeout: v; set;);
    epoll_pwait2(fd: v, events: w(12 * (n & 0x7fff_ffff)), n: v, timeout: r(TIME); set;);
    pthread_attr_setsigmask_np(attributes: v; set;);
}

macro_rules! old_masks {
    ($($name:ident;)*) => {$(
        /// See libc.
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C" fn $name(mask: c_int) -> c_int {
            let call = real!(stringify!($name), unsafe extern "C" fn(c_int) -> c_int);
            let mask = if state::pager().is_some() { mask & !(SIGBUS as c_int) } else { mask };
            // SAFETY: a value.
            unsafe { call(mask) }
        }
    )*};
}

old_masks! {
    sigblock;
    sigsetmask;
}

thread_local! {
    /// The alternate stack the program believes in: address, flags, size.
    static ALTERNATE: Cell<(usize, c_int, usize)> = const { Cell::new((0, libc::SS_DISABLE, 0)) };
}

/// `sigaltstack`: ours stays, which is larger than any the program needs.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn sigaltstack(new: *const libc::stack_t, old: *mut libc::stack_t) -> c_int {
    if state::pager().is_none() {
        let call =
            real!("sigaltstack", unsafe extern "C" fn(*const libc::stack_t, *mut libc::stack_t) -> c_int);
        // SAFETY: the caller's arguments.
        return unsafe { call(new, old) };
    }
    let before = ALTERNATE.get();
    // SAFETY: the caller's structures.
    unsafe {
        if !new.is_null() {
            let wanted = *new;
            if wanted.ss_flags & libc::SS_DISABLE != 0 {
                ALTERNATE.set((0, libc::SS_DISABLE, 0));
            } else if wanted.ss_size < 2048 {
                return fail(libc::ENOMEM);
            } else {
                ALTERNATE.set((wanted.ss_sp as usize, 0, wanted.ss_size));
            }
        }
        if !old.is_null() {
            let (at, flags, size) = before;
            old.write(libc::stack_t { ss_sp: at as *mut c_void, ss_flags: flags, ss_size: size });
        }
    }
    0
}
