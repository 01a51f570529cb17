//! Calls of libomp's with any number of arguments: how an entry point gets them, and how they are passed on.
//!
//! The frame of a call lies on the caller's stack, which all members of the team see: the function, the number of its arguments
//! after the first two, and these arguments. `__kmpc_fork_call` and the like are called in this way; gcc's programs never call
//! them.

/// A function that libomp calls with the addresses of two numbers, of the thread in the program and in the team, and an
/// argument.
pub type Member = unsafe extern "C" fn(*const i32, *const i32, *mut u8);

/// Calls the function of a frame with the addresses of two numbers, of the thread in the program and in the team, and its
/// arguments.
///
/// # Safety
/// `frame` is from [`framed!`](macro@crate::framed), and three more words behind it can be read.
#[unsafe(naked)]
pub unsafe extern "C" fn call(frame: *const usize, global: *const i32, bound: *const i32) {
    std::arch::naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "mov rax, [rdi]",
        "mov r10, [rdi + 8]",
        "lea r11, [rdi + 16]",
        "mov rdi, rsi",
        "mov rsi, rdx",
        // Arguments from the fifth on go on the stack, whose end is a multiple of 16.
        "sub r10, 4",
        "jle 3f",
        "lea rdx, [r10*8 + 15]",
        "and rdx, -16",
        "sub rsp, rdx",
        "2:",
        "mov rdx, [r11 + r10*8 + 24]",
        "mov [rsp + r10*8 - 8], rdx",
        "dec r10",
        "jnz 2b",
        "3:",
        "mov rdx, [r11]",
        "mov rcx, [r11 + 8]",
        "mov r8, [r11 + 16]",
        "mov r9, [r11 + 24]",
        "call rax",
        "mov rsp, rbp",
        "pop rbp",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc"
    )
}

/// The function of a frame.
///
/// # Safety
/// `frame` is from [`framed!`](macro@crate::framed).
pub unsafe fn outlined(frame: *const u8) -> usize {
    // SAFETY: a frame begins with the function.
    unsafe { *frame.cast() }
}

/// Defines `void name(location, count, function, ...)`, which makes a frame of function and arguments, and calls `$body` with
/// the location, the frame and the return address.
#[macro_export]
macro_rules! framed {
    ($($(#[$attribute:meta])* $name:ident $body:ident;)*) => {$(
        $(#[$attribute])*
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        extern "C" fn $name() {
            std::arch::naked_asm!(
                ".cfi_startproc",
                "push rbp",
                ".cfi_def_cfa_offset 16",
                ".cfi_offset rbp, -16",
                "mov rbp, rsp",
                ".cfi_def_cfa_register rbp",
                "mov esi, esi",
                // Two words before the arguments, and four more, since the arguments in registers are stored in any case.
                "lea rax, [rsi*8 + 63]",
                "and rax, -16",
                "sub rsp, rax",
                "mov [rsp], rdx",
                "mov [rsp + 8], rsi",
                "mov [rsp + 16], rcx",
                "mov [rsp + 24], r8",
                "mov [rsp + 32], r9",
                "sub rsi, 3",
                "jle 3f",
                "2:",
                "mov rax, [rbp + rsi*8 + 8]",
                "mov [rsp + rsi*8 + 32], rax",
                "dec rsi",
                "jnz 2b",
                "3:",
                "mov rsi, rsp",
                "mov rdx, [rbp + 8]",
                "call {body}",
                "mov rsp, rbp",
                "pop rbp",
                ".cfi_def_cfa rsp, 8",
                "ret",
                ".cfi_endproc",
                body = sym $body
            )
        }
    )*};
}
