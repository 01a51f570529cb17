//! A lock for the pager's short critical sections, taken from signal handlers of many processes.
//!
//! Used by the pager only. Holders never wait for anything but the CPU, so spinning with yields is enough and
//! no holder has to be woken; a private futex would not reach another process anyway.
//!
//! Rules: no allocation, no arena access; code that may be interrupted by a handler of the same worker that
//! takes the lock too must block signals around it.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::sys;

/// A value behind a spin lock.
pub struct Spin<T> {
    held: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the lock hands the value to one holder at a time.
unsafe impl<T: Send> Sync for Spin<T> {}

/// Access to the value while the lock is held.
pub struct Held<'a, T> {
    lock: &'a Spin<T>,
}

impl<T> Spin<T> {
    /// An unlocked value.
    pub const fn new(value: T) -> Spin<T> {
        Spin { held: AtomicU32::new(0), value: UnsafeCell::new(value) }
    }

    /// Takes the lock if nobody holds it.
    #[inline]
    pub fn try_lock(&self) -> Option<Held<'_, T>> {
        // Acquire: pairs with the Release store in `Held::drop` of the holder before.
        let taken = self.held.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok();
        taken.then(|| Held { lock: self })
    }

    /// Takes the lock, waiting for it.
    pub fn lock(&self) -> Held<'_, T> {
        let mut wait = Backoff::new();
        loop {
            if let Some(held) = self.try_lock() {
                return held;
            }
            wait.pause();
        }
    }
}

impl<T> Deref for Held<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: this holder alone has the value.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Held<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this holder alone has the value.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Held<'_, T> {
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `try_lock` of the next holder.
        self.lock.held.store(0, Ordering::Release);
    }
}

/// What is called now and then in long waits.
static LONG_WAIT: OnceLock<fn()> = OnceLock::new();
/// Naps between two of these calls, some 30 ms.
const NAPS: u32 = 256;

/// From now on `look` is called now and then in long waits, as whoever is waited for may have been killed. The first one that is given
/// stays. It obeys this file's rules.
pub fn look_in_long_waits(look: fn()) {
    let _ = LONG_WAIT.set(look);
}

/// Waiting for another worker that is about to finish: spin, then yield, then sleep in short naps.
pub struct Backoff {
    rounds: u32,
}

impl Backoff {
    /// Not waited yet.
    pub const fn new() -> Backoff {
        Backoff { rounds: 0 }
    }

    /// Waits a little, longer each time.
    #[inline]
    pub fn pause(&mut self) {
        self.rounds += 1;
        if self.rounds < 128 {
            std::hint::spin_loop();
        } else if self.rounds < 2048 {
            sys::yield_now();
        } else {
            sys::sleep_ns(50_000);
            if self.rounds.is_multiple_of(NAPS)
                && let Some(look) = LONG_WAIT.get()
            {
                look();
            }
        }
    }
}

impl Default for Backoff {
    fn default() -> Self {
        Self::new()
    }
}
