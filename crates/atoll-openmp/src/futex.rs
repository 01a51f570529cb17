//! Shared futexes, by which workers, which may be processes, sleep and wake each other; each waiter spins briefly before it
//! sleeps.
//!
//! All waiting in `omp` is done here; the words slept on lie in runtime memory, never in the program's.

use crate::nodes;
use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, Ordering, fence};

const FUTEX_WAIT: usize = 0;
const FUTEX_WAKE: usize = 1;

/// The futex system call, made without touching the program's `errno`; `timeout` may be null.
#[cfg(target_arch = "x86_64")]
fn futex(word: &AtomicU32, operation: usize, value: u32, timeout: *const libc::timespec) -> isize {
    let result: isize;
    // SAFETY: the futex call reads one aligned word that the reference keeps alive, and the timeout, which is a static's.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") libc::SYS_futex as isize => result,
            in("rdi") word.as_ptr(),
            in("rsi") operation,
            in("rdx") value as usize,
            in("r10") timeout,
            in("r8") 0usize,
            in("r9") 0usize,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack)
        );
    }
    result
}

/// The futex system call on other processors than x86-64, through libc.
#[cfg(not(target_arch = "x86_64"))]
fn futex(word: &AtomicU32, operation: usize, value: u32, timeout: *const libc::timespec) -> isize {
    // SAFETY: the futex call reads one aligned word that the reference keeps alive, and the timeout, which is a static's.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, value as usize, timeout) as isize }
}

/// Sleeps while `word` holds `expected`. May return early for any reason: callers check their condition again.
pub(crate) fn sleep(word: &AtomicU32, expected: u32) {
    // EAGAIN, EINTR and EFAULT (a page not mapped yet) all mean the same to callers: read the word again.
    let _ = futex(word, FUTEX_WAIT, expected, std::ptr::null());
}

/// Sleeps as [`sleep`] does, for [`A_WHILE`] at most.
pub(crate) fn sleep_a_while(word: &AtomicU32, expected: u32) {
    let _ = futex(word, FUTEX_WAIT, expected, &raw const A_WHILE);
}

/// How long a thread sleeps that also looks after signals: 20 ms. It is a static because the kernel may not find the pages of a
/// stack.
static A_WHILE: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// Wakes up to `count` sleepers on `word`.
pub(crate) fn wake(word: &AtomicU32, count: u32) {
    let _ = futex(word, FUTEX_WAKE, count, std::ptr::null());
}

/// How often a waiter checks its condition before it sleeps: while every busy worker has a CPU, and when there are more workers
/// than CPUs.
static SPINS: AtomicU32 = AtomicU32::new(2_000);
static SPINS_CROWDED: AtomicU32 = AtomicU32::new(30);
/// The number of workers with something to do, which every waiter compares with the number of CPUs.
static BUSY: AtomicU32 = AtomicU32::new(1);
static CPUS: AtomicU32 = AtomicU32::new(1);

/// Sets how long waiters spin, and on how many CPUs.
pub(crate) fn configure(spins: u32, spins_crowded: u32, cpus: u32) {
    SPINS.store(spins, Ordering::Relaxed);
    SPINS_CROWDED.store(spins_crowded, Ordering::Relaxed);
    CPUS.store(cpus, Ordering::Relaxed);
}

/// Counts `count` more workers as busy.
pub(crate) fn busier(count: u32) {
    BUSY.fetch_add(count, Ordering::Relaxed);
}

/// Counts `count` workers fewer as busy.
pub(crate) fn calmer(count: u32) {
    BUSY.fetch_sub(count, Ordering::Relaxed);
}

/// The number of CPUs that this node's workers have.
pub(crate) fn cpus() -> u32 {
    CPUS.load(Ordering::Relaxed)
}

/// Whether more workers are busy than there are CPUs.
pub(crate) fn is_crowded() -> bool {
    BUSY.load(Ordering::Relaxed) > CPUS.load(Ordering::Relaxed)
}

fn spins() -> u32 {
    if is_crowded() { SPINS_CROWDED.load(Ordering::Relaxed) } else { SPINS.load(Ordering::Relaxed) }
}

/// Checks `done` repeatedly for a while; returns true as soon as it holds, and false if it never did.
fn spin_until(mut done: impl FnMut() -> bool) -> bool {
    if done() {
        return true;
    }
    for _ in 0..spins() {
        std::hint::spin_loop();
        if done() {
            return true;
        }
    }
    false
}

/// A place where workers wait until a condition on other words holds.
#[repr(align(64))]
pub(crate) struct Gate {
    turns: AtomicU32,
    sleepers: AtomicU32,
}

impl Gate {
    pub(crate) const fn new() -> Self {
        Gate { turns: AtomicU32::new(0), sleepers: AtomicU32::new(0) }
    }

    /// Returns once `done` holds. The thread that makes it hold calls `notify` afterwards.
    pub(crate) fn wait_until(&self, mut done: impl FnMut() -> bool) {
        if spin_until(&mut done) {
            return;
        }
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        loop {
            let turn = self.turns.load(Ordering::Acquire);
            // Other side: the fence in `notify`. Either it sees this sleeper, or `done` sees its change.
            fence(Ordering::SeqCst);
            if done() {
                break;
            }
            sleep(&self.turns, turn);
        }
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
    }

    /// Wakes all waiters, which check their conditions again, after a change that may fulfil one.
    #[inline]
    pub(crate) fn notify(&self) {
        // Other side: the fence in `wait_until`, between announcing the sleeper and its last look.
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::Relaxed) != 0 {
            self.turns.fetch_add(1, Ordering::Release);
            wake(&self.turns, i32::MAX as u32);
        }
    }
}

const FREE: u32 = 0;
const HELD: u32 = 1;
const HELD_WANTED: u32 = 2;

/// A lock in runtime memory that guards the data inside it.
pub(crate) struct Lock<T> {
    word: AtomicU32,
    data: UnsafeCell<T>,
}

// SAFETY: the data is only reached through a guard, and there is one guard at a time. Raw pointers in `T` point
// to runtime memory that every worker sees.
unsafe impl<T> Sync for Lock<T> {}
// SAFETY: as above; nothing in a lock belongs to one worker.
unsafe impl<T> Send for Lock<T> {}

impl<T> Lock<T> {
    pub(crate) const fn new(data: T) -> Self {
        Lock { word: AtomicU32::new(FREE), data: UnsafeCell::new(data) }
    }

    #[inline]
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        self.acquire();
        Guard { lock: self }
    }

    /// Takes the lock if it is free.
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<Guard<'_, T>> {
        // Other side: the swap in `release`.
        let taken = self.word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok();
        // A guard that is made is also dropped.
        if taken { Some(Guard { lock: self }) } else { None }
    }

    /// Takes the lock without a guard; `release` frees it.
    #[inline]
    pub(crate) fn acquire(&self) {
        // Other side: the swap in `release`.
        if self.word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_err() {
            self.acquire_slowly();
        }
    }

    #[cold]
    fn acquire_slowly(&self) {
        if spin_until(|| {
            self.word.load(Ordering::Relaxed) == FREE
                && self.word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
        }) {
            return;
        }
        while self.word.swap(HELD_WANTED, Ordering::Acquire) != FREE {
            sleep(&self.word, HELD_WANTED);
        }
    }

    #[inline]
    pub(crate) fn release(&self) {
        // Other side: the acquiring operations above.
        if self.word.swap(FREE, Ordering::Release) == HELD_WANTED {
            wake(&self.word, 1);
        }
    }
}

/// The right to use a lock's data, until dropped.
pub(crate) struct Guard<'a, T> {
    lock: &'a Lock<T>,
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: this guard is the only one.
        unsafe { &*self.lock.data.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard is the only one.
        unsafe { &mut *self.lock.data.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        self.lock.release();
    }
}

/// A word to sleep on that stands for many words of the program; aligned so that busy bays do not share a cache line.
#[repr(align(64))]
struct Bay(AtomicU32);

/// The parking lot: program words hash to these bays, since nobody may sleep on memory that can be paged out.
static BAYS: [Bay; 64] = [const { Bay(AtomicU32::new(0)) }; 64];

fn bay(word: &AtomicU32) -> &'static AtomicU32 {
    let hash = (word.as_ptr() as usize).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    &BAYS[hash >> 58].0
}

/// Takes the lock whose word, 0 while it is free, lies in program memory.
#[inline]
pub(crate) fn word_lock(word: &AtomicU32) {
    if nodes::active() {
        // Between nodes the word's address is the lock's name, and nobody looks at the word.
        return nodes::lock(word.as_ptr() as usize);
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

/// Takes the lock in program memory if it is free; returns whether it did.
#[inline]
pub(crate) fn word_try_lock(word: &AtomicU32) -> bool {
    if nodes::active() {
        return nodes::try_lock(word.as_ptr() as usize);
    }
    word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
}

/// Frees the lock in program memory.
#[inline]
pub(crate) fn word_unlock(word: &AtomicU32) {
    if nodes::active() {
        return nodes::unlock(word.as_ptr() as usize);
    }
    // Other side: the acquiring operations of `word_lock` and `word_try_lock`.
    if word.swap(FREE, Ordering::AcqRel) == HELD_WANTED {
        let bay = bay(word);
        bay.fetch_add(1, Ordering::Release);
        // Threads that wait for other words may sleep in the same bay, so all of them wake and check.
        wake(bay, i32::MAX as u32);
    }
}
