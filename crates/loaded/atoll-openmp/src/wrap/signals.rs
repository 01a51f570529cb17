//! Signals: SIGBUS and SIGSEGV stay with the pager, and SIGSEGV on several nodes with `start::stray`, whatever the program asks for.
//!
//! The program's actions for these signals are recorded, and carried out for those signals that are the program's own. No mask
//! ever blocks them, no handler runs with them blocked, and the alternate stack of a worker stays ours. On several nodes all
//! handlers run on that stack: the main stack is paged, and the kernel could not write a signal's frame to a page that is
//! elsewhere.

use std::cell::Cell;
use std::ffi::{c_int, c_void};

use atoll_memory::sys;

use super::lend::{self, Argument as _};
use crate::start::{signal, take_over};
use crate::state;

/// The signals by which faults arrive.
const FAULTS: u64 = 1 << (libc::SIGBUS - 1) | 1 << (libc::SIGSEGV - 1);

/// Whether masks must not block the signals of faults. That holds also in a program that may be managed later, as its threads keep their
/// masks.
fn keeps_faults() -> bool {
    state::pager().is_some() || take_over::is_watched()
}

fn fail(errno: c_int) -> c_int {
    // SAFETY: errno is this thread's.
    unsafe { *libc::__errno_location() = errno };
    -1
}

/// A copy of a signal set without the signals of faults.
///
/// # Safety
/// `set` must be valid or null.
unsafe fn without(set: *const u64) -> [u64; 16] {
    let mut copy = [0; 16];
    // SAFETY: a sigset_t is 16 words, of which the kernel knows one; by the caller.
    unsafe { copy[0] = *set & !FAULTS };
    copy
}

type Sigaction = unsafe extern "C" fn(c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int;

/// `sigaction`.
///
/// # Safety
/// The same as for libc's function.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn sigaction(
    number: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    let call = real!("sigaction", Sigaction);
    if !keeps_faults() {
        // SAFETY: the caller's arguments.
        return unsafe { call(number, new, old) };
    }
    // SAFETY: the caller's structures.
    unsafe {
        if !signal::is_ours(number) {
            if new.is_null() {
                return call(number, new, old);
            }
            let mut action = *new;
            for fault in [libc::SIGBUS, libc::SIGSEGV] {
                libc::sigdelset(&raw mut action.sa_mask, fault);
            }
            if atoll_nodes::active() {
                action.sa_flags |= libc::SA_ONSTACK;
            }
            let result = call(number, &raw const action, old);
            if result == 0 {
                super::replay::action(number);
            }
            return result;
        }
        let mask_before = signal::program_mask(number);
        let before = if new.is_null() {
            signal::program_handler(number)
        } else {
            // The set's first word is the kernel's.
            let mask = (&raw const (*new).sa_mask).cast::<u64>().read();
            let before = signal::set_program_handler(number, (*new).sa_sigaction, (*new).sa_flags, mask);
            super::replay::action(number);
            before
        };
        if !old.is_null() {
            old.write(std::mem::zeroed());
            (*old).sa_sigaction = before.0;
            (*old).sa_flags = before.1;
            (&raw mut (*old).sa_mask).cast::<u64>().write(mask_before);
        }
        0
    }
}

/// glibc's other name of `sigaction`.
///
/// # Safety
/// The same as for libc's function.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn __sigaction(
    number: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { sigaction(number, new, old) }
}

macro_rules! signal_functions {
    ($($name:ident $flags:expr;)*) => {$(
        /// The function of this name in libc.
        ///
        /// # Safety
        /// The same as for libc's function.
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C" fn $name(number: c_int, handler: usize) -> usize {
            let call = real!(stringify!($name), unsafe extern "C" fn(c_int, usize) -> usize);
            if signal::is_ours(number) {
                let before = signal::set_program_handler(number, handler, $flags, 0).0;
                super::replay::action(number);
                return before;
            }
            // SAFETY: the caller's handler.
            let before = unsafe { call(number, handler) };
            if state::pager().is_some() {
                if atoll_nodes::active() {
                    signal::put_on_stack(number);
                }
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

macro_rules! refused_for_faults {
    ($($name:ident ( $($more:ident),* );)*) => {$(
        /// The function of this name in libc.
        ///
        /// # Safety
        /// The same as for libc's function.
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C" fn $name(number: c_int $(, $more: usize)*) -> c_int {
            let call = real!(stringify!($name), unsafe extern "C" fn(c_int $(, wrap!(@usize $more))*) -> c_int);
            if signal::is_ours(number) {
                return 0;
            }
            // SAFETY: values only.
            unsafe { call(number $(, $more)*) }
        }
    )*};
}

refused_for_faults! {
    sighold();
    sigignore();
    siginterrupt(flag);
}

type Mask = unsafe extern "C" fn(c_int, *const u64, *mut u64) -> c_int;

macro_rules! masks {
    ($($name:ident;)*) => {$(
        /// The function of this name in libc.
        ///
        /// # Safety
        /// The same as for libc's function.
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C" fn $name(how: c_int, set: *const u64, old: *mut u64) -> c_int {
            let call = real!(stringify!($name), Mask);
            // SAFETY: the caller's sets, near for the call.
            let result = unsafe {
                let old = lend::memory(old as usize, 8, true);
                if set.is_null() || how == libc::SIG_UNBLOCK || !keeps_faults() {
                    let set = lend::memory(set as usize, 8, false);
                    call(how, set.at() as *const u64, old.at() as *mut u64)
                } else {
                    call(how, without(set).as_ptr(), old.at() as *mut u64)
                }
            };
            state::publish_mask();
            result
        }
    )*};
}

masks! {
    sigprocmask;
    pthread_sigmask;
}

/// Defines calls that wait with another mask: the arguments, of which the one between semicolons is the set.
macro_rules! with_mask {
    ($($name:ident ( $($before:ident : $kind:ident $(($size:expr))?),* ; $mask:ident ; $($after:ident),* );)*) => {$(
        /// The function of this name in libc.
        ///
        /// # Safety
        /// The same as for libc's function.
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C" fn $name($($before: usize,)* $mask: *const u64 $(, $after: usize)*) -> usize {
            let call = real!(
                stringify!($name),
                unsafe extern "C" fn($(wrap!(@usize $before),)* *const u64 $(, wrap!(@usize $after))*) -> usize
            );
            // SAFETY: the caller's arguments.
            unsafe {
                if !keeps_faults() {
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
        /// The function of this name in libc.
        ///
        /// # Safety
        /// The same as for libc's function.
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C" fn $name(mask: c_int) -> c_int {
            let call = real!(stringify!($name), unsafe extern "C" fn(c_int) -> c_int);
            let mask = if keeps_faults() { mask & !(FAULTS as c_int) } else { mask };
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
    /// The alternate stack that the program set: address, flags, size.
    static ALTERNATE: Cell<(usize, c_int, usize)> = const { Cell::new((0, libc::SS_DISABLE, 0)) };
    /// The address of a stack of ours in place of the program's, which may be too small for a fault; 0 if there is none.
    static LARGER: Cell<usize> = const { Cell::new(0) };
}

/// Gives the calling thread an alternate stack of ours, while the program goes on seeing its own.
pub(crate) fn keep_alternate_stack() {
    if let Some(stack) = signal::stack()
        && LARGER.get() == 0
        && stack.ss_flags & libc::SS_DISABLE == 0
    {
        ALTERNATE.set((stack.ss_sp as usize, 0, stack.ss_size));
    }
}

/// Gives the kernel a stack of ours that is large enough for a fault, in a program that may be managed later.
fn enlarge(new: &libc::stack_t) -> Option<()> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let off = new.ss_flags & libc::SS_DISABLE != 0;
    if !off && LARGER.get() == 0 {
        // SAFETY: a new mapping.
        let at =
            unsafe { sys::mmap(0, signal::STACK_BYTES, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        LARGER.set(at.ok()?);
    }
    let stack = libc::stack_t {
        ss_sp: LARGER.get() as *mut c_void,
        ss_flags: new.ss_flags,
        ss_size: signal::STACK_BYTES,
    };
    // SAFETY: memory that is the thread's for signals alone.
    unsafe { sys::syscall(libc::SYS_sigaltstack, [(&raw const stack) as usize, 0, 0, 0, 0, 0]) }.ok()?;
    if off && LARGER.get() != 0 {
        // SAFETY: a mapping of ours that the kernel no longer uses.
        let _ =
            unsafe { sys::syscall(libc::SYS_munmap, [LARGER.replace(0), signal::STACK_BYTES, 0, 0, 0, 0]) };
    }
    Some(())
}

/// Whether the caller runs on the alternate stack that the kernel knows.
fn is_on_alternate_stack() -> bool {
    signal::stack().is_some_and(|stack| stack.ss_flags & libc::SS_ONSTACK != 0)
}

/// `sigaltstack`: our stack stays, which is larger than any that the program needs.
///
/// # Safety
/// The same as for libc's function.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn sigaltstack(new: *const libc::stack_t, old: *mut libc::stack_t) -> c_int {
    if !keeps_faults() {
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
                if state::pager().is_none() && enlarge(&wanted).is_none() {
                    return fail(libc::EPERM);
                }
                ALTERNATE.set((0, libc::SS_DISABLE, 0));
            } else if wanted.ss_size < 2048 {
                return fail(libc::ENOMEM);
            } else if state::pager().is_none() && enlarge(&wanted).is_none() {
                return fail(libc::EPERM);
            } else {
                ALTERNATE.set((wanted.ss_sp as usize, 0, wanted.ss_size));
            }
        }
        if !old.is_null() {
            let (at, flags, size) = before;
            let flags = if flags == 0 && is_on_alternate_stack() { libc::SS_ONSTACK } else { flags };
            old.write(libc::stack_t { ss_sp: at as *mut c_void, ss_flags: flags, ss_size: size });
        }
    }
    0
}
