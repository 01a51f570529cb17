//! Signals sent to a process of the program other than the master, which are meant for the program.
//!
//! A worker's helper thread (`process`) takes those of its process and sends them on to the master. On another node than the
//! origin, the agent (`atoll_nodes::agent`) takes those of the node's first process for the origin. A signal for which the program
//! has a handler is not sent on: whoever signals a group of processes, or all of a name, has reached the master, too, where the
//! handler is to run once.
//!
//! Rules: no allocation, no thread-locals, no errno, no libc: a helper may use another worker's thread-local storage.

use std::sync::atomic::{AtomicI32, Ordering};

use atoll_memory::control::Control;
use atoll_memory::sys::{self, Errno};

/// Signals by which programs are usually ended.
const ENDING: [i32; 8] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGTERM,
    libc::SIGPIPE,
    libc::SIGXCPU,
];
/// Signals of timers, which belong to the process that set the timer.
const TIMERS: [i32; 3] = [libc::SIGALRM, libc::SIGVTALRM, libc::SIGPROF];

fn bits(signals: &[i32]) -> u64 {
    signals.iter().fold(0, |all, signal| all | 1 << (signal - 1))
}

/// A signalfd, readable while a signal is pending for the process that polls it. All workers share it, as they share all
/// descriptors. Whoever polls it is woken by every signal of the process, those of its faults too, so only helpers do that whose
/// process has no such faults; the others [`wait`].
static DESCRIPTOR: AtomicI32 = AtomicI32::new(-1);

/// Opens the descriptor in the program's first process, before there are others.
pub(super) fn begin() {
    let set = bits(&ENDING) | bits(&TIMERS);
    let flags = (libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) as usize;
    // SAFETY: a set of eight bytes.
    let made =
        unsafe { sys::syscall(libc::SYS_signalfd4, [usize::MAX, (&raw const set) as usize, 8, flags, 0, 0]) };
    DESCRIPTOR.store(made.map_or(-1, |fd| sys::out_of_the_way(fd as i32)), Ordering::Release);
}

/// The descriptor that [`begin`] opened; negative where there is none.
pub(super) fn descriptor() -> i32 {
    DESCRIPTOR.load(Ordering::Acquire)
}

/// Handles the events that `poll` reported for the descriptor to a worker's helper.
pub(super) fn see(control: &Control, events: i16) {
    if events & libc::POLLNVAL != 0 {
        // The program closed it.
        DESCRIPTOR.store(-1, Ordering::Release);
    }
    if events & libc::POLLIN != 0
        && let Some(signal) = take()
    {
        send_on(control, signal);
    }
}

/// Waits `ns` nanoseconds at most for a signal of this process, a worker's, that no thread takes, and sends it on.
pub(super) fn wait(control: &Control, ns: i64) {
    if let Some(signal) = take_within(ns) {
        send_on(control, signal);
    }
}

/// Takes a pending signal of this process that no thread takes; also tells whether the kernel itself sent it.
pub(crate) fn take() -> Option<(i32, bool)> {
    take_within(0)
}

fn take_within(ns: i64) -> Option<(i32, bool)> {
    let set = bits(&ENDING) | bits(&TIMERS);
    let time = libc::timespec { tv_sec: ns / 1_000_000_000, tv_nsec: ns % 1_000_000_000 };
    let mut info = [0i32; 32];
    let words = [(&raw const set) as usize, info.as_mut_ptr() as usize, (&raw const time) as usize, 8, 0, 0];
    // SAFETY: a set of eight bytes, room for the kernel's description of a signal, and a time.
    match unsafe { sys::syscall(libc::SYS_rt_sigtimedwait, words) } {
        // The kernel's description begins with the signal's number, errno and code.
        Ok(signal) => Some((signal as i32, info[2] == libc::SI_KERNEL)),
        Err(Errno(_)) => None,
    }
}

/// Whether the signal would end this process, by the kernel's answer.
pub(crate) fn is_fatal(signal: i32) -> bool {
    let mut action = [0u64; 4];
    let words = [signal as usize, 0, action.as_mut_ptr() as usize, 8, 0, 0];
    // SAFETY: the kernel's structure is four words, eight mask bytes.
    let read = unsafe { sys::syscall(libc::SYS_rt_sigaction, words) };
    read.is_ok() && action[0] == libc::SIG_DFL as u64
}

/// Sends a worker's signal on to the master. `by_kernel`: the kernel itself sent it.
fn send_on(control: &Control, (signal, by_kernel): (i32, bool)) {
    let is_timer = TIMERS.contains(&signal);
    // A signal of the terminal reaches the master itself, too.
    if is_timer || (is_fatal(signal) && !by_kernel) {
        let master = control.program.load(Ordering::Relaxed);
        // SAFETY: values only.
        let _ = unsafe { sys::syscall(libc::SYS_kill, [master as usize, signal as usize, 0, 0, 0, 0]) };
    }
}
