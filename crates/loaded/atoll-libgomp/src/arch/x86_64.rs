//! How x86-64 passes arguments: six in registers, the return address on the stack.
//!
//! Source: the System V ABI's supplement for x86-64, section 3.2.3.

/// The body of a naked function that jumps to `$body` with its return address as argument `$argument`, counted from 0, at most 5.
#[macro_export]
#[doc(hidden)]
macro_rules! jump_with_caller {
    (0, $body:ident) => { $crate::jump_with_caller!(@ "rdi", $body) };
    (1, $body:ident) => { $crate::jump_with_caller!(@ "rsi", $body) };
    (2, $body:ident) => { $crate::jump_with_caller!(@ "rdx", $body) };
    (3, $body:ident) => { $crate::jump_with_caller!(@ "rcx", $body) };
    (4, $body:ident) => { $crate::jump_with_caller!(@ "r8", $body) };
    (5, $body:ident) => { $crate::jump_with_caller!(@ "r9", $body) };
    (@ $register:literal, $body:ident) => {
        ::core::arch::naked_asm!(::core::concat!("mov ", $register, ", [rsp]"), "jmp {}", sym $body)
    };
}

/// Calls the function of a frame with the addresses of two numbers, of the thread in the program and in the team, and its
/// arguments.
///
/// # Safety
/// `frame` is from [`framed!`](macro@crate::framed), and four words behind its head can be read, whatever the number of arguments.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn call(frame: *const usize, global: *const i32, bound: *const i32) {
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

/// The body of a naked function `void name(location, count, function, ...)`, which makes a frame of function and arguments, and
/// calls `$body` with the location, the frame and the return address.
#[macro_export]
#[doc(hidden)]
macro_rules! call_with_frame {
    ($body:ident) => {
        ::core::arch::naked_asm!(
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
    };
}

/// The calling thread's word `$name`, a thread-local variable of the library.
///
/// The library is loaded from the program's start, so its thread-local data are at a fixed distance from the thread's pointer.
/// Finding them takes a few instructions instead of a call, which may allocate.
///
/// # Safety
/// The library defines the variable, hidden, of eight bytes.
#[macro_export]
macro_rules! thread_word {
    ($name:literal) => {{
        let word: usize;
        ::core::arch::asm!(
            ::core::concat!("mov {word}, qword ptr [rip + ", $name, "@GOTTPOFF]"),
            "mov {word}, qword ptr fs:[{word}]",
            word = out(reg) word,
            options(pure, readonly, nostack, preserves_flags)
        );
        word
    }};
}

/// Sets the calling thread's word `$name`, which [`thread_word!`](macro@crate::thread_word) reads.
///
/// # Safety
/// The same.
#[macro_export]
macro_rules! set_thread_word {
    ($name:literal, $word:expr) => {{
        let word: usize = $word;
        ::core::arch::asm!(
            ::core::concat!("mov {at}, qword ptr [rip + ", $name, "@GOTTPOFF]"),
            "mov qword ptr fs:[{at}], {word}",
            at = out(reg) _,
            word = in(reg) word,
            options(nostack, preserves_flags)
        );
    }};
}
