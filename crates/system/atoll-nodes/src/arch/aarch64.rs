//! What this crate knows of aarch64. Source: "Procedure Call Standard for the Arm 64-bit Architecture".

/// Calls a function, its first argument, with the second one, where `$stack` has moved the stack pointer, and comes back. The
/// frame can be walked.
macro_rules! call_on {
    ($($stack:literal),*) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            "stp x29, x30, [sp, #-16]!",
            ".cfi_def_cfa_offset 16",
            ".cfi_offset x29, -16",
            ".cfi_offset x30, -8",
            "mov x29, sp",
            ".cfi_def_cfa_register x29",
            $($stack,)*
            "mov x9, x0",
            "mov x0, x1",
            "blr x9",
            "mov sp, x29",
            "ldp x29, x30, [sp], #16",
            ".cfi_def_cfa sp, 0",
            ".cfi_restore x29",
            ".cfi_restore x30",
            "ret",
            ".cfi_endproc",
        )
    };
}

/// Calls on a stack that begins in the page below.
macro_rules! call_below {
    () => {
        $crate::arch::call_on!("and x9, x29, #-4096", "mov sp, x9")
    };
}

/// Calls on the stack that the third argument is the end of.
macro_rules! call_at {
    () => {
        $crate::arch::call_on!("mov sp, x2")
    };
}

pub(crate) use {call_at, call_below, call_on};
