//! Counting page faults: what the kernel accounts to a process, and perf's software counter of a thread.
//!
//! Read by the runtime when a worker is set up and at the end, for the promise that nothing faults in between. The
//! kernel's accounting has the pages in it that `fill` entered; perf's counter has only faults of instructions.

use std::mem::MaybeUninit;

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

/// Of all threads of the calling process.
pub fn of_process() -> Faults {
    usage(libc::RUSAGE_SELF)
}

/// Of the calling thread.
pub fn of_thread() -> Faults {
    usage(libc::RUSAGE_THREAD)
}

/// Of all threads of another process; none if it is gone.
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

const PERF_TYPE_SOFTWARE: u32 = 1;
const PERF_COUNT_SW_PAGE_FAULTS: u64 = 2;
/// Bytes of the first published version of the structure.
const ATTRIBUTE_BYTES: u32 = 64;
const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HYPERVISOR: u64 = 1 << 6;
const PERF_FLAG_FD_CLOEXEC: usize = 8;

/// The beginning of the kernel's `perf_event_attr`.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup: u32,
    bp_type: u32,
    config1: u64,
}

const _: () = assert!(size_of::<Attributes>() == ATTRIBUTE_BYTES as usize);

impl Counter {
    /// Counts the calling thread's faults from now on; where only that is allowed, those outside the kernel.
    ///
    /// # Errors
    /// The kernel's refusal (`kernel.perf_event_paranoid`, seccomp).
    pub fn of_this_thread() -> Result<Counter, Errno> {
        Counter::open(EXCLUDE_HYPERVISOR).or_else(|_| Counter::open(EXCLUDE_HYPERVISOR | EXCLUDE_KERNEL))
    }

    fn open(flags: u64) -> Result<Counter, Errno> {
        let attributes = Attributes {
            kind: PERF_TYPE_SOFTWARE,
            size: ATTRIBUTE_BYTES,
            config: PERF_COUNT_SW_PAGE_FAULTS,
            flags,
            ..Attributes::default()
        };
        let any_cpu = usize::MAX;
        // SAFETY: the kernel reads `size` bytes of the attributes.
        let fd = unsafe {
            let at = std::ptr::from_ref(&attributes) as usize;
            sys::syscall(libc::SYS_perf_event_open, [at, 0, any_cpu, usize::MAX, PERF_FLAG_FD_CLOEXEC, 0])
        }?;
        Ok(Counter(sys::out_of_the_way(fd as i32)))
    }

    /// What it has counted; none if somebody closed it.
    pub fn read(&self) -> Option<u64> {
        let mut value = [0; 8];
        // SAFETY: valid for eight bytes.
        let n = unsafe { sys::read(self.0, value.as_mut_ptr(), 8) };
        (n == Ok(8)).then(|| u64::from_ne_bytes(value))
    }

    /// Stops counting, or goes on.
    pub fn pause(&self, stop: bool) {
        const ENABLE: usize = 0x2400;
        const DISABLE: usize = 0x2401;
        let request = if stop { DISABLE } else { ENABLE };
        // SAFETY: no pointers.
        let _ = unsafe { sys::syscall(libc::SYS_ioctl, [self.0 as usize, request, 0, 0, 0, 0]) };
    }

    /// Its descriptor, which every worker shares.
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
            (why, _) => println!("skipped: no perf counter here: {why:?}"),
        }
    }
}
