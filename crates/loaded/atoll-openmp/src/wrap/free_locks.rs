//! pthread objects for which nobody waits: locked, unlocked, posted and signalled without a system call, wherever they lie.
//!
//! Called by `sync` before it keeps an object's page near, which takes four system calls. Programs have a lock for each part of their data, in paged
//! memory, and nearly all of these are free when they are asked for. libc tries to lock an object by instructions alone, and a page that is absent comes
//! by a fault as for any other access. To unlock one it may wake others by a futex, which the kernel finds by its address, without a look at its memory,
//! as long as all threads are of one process. Where workers are processes a mutex for which nobody waits is unlocked here.
//!
//! Where the words of an object lie is part of glibc's binary interface, as programs initialise objects statically; what they hold is as in glibc 2.25
//! and newer.

use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use super::sync;

/// Where the words of a mutex are: whether it is locked and somebody waits, who owns it, how many use it, of which kind it is.
const MUTEX_LOCK: usize = 0;
const MUTEX_OWNER: usize = 8;
const MUTEX_USERS: usize = 12;
pub(super) const MUTEX_KIND: usize = 16;
/// Kinds of mutexes that the kernel knows the owner of: PTHREAD_MUTEX_ROBUST_NORMAL_NP, PRIO_INHERIT_NP and PRIO_PROTECT_NP.
const OWNER_KNOWN: i32 = 16 | 32 | 64;
/// PTHREAD_MUTEX_PSHARED_BIT.
pub(super) const MUTEX_SHARED: i32 = 128;
/// What a mutex may be whose owner is not looked at when it is unlocked: shared, and PTHREAD_MUTEX_NO_ELISION_NP.
const MUTEX_PLAIN: i32 = MUTEX_SHARED | 512;
/// Where the word of a condition variable is that counts who waits, above three flags.
const CONDITION_WAITERS: usize = 36;
/// The flags' bits.
const CONDITION_FLAGS: u32 = 3;
/// Where the word of a read-write lock is that says whether it is shared between processes.
pub(super) const LOCK_SHARED: usize = 28;

/// A word of an object.
///
/// # Safety
/// The object must be valid at `at` meanwhile.
#[inline]
unsafe fn place<'a>(at: usize, offset: usize) -> &'a AtomicI32 {
    // SAFETY: the caller's promise.
    unsafe { &*((at + offset) as *const AtomicI32) }
}

/// What a word of an object holds.
///
/// # Safety
/// The object must be valid at `at`.
#[inline]
unsafe fn word(at: usize, offset: usize) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { place(at, offset) }.load(Ordering::Relaxed)
}

/// Tries to lock a mutex: libc's result, or `None` where libc might need the kernel for it.
///
/// # Safety
/// `at` is null or a mutex.
#[inline]
pub(super) unsafe fn try_mutex(at: usize) -> Option<c_int> {
    // SAFETY: the caller's mutex.
    unsafe {
        if at == 0 || word(at, MUTEX_KIND) & OWNER_KNOWN != 0 {
            return None;
        }
        sync::share_mutex(at);
        Some(real!("pthread_mutex_trylock", unsafe extern "C" fn(usize) -> c_int)(at))
    }
}

/// Locks a mutex if it is free. `None`: libc's function is to be called.
///
/// # Safety
/// `at` is null or a mutex.
#[inline]
pub(super) unsafe fn lock_mutex(at: usize) -> Option<c_int> {
    // SAFETY: the caller's mutex.
    unsafe { try_mutex(at) }.filter(|error| *error == 0)
}

/// Unlocks a mutex. `None`: libc's function is to be called, as the mutex is another one's or the kernel may look at its memory.
///
/// # Safety
/// `at` is null or a mutex.
#[inline]
pub(super) unsafe fn unlock_mutex(at: usize) -> Option<c_int> {
    // SAFETY: the caller's mutex.
    unsafe {
        let kind = if at == 0 { return None } else { word(at, MUTEX_KIND) };
        if super::separate() {
            return (kind & !MUTEX_PLAIN == 0 && unlock_unless_awaited(at)).then_some(0);
        }
        if kind & (OWNER_KNOWN | MUTEX_SHARED) != 0 {
            return None;
        }
        let error = real!("pthread_mutex_unlock", unsafe extern "C" fn(usize) -> c_int)(at);
        Some(error).filter(|error| *error == 0)
    }
}

/// Unlocks a plain mutex, which the caller holds. `false`: somebody may wait for it, and nothing was done.
///
/// # Safety
/// `at` is such a mutex.
#[inline]
unsafe fn unlock_unless_awaited(at: usize) -> bool {
    // SAFETY: the caller's mutex.
    let (lock, owner, users) =
        unsafe { (place(at, MUTEX_LOCK), place(at, MUTEX_OWNER), place(at, MUTEX_USERS)) };
    if lock.load(Ordering::Relaxed) != 1 {
        return false;
    }
    // Whoever holds the lock is alone with these words.
    let owned_by = owner.load(Ordering::Relaxed);
    let used_by = users.load(Ordering::Relaxed);
    owner.store(0, Ordering::Relaxed);
    users.store(used_by.wrapping_sub(1), Ordering::Relaxed);
    // Release: what was done under the lock is seen by the next that locks it, in libc's `pthread_mutex_lock`.
    if lock.compare_exchange(1, 0, Ordering::Release, Ordering::Relaxed).is_ok() {
        return true;
    }
    owner.store(owned_by, Ordering::Relaxed);
    users.store(used_by, Ordering::Relaxed);
    false
}

/// Signals a condition variable for which nobody waits: nothing is to be done. `None`: libc's function is to be called.
///
/// # Safety
/// `at` is null or a condition variable.
#[inline]
pub(super) unsafe fn signal(at: usize) -> Option<c_int> {
    // SAFETY: the caller's condition variable. A thread that waits has counted itself before it unlocked the mutex, as libc's own look takes it.
    let waiters = if at == 0 { return None } else { unsafe { word(at, CONDITION_WAITERS) as u32 } };
    (waiters >> CONDITION_FLAGS == 0).then_some(0)
}

/// Takes one of a semaphore if there is one. `None`: libc's function is to be called.
///
/// # Safety
/// `at` is null or a semaphore.
#[inline]
pub(super) unsafe fn take(at: usize) -> Option<c_int> {
    if at == 0 {
        return None;
    }
    // SAFETY: the caller's semaphore.
    let error = unsafe { real!("sem_trywait", unsafe extern "C" fn(usize) -> c_int)(at) };
    Some(error).filter(|error| *error == 0)
}

/// Adds one to a semaphore for which nobody waits. `None`: libc's function is to be called.
///
/// # Safety
/// `at` is null or a semaphore.
#[inline]
pub(super) unsafe fn post(at: usize) -> Option<c_int> {
    if at == 0 {
        return None;
    }
    // SAFETY: the caller's semaphore, which begins with a word of 64 bits: the value, and above it how many wait.
    let both = unsafe { &*(at as *const AtomicU64) };
    let mut seen = both.load(Ordering::Relaxed);
    while seen < i32::MAX as u64 {
        // Release: what was done before is seen by whoever takes it, in libc's `sem_wait`.
        match both.compare_exchange_weak(seen, seen + 1, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return Some(0),
            Err(now) => seen = now,
        }
    }
    None
}

/// Locks a read-write lock by `try_to`, libc's function that does not wait. `None`: the one that may wait is to be called.
///
/// # Safety
/// `at` is null or a read-write lock.
#[inline]
unsafe fn lock_rwlock(at: usize, try_to: unsafe extern "C" fn(usize) -> c_int) -> Option<c_int> {
    if at == 0 {
        return None;
    }
    // SAFETY: the caller's lock.
    let error = unsafe {
        sync::share_rwlock(at);
        try_to(at)
    };
    Some(error).filter(|error| *error == 0)
}

/// Locks a read-write lock for reading if that needs no wait. `None`: libc's function is to be called.
///
/// # Safety
/// `at` is null or a read-write lock.
#[inline]
pub(super) unsafe fn lock_to_read(at: usize) -> Option<c_int> {
    // SAFETY: the caller's lock.
    unsafe { lock_rwlock(at, real!("pthread_rwlock_tryrdlock", unsafe extern "C" fn(usize) -> c_int)) }
}

/// Locks a read-write lock for writing if it is free. `None`: libc's function is to be called.
///
/// # Safety
/// `at` is null or a read-write lock.
#[inline]
pub(super) unsafe fn lock_to_write(at: usize) -> Option<c_int> {
    // SAFETY: the caller's lock.
    unsafe { lock_rwlock(at, real!("pthread_rwlock_trywrlock", unsafe extern "C" fn(usize) -> c_int)) }
}

/// Unlocks a read-write lock. `None`: libc's function is to be called, as the kernel may look at the lock's memory.
///
/// # Safety
/// `at` is null or a read-write lock.
#[inline]
pub(super) unsafe fn unlock_rwlock(at: usize) -> Option<c_int> {
    // SAFETY: the caller's lock.
    unsafe {
        if at == 0 || super::separate() || word(at, LOCK_SHARED) != 0 {
            return None;
        }
        Some(real!("pthread_rwlock_unlock", unsafe extern "C" fn(usize) -> c_int)(at))
    }
}
