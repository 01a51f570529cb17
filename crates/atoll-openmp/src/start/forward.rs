//! Signals that somebody sends to a process of the program which is not the master: they are the program's.
//!
//! A worker's helper thread (`process`) takes those of its process and sends them on to the master; on another node than the origin the
//! agent (`atoll_nodes::agent`) takes those of the node's first process, for the origin. What the program has a handler for is
//! not sent on: who signals a group of processes, or all of a name, has reached the master, too, where the handler is to run
//! once.
//!
//! Rules: no allocation, no thread-locals, no errno, no libc: a helper may have another worker's.

use std::sync::atomic::{AtomicI32, Ordering};

use atoll_memory::control::Control;
use atoll_memory::sys::{self, Errno};

/// Signals by which somebody ends a program.
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
/// Signals of timers, which are the process's that set them.
const TIMERS: [i32; 3] = [libc::SIGALRM, libc::SIGVTALRM, libc::SIGPROF];

fn bits(signals: &[i32]) -> u64 {
    signals.iter().fold(0, |all, signal| all | 1 << (signal - 1))
}

/// Readable while a signal has come for the process that looks. Shared by all workers, as all descriptors are.
static DESCRIPTOR: AtomicI32 = AtomicI32::new(-1);

/// In the program's first process, before there are others.
pub(super) fn begin() {
    let set = bits(&ENDING) | bits(&TIMERS);
    let flags = (libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) as usize;
    // SAFETY: a set of eight bytes.
    let made =
        unsafe { sys::syscall(libc::SYS_signalfd4, [usize::MAX, (&raw const set) as usize, 8, flags, 0, 0]) };
    DESCRIPTOR.store(made.map_or(-1, |fd| sys::out_of_the_way(fd as i32)), Ordering::Release);
}

/// See [`begin`]; negative where there is none.
pub(super) fn descriptor() -> i32 {
    DESCRIPTOR.load(Ordering::Acquire)
}

/// What `poll` said of the descriptor to a worker's helper.
pub(super) fn see(control: &Control, events: i16) {
    if events & libc::POLLNVAL != 0 {
        // The program closed it.
        DESCRIPTOR.store(-1, Ordering::Release);
    }
    if events & libc::POLLIN != 0 {
        send_on(control);
    }
}

/// A signal of those that came for this process and that no thread takes, and whether the kernel itself sent it.
pub(crate) fn take() -> Option<(i32, bool)> {
    let set = bits(&ENDING) | bits(&TIMERS);
    let time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let mut info = [0i32; 32];
    let words = [(&raw const set) as usize, info.as_mut_ptr() as usize, (&raw const time) as usize, 8, 0, 0];
    // SAFETY: a set of eight bytes, room for the kernel's description of a signal, and a time.
    match unsafe { sys::syscall(libc::SYS_rt_sigtimedwait, words) } {
        // The description begins with number, error and code.
        Ok(signal) => Some((signal as i32, info[2] == libc::SI_KERNEL)),
        Err(Errno(_)) => None,
    }
}

/// Does the signal end this process if it comes? Asked of the kernel.
pub(crate) fn is_fatal(signal: i32) -> bool {
    let mut action = [0u64; 4];
    let words = [signal as usize, 0, action.as_mut_ptr() as usize, 8, 0, 0];
    // SAFETY: the kernel's structure is four words, eight mask bytes.
    let read = unsafe { sys::syscall(libc::SYS_rt_sigaction, words) };
    read.is_ok() && action[0] == libc::SIG_DFL as u64
}

/// Sends a worker's signal on to the master.
fn send_on(control: &Control) {
    let Some((signal, by_kernel)) = take() else { return };
    let is_timer = TIMERS.contains(&signal);
    // A terminal's come to the master, too.
    if is_timer || (is_fatal(signal) && !by_kernel) {
        let master = control.program.load(Ordering::Relaxed);
        // SAFETY: values only.
        let _ = unsafe { sys::syscall(libc::SYS_kill, [master as usize, signal as usize, 0, 0, 0, 0]) };
    }
}
