//! What this crate knows of x86-64. Source: the System V ABI's supplement for it.

use core::arch::asm;

use super::Hardware;
use crate::elf::Dynamic;

/// Whether a relocation of this type puts a symbol's address into a word (`R_X86_64_64`, `GLOB_DAT`, `JUMP_SLOT`).
pub(crate) fn is_address(kind: u32) -> bool {
    matches!(kind, 1 | 6 | 7)
}

/// The dynamic section of the library that this crate is linked into.
pub(crate) fn own_dynamic() -> *const Dynamic {
    let at;
    // SAFETY: the linker defines the symbol in every dynamic object, hidden.
    unsafe { asm!("lea {}, [rip + _DYNAMIC]", out(reg) at, options(nomem, nostack, preserves_flags)) };
    at
}

/// The system call `mprotect`, whose result it returns.
///
/// # Safety
/// The pages are the caller's, and nobody else uses them meanwhile.
pub(crate) unsafe fn mprotect(start: usize, bytes: usize, protection: usize) -> isize {
    const MPROTECT: isize = 10;
    let result: isize;
    // SAFETY: the caller's promise.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") MPROTECT => result,
            in("rdi") start,
            in("rsi") bytes,
            in("rdx") protection,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// Asks the resolver at `address` for a function's variant; on this processor it takes no argument.
///
/// # Safety
/// A resolver of a library that is relocated.
pub(crate) unsafe fn resolve(address: usize, _: Hardware) -> usize {
    // SAFETY: the caller's promise.
    let resolver = unsafe { core::mem::transmute::<usize, extern "C" fn() -> usize>(address) };
    resolver()
}
