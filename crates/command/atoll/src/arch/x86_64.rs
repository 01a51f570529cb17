//! What the command knows of x86-64. Source: glibc's `sysdeps/generic/ldconfig.h` for the flags of the linker's cache.

#[cfg(feature = "tools")]
mod cpuid;

#[cfg(feature = "tools")]
pub(crate) use cpuid::{caches, tlbs};
use object::elf;

use super::Kernel;

/// The number of this processor in ELF files.
pub(crate) const MACHINE: elf::Machine = elf::EM_X86_64;

/// Numbers of processors whose 32-bit programs this machine may run, but atoll does not.
pub(crate) const MACHINES_OF_32_BITS: [elf::Machine; 2] = [elf::EM_386, elf::EM_X86_64];

/// The flags of this processor's libraries in the dynamic linker's cache (`FLAG_X8664_LIB64` and `FLAG_ELF_LIBC6`).
pub(crate) const CACHE_FLAGS: u32 = 0x0303;

/// The oldest Linux that write-protects shared memory by userfaultfd here.
pub(crate) const OLDEST_KERNEL: Kernel = Kernel { version: (5, 19), package: "linux-image-amd64" };

/// Where Debian keeps this processor's libraries, and other systems.
pub(crate) const DIRECTORIES: [&str; 6] =
    ["/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib"];

/// The cycles of each step of [`chain`], a multiplication, on processors of the last fifteen years.
#[cfg(feature = "tools")]
pub(crate) const STEP_CYCLES: u64 = 3;

/// Makes eight steps `loops` times, each of which waits for the one before.
#[cfg(feature = "tools")]
pub(crate) fn chain(loops: u64) {
    // SAFETY: registers only.
    unsafe {
        std::arch::asm!(
            "2:",
            "imul {x}, {x}", "imul {x}, {x}", "imul {x}, {x}", "imul {x}, {x}",
            "imul {x}, {x}", "imul {x}, {x}", "imul {x}, {x}", "imul {x}, {x}",
            "dec {n}",
            "jnz 2b",
            x = inout(reg) 3_u64 => _,
            n = inout(reg) loops => _,
            options(nomem, nostack)
        );
    }
}
