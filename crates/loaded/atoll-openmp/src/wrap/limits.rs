//! `setrlimit`, `getrlimit` and `prlimit`: a program's limits of its address space and of the size of its files leave room for what is
//! reserved in it.
//!
//! To the kernel the terabytes of addresses that atoll reserves are the program's, and the arena's memory is files of that size. Programs
//! that limit themselves to some gigabytes, as SPAdes does, would get no memory any more. So the kernel's limit is so much higher, and the
//! program finds the one that it set. A process that is only watched may be a shell that limits what it starts, so its limits are the
//! kernel's until it is managed. `atoll_memory::limits` has the limits that a program already begins with.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use atoll_memory::limits::ADDRESSES;
use atoll_memory::sys::{self, Errno};

use crate::heap::mapping::status;
use crate::start::take_over;
use crate::state;

/// A soft and a hard limit, as `struct rlimit` has them.
type Limit = [u64; 2];

/// What the program has set of one resource.
struct Asked {
    resource: u32,
    is_set: AtomicBool,
    soft: AtomicU64,
    hard: AtomicU64,
}

impl Asked {
    const fn new(resource: u32) -> Asked {
        Asked { resource, is_set: AtomicBool::new(false), soft: AtomicU64::new(0), hard: AtomicU64::new(0) }
    }

    fn get(&self) -> Option<Limit> {
        let both = || [self.soft.load(Ordering::Relaxed), self.hard.load(Ordering::Relaxed)];
        // Acquire: pairs with the Release in `set`.
        self.is_set.load(Ordering::Acquire).then(both)
    }

    fn set(&self, [soft, hard]: Limit) {
        self.soft.store(soft, Ordering::Relaxed);
        self.hard.store(hard, Ordering::Relaxed);
        // Release: pairs with the Acquire in `get`.
        self.is_set.store(true, Ordering::Release);
    }
}

static ASKED: [Asked; 2] = [Asked::new(libc::RLIMIT_AS), Asked::new(libc::RLIMIT_FSIZE)];

/// What is noted of this resource, if its limits are raised.
fn raised(resource: u32) -> Option<&'static Asked> {
    let is_managed = || state::pager().is_some() || take_over::is_watched();
    ASKED.iter().find(|one| one.resource == resource && (one.get().is_some() || is_managed()))
}

/// The kernel's own call; either pointer may be null.
fn kernel(process: usize, resource: u32, new: usize, old: usize) -> Result<usize, Errno> {
    // SAFETY: the kernel fails where it cannot read or write.
    unsafe { sys::syscall(libc::SYS_prlimit64, [process, resource as usize, new, old, 0, 0]) }
}

/// What the kernel keeps of this process.
fn kept(resource: u32) -> Result<Limit, Errno> {
    let mut limit: Limit = [0; 2];
    kernel(0, resource, 0, (&raw mut limit).addr())?;
    Ok(limit)
}

/// Has the kernel keep these limits, with room for what is reserved in a managed program.
fn apply(asked: &Asked, limits: Limit, is_managed: bool) -> Result<(), Errno> {
    let room = if is_managed { ADDRESSES } else { 0 };
    let try_with = |most: u64| {
        let raised: Limit = limits.map(|limit| limit.saturating_add(room).min(most));
        kernel(0, asked.resource, (&raw const raised).addr(), 0).map(drop)
    };
    match try_with(u64::MAX) {
        // A program that another one limited may not go beyond what it has.
        Err(Errno(libc::EPERM)) => try_with(kept(asked.resource)?[1]),
        result => result,
    }
}

/// Makes room in the limits that this process has set, which is about to be managed. Where the kernel refuses, it cannot be managed.
pub(crate) fn make_room() {
    for asked in &ASKED {
        if let Some(limits) = asked.get() {
            let _ = apply(asked, limits, true);
        }
    }
}

/// Sets a limit that is raised, where the program has found `before`.
fn set(asked: &Asked, limits: Limit, before: Limit) -> Result<(), Errno> {
    // SAFETY: the call only asks for a number.
    if limits[1] > before[1] && unsafe { libc::geteuid() } != 0 {
        return Err(Errno(libc::EPERM));
    }
    apply(asked, limits, state::pager().is_some())?;
    asked.set(limits);
    Ok(())
}

/// `prlimit` of any process: sets what `new` points at and then fills what `old` points at with the limit before; both may be null.
///
/// # Safety
/// The pointers are null, or valid.
unsafe fn change(process: usize, resource: u32, new: *const Limit, old: *mut Limit) -> Result<usize, Errno> {
    // A worker's own number is not the program's.
    let is_own = process == 0 || process == super::process::getpid() as usize;
    let Some(asked) = raised(resource).filter(|_| is_own) else {
        // Of the program's memory the kernel gets copies, as some may be far.
        // SAFETY: the caller's promise.
        let wanted = (!new.is_null()).then(|| unsafe { new.read_unaligned() });
        let mut before: Limit = [0; 2];
        let pointer = wanted.as_ref().map_or(0, |wanted| std::ptr::from_ref(wanted).addr());
        let result = kernel(process, resource, pointer, (&raw mut before).addr())?;
        if !old.is_null() {
            // SAFETY: the caller's promise.
            unsafe { old.write_unaligned(before) };
        }
        return Ok(result);
    };
    let before = asked.get().map_or_else(|| kept(resource), Ok)?;
    if !new.is_null() {
        // SAFETY: the caller's promise.
        set(asked, unsafe { new.read_unaligned() }, before)?;
    }
    if !old.is_null() {
        // SAFETY: the caller's promise.
        unsafe { old.write_unaligned(before) };
    }
    Ok(0)
}

/// C's `getrlimit`.
///
/// # Safety
/// The same as for C's function.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn getrlimit(resource: u32, to: *mut c_void) -> c_int {
    // SAFETY: the caller's promise.
    status(unsafe { change(0, resource, std::ptr::null(), to.cast()) })
}

/// C's `getrlimit64`.
///
/// # Safety
/// The same as for C's function.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn getrlimit64(resource: u32, to: *mut c_void) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { getrlimit(resource, to) }
}

/// C's `setrlimit`.
///
/// # Safety
/// The same as for C's function.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn setrlimit(resource: u32, limit: *const c_void) -> c_int {
    // SAFETY: the caller's promise.
    status(unsafe { change(0, resource, limit.cast(), std::ptr::null_mut()) })
}

/// C's `setrlimit64`.
///
/// # Safety
/// The same as for C's function.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn setrlimit64(resource: u32, limit: *const c_void) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { setrlimit(resource, limit) }
}

/// Linux' `prlimit`.
///
/// # Safety
/// The same as for the C library's function.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn prlimit(
    process: c_int,
    resource: u32,
    limit: *const c_void,
    to: *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    status(unsafe { change(process as usize, resource, limit.cast(), to.cast()) })
}

/// Linux' `prlimit64`.
///
/// # Safety
/// The same as for the C library's function.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn prlimit64(
    process: c_int,
    resource: u32,
    limit: *const c_void,
    to: *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { prlimit(process, resource, limit, to) }
}
