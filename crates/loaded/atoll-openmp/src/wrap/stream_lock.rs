//! The locks of streams, taken with futexes that reach all processes: libc then finds them held by the caller, and never waits.
//!
//! `stdio` and `stream_calls` take them; the program may do so itself (`flockfile`).

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};

use super::far_streams;
use crate::arch;

/// Whether streams are shared and their locks taken here.
pub(super) static SHARED: AtomicBool = AtomicBool::new(false);

/// The bit in the `_flags` of a FILE that its user locks himself.
const USER_LOCK: i32 = 0x8000;
/// The offset of a FILE's `_lock`.
const LOCK: usize = 136;

/// glibc's `_IO_lock_t`, a recursive lock. `word` is 0 if free, 1 if held, 2 if held and waited for.
#[repr(C)]
pub(super) struct FileLock {
    word: AtomicI32,
    count: AtomicI32,
    owner: AtomicUsize,
}

impl FileLock {
    /// # Safety
    /// `file` must be a stream or null.
    pub(super) unsafe fn of(file: usize) -> Option<&'static FileLock> {
        if file == 0 || !SHARED.load(Ordering::Relaxed) {
            return None;
        }
        // SAFETY: a FILE begins with its flags and has its lock at a fixed offset.
        unsafe {
            if *(file as *const i32) & USER_LOCK != 0 {
                return None;
            }
            (*((file + LOCK) as *const *const FileLock)).as_ref()
        }
    }

    pub(super) fn try_acquire(&self) -> bool {
        let me = arch::libc_thread();
        // Relaxed: only this thread itself stores its own address.
        if self.owner.load(Ordering::Relaxed) == me {
            self.count.store(self.count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            return true;
        }
        // Acquire: pairs with the Release in `release`.
        if self.word.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return false;
        }
        self.own(me);
        true
    }

    /// Makes the lock free, whoever held it.
    pub(super) fn reset(&self) {
        self.count.store(0, Ordering::Relaxed);
        self.owner.store(0, Ordering::Relaxed);
        self.word.store(0, Ordering::Release);
    }

    fn own(&self, me: usize) {
        self.owner.store(me, Ordering::Relaxed);
        self.count.store(1, Ordering::Relaxed);
    }

    fn acquire(&self) {
        if self.try_acquire() {
            return;
        }
        for _ in 0..100 {
            std::hint::spin_loop();
            if self.try_acquire() {
                return;
            }
        }
        // Acquire: as above.
        while self.word.swap(2, Ordering::Acquire) != 0 {
            super::sync::futex_wait(&self.word, 2);
        }
        self.own(arch::libc_thread());
    }

    fn release(&self) {
        let left = self.count.load(Ordering::Relaxed) - 1;
        self.count.store(left, Ordering::Relaxed);
        if left == 0 {
            self.owner.store(0, Ordering::Relaxed);
            // Release: pairs with the Acquire in `try_acquire`.
            if self.word.swap(0, Ordering::Release) == 2 {
                super::sync::futex_wake(&self.word, 1);
            }
        }
    }
}

/// A guard that holds a stream's lock.
pub(super) struct Locked(Option<&'static FileLock>);

impl Drop for Locked {
    fn drop(&mut self) {
        if let Some(lock) = self.0 {
            lock.release();
        }
    }
}

/// Takes a stream's lock until the guard is dropped.
///
/// # Safety
/// `file` must be a stream or null.
#[inline]
pub(super) unsafe fn lock(file: usize) -> Locked {
    // SAFETY: the caller's promise.
    let lock = unsafe { FileLock::of(file) };
    if let Some(lock) = lock {
        lock.acquire();
    }
    Locked(lock)
}

macro_rules! locks {
    ($($lock:ident $try:ident $unlock:ident;)*) => {$(
        /// The function of this name in libc.
        ///
        /// # Safety
        /// The same as for libc's function.
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C" fn $lock(file: usize) {
            if let Some(far) = far_streams::of(file) {
                return far.lock();
            }
            // SAFETY: the caller's stream.
            match unsafe { FileLock::of(file) } {
                Some(lock) => lock.acquire(),
                // SAFETY: as above.
                None => unsafe { real!(stringify!($lock), unsafe extern "C" fn(usize))(file) },
            }
        }

        /// The function of this name in libc.
        ///
        /// # Safety
        /// The same as for libc's function.
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C" fn $try(file: usize) -> c_int {
            if let Some(far) = far_streams::of(file) {
                far.lock();
                return 0;
            }
            // SAFETY: the caller's stream.
            match unsafe { FileLock::of(file) } {
                Some(lock) => c_int::from(!lock.try_acquire()),
                // SAFETY: as above.
                None => unsafe { real!(stringify!($try), unsafe extern "C" fn(usize) -> c_int)(file) },
            }
        }

        /// The function of this name in libc.
        ///
        /// # Safety
        /// The same as for libc's function.
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C" fn $unlock(file: usize) {
            if let Some(far) = far_streams::of(file) {
                return far.unlock();
            }
            // SAFETY: the caller's stream.
            match unsafe { FileLock::of(file) } {
                Some(lock) => lock.release(),
                // SAFETY: as above.
                None => unsafe { real!(stringify!($unlock), unsafe extern "C" fn(usize))(file) },
            }
        }
    )*};
}

locks! {
    flockfile ftrylockfile funlockfile;
    _IO_flockfile _IO_ftrylockfile _IO_funlockfile;
}

/// Takes a stream's lock without a guard.
///
/// # Safety
/// `file` must be a stream.
pub(super) unsafe fn take_lock(file: usize) {
    // SAFETY: the caller's promise.
    if let Some(lock) = unsafe { FileLock::of(file) } {
        lock.acquire();
    }
}

/// Frees a stream's lock that [`take_lock`] took.
///
/// # Safety
/// `file` must be a stream whose lock was taken.
pub(super) unsafe fn give_lock_back(file: usize) {
    // SAFETY: the caller's promise.
    if let Some(lock) = unsafe { FileLock::of(file) } {
        lock.release();
    }
}
