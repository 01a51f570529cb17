//! Signals that the program sends itself: those that a worker does not take go to the master, where the program's handlers run.
//!
//! Called by the program, and by the origin's agent for workers of other nodes. `start::forward` sends on those that somebody else
//! sends.

use atoll_memory::sys;
use std::ffi::c_int;

use super::process::{getpid, in_worker, kill};
use crate::start::forward;
use crate::state;

/// Is that what the signal does by itself?
fn ends_program(signal: c_int) -> bool {
    const OTHERS: [c_int; 9] = [
        // Nobody would know that the program sent it.
        libc::SIGKILL,
        libc::SIGCHLD,
        libc::SIGCONT,
        libc::SIGSTOP,
        libc::SIGTSTP,
        libc::SIGTTIN,
        libc::SIGTTOU,
        libc::SIGURG,
        libc::SIGWINCH,
    ];
    !OTHERS.contains(&signal)
}

/// A signal came for the program on another node; `raised`: a worker of it sent it. Called by the origin's agent.
pub(crate) fn came(signal: c_int, raised: bool) {
    // Where there is a handler, who sent it to many processes has reached this one, too.
    if raised || forward::is_fatal(signal) {
        kill(sys::process(), signal);
    }
}

/// `raise`: signals a worker does not take itself go to the master, where the program's handlers run.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn raise(signal: c_int) -> c_int {
    const OWN: [c_int; 5] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP];
    // One by which the program ends ends this worker, and so the rest.
    let ends_here = ends_program(signal) && forward::is_fatal(signal);
    if in_worker() && !OWN.contains(&signal) {
        if !ends_here {
            if atoll_nodes::on_origin() {
                kill(getpid(), signal);
            } else {
                atoll_nodes::ask::raise(signal);
            }
            return 0;
        }
        state::unblock(signal);
    }
    let call = real!("raise", unsafe extern "C" fn(c_int) -> c_int);
    // SAFETY: as the caller asked.
    unsafe { call(signal) }
}
