//! Signals that the program sends itself: a worker passes those that it does not take to the master, where the program's
//! handlers run.
//!
//! Called by the program, and by the origin's agent for workers of other nodes. `start::forward` passes on signals that other
//! processes send.

use atoll_memory::sys;
use std::ffi::c_int;

use super::process::{getpid, in_worker, kill};
use crate::start::forward;
use crate::state;

/// Whether a worker may take the signal itself because its default action ends the program.
fn ends_program(signal: c_int) -> bool {
    const OTHERS: [c_int; 9] = [
        // A worker that is killed cannot tell that the program itself sent the signal, so the master gets it.
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

/// Handles a signal that came for the program on another node; `raised` if a worker there sent it. Called by the origin's
/// agent.
pub(crate) fn came(signal: c_int, raised: bool) {
    // Where the program has a handler, a sender that signalled many processes has reached this one, too.
    if raised || forward::is_fatal(signal) {
        kill(sys::process(), signal);
    }
}

/// `raise`: a signal that a worker does not take goes to the master, where the program's handlers run.
///
/// # Safety
/// The same as for libc's function.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn raise(signal: c_int) -> c_int {
    const OWN: [c_int; 5] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP];
    // A signal that ends the program ends this worker, and thereby the others.
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
