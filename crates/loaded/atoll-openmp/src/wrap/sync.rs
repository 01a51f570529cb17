//! pthread objects of the program, made to work between processes.
//!
//! glibc's objects have a flag "shared between processes", which decides the kind of futex they use. Every function sets it
//! before libc's own runs, so objects that were initialised statically have it from their first use. Where an object lies in
//! paged memory its page stays near during the call, since a futex on an absent page cannot be looked up. Locks that are free are `free_locks`'.

use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use atoll_memory::sys;

use super::lend::Argument as _;
use super::paged::{self, Hold};
use super::{free_locks, node_sync};
use crate::state;

/// Sleeps while the word is `value`, or until woken, by any process.
pub(super) fn futex_wait(word: &AtomicI32, value: i32) {
    // SAFETY: the word is valid; a shared futex without timeout.
    let _ = unsafe {
        sys::syscall(
            libc::SYS_futex,
            [word.as_ptr() as usize, libc::FUTEX_WAIT as usize, value as u32 as usize, 0, 0, 0],
        )
    };
}

/// Wakes up to `n` threads that sleep on the word, in all processes.
pub(super) fn futex_wake(word: &AtomicI32, n: i32) {
    // SAFETY: the word is valid; a shared futex.
    let _ = unsafe {
        sys::syscall(
            libc::SYS_futex,
            [word.as_ptr() as usize, libc::FUTEX_WAKE as usize, n as usize, 0, 0, 0],
        )
    };
}

/// Sets bits of a word of an object, if they are not set.
///
/// # Safety
/// The object must be valid at `at`.
#[inline]
unsafe fn set_bits(at: usize, offset: usize, bits: i32) {
    if at == 0 || !super::separate() {
        return;
    }
    // SAFETY: the caller's promise.
    let word = unsafe { &*((at + offset) as *const AtomicI32) };
    if word.load(Ordering::Relaxed) & bits != bits {
        word.fetch_or(bits, Ordering::Relaxed);
    }
}

/// Bytes of the largest pthread object that is not an attribute.
const OBJECT: usize = 56;

/// A mutex works between processes from now on, if there are several: `__kind` gets PTHREAD_MUTEX_PSHARED_BIT.
///
/// # Safety
/// `at` is a mutex.
#[inline]
pub(super) unsafe fn share_mutex(at: usize) {
    // SAFETY: the caller's promise.
    unsafe { set_bits(at, free_locks::MUTEX_KIND, free_locks::MUTEX_SHARED) };
}

/// A read-write lock works between processes from now on, if there are several: `__shared` becomes true.
///
/// # Safety
/// `at` is a read-write lock.
#[inline]
pub(super) unsafe fn share_rwlock(at: usize) {
    // SAFETY: the caller's promise.
    unsafe { set_bits(at, free_locks::LOCK_SHARED, 1) };
}

/// Prepares a mutex.
///
/// # Safety
/// `at` is a mutex.
#[inline]
pub(super) unsafe fn mutex(at: usize) -> Hold {
    // SAFETY: the caller's promise.
    unsafe { share_mutex(at) };
    paged::hold(at, 40, true)
}

/// Prepares a condition variable: `__wrefs` gets its bit 0.
///
/// # Safety
/// `at` is a condition variable.
#[inline]
pub(super) unsafe fn condition(at: usize) -> Hold {
    // SAFETY: the caller's promise.
    unsafe { set_bits(at, 36, 1) };
    paged::hold(at, 48, true)
}

/// Prepares a read-write lock.
///
/// # Safety
/// `at` is a read-write lock.
#[inline]
pub(super) unsafe fn rwlock(at: usize) -> Hold {
    // SAFETY: the caller's promise.
    unsafe { share_rwlock(at) };
    paged::hold(at, OBJECT, true)
}

const TIME: usize = size_of::<libc::timespec>();

/// Defines wrappers of functions on objects, which call libc's own, or on several nodes those of `node_sync`. `first`: a function of `free_locks` whose
/// result is the wrapper's where it has one.
macro_rules! objects {
    ($($name:ident ( $($arg:ident : $kind:ident $(($size:expr))?),* ) $(first $first:ident($object:ident))?;)*) => {$(
        /// The function of this name in libc.
        ///
        /// # Safety
        /// The same as for libc's function.
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C" fn $name($($arg: usize),*) -> c_int {
            if atoll_nodes::active() {
                #[allow(unused_unsafe, reason = "some have nothing to do")]
                // SAFETY: the caller's arguments.
                return unsafe { node_sync::$name($($arg),*) };
            }
            let call = real!(stringify!($name), unsafe extern "C" fn($(wrap!(@usize $arg)),*) -> c_int);
            if state::pager().is_some() {
                // SAFETY: the caller's object.
                $(if let Some(result) = unsafe { free_locks::$first($object) } {
                    return result;
                })?
                let ($($arg,)*) = ($(wrap!(@lend $arg $kind $(($size))?),)*);
                // SAFETY: the caller's arguments.
                return unsafe { call($($arg.at()),*) };
            }
            // SAFETY: the caller's arguments.
            unsafe { call($($arg),*) }
        }
    )*};
}

objects! {
    pthread_mutex_lock(object: mutex) first lock_mutex(object);
    pthread_mutex_trylock(object: mutex) first try_mutex(object);
    pthread_mutex_timedlock(object: mutex, time: r(TIME)) first lock_mutex(object);
    pthread_mutex_clocklock(object: mutex, clock: v, time: r(TIME)) first lock_mutex(object);
    pthread_mutex_unlock(object: mutex) first unlock_mutex(object);
    pthread_mutex_consistent(object: mutex);
    mtx_lock(object: mutex) first lock_mutex(object);
    mtx_trylock(object: mutex) first lock_mutex(object);
    mtx_timedlock(object: mutex, time: r(TIME)) first lock_mutex(object);
    mtx_unlock(object: mutex) first unlock_mutex(object);
    pthread_cond_wait(object: condition, with: mutex);
    pthread_cond_timedwait(object: condition, with: mutex, time: r(TIME));
    pthread_cond_clockwait(object: condition, with: mutex, clock: v, time: r(TIME));
    pthread_cond_signal(object: condition) first signal(object);
    pthread_cond_broadcast(object: condition) first signal(object);
    pthread_cond_destroy(object: condition);
    cnd_wait(object: condition, with: mutex);
    cnd_timedwait(object: condition, with: mutex, time: r(TIME));
    cnd_signal(object: condition) first signal(object);
    cnd_broadcast(object: condition) first signal(object);
    cnd_destroy(object: condition);
    pthread_rwlock_rdlock(object: rwlock) first lock_to_read(object);
    pthread_rwlock_wrlock(object: rwlock) first lock_to_write(object);
    pthread_rwlock_tryrdlock(object: rwlock) first lock_to_read(object);
    pthread_rwlock_trywrlock(object: rwlock) first lock_to_write(object);
    pthread_rwlock_timedrdlock(object: rwlock, time: r(TIME)) first lock_to_read(object);
    pthread_rwlock_timedwrlock(object: rwlock, time: r(TIME)) first lock_to_write(object);
    pthread_rwlock_clockrdlock(object: rwlock, clock: v, time: r(TIME)) first lock_to_read(object);
    pthread_rwlock_clockwrlock(object: rwlock, clock: v, time: r(TIME)) first lock_to_write(object);
    pthread_rwlock_unlock(object: rwlock) first unlock_rwlock(object);
    pthread_barrier_wait(object: o(32));
    pthread_barrier_destroy(object: o(32));
    sem_wait(object: o(32)) first take(object);
    sem_trywait(object: o(32)) first take(object);
    sem_timedwait(object: o(32), time: r(TIME)) first take(object);
    sem_clockwait(object: o(32), clock: v, time: r(TIME)) first take(object);
    sem_post(object: o(32)) first post(object);
}

/// `sem_init`: the semaphore is always made for all processes.
///
/// # Safety
/// The same as for libc's function.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn sem_init(object: usize, shared: c_int, value: u32) -> c_int {
    let call = real!("sem_init", unsafe extern "C" fn(usize, c_int, u32) -> c_int);
    // SAFETY: the caller's object.
    unsafe { call(object, if super::separate() { 1 } else { shared }, value) }
}

/// `pthread_barrier_init`: the barrier is always made for all processes.
///
/// # Safety
/// The same as for libc's function.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn pthread_barrier_init(object: usize, attributes: usize, count: u32) -> c_int {
    let call = real!("pthread_barrier_init", unsafe extern "C" fn(usize, usize, u32) -> c_int);
    // SAFETY: the caller's object; its word `shared` is the fourth, 128 means between processes.
    unsafe {
        let error = call(object, attributes, count);
        if error == 0 {
            set_bits(object, 12, 128);
        }
        error
    }
}

/// Waits while a `pthread_once_t` is `value`; for `variadic.c`.
///
/// # Safety
/// `word` must be valid.
#[unsafe(no_mangle)]
unsafe extern "C" fn atoll_once_wait(word: *const AtomicI32, value: c_int) {
    if atoll_nodes::active() {
        // SAFETY: by the caller.
        return node_sync::wait(unsafe { AtomicU32::from_ptr(word as *mut u32) }, value as u32);
    }
    let _held = paged::hold(word as usize, 4, true);
    // SAFETY: the caller's promise.
    futex_wait(unsafe { &*word }, value);
}

/// Wakes all threads that wait for a `pthread_once_t`; for `variadic.c`.
///
/// # Safety
/// `word` must be valid.
#[unsafe(no_mangle)]
unsafe extern "C" fn atoll_once_wake(word: *const AtomicI32) {
    if atoll_nodes::active() {
        // SAFETY: by the caller.
        return node_sync::wake_all(unsafe { AtomicU32::from_ptr(word as *mut u32) });
    }
    let _held = paged::hold(word as usize, 4, true);
    // SAFETY: the caller's promise.
    futex_wake(unsafe { &*word }, i32::MAX);
}
