//! Files that the program opened on the origin, used by workers of another node of the same machine.
//!
//! Called by the wrappers of calls on descriptors. On such a node the low descriptor numbers are taken by descriptors that can
//! do nothing. A worker that uses one gets the origin's descriptor of that number, which shares its position in the file, until
//! the next barrier, after which the number may mean another file. Files that workers of the node open themselves have higher
//! numbers. The standard descriptors are each node's own until the program replaces them.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, Ordering};

use atoll_memory::spin::Spin;
use atoll_memory::sys;

use crate::state::SignalsBlocked;

/// The number of low descriptor numbers that are the origin's.
const NUMBERS: usize = 200;

const OWN: u8 = 0;
/// The descriptor can do nothing; it stands for the origin's.
const EMPTY: u8 = 1;
/// The descriptor is the origin's.
const TAKEN: u8 = 2;

static STATES: [AtomicU8; NUMBERS] = [const { AtomicU8::new(OWN) }; NUMBERS];
/// A descriptor of the origin's process; negative on the origin, and where there is none.
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

/// The files behind the standard descriptors at the last check, as device and file number.
static STANDARD: Spin<[Option<(u64, u64)>; 3]> = Spin::new([None; 3]);

/// The standard descriptors that are other files than before the last region, one bit each. Called on the origin before a
/// region.
pub(crate) fn replaced() -> u8 {
    let file = |fd: c_int| {
        let mut found = std::mem::MaybeUninit::<libc::stat>::uninit();
        call(libc::SYS_fstat, [fd as usize, found.as_mut_ptr() as usize, 0])?;
        // SAFETY: the call has filled it in.
        let found = unsafe { found.assume_init() };
        Some((found.st_dev, found.st_ino))
    };
    let now = [0, 1, 2].map(file);
    let _blocked = SignalsBlocked::new();
    let before = std::mem::replace(&mut *STANDARD.lock(), now);
    (0..3).filter(|fd| now[*fd] != before[*fd]).fold(0, |bits, fd| bits | 1 << fd)
}

/// Replaces the standard descriptors in `bits` by the origin's. Called on another node before its part of a region.
pub(crate) fn replace(bits: u8) {
    let origin = ORIGIN.load(Ordering::Acquire);
    if bits == 0 || origin < 0 {
        return;
    }
    for fd in (0..3).filter(|fd| bits >> fd & 1 != 0) {
        if let Some(taken) = call(libc::SYS_pidfd_getfd, [origin as usize, fd, 0]) {
            NO_INPUT.store(NO_INPUT.load(Ordering::Relaxed) && fd != 0, Ordering::Relaxed);
            let _ = call(libc::SYS_dup3, [taken as usize, fd, 0]);
            let _ = call(libc::SYS_close, [taken as usize, 0, 0]);
        }
    }
}

/// Notes the origin's standard descriptors, before a region.
pub(crate) fn begin() {
    replaced();
}

/// Lets other nodes take this one's descriptors, where the kernel asks for such consent (Yama).
pub(crate) fn allow() {
    // SAFETY: no pointers. Refused where the kernel has no such restriction.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY) };
}

/// Whether standard input on another node is empty, instead of the origin's.
static NO_INPUT: AtomicBool = AtomicBool::new(false);

/// Makes standard input empty. Called on another node before [`prepare`].
pub(crate) fn without_input() {
    NO_INPUT.store(true, Ordering::Relaxed);
}

/// Reserves the low descriptor numbers, on another node whose origin is process `origin`.
pub(crate) fn prepare(origin: i32) {
    let Some(process) = call(libc::SYS_pidfd_open, [origin as usize, 0, 0]) else { return };
    let flags = (libc::O_PATH | libc::O_CLOEXEC) as usize;
    let root = c"/".as_ptr() as usize;
    let Some(nothing) = call(libc::SYS_openat, [libc::AT_FDCWD as usize, root, flags]) else { return };
    let high = |fd: c_int| {
        let moved = call(libc::SYS_fcntl, [fd as usize, libc::F_DUPFD_CLOEXEC as usize, NUMBERS]);
        let _ = call(libc::SYS_close, [fd as usize, 0, 0]);
        moved
    };
    let (Some(process), Some(nothing)) = (high(process), high(nothing)) else { return };
    // Standard input is the origin's. What the origin's streams have read is missing here, but nothing is read twice.
    if let Some(input) = call(libc::SYS_pidfd_getfd, [process as usize, 0, 0]) {
        let _ = call(libc::SYS_dup3, [input as usize, 0, 0]);
        let _ = call(libc::SYS_close, [input as usize, 0, 0]);
        NO_INPUT.store(false, Ordering::Relaxed);
    }
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

/// Takes descriptor `fd` from the origin if it is one of the origin's that is not here yet.
#[inline]
pub(super) fn have(fd: usize) {
    if STATES.get(fd as u32 as usize).is_some_and(|state| state.load(Ordering::Acquire) == EMPTY) {
        take(fd as u32 as usize);
    }
    if fd as u32 == 0 && NO_INPUT.load(Ordering::Relaxed) {
        atoll_nodes::unsupported("reading standard input without its stream, on a node of another machine,");
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
    // The origin has none of this number, or it may not be taken: the call that follows then fails with EBADF.
    let Some(taken) = call(libc::SYS_pidfd_getfd, [origin as usize, fd, 0]) else { return };
    if call(libc::SYS_dup3, [taken as usize, fd, libc::O_CLOEXEC as usize]).is_some() {
        ANY.store(true, Ordering::Relaxed);
        // Release: pairs with the Acquire in `have`.
        STATES[fd].store(TAKEN, Ordering::Release);
    }
    let _ = call(libc::SYS_close, [taken as usize, 0, 0]);
}

/// Forgets the origin's descriptors, whose numbers may mean other files from now on. Called at a barrier, where all of the
/// node's workers wait.
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
