//! What this crate knows of aarch64. Source: "ELF for the Arm 64-bit Architecture", and "System V ABI for the Arm 64-bit Architecture" for resolvers.

use core::arch::asm;

use super::Hardware;
use crate::elf::Dynamic;

/// Whether a relocation of this type puts a symbol's address into a word (`R_AARCH64_ABS64`, `GLOB_DAT`, `JUMP_SLOT`).
pub(crate) fn is_address(kind: u32) -> bool {
    matches!(kind, 257 | 1025 | 1026)
}

/// The dynamic section of the library that this crate is linked into.
pub(crate) fn own_dynamic() -> *const Dynamic {
    let at;
    // SAFETY: the linker defines the symbol in every dynamic object, hidden.
    unsafe {
        asm!(
            "adrp {0}, _DYNAMIC",
            "add {0}, {0}, :lo12:_DYNAMIC",
            out(reg) at,
            options(nomem, nostack, preserves_flags)
        );
    }
    at
}

/// The system call `mprotect`, whose result it returns.
///
/// # Safety
/// The pages are the caller's, and nobody else uses them meanwhile.
pub(crate) unsafe fn mprotect(start: usize, bytes: usize, protection: usize) -> isize {
    const MPROTECT: usize = 226;
    let result: isize;
    // SAFETY: the caller's promise.
    unsafe {
        asm!(
            "svc 0",
            in("x8") MPROTECT,
            inlateout("x0") start => result,
            in("x1") bytes,
            in("x2") protection,
            options(nostack),
        );
    }
    result
}

/// Asks the resolver at `address` for a function's variant by what the kernel says of the processor.
///
/// # Safety
/// A resolver of a library that is relocated.
pub(crate) unsafe fn resolve(address: usize, hardware: Hardware) -> usize {
    /// `_IFUNC_ARG_HWCAP`: there is a second argument.
    const HAS_SECOND: usize = 1 << 62;
    let words = [size_of::<[usize; 3]>(), hardware.first, hardware.second];
    // SAFETY: the caller's promise.
    let resolver =
        unsafe { core::mem::transmute::<usize, extern "C" fn(usize, *const [usize; 3]) -> usize>(address) };
    resolver(hardware.first | HAS_SECOND, &raw const words)
}
