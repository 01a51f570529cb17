//! SIGBUS: how a fault on paged memory reaches the pager, and how a signal of ours that is not for us reaches the program.
//!
//! Installed by the constructor; runs on an alternate stack of each worker.
//!
//! Rules: no allocation, no locks the program could hold, no arena access, no printing unless the program ends.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicUsize, Ordering};

use atoll_memory::control::{EXIT_FAR, EXIT_NEAR, EXIT_SETUP, MAX_THREADS};
use atoll_memory::pager::FaultError;
use atoll_memory::pager::fault::Fault;
use atoll_memory::sys;

use super::copies_for_others;
use crate::state;

/// Bytes of an alternate signal stack.
pub(crate) const STACK_BYTES: usize = 256 << 10;

/// The program's own handlers for the signals that are ours (0: default), and whether they take three arguments.
static PROGRAM: [[AtomicUsize; 2]; 2] = [const { [const { AtomicUsize::new(0) }; 2] }; 2];

/// Where that of a signal is; none if the signal is the program's alone.
fn program(signal: c_int) -> Option<&'static [AtomicUsize; 2]> {
    match signal {
        libc::SIGBUS if state::pager().is_some() => Some(&PROGRAM[0]),
        // Memory that only another node has.
        libc::SIGSEGV if crate::nodes::active() => Some(&PROGRAM[1]),
        _ => None,
    }
}

/// Does a handler of ours stand before the program's?
pub(crate) fn is_ours(signal: c_int) -> bool {
    program(signal).is_some()
}

thread_local! {
    static HANDLING: Cell<bool> = const { Cell::new(false) };
    /// The signals that were blocked where the fault came from.
    static BEFORE: Cell<u64> = const { Cell::new(0) };
}

/// Is the calling thread in the handler, so that no other can run?
#[inline]
pub(crate) fn is_handling() -> bool {
    HANDLING.get()
}

/// Of a thread in the handler: the signals that were blocked before it (bit n−1: signal n).
pub(crate) fn blocked_before() -> u64 {
    BEFORE.get()
}

/// x86 page-fault error code: the page was present / the access was a write.
const ERROR_PRESENT: i64 = 1;
const ERROR_WRITE: i64 = 2;

unsafe extern "C" fn on_sigbus(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel's signal frame; errno is this thread's and restored.
    unsafe {
        let errno_at = libc::__errno_location();
        let errno = *errno_at;
        let address = (*info).si_addr() as usize;
        let frame = context.cast::<libc::ucontext_t>();
        let error = (*frame).uc_mcontext.gregs[libc::REG_ERR as usize];
        let Some(pager) = state::pager() else { return pass_on(signal, info, context) };
        if (*info).si_code <= 0 {
            // Sent by somebody, not caused by an access: another process that copies, a worker that wants to exec, or the program.
            let value = (*info).si_value().sival_ptr as usize;
            if (*info).si_code == libc::SI_QUEUE
                && let Some(request) = copies_for_others::address(value)
            {
                HANDLING.set(true);
                copies_for_others::serve(pager, (*info).si_pid(), request);
                HANDLING.set(false);
                *errno_at = errno;
                return;
            }
            crate::wrap::serve_request();
            return pass_on(signal, info, context);
        }
        if pager.is_segment() {
            return pass_on(signal, info, context);
        }
        let fault = Fault {
            address,
            write: error & ERROR_WRITE != 0,
            protection: error & ERROR_PRESENT != 0,
            table: state::table(),
        };
        HANDLING.set(true);
        // The set's first word is the kernel's.
        BEFORE.set((&raw const (*frame).uc_sigmask).cast::<u64>().read());
        let handled = pager.fault(state::executor(pager), fault);
        HANDLING.set(false);
        match handled {
            Ok(()) => {
                let ip = (*frame).uc_mcontext.gregs[libc::REG_RIP as usize] as u64;
                crate::journal::faulted(address, fault.write, ip);
                if pager.samples() && pager.take_sampled(fault.table, address) {
                    crate::journal::touched(address, fault.write, ip);
                }
            }
            // What waits is handled when this returns, and then the access is made once more.
            Err(FaultError::Interrupted) => {}
            Err(FaultError::NotOurs) => pass_on(signal, info, context),
            Err(e) => end(e),
        }
        *errno_at = errno;
    }
}

/// Ends the program after a fault that could not be resolved.
pub(crate) fn end(error: FaultError) -> ! {
    match error {
        FaultError::Far(e) => {
            let mut text = Text::new();
            let _ = std::fmt::Write::write_fmt(&mut text, format_args!("{e}"));
            state::give_up(
                EXIT_FAR,
                std::str::from_utf8(&text.bytes[..text.len]).unwrap_or("far memory failed"),
            )
        }
        FaultError::NearTooSmall { pinned, tables, least } => {
            let mut text = Text::new();
            let _ = std::fmt::Write::write_fmt(
                &mut text,
                format_args!(
                    "--near is less than what must stay near: the program's small blocks, stacks and small globals \
                     ({}K) and atoll's tables ({}K); this needs --near {}K at least",
                    pinned >> 10,
                    tables >> 10,
                    least.div_ceil(1024)
                ),
            );
            state::give_up(
                EXIT_NEAR,
                std::str::from_utf8(&text.bytes[..text.len]).unwrap_or("--near is too small"),
            )
        }
        FaultError::NoRoom => state::give_up(
            EXIT_NEAR,
            "near memory is full of pages that must stay: raise --near (or lower the number of workers)",
        ),
        FaultError::Kernel(sys::Errno(libc::ENOMEM)) | FaultError::Lost(sys::Errno(libc::ENOMEM)) => {
            state::give_up(
                EXIT_NEAR,
                "this machine has no memory left for a page that --near allows: lower --near, or with --page 2M \
             reserve more huge pages (/proc/sys/vm/nr_hugepages)",
            )
        }
        FaultError::Kernel(e) | FaultError::Lost(e) => {
            let mut text = Text::new();
            let _ = std::fmt::Write::write_fmt(
                &mut text,
                format_args!("the kernel refused to map a page (userfaultfd: {e}): see `atoll doctor`"),
            );
            state::give_up(EXIT_SETUP, text.as_str())
        }
        FaultError::TooManyThreads => {
            let mut text = Text::new();
            let _ = std::fmt::Write::write_fmt(
                &mut text,
                format_args!(
                    "the program has more than {MAX_THREADS} threads of its own at once that use paged memory: run it without atoll, or with fewer"
                ),
            );
            state::give_up(EXIT_SETUP, text.as_str())
        }
        FaultError::NotOurs => state::give_up(EXIT_SETUP, "a page that should be paged memory is none"),
        FaultError::Interrupted => {
            state::give_up(EXIT_SETUP, "a fault outside of the handler was interrupted")
        }
    }
}

/// A message under construction, without an allocator.
pub(super) struct Text {
    bytes: [u8; 512],
    len: usize,
}

impl Text {
    pub(super) fn new() -> Text {
        Text { bytes: [0; 512], len: 0 }
    }

    pub(super) fn as_str(&self) -> &str {
        // What does not fit may be cut within a character.
        std::str::from_utf8(&self.bytes[..self.len]).unwrap_or("a page could not be mapped")
    }
}

impl std::fmt::Write for Text {
    fn write_str(&mut self, s: &str) -> std::fmt::Result {
        let n = s.len().min(self.bytes.len() - self.len);
        self.bytes[self.len..self.len + n].copy_from_slice(&s.as_bytes()[..n]);
        self.len += n;
        Ok(())
    }
}

/// Hands a signal that is not for us to the program.
///
/// # Safety
/// In a handler, with its arguments.
pub(super) unsafe fn pass_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let (handler, flags) = program_handler(signal);
    match handler {
        libc::SIG_DFL => {
            // SAFETY: the default action, then the access again: the kernel ends the process as without us.
            unsafe {
                let mut default = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
                default.sa_sigaction = libc::SIG_DFL;
                real_sigaction(signal, &default);
                if (*info).si_code <= 0 {
                    libc::raise(signal);
                }
            }
        }
        libc::SIG_IGN => {}
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

/// Sets a signal's action past any interposed `sigaction`.
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

/// Has the program's handler of `signal` run on the alternate stack.
pub(crate) fn put_on_stack(signal: c_int) {
    // As `KernelAction`: handler, flags, restorer, mask.
    let mut words = [0u64; 4];
    let (at, number) = (words.as_mut_ptr() as usize, signal as usize);
    // SAFETY: the kernel's structure, eight mask bytes; what it was, with one flag more.
    unsafe {
        if sys::syscall(libc::SYS_rt_sigaction, [number, 0, at, 8, 0, 0]).is_ok()
            && ![libc::SIG_DFL, libc::SIG_IGN].contains(&(words[0] as usize))
        {
            // The kernel reads it, which the compiler does not see.
            (&raw mut words[1]).write_volatile(words[1] | libc::SA_ONSTACK as u64);
            let _ = sys::syscall(libc::SYS_rt_sigaction, [number, at, 0, 8, 0, 0]);
        }
    }
}

const SA_RESTORER: u64 = 0x0400_0000;

/// Where a handler returns to.
#[unsafe(naked)]
unsafe extern "C" fn restore_frame() {
    core::arch::naked_asm!("mov eax, 15", "syscall")
}

/// Takes SIGBUS for the pager.
pub(crate) fn install() {
    // SAFETY: sigaction is plain data.
    let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    action.sa_sigaction = on_sigbus as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
    // While a fault is handled no handler of the program may run: it could fault itself.
    // SAFETY: a valid set.
    unsafe { libc::sigfillset(&raw mut action.sa_mask) };
    real_sigaction(libc::SIGBUS, &action);
}

/// The same in a program that runs already: what it wants done with SIGBUS is kept.
pub(super) fn adopt() {
    // As `KernelAction`: handler, flags, restorer, mask.
    let mut words = [0u64; 4];
    let at = words.as_mut_ptr() as usize;
    // SAFETY: the kernel's structure, eight mask bytes.
    let known = unsafe { sys::syscall(libc::SYS_rt_sigaction, [libc::SIGBUS as usize, 0, at, 8, 0, 0]) };
    if known.is_ok() {
        let [[handler, flags], _] = &PROGRAM;
        handler.store(words[0] as usize, Ordering::Relaxed);
        flags.store((words[1] & !SA_RESTORER) as usize, Ordering::Relaxed);
    }
    install();
}

/// SIGBUS is the program's own again: nothing of this process is paged any longer.
pub(super) fn give_back() {
    let (handler, flags) = program_handler(libc::SIGBUS);
    // SAFETY: sigaction is plain data.
    let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    action.sa_sigaction = handler;
    action.sa_flags = flags;
    real_sigaction(libc::SIGBUS, &action);
}

/// Gives the calling thread an alternate stack of [`STACK_BYTES`] at `at`.
pub(crate) fn use_stack(at: usize) {
    sys::in_core_files(at, STACK_BYTES, true);
    let stack = libc::stack_t { ss_sp: at as *mut c_void, ss_flags: 0, ss_size: STACK_BYTES };
    // SAFETY: the memory is the caller's, for ever.
    let _ =
        unsafe { sys::syscall(libc::SYS_sigaltstack, [std::ptr::from_ref(&stack) as usize, 0, 0, 0, 0, 0]) };
}

/// Remembers what the program wants done with a signal that is ours; returns what it wanted before.
pub(crate) fn set_program_handler(signal: c_int, handler: usize, flags: c_int) -> (usize, c_int) {
    let before = program_handler(signal);
    if let Some([place, place_of_flags]) = program(signal) {
        place_of_flags.store(flags as usize, Ordering::Relaxed);
        place.store(handler, Ordering::Relaxed);
    }
    before
}

/// What the program wants done with it.
pub(crate) fn program_handler(signal: c_int) -> (usize, c_int) {
    let get = |place: &AtomicUsize| place.load(Ordering::Relaxed);
    program(signal).map_or((libc::SIG_DFL, 0), |[handler, flags]| (get(handler), get(flags) as c_int))
}
