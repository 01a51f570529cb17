//! Limits of the process (`ulimit`) under which a program cannot be managed, told before anything is set up, and what the machine has left.
//!
//! Asked by the launcher, which makes shared memory first, and by the runtime, as a shell script behind `atoll run` may set limits of
//! its own.

use crate::sys;

/// A limit that is in the way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Limited {
    /// The size of files: shared memory counts as files to the kernel, and a write beyond ends the process by SIGXFSZ.
    #[error(
        "files may have {0} bytes at most here, and atoll's shared memory is files to the kernel: lift the limit with \
         `ulimit -f unlimited` in the shell or job script that starts atoll"
    )]
    FileSize(u64),
    /// The size of the address space.
    #[error(
        "a process may have {0} bytes of addresses here, and atoll reserves terabytes, of which it fills what is used: lift \
         the limit with `ulimit -v unlimited` in the shell or job script that starts atoll"
    )]
    AddressSpace(u64),
}

/// Bytes of addresses that suffice for all that is reserved in a managed program.
pub const ADDRESSES: u64 = 32 << 40;

/// Checks that the limits are such that a program can be managed.
///
/// # Errors
/// The first limit that is in the way.
pub fn check() -> Result<(), Limited> {
    // The kernel's own, as the runtime's `getrlimit` tells the program what it has set itself.
    let soft = |resource: u32| {
        let mut limit = [libc::RLIM_INFINITY; 2];
        // SAFETY: two words, the soft limit first, as the kernel's structure is.
        let known = unsafe {
            sys::syscall(libc::SYS_prlimit64, [0, resource as usize, 0, limit.as_mut_ptr().addr(), 0, 0])
        };
        if known.is_ok() { limit[0] } else { libc::RLIM_INFINITY }
    };
    judge(soft(libc::RLIMIT_FSIZE), soft(libc::RLIMIT_AS))
}

fn judge(file_size: u64, address_space: u64) -> Result<(), Limited> {
    if file_size < ADDRESSES {
        return Err(Limited::FileSize(file_size));
    }
    if address_space < ADDRESSES {
        return Err(Limited::AddressSpace(address_space));
    }
    Ok(())
}

/// Bytes of this machine's memory that may be had without taking them from others; `None` if that cannot be read. Allocates.
pub fn available_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.split_ascii_whitespace().next()?.parse::<u64>().ok()? << 10)
}

/// One part in this number of the available memory is left to other programs, and to what the program needs besides paged memory.
const LEFT_PART: u64 = 8;

/// Bytes of memory that each of `nodes` on a machine may take for far memory beside `near` bytes (`u64::MAX`: no limit) of near memory,
/// where `available` bytes may be had.
pub fn spare_bytes(available: u64, near: u64, nodes: u32) -> u64 {
    let nodes = u64::from(nodes.max(1));
    (available - available / LEFT_PART).saturating_sub(near.saturating_mul(nodes)) / nodes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_memory_and_a_part_for_others_come_first() {
        assert_eq!(spare_bytes(8 << 30, 2 << 30, 1), 5 << 30);
        assert_eq!(spare_bytes(8 << 30, 2 << 30, 2), 3 << 29);
        assert_eq!(spare_bytes(8 << 30, 7 << 30, 1), 0);
        assert_eq!(spare_bytes(8 << 30, u64::MAX, 2), 0);
    }

    #[test]
    fn each_limit_has_its_sentence() {
        let none = libc::RLIM_INFINITY;
        assert_eq!(judge(none, none), Ok(()));
        assert_eq!(judge(1 << 20, none), Err(Limited::FileSize(1 << 20)));
        assert_eq!(judge(none, 4 << 30), Err(Limited::AddressSpace(4 << 30)));
    }
}
