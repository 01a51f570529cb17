//! Robust mutexes on several nodes: who locks one whose owner has ended learns of it, as the kernel tells libc on one node.
//!
//! `node_sync` asks. Each thread has a list of the robust mutexes that it holds, which the destructor of a key of pthread's gives back
//! as the thread ends. What an owner left is written in the word in which libc counts a mutex' users, which it does not look at in
//! robust ones.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};

/// The bit of a mutex' kind that says that it is robust: PTHREAD_MUTEX_ROBUST_NORMAL_NP.
pub(super) const ROBUST: u32 = 16;

/// The state of a mutex, in the word of its users: as usual; its owner ended, and nobody has said since that what it protects is
/// consistent; or somebody unlocked it without saying that, after which nobody can lock it.
const USUAL: u32 = 0;
const LEFT: u32 = 1;
const LOST: u32 = 2;

/// The times that destructors of keys are called while a thread ends, as long as there are values: the program's own may unlock
/// mutexes until the last. PTHREAD_DESTRUCTOR_ITERATIONS of glibc.
const ROUNDS: u32 = 4;

/// The robust mutexes that a thread holds.
struct Held {
    mutexes: Vec<usize>,
    /// The times that the destructor was called.
    rounds: u32,
}

/// The key whose value is a thread's [`Held`], plus one; 0 until [`begin`] made it.
static KEY: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// The key's value in this thread; null before it locks its first robust mutex.
    static HELD: Cell<*mut Held> = const { Cell::new(std::ptr::null_mut()) };
}

/// Has the ends of threads noticed. Called on each node before the program makes keys of its own.
pub(crate) fn begin() {
    let mut key = 0;
    // SAFETY: the function stays.
    if unsafe { libc::pthread_key_create(&raw mut key, Some(ends)) } == 0 {
        KEY.store(key + 1, Ordering::Relaxed);
    }
}

/// Sets the value of the key in this thread.
fn note(held: *mut Held) {
    if let Some(key) = KEY.load(Ordering::Relaxed).checked_sub(1) {
        // SAFETY: the key was made, and its destructor knows the value.
        unsafe { libc::pthread_setspecific(key, held.cast()) };
    }
}

/// Gives back what a thread holds that ends.
unsafe extern "C" fn ends(held: *mut c_void) {
    let held = held.cast::<Held>();
    // SAFETY: the thread's own list, which nothing else refers to now.
    unsafe {
        (*held).rounds += 1;
        if (*held).rounds < ROUNDS {
            return note(held);
        }
        HELD.set(std::ptr::null_mut());
        for at in Box::from_raw(held).mutexes {
            super::node_sync::owner_ends(at);
        }
    }
}

/// The thread took a robust mutex, whose state this is: the error that locking it is to return. With ENOTRECOVERABLE the caller gives
/// it back at once.
pub(super) fn taken(at: usize, state: &AtomicU32) -> i32 {
    // Relaxed: the mutex is locked meanwhile, which orders what is done with its state.
    let state = state.load(Ordering::Relaxed);
    if state == LOST {
        return libc::ENOTRECOVERABLE;
    }
    let mut held = HELD.get();
    if held.is_null() {
        held = Box::into_raw(Box::new(Held { mutexes: Vec::new(), rounds: 0 }));
        HELD.set(held);
        note(held);
    }
    // SAFETY: this thread's own list.
    unsafe { (*held).mutexes.push(at) };
    if state == LEFT { libc::EOWNERDEAD } else { 0 }
}

/// The thread is about to unlock a robust mutex that it holds.
pub(super) fn given(at: usize, state: &AtomicU32) {
    if state.load(Ordering::Relaxed) == LEFT {
        state.store(LOST, Ordering::Relaxed);
    }
    // SAFETY: null or this thread's own list.
    if let Some(held) = unsafe { HELD.get().as_mut() } {
        // Who locks several mostly unlocks the last one first.
        if let Some(index) = held.mutexes.iter().rposition(|mutex| *mutex == at) {
            held.mutexes.remove(index);
        }
    }
}

/// The owner of the mutex with this state ends.
pub(super) fn left(state: &AtomicU32) {
    state.store(LEFT, Ordering::Relaxed);
}

/// `pthread_mutex_consistent` of a robust mutex that the thread holds.
pub(super) fn mend(state: &AtomicU32) -> i32 {
    if state.load(Ordering::Relaxed) != LEFT {
        return libc::EINVAL;
    }
    state.store(USUAL, Ordering::Relaxed);
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mutex_that_its_owner_left_is_mended_or_lost() {
        let state = AtomicU32::new(USUAL);
        assert_eq!((taken(64, &state), mend(&state)), (0, libc::EINVAL));
        left(&state);
        assert_eq!((taken(64, &state), mend(&state)), (libc::EOWNERDEAD, 0));
        given(64, &state);
        assert_eq!(taken(64, &state), 0);
        left(&state);
        assert_eq!(taken(64, &state), libc::EOWNERDEAD);
        given(64, &state);
        assert_eq!((taken(64, &state), mend(&state)), (libc::ENOTRECOVERABLE, libc::EINVAL));
    }
}
