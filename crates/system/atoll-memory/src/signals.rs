//! The signal mask of the calling thread, and whether it is in the handler of a fault.
//!
//! The mask is read and set by system calls of this crate's own (`sys`), as programs may define functions named as libc's. Whoever
//! holds a lock that a fault needs blocks signals (`SignalsBlocked`); `managed` says which worker the thread is.
//!
//! Rules: no allocation, no locks, no arena access but to the caller's own stack.

use std::cell::Cell;

use crate::sys;

thread_local! {
    static HANDLING: Cell<bool> = const { Cell::new(false) };
    /// The signals that were blocked where the fault came from.
    static BEFORE: Cell<u64> = const { Cell::new(0) };
}

/// Is the calling thread in the handler of a fault, so that no other handler can run?
#[inline]
pub fn is_handling() -> bool {
    HANDLING.get()
}

/// The calling thread enters the handler of a fault; `before` are the signals that were blocked until then (bit n−1: signal n).
#[inline]
pub fn enter_handler(before: u64) {
    HANDLING.set(true);
    BEFORE.set(before);
}

/// The calling thread leaves the handler of a fault.
#[inline]
pub fn leave_handler() {
    HANDLING.set(false);
}

/// The signals that were blocked before the handler in which the calling thread is (bit n−1: signal n).
#[inline]
pub fn blocked_before() -> u64 {
    BEFORE.get()
}

/// All signals are blocked while a value of this type lives, so that no handler of the program interrupts.
#[derive(Debug)]
pub struct SignalsBlocked {
    before: u64,
}

/// Signals that an instruction causes: SIGBUS is how faults arrive, the others must kill, not hang.
const fn synchronous() -> u64 {
    const fn bit(signal: i32) -> u64 {
        1 << (signal - 1)
    }
    bit(libc::SIGBUS) | bit(libc::SIGSEGV) | bit(libc::SIGFPE) | bit(libc::SIGILL) | bit(libc::SIGTRAP)
}

impl SignalsBlocked {
    /// The mask meanwhile, as the kernel keeps it: without the two that nobody can block.
    pub const MASK: u64 = !(synchronous() | 1 << (libc::SIGKILL - 1) | 1 << (libc::SIGSTOP - 1));

    /// Blocks all signals but those that an instruction causes.
    #[expect(clippy::new_without_default, reason = "it has an effect")]
    pub fn new() -> SignalsBlocked {
        SignalsBlocked { before: set_mask(SignalsBlocked::MASK) }
    }

    /// The thread's signal mask from before.
    pub fn before(&self) -> u64 {
        self.before
    }
}

/// Blocks all signals, those that an instruction causes too.
pub fn set_all_blocked() -> SignalsBlocked {
    SignalsBlocked { before: set_mask(u64::MAX) }
}

/// Blocks for ever all but what the thread itself causes, by an instruction or a system call, and what stops or goes on with the
/// whole job.
pub fn block_asynchronous() {
    let others = [libc::SIGPIPE, libc::SIGXFSZ, libc::SIGSYS, libc::SIGTSTP, libc::SIGCONT];
    set_mask(others.iter().fold(SignalsBlocked::MASK, |m, s| m & !(1 << (s - 1))));
}

impl SignalsBlocked {
    /// Lets the signals that wait be handled now: those that were not blocked before.
    pub fn let_pass(&self) {
        let blocked = set_mask(self.before);
        set_mask(blocked);
    }
}

/// Does a signal wait for the calling thread, or its process, that `blocked` lets pass?
pub fn signal_waits(blocked: u64) -> bool {
    let mut waiting = 0u64;
    let words = [std::ptr::from_mut(&mut waiting) as usize, 8, 0, 0, 0, 0];
    // SAFETY: eight bytes, the size the kernel is told.
    while unsafe { sys::syscall(libc::SYS_rt_sigpending, words) }.is_err() {
        // They lie on a stack that another node took at this moment: a write brings it back.
        // SAFETY: this function's own variable.
        unsafe { (&raw mut waiting).write_volatile(0) };
    }
    waiting & !blocked != 0
}

/// Lets the calling thread, a worker, take `signal` from now on.
pub fn unblock(signal: i32) {
    let mask = SignalsBlocked::new().before();
    set_mask(mask & !(1 << (signal - 1)));
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        set_mask(self.before);
    }
}

/// The calling thread's signal mask. It changes nothing: no stack of a thread that asks is another node's.
pub fn mask() -> u64 {
    let mut now = 0u64;
    // SAFETY: eight bytes, the size the kernel is told.
    let _ = unsafe { sys::syscall(libc::SYS_rt_sigprocmask, [0, 0, (&raw mut now) as usize, 8, 0, 0]) };
    now
}

/// Sets the calling thread's signal mask (bit n−1: signal n); returns the one before.
pub fn set_mask(mask: u64) -> u64 {
    let mut before = 0u64;
    let words = [
        libc::SIG_SETMASK as usize,
        std::ptr::from_ref(&mask) as usize,
        std::ptr::from_mut(&mut before) as usize,
        8,
        0,
        0,
    ];
    // SAFETY: both pointers are to eight bytes, the size the kernel is told.
    while unsafe { sys::syscall(libc::SYS_rt_sigprocmask, words) }.is_err() {
        // They lie on a stack that another node took at this moment: a write brings it back.
        // SAFETY: this function's own variable.
        unsafe { (&raw mut before).write_volatile(0) };
    }
    before
}
