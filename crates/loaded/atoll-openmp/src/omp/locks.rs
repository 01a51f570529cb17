//! `omp_lock_t` and `omp_nest_lock_t`, for C and Fortran.
//!
//! A lock is a word in program memory; threads that wait for it sleep in `crate::futex`'s parking lot. Variables for nested
//! locks have 16 bytes in gcc's C and 8 elsewhere, so they hold an address.

use super::alloc;
use super::task::Task;
use super::team::me;
use super::word_lock::{word_lock, word_try_lock, word_unlock};
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, Ordering};

/// A lock that its owner, a task, may take again.
pub(crate) struct NestLock {
    word: AtomicU32,
    count: AtomicI32,
    owner: AtomicPtr<Task>,
}

fn task() -> *mut Task {
    me().state.get().task.cast_mut()
}

impl NestLock {
    /// Takes the lock once more, if the task has it already or `acquire` gets it; returns how often it is taken, 0 if it is
    /// another's.
    fn take(&self, acquire: impl FnOnce(&AtomicU32) -> bool) -> i32 {
        let task = task();
        // Only the owner can find itself here: nobody else writes the word while the task owns the lock.
        if self.owner.load(Ordering::Relaxed) != task {
            if !acquire(&self.word) {
                return 0;
            }
            self.owner.store(task, Ordering::Relaxed);
        }
        self.count.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn give(&self) {
        if self.count.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.owner.store(std::ptr::null_mut(), Ordering::Relaxed);
            word_unlock(&self.word);
        }
    }
}

fn acquire(word: &AtomicU32) -> bool {
    word_lock(word);
    true
}

/// Defines the C and the Fortran form of one function on a plain lock; both get the lock's address.
macro_rules! lock_calls {
    ($($c:ident $fortran:ident $(-> $result:ty)?, $body:expr;)*) => {$(
        #[unsafe(no_mangle)]
        pub(super) extern "C" fn $c(lock: *mut u32) $(-> $result)? {
            // SAFETY: the program gives the address of its lock.
            let word = unsafe { AtomicU32::from_ptr(lock) };
            $body(word)
        }
        #[unsafe(no_mangle)]
        extern "C" fn $fortran(lock: *mut u32) $(-> $result)? {
            // SAFETY: as above.
            let word = unsafe { AtomicU32::from_ptr(lock) };
            $body(word)
        }
    )*};
}

fn free(word: &AtomicU32) {
    word.store(0, Ordering::Release);
}

lock_calls! {
    omp_init_lock omp_init_lock_, free;
    omp_destroy_lock omp_destroy_lock_, |_: &AtomicU32| ();
    omp_set_lock omp_set_lock_, word_lock;
    omp_unset_lock omp_unset_lock_, word_unlock;
    omp_test_lock omp_test_lock_ -> i32, |word: &AtomicU32| i32::from(word_try_lock(word));
}

/// Defines the C and the Fortran form of one function on a nested lock; the program's variable holds the lock's address.
macro_rules! nest_lock_calls {
    ($($c:ident $fortran:ident $(-> $result:ty)?, $body:expr;)*) => {$(
        #[unsafe(no_mangle)]
        pub(super) extern "C" fn $c(lock: *mut *const NestLock) $(-> $result)? {
            // SAFETY: the program's variable was initialised by `omp_init_nest_lock`.
            $body(unsafe { &**lock })
        }
        #[unsafe(no_mangle)]
        extern "C" fn $fortran(lock: *mut *const NestLock) $(-> $result)? {
            $c(lock)
        }
    )*};
}

nest_lock_calls! {
    omp_set_nest_lock omp_set_nest_lock_, |lock: &NestLock| { lock.take(acquire); };
    omp_unset_nest_lock omp_unset_nest_lock_, NestLock::give;
    omp_test_nest_lock omp_test_nest_lock_ -> i32, |lock: &NestLock| lock.take(word_try_lock);
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn omp_init_nest_lock(lock: *mut *const NestLock) {
    let new = NestLock {
        word: AtomicU32::new(0),
        count: AtomicI32::new(0),
        owner: AtomicPtr::new(std::ptr::null_mut()),
    };
    let place = alloc::plain(align_of::<NestLock>(), size_of::<NestLock>(), false).cast::<NestLock>();
    if place.is_null() {
        super::fatal("there is no memory for a lock");
    }
    // SAFETY: fresh memory of that size, and the program gives the address of its variable.
    unsafe {
        place.write(new);
        *lock = place;
    }
}

#[unsafe(no_mangle)]
extern "C" fn omp_init_nest_lock_(lock: *mut *const NestLock) {
    omp_init_nest_lock(lock);
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn omp_destroy_nest_lock(lock: *mut *const NestLock) {
    // SAFETY: the variable was initialised by `omp_init_nest_lock`, and its lock is not used any more.
    unsafe {
        libc::free((*lock).cast_mut().cast());
        *lock = std::ptr::null();
    }
}

#[unsafe(no_mangle)]
extern "C" fn omp_destroy_nest_lock_(lock: *mut *const NestLock) {
    omp_destroy_nest_lock(lock);
}
