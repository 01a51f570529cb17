//! Files that the program opened on the origin, used by workers of another node of the same machine.
//!
//! Called by the wrappers of calls on descriptors. The low numbers of such a node are taken by descriptors that can do nothing;
//! whoever uses one gets the origin's descriptor of that number, which shares its place in the file, until the next
//! barrier: it may be another file after that. What workers of the node open themselves has higher numbers.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, Ordering};

use atoll_memory::spin::Spin;
use atoll_memory::sys;

use crate::state::SignalsBlocked;

/// Numbers that are the origin's.
const NUMBERS: usize = 200;

const OWN: u8 = 0;
/// Stands for the origin's.
const EMPTY: u8 = 1;
/// Is the origin's.
const TAKEN: u8 = 2;

static STATES: [AtomicU8; NUMBERS] = [const { AtomicU8::new(OWN) }; NUMBERS];
/// A descriptor of the origin's process; below 0 on the origin, and where there is none.
static ORIGIN: AtomicI32 = AtomicI32::new(-1);
/// A descriptor that can do nothing.
static NOTHING: AtomicI32 = AtomicI32::new(-1);
static ANY: AtomicBool = AtomicBool::new(false);
static CHANGING: Spin<()> = Spin::new(());

fn call(number: i64, arguments: [usize; 3]) -> Option<c_int> {
    let [a, b, c] = arguments;
    // SAFETY: numbers, and a name that lives for the call.
    unsafe { sys::syscall(number, [a, b, c, 0, 0, 0]) }.ok().map(|result| result as c_int)
}

/// On the origin: other nodes may take descriptors, where the kernel asks (Yama).
pub(crate) fn allow() {
    // SAFETY: no pointers. Refused where there is no such restriction.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY) };
}

/// On another node, whose origin is process `origin`: keeps the low numbers for its descriptors.
pub(crate) fn prepare(origin: i32) {
    let Some(process) = call(libc::SYS_pidfd_open, [origin as usize, 0, 0]) else { return };
    let flags = (libc::O_PATH | libc::O_CLOEXEC) as usize;
    let Some(nothing) = call(libc::SYS_open, [c"/".as_ptr() as usize, flags, 0]) else { return };
    let high = |fd: c_int| {
        let moved = call(libc::SYS_fcntl, [fd as usize, libc::F_DUPFD_CLOEXEC as usize, NUMBERS]);
        let _ = call(libc::SYS_close, [fd as usize, 0, 0]);
        moved
    };
    let (Some(process), Some(nothing)) = (high(process), high(nothing)) else { return };
    NOTHING.store(nothing, Ordering::Relaxed);
    for (fd, state) in STATES.iter().enumerate().skip(3) {
        let free = call(libc::SYS_fcntl, [fd, libc::F_GETFD as usize, 0]).is_none();
        if free && call(libc::SYS_dup3, [nothing as usize, fd, libc::O_CLOEXEC as usize]).is_some() {
            state.store(EMPTY, Ordering::Relaxed);
        }
    }
    // Release: pairs with the Acquire in `have`.
    ORIGIN.store(process, Ordering::Release);
}

/// Takes descriptor `fd` from the origin if it is one of the origin's that is not here.
#[inline]
pub(super) fn have(fd: usize) {
    if STATES.get(fd as u32 as usize).is_some_and(|state| state.load(Ordering::Acquire) == EMPTY) {
        take(fd as u32 as usize);
    }
}

#[cold]
fn take(fd: usize) {
    let origin = ORIGIN.load(Ordering::Acquire);
    if origin < 0 {
        return;
    }
    let _blocked = SignalsBlocked::new();
    let _changing = CHANGING.lock();
    if STATES[fd].load(Ordering::Relaxed) != EMPTY {
        return;
    }
    // The origin has none of this number, or it may not be taken: the call that follows fails with EBADF.
    let Some(taken) = call(libc::SYS_pidfd_getfd, [origin as usize, fd, 0]) else { return };
    if call(libc::SYS_dup3, [taken as usize, fd, libc::O_CLOEXEC as usize]).is_some() {
        ANY.store(true, Ordering::Relaxed);
        // Release: pairs with the Acquire in `have`.
        STATES[fd].store(TAKEN, Ordering::Release);
    }
    let _ = call(libc::SYS_close, [taken as usize, 0, 0]);
}

/// At a barrier, where all of the node's workers wait: from now on the origin's numbers may mean other files.
pub(crate) fn forget() {
    if !ANY.load(Ordering::Relaxed) {
        return;
    }
    let _blocked = SignalsBlocked::new();
    let _changing = CHANGING.lock();
    ANY.store(false, Ordering::Relaxed);
    let nothing = NOTHING.load(Ordering::Relaxed) as usize;
    for (fd, state) in STATES.iter().enumerate() {
        if state.load(Ordering::Relaxed) == TAKEN {
            let _ = call(libc::SYS_dup3, [nothing, fd, libc::O_CLOEXEC as usize]);
            state.store(EMPTY, Ordering::Release);
        }
    }
}
