//! Signals of this process while cores run: faults and calls of the program, and signals meant for it.
//!
//! `switch.rs` finds the core before it comes here, and `core.rs` acts on what is noted.
//!
//! Rules: no allocation, no printing, no lock; a handler only copies registers into the core's state and sends the core's
//! thread to `restore`, or notes the signal.

use std::sync::atomic::{AtomicPtr, Ordering};

use super::switch::{self, CORES, CoreState, Fault, Left, USER_CODE, USER_DATA};
use crate::calls::Signals;
use crate::violation::Registers;

/// The lowest address of atoll's; below are the program's and its gate's.
const OURS: u64 = 1 << 32;

const FAULTS: [i32; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP, libc::SIGSYS];

/// The signals in which arriving signals are noted.
static NOTED: AtomicPtr<Signals> = AtomicPtr::new(std::ptr::null_mut());

/// `si_code` of a call that syscall user dispatch stopped.
const SYS_USER_DISPATCH: i32 = 2;

/// Handles faults from now on, and notes signals in `signals`, which must live as long as the process.
pub(super) fn install(signals: &'static Signals) {
    NOTED.store(std::ptr::from_ref(signals).cast_mut(), Ordering::SeqCst);
    for signal in FAULTS {
        catch(signal);
    }
    signals.bring_by(catch);
}

/// Makes `signal` arrive at [`on_signal`].
fn catch(signal: i32) {
    // SAFETY: all zeros is an empty action.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = switch::handler();
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: the handler keeps the rules above.
    unsafe {
        libc::sigfillset(&raw mut action.sa_mask);
        libc::sigaction(signal, &raw const action, std::ptr::null_mut());
    }
}

/// Gives this thread a stack for handlers, for as long as it lives.
pub(super) fn give_stack() {
    const BYTES: usize = 64 << 10;
    let stack: &'static mut [u8] = Box::leak(vec![0_u8; BYTES].into_boxed_slice());
    let stack = libc::stack_t { ss_sp: stack.as_mut_ptr().cast(), ss_flags: 0, ss_size: BYTES };
    // SAFETY: memory that is never taken back.
    unsafe { libc::sigaltstack(&raw const stack, std::ptr::null_mut()) };
}

/// The handler that `switch.rs` calls with every signal.
///
/// # Safety
/// The kernel's arguments of a handler; `core` is this thread's or null.
pub(super) unsafe extern "C" fn on_signal(
    signal: i32,
    info: *const libc::siginfo_t,
    context: *mut libc::ucontext_t,
    core: *mut CoreState,
) {
    // SAFETY: the kernel's.
    let (info, machine) = unsafe { (&*info, &mut (*context).uc_mcontext) };
    let raw = |register: i32| machine.gregs[register as usize] as u64;
    let (ip, selectors) = (raw(libc::REG_RIP), raw(libc::REG_CSGSFS));
    let segment = selectors & 0xffff;
    let is_fault = FAULTS.contains(&signal) && info.si_code > 0;
    let inside = segment != u64::from(USER_CODE) || ip < OURS;
    let entering = switch::entering().contains(&ip);
    if core.is_null() || !(inside || entering) {
        if is_fault {
            // This fault is atoll's own mistake: let it happen again, and end the process.
            // SAFETY: a disposition of this process.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        } else {
            note(signal, core);
        }
        return;
    }
    // SAFETY: this thread's core; it is not in Rust code that holds a reference to it.
    let core = unsafe { &mut *core };
    if inside {
        if !is_fault && segment == u64::from(USER_CODE) {
            // The core is in the gate, on its way out.
            note(signal, core);
            return;
        }
        core.registers = Registers {
            eax: raw(libc::REG_RAX) as u32,
            ebx: raw(libc::REG_RBX) as u32,
            ecx: raw(libc::REG_RCX) as u32,
            edx: raw(libc::REG_RDX) as u32,
            esi: raw(libc::REG_RSI) as u32,
            edi: raw(libc::REG_RDI) as u32,
            ebp: raw(libc::REG_RBP) as u32,
            esp: raw(libc::REG_RSP) as u32,
            eip: ip as u32,
            eflags: raw(libc::REG_EFL) as u32,
        };
    }
    let left = if is_fault {
        core.fault = Fault {
            signal,
            code: info.si_code,
            trap: raw(libc::REG_TRAPNO),
            error: raw(libc::REG_ERR),
            address: raw(libc::REG_CR2),
            code_segment: segment,
        };
        let call =
            signal == libc::SIGSYS && info.si_code == SYS_USER_DISPATCH && segment == u64::from(core.code);
        if call { Left::Call } else { Left::Fault }
    } else {
        note(signal, core);
        Left::Signal
    };
    core.left.store(left as u32, Ordering::SeqCst);
    let mut set = |register: i32, value: u64| machine.gregs[register as usize] = value as i64;
    set(libc::REG_RIP, switch::restore());
    set(libc::REG_RSP, core.host_stack);
    set(libc::REG_R9, std::ptr::from_mut(core) as u64);
    set(libc::REG_EFL, 0x202);
    set(
        libc::REG_CSGSFS,
        selectors & 0x0000_ffff_ffff_0000 | u64::from(USER_CODE) | u64::from(USER_DATA) << 48,
    );
}

/// Notes a signal and makes a core look at it: this one, or the first there is.
fn note(signal: i32, core: *mut CoreState) {
    let signals = NOTED.load(Ordering::SeqCst);
    if signals.is_null() {
        return;
    }
    // SAFETY: set once, to what lives as long as the process.
    let signals = unsafe { &*signals };
    if core.is_null() {
        let other = CORES.iter().map(|c| c.load(Ordering::SeqCst)).find(|c| !c.is_null());
        if let Some(other) = other {
            // SAFETY: registered cores are never freed; a thread of this process, by its number.
            unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), (*other).tid, signal) };
        }
        return;
    }
    signals.note(signal);
    // SAFETY: a registered core.
    unsafe { (*core).pending.store(1, Ordering::SeqCst) };
}
