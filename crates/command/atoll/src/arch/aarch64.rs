//! What the command knows of aarch64. Source: glibc's `sysdeps/generic/ldconfig.h` for the flags of the linker's cache.

use object::elf;

use super::Kernel;

/// The number of this processor in ELF files.
pub(crate) const MACHINE: elf::Machine = elf::EM_AARCH64;

/// Numbers of processors whose 32-bit programs this machine may run, but atoll does not.
pub(crate) const MACHINES_OF_32_BITS: [elf::Machine; 2] = [elf::EM_ARM, elf::EM_AARCH64];

/// The flags of this processor's libraries in the dynamic linker's cache (`FLAG_AARCH64_LIB64` and `FLAG_ELF_LIBC6`).
pub(crate) const CACHE_FLAGS: u32 = 0x0a03;

/// The oldest Linux that write-protects shared memory by userfaultfd here.
pub(crate) const OLDEST_KERNEL: Kernel = Kernel { version: (6, 10), package: "linux-image-arm64" };

/// Where Debian keeps this processor's libraries, and other systems.
pub(crate) const DIRECTORIES: [&str; 6] =
    ["/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib"];

/// The cycles of each step of [`chain`], an addition: multiplications take two to four, by the core.
#[cfg(feature = "tools")]
pub(crate) const STEP_CYCLES: u64 = 1;

/// Makes eight steps `loops` times, each of which waits for the one before.
#[cfg(feature = "tools")]
pub(crate) fn chain(loops: u64) {
    // SAFETY: registers only.
    unsafe {
        std::arch::asm!(
            "2:",
            "add {x}, {x}, {x}", "add {x}, {x}, {x}", "add {x}, {x}, {x}", "add {x}, {x}, {x}",
            "add {x}, {x}, {x}", "add {x}, {x}, {x}", "add {x}, {x}, {x}", "add {x}, {x}, {x}",
            "subs {n}, {n}, #1",
            "b.ne 2b",
            x = inout(reg) 3_u64 => _,
            n = inout(reg) loops => _,
            options(nomem, nostack)
        );
    }
}

/// No caches: a program cannot ask this processor for them, and the kernel's own files have them.
#[cfg(feature = "tools")]
pub(crate) fn caches() -> Vec<(u8, usize)> {
    Vec::new()
}

/// No TLBs: nothing that a program may read has them.
#[cfg(feature = "tools")]
pub(crate) fn tlbs() -> Vec<crate::bench::Tlb> {
    Vec::new()
}
