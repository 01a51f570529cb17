//! Shared futexes, by which workers, which may be processes, sleep and wake each other; each waiter spins briefly before it
//! sleeps.
//!
//! All waiting in `omp` is done here; the words slept on lie in runtime memory, never in the program's.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, Ordering, fence};

use crate::{arch, sys, yields};

const FUTEX_WAIT: usize = 0;
const FUTEX_WAKE: usize = 1;

/// The futex system call, made without touching the program's `errno`; `timeout` may be null.
fn futex(word: &AtomicU32, operation: usize, value: u32, timeout: *const libc::timespec) -> isize {
    let arguments = [word.as_ptr() as usize, operation, value as usize, timeout as usize, 0, 0];
    // SAFETY: the futex call reads one aligned word that the reference keeps alive, and the timeout, which is a static's.
    unsafe { arch::syscall(libc::SYS_futex, arguments) }
}

/// Sleeps while `word` holds `expected`. May return early for any reason: callers look again.
pub fn sleep(word: &AtomicU32, expected: u32) {
    // EAGAIN, EINTR and EFAULT (a page not mapped yet) all mean the same to callers: read the word again.
    let _ = futex(word, FUTEX_WAIT, expected, std::ptr::null());
}

/// Sleeps while `word` holds `expected`, for 20 ms at most.
pub fn sleep_a_while(word: &AtomicU32, expected: u32) {
    let _ = futex(word, FUTEX_WAIT, expected, &raw const A_WHILE);
}

/// How long a thread sleeps that also looks after signals: 20 ms. It is a static because the kernel may not find the pages of a
/// stack.
static A_WHILE: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// Wakes up to `count` sleepers on `word`.
pub fn wake(word: &AtomicU32, count: u32) {
    let _ = futex(word, FUTEX_WAKE, count, std::ptr::null());
}

/// How often a waiter checks its condition before it sleeps: while every busy worker has a CPU, and when there are more workers
/// than CPUs.
static SPINS: AtomicU32 = AtomicU32::new(2_000);
static SPINS_CROWDED: AtomicU32 = AtomicU32::new(30);
/// How often a waiter lets others have its CPU before it sleeps.
static YIELDS: AtomicU32 = AtomicU32::new(0);
/// The number of workers with something to do, which every waiter compares with the number of CPUs.
static BUSY: AtomicU32 = AtomicU32::new(1);
static CPUS: AtomicU32 = AtomicU32::new(1);

/// Sets how long waiters spin and yield, and on how many CPUs.
pub fn configure(spins: u32, spins_crowded: u32, yields: u32, cpus: u32) {
    YIELDS.store(yields, Ordering::Relaxed);
    SPINS.store(spins, Ordering::Relaxed);
    SPINS_CROWDED.store(spins_crowded, Ordering::Relaxed);
    CPUS.store(cpus, Ordering::Relaxed);
}

/// `count` more workers have something to do.
pub fn busier(count: u32) {
    BUSY.fetch_add(count, Ordering::Relaxed);
}

/// `count` workers less have something to do.
pub fn calmer(count: u32) {
    BUSY.fetch_sub(count, Ordering::Relaxed);
}

/// CPUs that this node's workers have.
pub fn cpus() -> u32 {
    CPUS.load(Ordering::Relaxed)
}

/// Have more workers something to do than there are CPUs?
pub fn is_crowded() -> bool {
    BUSY.load(Ordering::Relaxed) > CPUS.load(Ordering::Relaxed)
}

/// How a spinning waiter's wait ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Spun {
    /// The condition does not hold.
    InVain,
    /// It held while the waiter looked.
    Soon,
    /// It held once others had had the CPU: the waiter kept it from them.
    Shared,
}

/// Looks at `done` a while; true as soon as it holds. In between the CPU goes to others, as the worker that makes it hold may
/// wait for this one: often where there are more workers than CPUs, seldom elsewhere.
pub fn spin_until(done: impl FnMut() -> bool) -> bool {
    spin(false, done) != Spun::InVain
}

/// Spins; where the worker `shares` its CPU with the one that it waits for, others have it soon, and if that does not pay now the
/// waiter gives up.
fn spin(shares: bool, mut done: impl FnMut() -> bool) -> Spun {
    if done() {
        return Spun::Soon;
    }
    let yields = YIELDS.load(Ordering::Relaxed);
    let few = SPINS_CROWDED.load(Ordering::Relaxed);
    if is_crowded() {
        return look(few, &mut done).or_else(|| give_way(yields, &mut done)).unwrap_or(Spun::InVain);
    }
    if shares {
        let found = look(few, &mut done).or_else(|| give_way(2, &mut done));
        if found.is_some() || yields::is_paused() {
            return found.unwrap_or(Spun::InVain);
        }
    }
    let turns = if yields == 0 { 1 } else { 16 };
    for _ in 0..turns {
        let found = look(SPINS.load(Ordering::Relaxed) / turns, &mut done);
        if let Some(found) = found.or_else(|| give_way(yields / turns, &mut done)) {
            return found;
        }
    }
    Spun::InVain
}

fn look(times: u32, done: &mut impl FnMut() -> bool) -> Option<Spun> {
    (0..times).find_map(|_| {
        std::hint::spin_loop();
        done().then_some(Spun::Soon)
    })
}

fn give_way(times: u32, done: &mut impl FnMut() -> bool) -> Option<Spun> {
    for _ in 0..times {
        if !yields::to_others(BUSY.load(Ordering::Relaxed)) {
            break;
        }
        if done() {
            return Some(Spun::Shared);
        }
    }
    None
}

/// A place where workers wait until a condition on other words holds.
#[repr(align(64))]
pub struct Gate {
    turns: AtomicU32,
    sleepers: AtomicU32,
    /// The CPU of the worker that woke sleepers last.
    waker: AtomicU32,
    /// The number of waits that will spin little, because a waiter shared its CPU with the worker that it waited for: a program
    /// that is not atoll's has the other CPUs, and who spins keeps that worker from running.
    shared: AtomicU32,
}

/// How many waits spin little after one in which two workers shared a CPU.
const SHARED: u32 = 8;

/// The number of the CPU that this thread runs on.
fn cpu() -> u32 {
    let mut cpu = 0u32;
    let at = (&raw mut cpu) as usize;
    // SAFETY: the number is valid for writes, and nothing else is asked for.
    let _ = unsafe { sys::syscall(libc::SYS_getcpu, [at, 0, 0, 0, 0, 0]) };
    cpu
}

impl Gate {
    /// A gate at which nobody waits.
    #[expect(clippy::new_without_default, reason = "gates are statics and fields that are made in constants")]
    pub const fn new() -> Self {
        Gate {
            turns: AtomicU32::new(0),
            sleepers: AtomicU32::new(0),
            waker: AtomicU32::new(0),
            shared: AtomicU32::new(0),
        }
    }

    /// Returns once `done` holds. Whoever makes it hold calls `notify` afterwards.
    pub fn wait_until(&self, mut done: impl FnMut() -> bool) {
        // Relaxed, here and below: how long a waiter spins is a guess.
        let shared = self.shared.load(Ordering::Relaxed);
        if shared != 0 {
            self.shared.store(shared - 1, Ordering::Relaxed);
        }
        match spin(shared != 0, &mut done) {
            Spun::InVain => {}
            Spun::Soon => return,
            Spun::Shared => return self.shared.store(SHARED, Ordering::Relaxed),
        }
        let mut slept = false;
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        loop {
            let turn = self.turns.load(Ordering::Acquire);
            // Other side: the fence in `notify`. Either it sees this sleeper, or `done` sees its change.
            fence(Ordering::SeqCst);
            if done() {
                break;
            }
            sleep(&self.turns, turn);
            slept = true;
        }
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
        if slept {
            let is_shared = self.waker.load(Ordering::Relaxed) == cpu();
            self.shared.store(if is_shared { SHARED } else { 0 }, Ordering::Relaxed);
        }
    }

    /// Wakes all waiters, which check their conditions again, after a change that may fulfil one.
    #[inline]
    pub fn notify(&self) {
        // Other side: the fence in `wait_until`, between announcing the sleeper and its last look.
        fence(Ordering::SeqCst);
        self.wake_up_to(i32::MAX as u32);
    }

    /// Does the same as [`notify`](Self::notify) for up to `count` waiters, after a sequentially consistent read-modify-write,
    /// which needs no fence.
    #[inline]
    pub fn wake_up_to(&self, count: u32) {
        // Other side: the fence in `wait_until`, as above.
        if self.sleepers.load(Ordering::SeqCst) != 0 {
            self.waker.store(cpu(), Ordering::Relaxed);
            self.turns.fetch_add(1, Ordering::Release);
            wake(&self.turns, count);
        }
    }
}

const FREE: u32 = 0;
const HELD: u32 = 1;
const HELD_WANTED: u32 = 2;

/// A lock in runtime memory around some data.
pub struct Lock<T> {
    word: AtomicU32,
    data: UnsafeCell<T>,
}

// SAFETY: the data is only reached through a guard, and there is one guard at a time. Raw pointers in `T` point
// to runtime memory that every worker sees.
unsafe impl<T> Sync for Lock<T> {}
// SAFETY: as above; nothing in a lock belongs to one worker.
unsafe impl<T> Send for Lock<T> {}

impl<T> Lock<T> {
    /// A lock that is free, around `data`.
    pub const fn new(data: T) -> Self {
        Lock { word: AtomicU32::new(FREE), data: UnsafeCell::new(data) }
    }

    /// Takes the lock, and sleeps until it can.
    #[inline]
    pub fn lock(&self) -> Guard<'_, T> {
        self.acquire();
        Guard { lock: self }
    }

    /// Takes the lock if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        // Other side: the swap in `release`.
        let taken = self.word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok();
        // A guard that is made is also dropped.
        if taken { Some(Guard { lock: self }) } else { None }
    }

    /// Takes the lock without a guard; `release` frees it.
    #[inline]
    pub fn acquire(&self) {
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

    /// Gives back a lock that was taken by [`acquire`](Self::acquire).
    #[inline]
    pub fn release(&self) {
        // Other side: the acquiring operations above.
        if self.word.swap(FREE, Ordering::Release) == HELD_WANTED {
            wake(&self.word, 1);
        }
    }
}

/// The right to use a lock's data, until dropped.
pub struct Guard<'a, T> {
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
