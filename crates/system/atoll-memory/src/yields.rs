//! Gives the CPU to others while that pays: where the workers of a team share CPUs, it costs less than to sleep and be woken.
//!
//! `futex` waits with it. A waiter that gives its CPU to another program has it back only after that program's time slice, while
//! a sleeper that is woken goes first. So nobody yields for a while after a long absence, unless it was a worker that had the CPU.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::sys;

/// The ticks of an absence that another program caused, or a worker with much to do: some 300 µs, as processors have two to four
/// ticks in a nanosecond.
const LONG: u64 = 1_000_000;
/// The least and the most ticks for which nobody yields: some 10 ms and 1 s.
const LEAST: u64 = 30_000_000;
const MOST: u64 = 3_000_000_000;

/// When workers yield again, and for how long they will not after the next long absence. All workers share them.
static AGAIN: AtomicU64 = AtomicU64::new(0);
static PAUSE: AtomicU64 = AtomicU64::new(LEAST);

/// Gives the CPU to whoever else is runnable; false if it does not pay now. `workers` is the number of workers that may be
/// runnable.
pub(crate) fn to_others(workers: u32) -> bool {
    let before = sys::ticks();
    if is_pause(AGAIN.load(Ordering::Relaxed), before) {
        return false;
    }
    sys::yield_now();
    let after = sys::ticks();
    let pause = PAUSE.load(Ordering::Relaxed);
    // Relaxed: both are guesses, and a lost update is another guess.
    if after.saturating_sub(before) < LONG {
        if pause > LEAST {
            PAUSE.store(shorter(pause), Ordering::Relaxed);
        }
        return true;
    }
    if runnable().is_some_and(|all| all <= workers) {
        return true;
    }
    PAUSE.store((pause * 2).min(MOST), Ordering::Relaxed);
    AGAIN.store(after + pause, Ordering::Relaxed);
    false
}

/// The next pause after a short absence, which says little by itself: others may be on the other CPUs.
fn shorter(pause: u64) -> u64 {
    (pause - pause / 256).max(LEAST)
}

/// The number of threads on this machine that run or want to, this one among them; `None` where the kernel does not tell.
fn runnable() -> Option<u32> {
    let flags = (libc::O_RDONLY | libc::O_CLOEXEC) as usize;
    let path = c"/proc/loadavg".as_ptr() as usize;
    let mut text = [0u8; 64];
    // SAFETY: the path ends in 0, and the text is valid for writes of its length. System calls themselves, as helper threads may
    // not use libc.
    let read = unsafe {
        let file = sys::syscall(libc::SYS_openat, [libc::AT_FDCWD as usize, path, flags, 0, 0, 0]).ok()?;
        let read = sys::syscall(libc::SYS_read, [file, text.as_mut_ptr() as usize, text.len(), 0, 0, 0]);
        let _ = sys::syscall(libc::SYS_close, [file, 0, 0, 0, 0, 0]);
        read.ok()?
    };
    running(std::str::from_utf8(text.get(..read)?).ok()?)
}

/// Reads the fourth word of `/proc/loadavg`: the runnable threads of all.
fn running(text: &str) -> Option<u32> {
    text.split(' ').nth(3)?.split('/').next()?.parse().ok()
}

/// Whether nobody yields now.
pub(crate) fn is_paused() -> bool {
    is_pause(AGAIN.load(Ordering::Relaxed), sys::ticks())
}

/// Whether nobody yields now, but first `again`. A counter that was set back, as when a virtual machine goes on, ends the pause.
fn is_pause(again: u64, now: u64) -> bool {
    again > now && again - now <= MOST
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_pauses_become_shorter_by_many_short_absences() {
        let (mut pause, mut absences) = (MOST, 0);
        while pause > LEAST {
            (pause, absences) = (shorter(pause), absences + 1);
        }
        assert_eq!(pause, LEAST);
        assert!((500..5000).contains(&absences), "{absences}");
    }

    #[test]
    fn runnable_threads_are_read() {
        assert_eq!(running("0.20 0.18 0.12 3/80 11206\n"), Some(3));
        assert_eq!(running("0.20 0.18\n"), None);
        assert!(runnable().is_none_or(|all| all > 0));
    }

    #[test]
    fn a_pause_ends_also_where_the_counter_was_set_back() {
        assert!(is_pause(2_000, 1_000) && !is_pause(1_000, 1_000));
        assert!(!is_pause(MOST + 2_000, 1_000));
    }
}
