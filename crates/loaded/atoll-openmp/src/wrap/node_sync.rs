//! pthread objects on several nodes. libc sleeps in futexes of the kernel, which see one node's memory only; these sleep where
//! all nodes can wake them (`nodes::futexes`).
//!
//! The objects are libc's, initialised by it or statically. Words that a program may look at (a semaphore's value, a mutex's
//! kind) mean the same as in libc. `sync` calls these functions instead of libc's own. The words are paged memory, kept
//! coherent like all of it; code that calls these functions runs with one writer of a page at a time (`nodes::safety`).

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use atoll_memory::sys;

use super::node_robust::{self, ROBUST};
use crate::state;
use atoll_nodes::futexes::{self, Slept};

const ANY: u32 = u32::MAX;
const ALL: u32 = i32::MAX as u32;

/// The results of `mtx_` and `cnd_` functions.
const THRD_BUSY: i32 = 1;
const THRD_ERROR: i32 = 2;
const THRD_TIMEDOUT: i32 = 4;

fn thrd(error: i32) -> i32 {
    match error {
        0 => 0,
        libc::EBUSY => THRD_BUSY,
        libc::ETIMEDOUT => THRD_TIMEDOUT,
        _ => THRD_ERROR,
    }
}

/// The word at `at + offset`.
///
/// # Safety
/// A live, aligned object of the program's is at `at`.
unsafe fn word(at: usize, offset: usize) -> &'static AtomicU32 {
    // SAFETY: the caller's promise.
    unsafe { AtomicU32::from_ptr((at + offset) as *mut u32) }
}

/// A number, not 0, that tells the calling thread from all others of all nodes.
fn me() -> u32 {
    let (node, _) = atoll_nodes::several().unwrap_or((0, 1));
    (node << 16 | state::executor_index() as u32) + 1
}

/// The time left until `time` on `clock`; `None` if `time` is null, which means for ever. The error is the errno of an invalid
/// time.
///
/// # Safety
/// `time` is null or a `timespec`.
unsafe fn left(clock: i32, time: usize) -> Result<Option<Duration>, i32> {
    if time == 0 {
        return Ok(None);
    }
    let mut now = [0i64; 2];
    // SAFETY: the caller's promise; the kernel's answer goes to a stack page that was just touched.
    unsafe {
        let until = *(time as *const libc::timespec);
        if !(0..1_000_000_000).contains(&until.tv_nsec) {
            return Err(libc::EINVAL);
        }
        while sys::syscall(libc::SYS_clock_gettime, [clock as usize, now.as_mut_ptr() as usize, 0, 0, 0, 0])
            .is_err()
        {
            if !(0..=1).contains(&clock) {
                return Err(libc::EINVAL);
            }
            (&raw mut now[0]).write_volatile(0);
        }
        let ns = |seconds: i64, ns: i64| i128::from(seconds) * 1_000_000_000 + i128::from(ns);
        let ns = ns(until.tv_sec, until.tv_nsec)
            - ns((&raw const now[0]).read_volatile(), (&raw const now[1]).read_volatile());
        Ok(Some(Duration::from_nanos(u64::try_from(ns.max(0)).unwrap_or(u64::MAX))))
    }
}

/// Waits until `take` succeeds, which is tried whenever `word` may have changed. When `take` fails it returns the value of the
/// word.
fn until_taken(
    word: &AtomicU32,
    until: impl Fn() -> Result<Option<Duration>, i32>,
    take: impl Fn() -> Result<(), u32>,
) -> i32 {
    loop {
        let Err(seen) = take() else { return 0 };
        let left = match until() {
            Ok(left) => left,
            Err(error) => return error,
        };
        if left == Some(Duration::ZERO) || futexes::wait(word, seen, ANY, left) == Slept::TimeOver {
            return if take().is_ok() { 0 } else { libc::ETIMEDOUT };
        }
    }
}

// The words of a mutex: lock, count, owner, users, kind. The word of users is a robust mutex' state: see `node_robust`.

const RECURSIVE: u32 = 1;
const ERRORCHECK: u32 = 2;
const USERS: usize = 12;

/// # Safety
/// `at` is a mutex; `time` is null or a time.
unsafe fn lock(at: usize, clock: i32, time: usize, wait: bool) -> i32 {
    // SAFETY: the caller's promise.
    let (held, count, owner, kind) = unsafe { (word(at, 0), word(at, 4), word(at, 8), word(at, 16)) };
    let (kind, me) = (kind.load(Ordering::Relaxed), me());
    let (is_robust, kind) = (kind & ROBUST != 0, kind & 3);
    // Only this thread stores its own number, so a plain load is enough.
    if matches!(kind, RECURSIVE | ERRORCHECK) && owner.load(Ordering::Relaxed) == me {
        if kind == ERRORCHECK {
            return if wait { libc::EDEADLK } else { libc::EBUSY };
        }
        count.fetch_add(1, Ordering::Relaxed);
        return 0;
    }
    // Other side of both: the swap in `unlock`.
    if held.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
        if !wait {
            return libc::EBUSY;
        }
        let take = || if held.swap(2, Ordering::Acquire) == 0 { Ok(()) } else { Err(2) };
        // SAFETY: the caller's promise.
        let error = until_taken(held, || unsafe { left(clock, time) }, take);
        if error != 0 {
            return error;
        }
    }
    // SAFETY: the caller's promise.
    let error = if is_robust { node_robust::taken(at, unsafe { word(at, USERS) }) } else { 0 };
    if error == libc::ENOTRECOVERABLE {
        release(held);
        return error;
    }
    owner.store(me, Ordering::Relaxed);
    count.store(1, Ordering::Relaxed);
    error
}

/// Gives back a mutex by its word. Other side: `lock`.
fn release(held: &AtomicU32) {
    if held.swap(0, Ordering::Release) == 2 {
        futexes::wake(held, 1, ANY);
    }
}

/// # Safety
/// `at` is a mutex.
unsafe fn unlock(at: usize) -> i32 {
    // SAFETY: the caller's promise.
    let (held, count, owner, kind) = unsafe { (word(at, 0), word(at, 4), word(at, 8), word(at, 16)) };
    let kind = kind.load(Ordering::Relaxed);
    let (is_robust, kind) = (kind & ROBUST != 0, kind & 3);
    if (is_robust || matches!(kind, RECURSIVE | ERRORCHECK)) && owner.load(Ordering::Relaxed) != me() {
        return libc::EPERM;
    }
    if kind == RECURSIVE && count.fetch_sub(1, Ordering::Relaxed) > 1 {
        return 0;
    }
    if is_robust {
        // SAFETY: the caller's promise.
        node_robust::given(at, unsafe { word(at, USERS) });
    }
    owner.store(0, Ordering::Relaxed);
    release(held);
    0
}

/// The calling thread ends and has not unlocked this robust mutex.
///
/// # Safety
/// `at` is a mutex that it holds.
pub(super) unsafe fn owner_ends(at: usize) {
    // SAFETY: the caller's promise.
    let (held, owner, users) = unsafe { (word(at, 0), word(at, 8), word(at, USERS)) };
    if owner.load(Ordering::Relaxed) == me() {
        node_robust::left(users);
        owner.store(0, Ordering::Relaxed);
        release(held);
    }
}

/// # Safety
/// `at` is a mutex.
unsafe fn consistent(at: usize) -> i32 {
    // SAFETY: the caller's promise.
    let (owner, users, kind) = unsafe { (word(at, 8), word(at, USERS), word(at, 16)) };
    if kind.load(Ordering::Relaxed) & ROBUST == 0 || owner.load(Ordering::Relaxed) != me() {
        return libc::EINVAL;
    }
    node_robust::mend(users)
}

// The words of a condition variable: a number that each signal changes, and the number of waiters; its attributes' bits are in
// the word at 36.

const MONOTONIC: u32 = 2;

/// # Safety
/// `at` is a condition variable, `mutex` a mutex that the caller holds; `time` is null or a time.
unsafe fn cond_wait(at: usize, mutex: usize, clock: Option<i32>, time: usize) -> i32 {
    // SAFETY: the caller's promise.
    unsafe {
        let (turn, waiting, bits) = (word(at, 0), word(at, 4), word(at, 36));
        let monotonic = bits.load(Ordering::Relaxed) & MONOTONIC != 0;
        let clock = clock.unwrap_or(if monotonic { libc::CLOCK_MONOTONIC } else { libc::CLOCK_REALTIME });
        let limit = match left(clock, time) {
            Ok(limit) => limit,
            Err(error) => return error,
        };
        waiting.fetch_add(1, Ordering::SeqCst);
        let seen = turn.load(Ordering::SeqCst);
        let error = unlock(mutex);
        let slept = if error == 0 { futexes::wait(turn, seen, ANY, limit) } else { Slept::Changed };
        waiting.fetch_sub(1, Ordering::SeqCst);
        if error != 0 {
            return error;
        }
        // The wait ends as a spurious wake-up would: the program checks its condition itself.
        match lock(mutex, 0, 0, true) {
            0 if slept == Slept::TimeOver => libc::ETIMEDOUT,
            error => error,
        }
    }
}

/// # Safety
/// `at` is a condition variable.
unsafe fn cond_wake(at: usize, count: u32) -> i32 {
    // SAFETY: the caller's promise.
    let (turn, waiting) = unsafe { (word(at, 0), word(at, 4)) };
    // Other side: the loads in `cond_wait`, behind its addition, and in `futexes::wait`.
    turn.fetch_add(1, Ordering::SeqCst);
    if waiting.load(Ordering::SeqCst) != 0 {
        futexes::wake(turn, count, ANY);
    }
    0
}

// The words of a read-write lock: the number of readers, or all bits for a writer; and the number of waiters.

const WRITER: u32 = u32::MAX;

/// # Safety
/// `at` is a read-write lock; `time` is null or a time.
unsafe fn rw_lock(at: usize, write: bool, clock: i32, time: usize, wait: bool) -> i32 {
    // SAFETY: the caller's promise.
    let (holders, waiting) = unsafe { (word(at, 0), word(at, 4)) };
    let take = || {
        let next = |now: u32| match (write, now) {
            (true, 0) => Some(WRITER),
            (false, now) if now != WRITER => Some(now + 1),
            _ => None,
        };
        // Other side: `rw_unlock`.
        holders.fetch_update(Ordering::Acquire, Ordering::Relaxed, next).map(drop)
    };
    if take().is_ok() {
        return 0;
    }
    if !wait {
        return libc::EBUSY;
    }
    waiting.fetch_add(1, Ordering::SeqCst);
    // SAFETY: the caller's promise.
    let error = until_taken(holders, || unsafe { left(clock, time) }, take);
    waiting.fetch_sub(1, Ordering::SeqCst);
    error
}

/// # Safety
/// `at` is a read-write lock that the caller holds.
unsafe fn rw_unlock(at: usize) -> i32 {
    // SAFETY: the caller's promise.
    let (holders, waiting) = unsafe { (word(at, 0), word(at, 4)) };
    let given = holders.fetch_update(Ordering::SeqCst, Ordering::Relaxed, |now| match now {
        0 => None,
        WRITER => Some(0),
        readers => Some(readers - 1),
    });
    match given {
        Err(_) => return libc::EPERM,
        // Other side: the addition in `rw_lock`, before and after which the lock is tried.
        Ok(WRITER | 1) if waiting.load(Ordering::SeqCst) != 0 => drop(futexes::wake(holders, ALL, ANY)),
        Ok(_) => {}
    }
    0
}

// The words of a semaphore: its value and the number of waiters.

/// Reports the error in errno, as semaphores of libc do.
fn failed(error: i32) -> i32 {
    if error == 0 {
        return 0;
    }
    // SAFETY: errno is this thread's.
    unsafe { *libc::__errno_location() = error };
    -1
}

/// # Safety
/// `at` is a semaphore; `time` is null or a time.
unsafe fn sem_take(at: usize, clock: i32, time: usize, wait: bool) -> i32 {
    // SAFETY: the caller's promise.
    let (value, waiting) = unsafe { (word(at, 0), word(at, 4)) };
    // Other side: `sem_post`.
    let take =
        || value.fetch_update(Ordering::Acquire, Ordering::Relaxed, |now| now.checked_sub(1)).map(drop);
    if take().is_ok() {
        return 0;
    }
    if !wait {
        return failed(libc::EAGAIN);
    }
    waiting.fetch_add(1, Ordering::SeqCst);
    // SAFETY: the caller's promise.
    let error = until_taken(value, || unsafe { left(clock, time) }, take);
    waiting.fetch_sub(1, Ordering::SeqCst);
    failed(error)
}

macro_rules! functions {
    ($($name:ident ( $($arg:ident),* ) $body:expr;)*) => {$(
        /// The function of this name in libc.
        ///
        /// # Safety
        /// The same as for libc's function.
        pub(super) unsafe fn $name($($arg: usize),*) -> i32 {
            // SAFETY: the caller's objects and times.
            unsafe { $body }
        }
    )*};
}

functions! {
    pthread_mutex_lock(m) lock(m, 0, 0, true);
    pthread_mutex_trylock(m) lock(m, 0, 0, false);
    pthread_mutex_timedlock(m, time) lock(m, libc::CLOCK_REALTIME, time, true);
    pthread_mutex_clocklock(m, clock, time) lock(m, clock as i32, time, true);
    pthread_mutex_unlock(m) unlock(m);
    pthread_mutex_consistent(m) consistent(m);
    mtx_lock(m) thrd(lock(m, 0, 0, true));
    mtx_trylock(m) thrd(lock(m, 0, 0, false));
    mtx_timedlock(m, time) thrd(lock(m, libc::CLOCK_REALTIME, time, true));
    mtx_unlock(m) thrd(unlock(m));
    pthread_cond_wait(c, m) cond_wait(c, m, None, 0);
    pthread_cond_timedwait(c, m, time) cond_wait(c, m, None, time);
    pthread_cond_clockwait(c, m, clock, time) cond_wait(c, m, Some(clock as i32), time);
    pthread_cond_signal(c) cond_wake(c, 1);
    pthread_cond_broadcast(c) cond_wake(c, ALL);
    cnd_wait(c, m) thrd(cond_wait(c, m, None, 0));
    cnd_timedwait(c, m, time) thrd(cond_wait(c, m, Some(libc::CLOCK_REALTIME), time));
    cnd_signal(c) thrd(cond_wake(c, 1));
    cnd_broadcast(c) thrd(cond_wake(c, ALL));
    pthread_rwlock_rdlock(l) rw_lock(l, false, 0, 0, true);
    pthread_rwlock_wrlock(l) rw_lock(l, true, 0, 0, true);
    pthread_rwlock_tryrdlock(l) rw_lock(l, false, 0, 0, false);
    pthread_rwlock_trywrlock(l) rw_lock(l, true, 0, 0, false);
    pthread_rwlock_timedrdlock(l, time) rw_lock(l, false, libc::CLOCK_REALTIME, time, true);
    pthread_rwlock_timedwrlock(l, time) rw_lock(l, true, libc::CLOCK_REALTIME, time, true);
    pthread_rwlock_clockrdlock(l, clock, time) rw_lock(l, false, clock as i32, time, true);
    pthread_rwlock_clockwrlock(l, clock, time) rw_lock(l, true, clock as i32, time, true);
    pthread_rwlock_unlock(l) rw_unlock(l);
    sem_wait(s) sem_take(s, 0, 0, true);
    sem_trywait(s) sem_take(s, 0, 0, false);
    sem_timedwait(s, time) sem_take(s, libc::CLOCK_REALTIME, time, true);
    sem_clockwait(s, clock, time) sem_take(s, clock as i32, time, true);
}

macro_rules! nothing_to_do {
    ($($name:ident)*) => {$(
        /// The function of this name in libc.
        pub(super) fn $name(_object: usize) -> i32 {
            0
        }
    )*};
}

nothing_to_do! { pthread_cond_destroy cnd_destroy pthread_barrier_destroy }

/// `sem_post`.
///
/// # Safety
/// The same as for libc's function.
pub(super) unsafe fn sem_post(at: usize) -> i32 {
    // SAFETY: the caller's promise.
    let (value, waiting) = unsafe { (word(at, 0), word(at, 4)) };
    let more = |now: u32| now.checked_add(1).filter(|now| *now <= i32::MAX as u32);
    if value.fetch_update(Ordering::SeqCst, Ordering::Relaxed, more).is_err() {
        return failed(libc::EOVERFLOW);
    }
    // Other side: the addition in `sem_take`, after which the value is tried again.
    if waiting.load(Ordering::SeqCst) != 0 {
        futexes::wake(value, 1, ANY);
    }
    0
}

/// `pthread_barrier_wait`. The words are: threads that have arrived, the round, and the threads of a round.
///
/// # Safety
/// The same as for libc's function.
pub(super) unsafe fn pthread_barrier_wait(at: usize) -> i32 {
    // SAFETY: the caller's promise.
    let (there, round, threads) = unsafe { (word(at, 0), word(at, 4), word(at, 8)) };
    let seen = round.load(Ordering::Acquire);
    // Other side: the last thread's addition to the round, before which no thread of the next round is here.
    if there.fetch_add(1, Ordering::AcqRel) + 1 == threads.load(Ordering::Relaxed) {
        there.store(0, Ordering::Relaxed);
        round.fetch_add(1, Ordering::Release);
        futexes::wake(round, ALL, ANY);
        return libc::PTHREAD_BARRIER_SERIAL_THREAD;
    }
    while round.load(Ordering::Acquire) == seen {
        futexes::wait(round, seen, ANY, None);
    }
    0
}

/// The kernel's futex call, in the ways that programs and their libraries use it.
///
/// # Safety
/// The same as for the kernel's call.
pub(super) unsafe fn futex(at: usize, operation: usize, value: u32, time: usize, mask: u32) -> i64 {
    let command = (operation as i32) & libc::FUTEX_CMD_MASK;
    let clock = if operation as i32 & libc::FUTEX_CLOCK_REALTIME != 0 {
        libc::CLOCK_REALTIME
    } else {
        libc::CLOCK_MONOTONIC
    };
    let mask = if matches!(command, libc::FUTEX_WAIT_BITSET | libc::FUTEX_WAKE_BITSET) { mask } else { ANY };
    // SAFETY: the caller's promise.
    let result = unsafe {
        match command {
            libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET => {
                let limit = match command {
                    libc::FUTEX_WAIT if time != 0 => {
                        let time = *(time as *const libc::timespec);
                        Ok(Some(Duration::new(
                            time.tv_sec.max(0) as u64,
                            time.tv_nsec.clamp(0, 999_999_999) as u32,
                        )))
                    }
                    _ => left(clock, time),
                };
                match limit.map(|limit| futexes::wait(word(at, 0), value, mask, limit)) {
                    Ok(Slept::Woken) => Ok(0),
                    Ok(Slept::Changed) => Err(libc::EAGAIN),
                    Ok(Slept::TimeOver) => Err(libc::ETIMEDOUT),
                    Err(error) => Err(error),
                }
            }
            libc::FUTEX_WAKE | libc::FUTEX_WAKE_BITSET => Ok(futexes::wake(word(at, 0), value, mask)),
            // A thread that should sleep on the other word wakes, and checks its condition itself.
            libc::FUTEX_REQUEUE | libc::FUTEX_CMP_REQUEUE => Ok(futexes::wake(word(at, 0), ALL, ANY)),
            _ => Err(libc::ENOSYS),
        }
    };
    match result {
        Ok(count) => count.into(),
        Err(error) => failed(error).into(),
    }
}

/// Sleeps while the word is `value`, or until woken.
pub(super) fn wait(word: &AtomicU32, value: u32) {
    futexes::wait(word, value, ANY, None);
}

/// Wakes all threads that sleep on the word.
pub(super) fn wake_all(word: &AtomicU32) {
    futexes::wake(word, ALL, ANY);
}
