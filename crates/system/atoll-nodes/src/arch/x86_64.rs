//! What this crate knows of x86-64. Source: the System V ABI's supplement for it.

/// Calls a function, its first argument, with the second one, where `$stack` has moved the stack pointer, and comes back. The
/// frame can be walked.
macro_rules! call_on {
    ($($stack:literal),*) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            "push rbp",
            ".cfi_def_cfa_offset 16",
            ".cfi_offset rbp, -16",
            "mov rbp, rsp",
            ".cfi_def_cfa_register rbp",
            $($stack,)*
            "mov rax, rdi",
            "mov rdi, rsi",
            "call rax",
            "mov rsp, rbp",
            "pop rbp",
            ".cfi_def_cfa rsp, 8",
            "ret",
            ".cfi_endproc",
        )
    };
}

/// Calls on a stack that begins in the page below.
macro_rules! call_below {
    () => {
        $crate::arch::call_on!("and rsp, -4096")
    };
}

/// Calls on the stack that the third argument is the end of.
macro_rules! call_at {
    () => {
        $crate::arch::call_on!("mov rsp, rdx")
    };
}

pub(crate) use {call_at, call_below, call_on};
