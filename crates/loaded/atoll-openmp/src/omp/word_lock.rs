//! Locks whose word lies in the program's memory: critical sections and `omp_set_lock`.
//!
//! `critical` and `locks` call it. Nobody may sleep on memory that can be paged out, so the words hash to words of the
//! runtime's (`atoll_memory::futex` sleeps and wakes). On several nodes the origin's agent has the locks.

use super::spread;
use atoll_nodes::ask;
use std::sync::atomic::{AtomicU32, Ordering};

use atoll_memory::futex::{sleep, spin_until, wake};

const FREE: u32 = 0;
const HELD: u32 = 1;
const HELD_WANTED: u32 = 2;

/// A word to sleep on for many program words; aligned so that busy ones do not share a line.
#[repr(align(64))]
struct Bay(AtomicU32);

/// The parking lot: program words hash to these, since nobody may sleep on memory that can be paged out.
static BAYS: [Bay; 64] = [const { Bay(AtomicU32::new(0)) }; 64];

fn bay(word: &AtomicU32) -> &'static AtomicU32 {
    let hash = (word.as_ptr() as usize).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    &BAYS[hash >> 58].0
}

/// Takes the lock whose word lies in program memory: 0 is free.
#[inline]
pub(crate) fn word_lock(word: &AtomicU32) {
    if atoll_nodes::active() {
        // Between nodes the word's address is the lock's name, and nobody looks at the word.
        return spread::lock(word.as_ptr() as usize);
    }
    // Other side: the swap in `word_unlock`.
    if word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_err() {
        word_lock_slowly(word);
    }
}

#[cold]
fn word_lock_slowly(word: &AtomicU32) {
    if spin_until(|| word.load(Ordering::Relaxed) == FREE && word_try_lock(word)) {
        return;
    }
    let bay = bay(word);
    loop {
        let turn = bay.load(Ordering::Acquire);
        // An unlock after this swap sees HELD_WANTED and turns the bay, so that the sleep below ends at once.
        if word.swap(HELD_WANTED, Ordering::AcqRel) == FREE {
            return;
        }
        sleep(bay, turn);
    }
}

/// Takes the lock if it is free.
#[inline]
pub(crate) fn word_try_lock(word: &AtomicU32) -> bool {
    if atoll_nodes::active() {
        return ask::try_lock(word.as_ptr() as usize);
    }
    word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
}

/// Gives the lock back.
#[inline]
pub(crate) fn word_unlock(word: &AtomicU32) {
    if atoll_nodes::active() {
        return ask::unlock(word.as_ptr() as usize);
    }
    // Other side: the acquiring operations of `word_lock` and `word_try_lock`.
    if word.swap(FREE, Ordering::AcqRel) == HELD_WANTED {
        let bay = bay(word);
        bay.fetch_add(1, Ordering::Release);
        // Sleepers of other words may share the bay: all look again.
        wake(bay, i32::MAX as u32);
    }
}
