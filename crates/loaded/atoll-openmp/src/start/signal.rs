//! SIGBUS, and SIGSEGV where far pages have a guard or workers have rights of their own to memory: how a fault on paged memory reaches the pager, and how other signals that our handlers
//! get reach the program.
//!
//! Installed by the constructor; runs on an alternate stack of each worker.
//!
//! Rules: no allocation, no locks the program could hold, no arena access, no printing unless the program ends.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicUsize, Ordering};

use atoll_memory::arch as processor;
use atoll_memory::ending::end;
use atoll_memory::pager::fault::Fault;
use atoll_memory::pager::{FaultError, Pager};
use atoll_memory::{signals, sys};

use super::copies_for_others;
use crate::heap::{linker, protected_elsewhere, protections};
use crate::{arch, state};

/// Bytes of an alternate signal stack.
pub(crate) const STACK_BYTES: usize = 256 << 10;

/// The program's own actions for the signals that we handle: the handler (0: default), its flags, and the signals that it is not to be interrupted by.
static PROGRAM: [[AtomicUsize; 3]; 2] = [const { [const { AtomicUsize::new(0) }; 3] }; 2];

/// The entry of a signal's action; `None` if we do not handle the signal.
fn program(signal: c_int) -> Option<&'static [AtomicUsize; 3]> {
    match signal {
        libc::SIGBUS if state::pager().is_some() => Some(&PROGRAM[0]),
        // Memory that only another node has, far pages, or what another worker has allowed.
        libc::SIGSEGV if atoll_nodes::active() || state::pager().is_some_and(has_denials) => {
            Some(&PROGRAM[1])
        }
        _ => None,
    }
}

/// Whether an access that is denied may be allowed all the same.
fn has_denials(pager: &Pager) -> bool {
    pager.guards_far_pages() || !pager.control().settings.shared_tables() && protections::are_possible(pager)
}

/// Whether a handler of ours stands in front of the program's.
pub(crate) fn is_ours(signal: c_int) -> bool {
    program(signal).is_some()
}

/// SIGSEGV's code for an address where nothing is mapped, which a guard reads as.
const SEGV_MAPERR: c_int = 1;
/// SIGSEGV's code for an access that the mapping does not allow, which a far huge page reads as.
const SEGV_ACCERR: c_int = 2;

unsafe extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // Until the fault is handled; dropped before the program's own handler runs, which may not return.
    let within = linker::enter();
    // SAFETY: the kernel's signal frame; errno is this thread's and restored.
    unsafe {
        let errno_at = libc::__errno_location();
        let errno = *errno_at;
        let address = (*info).si_addr() as usize;
        let frame = context.cast::<libc::ucontext_t>();
        let Some(pager) = state::pager() else {
            drop(within);
            return pass_on(signal, info, context);
        };
        if (*info).si_code <= 0 {
            // Sent by somebody, not caused by an access: another process that copies, a worker that wants to exec, or the program.
            let value = (*info).si_value().sival_ptr as usize;
            if (*info).si_code == libc::SI_QUEUE
                && let Some((at, number)) = copies_for_others::of_value(value)
            {
                let before = (&raw const (*frame).uc_sigmask).cast::<u64>().read();
                signals::enter_handler(before);
                copies_for_others::serve(pager, (*info).si_pid(), at, number);
                signals::leave_handler();
                *errno_at = errno;
                return;
            }
            crate::wrap::serve_request();
            drop(within);
            return pass_on(signal, info, context);
        }
        let access = processor::access(&*frame);
        let is_of_pages = match ((*info).si_code, signal) {
            (_, libc::SIGBUS) => true,
            (SEGV_MAPERR, _) => pager.is_guarded(address),
            // What the program has forbidden itself.
            (SEGV_ACCERR, _) if pager.is_forbidden(address, access.write) => false,
            (SEGV_ACCERR, _) if state::are_workers_processes() => {
                if pager.is_denied_by_chance(state::executor(pager), address)
                    && protected_elsewhere::allow(pager, address)
                {
                    *errno_at = errno;
                    return;
                }
                false
            }
            (SEGV_ACCERR, _) => pager.is_of_huge_page(state::executor(pager), address),
            _ => false,
        };
        if pager.is_segment() || !is_of_pages {
            drop(within);
            return pass_on(signal, info, context);
        }
        if protected_elsewhere::is_behind() {
            // What another worker has forbidden meanwhile is this one's to find out: the access is made again.
            protected_elsewhere::follow();
            *errno_at = errno;
            return;
        }
        let fault =
            Fault { address, write: access.write, protection: access.protection, table: state::table() };
        // The set's first word is the kernel's.
        signals::enter_handler((&raw const (*frame).uc_sigmask).cast::<u64>().read());
        let handled = pager.fault(state::executor(pager), fault);
        signals::leave_handler();
        match handled {
            Ok(()) => {
                let ip = processor::instruction(&*frame);
                crate::journal::faulted(address, fault.write, ip);
                if pager.samples() && pager.take_sampled(fault.table, address) {
                    crate::journal::touched(address, fault.write, ip);
                }
            }
            // The waiting signal is handled when this returns; then the access is made again.
            Err(FaultError::Interrupted) => {}
            Err(FaultError::NotOurs) => {
                drop(within);
                pass_on(signal, info, context);
            }
            Err(e) => end(e),
        }
        *errno_at = errno;
    }
}

/// Hands a signal that is not for us to the program.
///
/// # Safety
/// Called in a handler, with its arguments.
pub(super) unsafe fn pass_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let (handler, flags) = program_handler(signal);
    if signal == libc::SIGSEGV {
        // Handlers of this signal may wait for other signals, or never return, or must not be interrupted, as those of collectors with write barriers, which
        // stop threads by a signal: they run with the mask that the kernel would give them.
        // SAFETY: the kernel's signal frame; the set's first word is the kernel's.
        let before =
            unsafe { (&raw const (*context.cast::<libc::ucontext_t>()).uc_sigmask).cast::<u64>().read() };
        let faults = 1 << (libc::SIGBUS - 1) | 1 << (libc::SIGSEGV - 1);
        signals::set_mask(before | program_mask(signal) & !faults);
    }
    // SAFETY: the kernel's signal frame.
    let is_of_access = unsafe { (*info).si_code > 0 };
    match handler {
        libc::SIG_IGN if !is_of_access => {}
        // No access that is denied can be ignored.
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: sets the default action; the access is then made again, and the kernel ends the process as without us.
            unsafe {
                let mut default = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
                default.sa_sigaction = libc::SIG_DFL;
                real_sigaction(signal, &default);
                if !is_of_access {
                    libc::raise(signal);
                }
            }
        }
        // SAFETY: the program's handler, called as the kernel would.
        handler => unsafe {
            if flags & libc::SA_SIGINFO != 0 {
                let f: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = std::mem::transmute(handler);
                f(signal, info, context);
            } else {
                let f: extern "C" fn(c_int) = std::mem::transmute(handler);
                f(signal);
            }
        },
    }
}

/// The kernel's `struct sigaction`.
#[repr(C)]
struct KernelAction {
    handler: usize,
    flags: u64,
    restorer: usize,
    mask: u64,
}

/// Sets a signal's action by the kernel, past any interposed `sigaction`.
pub(crate) fn real_sigaction(signal: c_int, action: &libc::sigaction) {
    let k = KernelAction {
        handler: action.sa_sigaction,
        flags: action.sa_flags as u64 | SA_RESTORER,
        restorer: restore_frame as *const () as usize,
        // SAFETY: sigset_t begins with the kernel's eight bytes.
        mask: unsafe { *(&raw const action.sa_mask).cast::<u64>() },
    };
    // SAFETY: the kernel's structure, eight mask bytes.
    let _ = unsafe {
        sys::syscall(libc::SYS_rt_sigaction, [signal as usize, std::ptr::from_ref(&k) as usize, 0, 8, 0, 0])
    };
}

/// Makes the program's handler of `signal` run on the alternate stack.
pub(crate) fn put_on_stack(signal: c_int) {
    // The words of `KernelAction`: handler, flags, restorer, mask.
    let mut words = [0u64; 4];
    let (at, number) = (words.as_mut_ptr() as usize, signal as usize);
    // SAFETY: the kernel's structure with eight mask bytes; the action is set back with one flag more.
    unsafe {
        if sys::syscall(libc::SYS_rt_sigaction, [number, 0, at, 8, 0, 0]).is_ok()
            && ![libc::SIG_DFL, libc::SIG_IGN].contains(&(words[0] as usize))
        {
            // The kernel reads the word, which the compiler does not see.
            (&raw mut words[1]).write_volatile(words[1] | libc::SA_ONSTACK as u64);
            let _ = sys::syscall(libc::SYS_rt_sigaction, [number, at, 0, 8, 0, 0]);
        }
    }
}

const SA_RESTORER: u64 = 0x0400_0000;

/// The function that a handler returns to.
#[unsafe(naked)]
unsafe extern "C" fn restore_frame() {
    arch::return_from_signal!()
}

/// Sets our handler of SIGBUS, and that of SIGSEGV if the pager has need of it.
pub(crate) fn install(pager: &Pager) {
    // SAFETY: sigaction is plain data.
    let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    action.sa_sigaction = on_fault as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
    // While a fault is handled no handler of the program may run, as it could fault itself; nor libc's own, which `sigfillset` leaves out:
    // a thread that is cancelled at any time would end in the midst of the handler.
    // SAFETY: the set's first word is the kernel's.
    unsafe { (&raw mut action.sa_mask).cast::<u64>().write(u64::MAX) };
    real_sigaction(libc::SIGBUS, &action);
    if has_denials(pager) {
        keep_action(libc::SIGSEGV, &PROGRAM[1]);
        real_sigaction(libc::SIGSEGV, &action);
    }
}

/// The same in a program that runs already: the program's action is kept.
pub(super) fn adopt(pager: &Pager) {
    keep_action(libc::SIGBUS, &PROGRAM[0]);
    install(pager);
}

/// Records the program's action for a signal that we are about to handle.
fn keep_action(signal: c_int, [handler, flags, mask]: &[AtomicUsize; 3]) {
    // The words of `KernelAction`: handler, flags, restorer, mask.
    let mut words = [0u64; 4];
    let at = words.as_mut_ptr() as usize;
    // SAFETY: the kernel's structure, eight mask bytes.
    let known = unsafe { sys::syscall(libc::SYS_rt_sigaction, [signal as usize, 0, at, 8, 0, 0]) };
    if known.is_ok() {
        handler.store(words[0] as usize, Ordering::Relaxed);
        flags.store((words[1] & !SA_RESTORER) as usize, Ordering::Relaxed);
        mask.store(words[3] as usize, Ordering::Relaxed);
    }
}

/// Gives the signals that we handle back to the program, in a process in which nothing is paged any longer.
pub(super) fn give_back() {
    for signal in [libc::SIGBUS, libc::SIGSEGV].into_iter().filter(|signal| is_ours(*signal)) {
        let (handler, flags) = program_handler(signal);
        // SAFETY: sigaction is plain data.
        let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
        action.sa_sigaction = handler;
        action.sa_flags = flags;
        // SAFETY: the set's first word is the kernel's.
        unsafe { (&raw mut action.sa_mask).cast::<u64>().write(program_mask(signal)) };
        real_sigaction(signal, &action);
    }
}

/// Gives the calling thread an alternate stack of [`STACK_BYTES`] at `at`.
pub(crate) fn use_stack(at: usize) {
    sys::in_core_files(at, STACK_BYTES, true);
    let stack = libc::stack_t { ss_sp: at as *mut c_void, ss_flags: 0, ss_size: STACK_BYTES };
    // SAFETY: the caller gives the memory up for ever.
    let _ =
        unsafe { sys::syscall(libc::SYS_sigaltstack, [std::ptr::from_ref(&stack) as usize, 0, 0, 0, 0, 0]) };
}

/// The calling thread's alternate stack, as the kernel knows it.
pub(crate) fn stack() -> Option<libc::stack_t> {
    let mut stack = libc::stack_t { ss_sp: std::ptr::null_mut(), ss_flags: 0, ss_size: 0 };
    // SAFETY: valid for writes.
    let asked = unsafe { sys::syscall(libc::SYS_sigaltstack, [0, (&raw mut stack) as usize, 0, 0, 0, 0]) };
    asked.is_ok().then_some(stack)
}

/// Records the program's action for a signal that we handle; returns the handler and the flags of the one before.
pub(crate) fn set_program_handler(signal: c_int, handler: usize, flags: c_int, mask: u64) -> (usize, c_int) {
    let before = program_handler(signal);
    if let Some([place, place_of_flags, place_of_mask]) = program(signal) {
        place_of_flags.store(flags as usize, Ordering::Relaxed);
        place_of_mask.store(mask as usize, Ordering::Relaxed);
        place.store(handler, Ordering::Relaxed);
    }
    before
}

/// The program's handler of a signal that we handle, and its flags.
pub(crate) fn program_handler(signal: c_int) -> (usize, c_int) {
    let get = |place: &AtomicUsize| place.load(Ordering::Relaxed);
    program(signal).map_or((libc::SIG_DFL, 0), |[handler, flags, _]| (get(handler), get(flags) as c_int))
}

/// The signals by which the program's handler of a signal that we handle is not to be interrupted.
pub(crate) fn program_mask(signal: c_int) -> u64 {
    program(signal).map_or(0, |[_, _, mask]| mask.load(Ordering::Relaxed) as u64)
}
