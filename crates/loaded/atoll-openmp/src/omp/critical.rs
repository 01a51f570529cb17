//! `critical`, named and unnamed, and the lock for atomic operations that have no instruction.
//!
//! A name is a word in program memory; threads that wait for it sleep in `crate::futex`'s parking lot.

use super::spread;
use super::word_lock::{word_lock, word_unlock};
use atoll_memory::futex::Lock;
use atoll_nodes::ask;
use std::sync::atomic::AtomicU32;

static UNNAMED: Lock<()> = Lock::new(());
static ATOMIC: Lock<()> = Lock::new(());

#[unsafe(no_mangle)]
extern "C" fn GOMP_critical_start() {
    if atoll_nodes::active() {
        return spread::lock(&raw const UNNAMED as usize);
    }
    UNNAMED.acquire();
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_critical_end() {
    if atoll_nodes::active() {
        return ask::unlock(&raw const UNNAMED as usize);
    }
    UNNAMED.release();
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_critical_name_start(name: *mut *mut u8) {
    // SAFETY: the program gives a zeroed pointer of its own for each name; we use its first half.
    word_lock(unsafe { AtomicU32::from_ptr(name.cast()) });
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_critical_name_end(name: *mut *mut u8) {
    // SAFETY: as above.
    word_unlock(unsafe { AtomicU32::from_ptr(name.cast()) });
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn GOMP_atomic_start() {
    if atoll_nodes::active() {
        return spread::lock(&raw const ATOMIC as usize);
    }
    ATOMIC.acquire();
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn GOMP_atomic_end() {
    if atoll_nodes::active() {
        return ask::unlock(&raw const ATOMIC as usize);
    }
    ATOMIC.release();
}
