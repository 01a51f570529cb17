//! Counting page faults: what the kernel accounts to a process, and perf's software counter of a thread.
//!
//! Read by the runtime when a worker is set up and at the end, for the promise that nothing faults in between. The
//! kernel's accounting has the pages in it that `fill` entered; perf's counter has only faults of instructions.

use std::mem::MaybeUninit;

use crate::perf_event::{self, Event};
use crate::sys::{self, Errno};

/// Faults so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Faults {
    /// Without reading from a disk.
    pub minor: u64,
    /// With it.
    pub major: u64,
}

impl Faults {
    /// What came since `before`.
    pub fn since(self, before: Faults) -> Faults {
        Faults {
            minor: self.minor.saturating_sub(before.minor),
            major: self.major.saturating_sub(before.major),
        }
    }
}

fn usage(who: i32) -> Faults {
    // SAFETY: plain data, for which zeros are valid; valid for writes.
    let usage = unsafe {
        let mut usage: libc::rusage = MaybeUninit::zeroed().assume_init();
        let _ = sys::syscall(libc::SYS_getrusage, [who as usize, &raw mut usage as usize, 0, 0, 0, 0]);
        usage
    };
    Faults { minor: usage.ru_minflt as u64, major: usage.ru_majflt as u64 }
}

/// Faults of all threads of the calling process.
pub fn of_process() -> Faults {
    usage(libc::RUSAGE_SELF)
}

/// Faults of the calling thread.
pub fn of_thread() -> Faults {
    usage(libc::RUSAGE_THREAD)
}

/// Faults of all threads of another process; none if it is gone.
pub fn of_other(pid: i32) -> Option<Faults> {
    parse(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Fields 10 and 12 of `/proc/PID/stat`.
fn parse(stat: &str) -> Option<Faults> {
    // The name, which may hold anything, ends at the last parenthesis.
    let mut words = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let minor = words.nth(7)?.parse().ok()?;
    let major = words.nth(1)?.parse().ok()?;
    Some(Faults { minor, major })
}

/// A counter of the faults that a thread's instructions cause.
#[derive(Debug)]
pub struct Counter(i32);

impl Counter {
    /// Counts the calling thread's faults from now on; where only that is allowed, those outside the kernel.
    ///
    /// # Errors
    /// The kernel's refusal (`kernel.perf_event_paranoid`, seccomp).
    pub fn of_this_thread() -> Result<Counter, Errno> {
        let open = |flags| perf_event::open(Event::PageFaults, flags).map(Counter);
        open(0).or_else(|_| open(perf_event::EXCLUDE_KERNEL))
    }

    /// What it has counted; none if somebody closed it.
    pub fn read(&self) -> Option<u64> {
        perf_event::read(self.0)
    }

    /// Stops counting, or goes on.
    pub fn pause(&self, stop: bool) {
        const ENABLE: usize = 0x2400;
        const DISABLE: usize = 0x2401;
        let request = if stop { DISABLE } else { ENABLE };
        // SAFETY: no pointers.
        let _ = unsafe { sys::syscall(libc::SYS_ioctl, [self.0 as usize, request, 0, 0, 0, 0]) };
    }

    /// The counter's descriptor, which every worker shares.
    pub fn fd(&self) -> i32 {
        self.0
    }

    /// The counter with this descriptor.
    pub fn from_fd(fd: i32) -> Counter {
        Counter(fd)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_right_fields_are_read() {
        let line = "12 (a) b) R 1 2 3 4 5 6 70 8 90 10 11 12 13\n";
        assert_eq!(parse(line), Some(Faults { minor: 70, major: 90 }));
        for wrong in ["", ")", "1 (x) R 1 2", "1 (x) R 1 2 3 4 5 6 x 8 9"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_fault_is_counted_by_everybody() {
        let counter = Counter::of_this_thread();
        let (before, perf) = (of_thread(), counter.as_ref().ok().and_then(Counter::read));
        let len = 64 << 12;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping, touched inside.
        unsafe {
            let at = sys::mmap(0, len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0).unwrap();
            for page in (at..at + len).step_by(4096) {
                (page as *mut u8).write_volatile(1);
            }
            libc::munmap(at as *mut libc::c_void, len);
        }
        assert!(of_thread().since(before).minor >= 1);
        assert!(of_process().minor >= of_thread().minor);
        assert!(of_other(std::process::id() as i32).unwrap().minor >= of_thread().minor);
        match (counter, perf) {
            (Ok(counter), Some(perf)) => assert!(counter.read().unwrap() > perf),
            (why, _) => atoll_skips::skip_part!("no perf counter here: {why:?}"),
        }
    }
}
