//! How aarch64 passes arguments: eight in registers, those of variadic functions like those of others, the return address in x30.
//!
//! Source: "Procedure Call Standard for the Arm 64-bit Architecture".

/// The body of a naked function that jumps to `$body` with its return address as argument `$argument`, counted from 0, at most 5
/// since x86-64 has no more in registers.
#[macro_export]
#[doc(hidden)]
macro_rules! jump_with_caller {
    (0, $body:ident) => { $crate::jump_with_caller!(@ "x0", $body) };
    (1, $body:ident) => { $crate::jump_with_caller!(@ "x1", $body) };
    (2, $body:ident) => { $crate::jump_with_caller!(@ "x2", $body) };
    (3, $body:ident) => { $crate::jump_with_caller!(@ "x3", $body) };
    (4, $body:ident) => { $crate::jump_with_caller!(@ "x4", $body) };
    (5, $body:ident) => { $crate::jump_with_caller!(@ "x5", $body) };
    (@ $register:literal, $body:ident) => {
        ::core::arch::naked_asm!(::core::concat!("mov ", $register, ", x30"), "b {}", sym $body)
    };
}

/// Calls the function of a frame with the addresses of two numbers, of the thread in the program and in the team, and its
/// arguments.
///
/// # Safety
/// `frame` is from [`framed!`](macro@crate::framed), and six words behind its head can be read, whatever the number of arguments.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn call(frame: *const usize, global: *const i32, bound: *const i32) {
    std::arch::naked_asm!(
        ".cfi_startproc",
        "stp x29, x30, [sp, #-16]!",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset x29, -16",
        ".cfi_offset x30, -8",
        "mov x29, sp",
        ".cfi_def_cfa_register x29",
        "ldp x9, x10, [x0]",
        "add x11, x0, #16",
        "mov x0, x1",
        "mov x1, x2",
        // Arguments from the seventh on go on the stack, whose end is a multiple of 16.
        "subs x10, x10, #6",
        "b.le 3f",
        "add x12, x10, #1",
        "and x12, x12, #-2",
        "sub sp, sp, x12, lsl #3",
        "add x13, x11, #48",
        "mov x14, sp",
        "2:",
        "sub x10, x10, #1",
        "ldr x12, [x13, x10, lsl #3]",
        "str x12, [x14, x10, lsl #3]",
        "cbnz x10, 2b",
        "3:",
        "ldp x2, x3, [x11]",
        "ldp x4, x5, [x11, #16]",
        "ldp x6, x7, [x11, #32]",
        "blr x9",
        "mov sp, x29",
        "ldp x29, x30, [sp], #16",
        ".cfi_def_cfa sp, 0",
        ".cfi_restore x29",
        ".cfi_restore x30",
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
            "stp x29, x30, [sp, #-16]!",
            ".cfi_def_cfa_offset 16",
            ".cfi_offset x29, -16",
            ".cfi_offset x30, -8",
            "mov x29, sp",
            ".cfi_def_cfa_register x29",
            "mov w1, w1",
            // Two words before the arguments, and six more, since so many are read in any case.
            "lsl x9, x1, #3",
            "add x9, x9, #79",
            "and x9, x9, #-16",
            "sub sp, sp, x9",
            "stp x2, x1, [sp]",
            "stp x3, x4, [sp, #16]",
            "stp x5, x6, [sp, #32]",
            "str x7, [sp, #48]",
            "subs x1, x1, #5",
            "b.le 3f",
            "add x10, x29, #16",
            "add x11, sp, #56",
            "2:",
            "sub x1, x1, #1",
            "ldr x9, [x10, x1, lsl #3]",
            "str x9, [x11, x1, lsl #3]",
            "cbnz x1, 2b",
            "3:",
            "mov x1, sp",
            "mov x2, x30",
            "bl {body}",
            "mov sp, x29",
            "ldp x29, x30, [sp], #16",
            ".cfi_def_cfa sp, 0",
            ".cfi_restore x29",
            ".cfi_restore x30",
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
            ::core::concat!("adrp {word}, :gottprel:", $name),
            ::core::concat!("ldr {word}, [{word}, :gottprel_lo12:", $name, "]"),
            "mrs {pointer}, tpidr_el0",
            "ldr {word}, [{pointer}, {word}]",
            word = out(reg) word,
            pointer = out(reg) _,
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
            ::core::concat!("adrp {at}, :gottprel:", $name),
            ::core::concat!("ldr {at}, [{at}, :gottprel_lo12:", $name, "]"),
            "mrs {pointer}, tpidr_el0",
            "str {word}, [{pointer}, {at}]",
            at = out(reg) _,
            pointer = out(reg) _,
            word = in(reg) word,
            options(nostack, preserves_flags)
        );
    }};
}
