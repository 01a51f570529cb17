//! The lifeline: by it a worker's process hears that the program has ended, in whatever way.
//!
//! Each worker's process has a helper thread (`process::help`), which waits here. The kernel's signal for a parent's death is
//! of no use, as it comes when the *thread* ends that made the process, which may be any thread of the program.
//!
//! Rules: no allocation, no locks, no thread-local data (the waiting thread runs with another thread's), no libc.

use std::sync::atomic::{AtomicI32, Ordering};

use atoll_memory::control::{Control, ENDING_THEMSELVES};
use atoll_memory::spin;
use atoll_memory::sys::{self, Errno};

use super::forward;

/// A descriptor of the program's first process, readable once that has ended. All workers share it, as they share all
/// descriptors.
static PROGRAM: AtomicI32 = AtomicI32::new(-1);
/// The process number of that process.
static NUMBER: AtomicI32 = AtomicI32::new(0);

/// The interval, in nanoseconds, at which the process is looked for where nothing tells of its end: the kernel has no such descriptor, the
/// program closed it, or the helper waits for signals.
const LOOK_NS: i64 = 100_000_000;

/// Records that the calling process is the program's first.
pub(super) fn begin() {
    NUMBER.store(sys::process(), Ordering::Relaxed);
    forward::begin();
    // A helper that serves faults may wait for a page that a process had locked when it was killed.
    spin::look_in_long_waits(look);
    PROGRAM.store(sys::open_self().unwrap_or(-1), Ordering::Release);
}

/// Ends the calling process if the program has ended.
fn look() {
    wait(-1, 0, None);
}

/// Waits until `fd` (if it is not negative) can be read or `ns` nanoseconds are over; returns whether `fd` can be read. Ends
/// the calling process once the program has ended. With a control block it also sends on the process's signals, and may return
/// sooner for them.
pub(super) fn wait(fd: i32, ns: i64, signals_of: Option<&Control>) -> bool {
    if signals_of.is_some_and(|control| control.ending.load(Ordering::Acquire) == ENDING_THEMSELVES) {
        end();
    }
    if let Some(control) = signals_of
        && fd < 0
    {
        // Polling a signalfd would wake the helper at each fault of its worker, which is a signal as well.
        forward::wait(control, ns.min(LOOK_NS));
        look();
        return false;
    }
    let program = PROGRAM.load(Ordering::Acquire);
    let signals = signals_of.map_or(-1, |_| forward::descriptor());
    let entry = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let mut polled = [entry(program), entry(fd), entry(signals)];
    let time = if program < 0 { ns.min(LOOK_NS) } else { ns };
    let timeout = libc::timespec { tv_sec: time / 1_000_000_000, tv_nsec: time % 1_000_000_000 };
    // SAFETY: three entries and a time, valid for the call.
    let ready = unsafe {
        let polled = (&raw mut polled) as usize;
        sys::syscall(libc::SYS_ppoll, [polled, 3, (&raw const timeout) as usize, 0, 8, 0])
    };
    if polled[0].revents & libc::POLLNVAL != 0 {
        // The program closed the descriptor; its number may soon be another file's.
        PROGRAM.store(-1, Ordering::Release);
    } else if polled[0].revents != 0 || program < 0 && is_gone() {
        end();
    }
    if let Some(control) = signals_of {
        forward::see(control, polled[2].revents);
    }
    ready.is_ok() && polled[1].revents & libc::POLLIN != 0
}

/// Whether there is no process of the program's number. A process that has ended and was not yet waited for still counts.
fn is_gone() -> bool {
    let number = NUMBER.load(Ordering::Relaxed) as usize;
    // SAFETY: values only; signal 0 asks.
    unsafe { sys::syscall(libc::SYS_kill, [number, 0, 0, 0, 0, 0]) == Err(Errno(libc::ESRCH)) }
}

fn end() -> ! {
    loop {
        // SAFETY: ends this process.
        let _ = unsafe { sys::syscall(libc::SYS_exit_group, [1, 0, 0, 0, 0, 0]) };
    }
}
