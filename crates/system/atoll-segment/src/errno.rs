//! The error numbers that a delegated call gives back to the program.
//!
//! Everything under `calls/` uses them. The numbers are the same in the 32-bit and the 64-bit system-call interfaces.

/// A positive error number; the kernel would return it negated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Errno(pub i32);

impl Errno {
    /// Returns the error of this thread's last failed call.
    pub(crate) fn last() -> Errno {
        Errno(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
    }

    /// Returns the error as the register that takes a call's result holds it: negative, in 64 bits.
    pub(crate) fn returned(self) -> u64 {
        i64::from(-self.0) as u64
    }
}

impl std::fmt::Display for Errno {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", std::io::Error::from_raw_os_error(self.0))
    }
}

impl std::error::Error for Errno {}

/// A pointer of the program that does not lie wholly in its segment.
pub(crate) const EFAULT: Errno = Errno(libc::EFAULT);

/// Makes system call `number` of this machine.
///
/// # Safety
/// The arguments must be valid for that call; pointers must be valid for what the kernel does with them.
pub(crate) unsafe fn syscall(number: libc::c_long, a: [u64; 6]) -> Result<u64, Errno> {
    // SAFETY: the caller keeps the contract above.
    let result = unsafe { libc::syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]) };
    if result == -1 { Err(Errno::last()) } else { Ok(result as u64) }
}
