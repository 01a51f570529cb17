//! What the runtime knows of aarch64. Source: "Procedure Call Standard for the Arm 64-bit Architecture", "ELF for the Arm 64-bit Architecture".

use std::arch::asm;
use std::ffi::c_int;

/// Registers that hold arguments.
pub(crate) const ARGUMENTS: usize = 8;

/// The signature that glibc gives the kernel for restartable sequences.
pub(crate) const RSEQ_SIGNATURE: usize = 0xd428_bc00;

/// No flag: x86-64's `mmap` has one for the lowest 2 GiB.
pub(crate) const MAP_32BIT: c_int = 0;

/// The address of the calling thread's control block: of two words, behind glibc's description of the thread and before its
/// variables.
#[inline]
pub(crate) fn thread_pointer() -> usize {
    let at: usize;
    // SAFETY: reads a register.
    unsafe { asm!("mrs {}, tpidr_el0", out(reg) at, options(nostack, nomem, preserves_flags)) };
    at
}

/// The distance in bytes of a variable at `at` from the calling thread's control block, above which this processor's
/// thread-local variables lie. It is huge for what lies on the other side.
pub(crate) fn distance_of_variable(at: usize) -> usize {
    at.wrapping_sub(thread_pointer())
}

/// The address at that distance.
pub(crate) fn variable_at(distance: usize) -> usize {
    thread_pointer().wrapping_add(distance)
}

/// The address by which glibc knows the calling thread: that of its description, which glibc alone knows the size of.
#[inline]
pub(crate) fn libc_thread() -> usize {
    // SAFETY: no arguments; the function reads a register.
    unsafe { libc::pthread_self() as usize }
}

/// Tells glibc's own locks, up to glibc 2.34, that there are several threads.
pub(crate) fn set_multiple_threads() {
    // SAFETY: glibc's description of a thread begins with `multiple_threads` (nptl/descr.h, where TLS_DTV_AT_TP holds), which
    // libc itself sets when a thread is made.
    unsafe { *(libc_thread() as *mut c_int) = 1 };
}

/// Writes the runs of memory from `first` up to `end`, two addresses each, to the file at `offset` plus their distance from
/// `start`, and maps the file over the `bytes` bytes at `start`. No instruction in between writes to memory. Returns what the
/// kernel returned last.
///
/// # Safety
/// What is mapped over reads the same as before, and nobody else changes it meanwhile.
#[inline(always)]
pub(crate) unsafe fn copy_and_map(
    fd: usize,
    offset: usize,
    first: *const [usize; 2],
    end: *const [usize; 2],
    start: usize,
    bytes: usize,
) -> isize {
    let result: isize;
    // SAFETY: pwrite64 of each run, then mmap; registers only.
    unsafe {
        asm!(
            // The next run, until there is none.
            "2:",
            "cmp {run}, {end}",
            "b.eq 4f",
            "ldp x1, x2, [{run}], #16",
            "sub x2, x2, x1",
            // The rest of the run, since the kernel may write less than asked for.
            "3:",
            "cbz x2, 2b",
            "mov x0, {fd}",
            "sub x3, x1, {start}",
            "add x3, x3, {offset}",
            "mov x8, #{pwrite}",
            "svc 0",
            "tbnz x0, #63, 5f",
            "add x1, x1, x0",
            "sub x2, x2, x0",
            "b 3b",
            "4:",
            "mov x0, {start}",
            "mov x1, {bytes}",
            "mov x2, #{prot}",
            "mov x3, #{flags}",
            "mov x4, {fd}",
            "mov x5, {offset}",
            "mov x8, #{mmap}",
            "svc 0",
            "5:",
            pwrite = const libc::SYS_pwrite64,
            mmap = const libc::SYS_mmap,
            prot = const libc::PROT_READ | libc::PROT_WRITE,
            flags = const libc::MAP_SHARED | libc::MAP_NORESERVE | libc::MAP_FIXED,
            run = inout(reg) first => _,
            end = in(reg) end,
            fd = in(reg) fd,
            offset = in(reg) offset,
            start = in(reg) start,
            bytes = in(reg) bytes,
            out("x0") result,
            out("x1") _, out("x2") _, out("x3") _, out("x4") _, out("x5") _, out("x8") _,
            options(nostack),
        );
    }
    result
}

/// Sets the word at `asleep` to 1 and sleeps for ever, without a stack.
///
/// # Safety
/// The word is valid, and signals are blocked.
pub(crate) unsafe fn sleep_for_ever(asleep: *mut u32) -> ! {
    // SAFETY: from here on only registers and that word are used; the call that sleeps (`ppoll` of nothing) is not interrupted, as
    // all signals are blocked, and made again if it were.
    unsafe {
        asm!(
            "mov w9, #1",
            // Release, as a plain store is on x86-64: the stack's last use comes before.
            "stlr w9, [{asleep}]",
            "2:",
            "mov x0, xzr",
            "mov x1, xzr",
            "mov x2, xzr",
            "mov x3, xzr",
            "mov x8, #{ppoll}",
            "svc 0",
            "b 2b",
            asleep = in(reg) asleep,
            ppoll = const libc::SYS_ppoll,
            options(noreturn),
        )
    }
}

/// The place for the number of the new thread, if this system call of libc's forks the process.
pub(crate) fn forks(number: libc::c_long, arguments: [usize; 6]) -> Option<usize> {
    (number == libc::SYS_clone && arguments[0] & libc::CLONE_VM as usize == 0).then_some(arguments[4])
}

/// The body of an entry point that is another function: a jump leaves all arguments where they are.
macro_rules! jump_to {
    ($target:ident) => {
        core::arch::naked_asm!("b {}", sym $target)
    };
}

/// The same for a function whose name is a literal.
macro_rules! jump_to_name {
    ($($target:expr),*) => {
        core::arch::naked_asm!(concat!("b ", $($target),*))
    };
}

/// The body of a function of six arguments that has `$body` called with its return address as the seventh.
macro_rules! call_with_caller_seventh {
    ($body:ident) => {
        core::arch::naked_asm!("mov x6, x30", "b {}", sym $body)
    };
}

/// The body of a function of up to three arguments that has `$body` called with its return address as the fourth. Where that returns 0, the
/// function whose address is in the static `$next` is called in its place, with the arguments that came in.
macro_rules! call_or_jump_on {
    ($body:ident, $next:ident) => {
        core::arch::naked_asm!(
            "stp x0, x1, [sp, #-32]!",
            "stp x2, x30, [sp, #16]",
            "mov x3, x30",
            "bl {body}",
            "mov x9, x0",
            "ldp x2, x30, [sp, #16]",
            "ldp x0, x1, [sp], #32",
            "cbz x9, 2f",
            "mov x0, x9",
            "ret",
            "2:",
            "adrp x9, {next}",
            "ldr x9, [x9, :lo12:{next}]",
            "br x9",
            body = sym $body,
            next = sym $next,
        )
    };
}

/// The body of a function of seven arguments that has `$body` called with its return address as the eighth.
macro_rules! call_with_caller_eighth {
    ($body:ident) => {
        core::arch::naked_asm!("mov x7, x30", "b {}", sym $body)
    };
}

/// The body of a function of eight arguments that has `$body` called with its return address as the ninth, on the stack.
macro_rules! call_with_caller_ninth {
    ($body:ident) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            // The argument is the callee's to change, so the return address is saved besides.
            "stp x29, x30, [sp, #-16]!",
            ".cfi_def_cfa_offset 16",
            ".cfi_offset x29, -16",
            ".cfi_offset x30, -8",
            "mov x29, sp",
            "str x30, [sp, #-16]!",
            ".cfi_def_cfa_offset 32",
            "bl {body}",
            "add sp, sp, #16",
            "ldp x29, x30, [sp], #16",
            ".cfi_def_cfa_offset 0",
            ".cfi_restore x29",
            ".cfi_restore x30",
            "ret",
            ".cfi_endproc",
            body = sym $body
        )
    };
}

/// The body of `void name(first, ...)`, which stores the [`ARGUMENTS`] registers and calls `$body` with their address and that of
/// the arguments on the stack.
macro_rules! call_with_arguments {
    ($body:ident) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            "stp x29, x30, [sp, #-80]!",
            ".cfi_def_cfa_offset 80",
            ".cfi_offset x29, -80",
            ".cfi_offset x30, -72",
            "mov x29, sp",
            "stp x0, x1, [sp, #16]",
            "stp x2, x3, [sp, #32]",
            "stp x4, x5, [sp, #48]",
            "stp x6, x7, [sp, #64]",
            "add x0, sp, #16",
            "add x1, sp, #80",
            "bl {body}",
            "ldp x29, x30, [sp], #80",
            ".cfi_def_cfa_offset 0",
            ".cfi_restore x29",
            ".cfi_restore x30",
            "ret",
            ".cfi_endproc",
            body = sym $body
        )
    };
}

/// The body of `void name(location, count, function, condition, argument)`, which makes a frame of `atoll_libgomp::frames` and
/// calls `$body` with the frame, the condition and the return address.
macro_rules! call_with_frame_of_one {
    ($body:ident) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            "stp x29, x30, [sp, #-80]!",
            ".cfi_def_cfa_offset 80",
            ".cfi_offset x29, -80",
            ".cfi_offset x30, -72",
            "mov x29, sp",
            "add x0, sp, #16",
            "mov x9, #1",
            "stp x2, x9, [x0]",
            "str x4, [x0, #16]",
            "mov w1, w3",
            "mov x2, x30",
            "bl {body}",
            "ldp x29, x30, [sp], #80",
            ".cfi_def_cfa_offset 0",
            ".cfi_restore x29",
            ".cfi_restore x30",
            "ret",
            ".cfi_endproc",
            body = sym $body
        )
    };
}

/// The body of a function of two arguments that calls `$before`, then jumps to the address that `$target` returns.
macro_rules! call_then_jump {
    ($before:ident, $target:ident) => {
        core::arch::naked_asm!(
            "stp x29, x30, [sp, #-32]!",
            "mov x29, sp",
            "stp x0, x1, [sp, #16]",
            "bl {before}",
            "bl {target}",
            "mov x16, x0",
            "ldp x0, x1, [sp, #16]",
            "ldp x29, x30, [sp], #32",
            "br x16",
            before = sym $before,
            target = sym $target,
        )
    };
}

/// The body of `isize name(plan, flags, stack)`, which forks. The new process begins on `stack`, calls `$become_own` with the plan,
/// and returns 0 on the caller's stack; the caller returns what `$wait_for` does, which gets the plan and the kernel's answer.
macro_rules! fork_on {
    ($become_own:ident, $wait_for:ident) => {
        core::arch::naked_asm!(
            "stp x29, x30, [sp, #-32]!",
            "stp x19, x20, [sp, #16]",
            "mov x19, sp",
            "mov x20, x0",
            "mov x0, x1",
            "mov x1, x2",
            "mov x2, xzr",
            "mov x3, xzr",
            "mov x4, xzr",
            "mov x8, #{clone}",
            "svc 0",
            "mov x1, x0",
            "mov x0, x20",
            "cbnz x1, 2f",
            "bl {become_own}",
            "mov sp, x19",
            "mov x0, xzr",
            "b 3f",
            // Nothing above this point of the stack changes before the new process has copied it.
            "2:",
            "bl {wait_for}",
            "3:",
            "ldp x19, x20, [sp, #16]",
            "ldp x29, x30, [sp], #32",
            "ret",
            clone = const libc::SYS_clone,
            become_own = sym $become_own,
            wait_for = sym $wait_for,
        )
    };
}

/// The body of `isize name(flags, stack, argument)`, which makes a thread that calls `$run` with the argument and ends without a
/// stack: it unmaps the `$bytes` bytes, a power of two, at the address that `$run` returns.
macro_rules! thread_on {
    ($run:ident, $bytes:ident) => {
        core::arch::naked_asm!(
            "mov x9, x2",
            "mov x2, xzr",
            "mov x3, xzr",
            "mov x4, xzr",
            "mov x8, #{clone}",
            "svc 0",
            "cbnz x0, 2f",
            "mov x0, x9",
            "bl {run}",
            "mov x1, #{bytes}",
            "mov x8, #{munmap}",
            "svc 0",
            "mov x0, xzr",
            "mov x8, #{exit}",
            "svc 0",
            "brk #1",
            "2:",
            "ret",
            clone = const libc::SYS_clone,
            run = sym $run,
            bytes = const $bytes,
            munmap = const libc::SYS_munmap,
            exit = const libc::SYS_exit,
        )
    };
}

/// The body of the function that a signal's handler returns to: the system call `rt_sigreturn`. Debuggers know a signal's frame by
/// these two instructions.
macro_rules! return_from_signal {
    () => {
        core::arch::naked_asm!("mov x8, #139", "svc 0")
    };
}

pub(crate) use {
    call_or_jump_on, call_then_jump, call_with_arguments, call_with_caller_eighth, call_with_caller_ninth,
    call_with_caller_seventh, call_with_frame_of_one, fork_on, jump_to, jump_to_name, return_from_signal,
    thread_on,
};
