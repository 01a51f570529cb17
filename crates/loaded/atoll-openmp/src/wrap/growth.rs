//! Room for what the program brings beside paged memory: in a small memory group near memory takes nearly all, and a process or a library
//! comes and grows faster than the launcher looks. Threads that the program makes besides OpenMP's grow, too.
//!
//! `process`, `stdio`, `threads`, `replay` and `start::forked` call this before a process or a thread is started and before a library is
//! loaded. The control block keeps the limit that then holds; the launcher chooses both limits (`run::automatic` of the command).

use std::sync::atomic::Ordering;

use super::paged;
use crate::state;

/// Called before the program grows. The first time, near memory beyond the limit that holds from now on is given back.
pub(crate) fn expect() {
    let Some(pager) = state::pager() else { return };
    let expects = &pager.control().expects_growth;
    let is_first = expects.load(Ordering::Relaxed) == 0 && expects.swap(1, Ordering::Relaxed) == 0;
    if is_first && pager.is_beyond_limit() {
        paged::give_back(pager);
    }
}

extern "C" fn before_vfork() {
    expect();
}

/// The address of libc's `vfork`.
extern "C" fn real_vfork() -> usize {
    real!("vfork", unsafe extern "C" fn()) as usize
}

/// `vfork`, which is jumped to, as it returns twice to the caller.
///
/// # Safety
/// The same as for libc's function.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn vfork() {
    crate::arch::call_then_jump!(before_vfork, real_vfork)
}
