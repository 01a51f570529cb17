//! What the runtime knows of x86-64. Source: the System V ABI's supplement for it.

use std::arch::asm;
use std::ffi::c_int;

/// Registers that hold arguments.
pub(crate) const ARGUMENTS: usize = 6;

/// The signature that glibc gives the kernel for restartable sequences.
pub(crate) const RSEQ_SIGNATURE: usize = 0x5305_3053;

/// The flag of `mmap` for the lowest 2 GiB.
pub(crate) const MAP_32BIT: c_int = libc::MAP_32BIT;

/// The address of the calling thread's control block.
#[inline]
pub(crate) fn thread_pointer() -> usize {
    let at: usize;
    // SAFETY: the first word of the thread control block is its own address.
    unsafe { asm!("mov {}, fs:0", out(reg) at, options(nostack, readonly, preserves_flags)) };
    at
}

/// The distance in bytes of a variable at `at` from the calling thread's control block, below which this processor's
/// thread-local variables lie. It is huge for what lies on the other side.
pub(crate) fn distance_of_variable(at: usize) -> usize {
    thread_pointer().wrapping_sub(at)
}

/// The address at that distance.
pub(crate) fn variable_at(distance: usize) -> usize {
    thread_pointer().wrapping_sub(distance)
}

/// The address by which glibc knows the calling thread: that of its control block.
#[inline]
pub(crate) fn libc_thread() -> usize {
    thread_pointer()
}

/// Tells glibc's own locks, up to glibc 2.34, that there are several threads.
pub(crate) fn set_multiple_threads() {
    let many: c_int = 1;
    // SAFETY: `multiple_threads` of the thread's head (sysdeps/x86_64/nptl/tls.h), which libc itself sets when a thread is made.
    unsafe {
        asm!("mov dword ptr fs:[0x18], {0:e}", in(reg) many, options(nostack, preserves_flags));
    };
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
            "cmp r12, r13",
            "je 4f",
            "mov rsi, [r12]",
            "mov rdx, [r12 + 8]",
            "sub rdx, rsi",
            "add r12, 16",
            // The rest of the run, since the kernel may write less than asked for.
            "3:",
            "test rdx, rdx",
            "jz 2b",
            "mov rdi, r8",
            "mov r10, rsi",
            "sub r10, r14",
            "add r10, r9",
            "mov eax, {pwrite}",
            "syscall",
            "test rax, rax",
            "js 5f",
            "add rsi, rax",
            "sub rdx, rax",
            "jmp 3b",
            "4:",
            "mov rdi, r14",
            "mov rsi, r15",
            "mov edx, {prot}",
            "mov r10d, {flags}",
            "mov eax, {mmap}",
            "syscall",
            "5:",
            pwrite = const libc::SYS_pwrite64 as i32,
            mmap = const libc::SYS_mmap as i32,
            prot = const libc::PROT_READ | libc::PROT_WRITE,
            flags = const libc::MAP_SHARED | libc::MAP_NORESERVE | libc::MAP_FIXED,
            out("rax") result,
            out("rdi") _, out("rsi") _, out("rdx") _, out("r10") _,
            in("r8") fd, in("r9") offset,
            inout("r12") first => _, in("r13") end,
            in("r14") start, in("r15") bytes,
            out("rcx") _, out("r11") _,
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
    // SAFETY: from here on only registers and that word are used; the call that sleeps is not interrupted, as all signals
    // are blocked, and made again if it were.
    unsafe {
        asm!(
            "mov dword ptr [{asleep}], 1",
            "2:",
            "mov eax, {pause}",
            "syscall",
            "jmp 2b",
            asleep = in(reg) asleep,
            pause = const libc::SYS_pause,
            options(noreturn),
        )
    }
}

/// The place for the number of the new thread, if this system call of libc's forks the process.
pub(crate) fn forks(number: libc::c_long, arguments: [usize; 6]) -> Option<usize> {
    match number {
        libc::SYS_clone if arguments[0] & libc::CLONE_VM as usize == 0 => Some(arguments[3]),
        libc::SYS_fork => Some(0),
        _ => None,
    }
}

/// The body of an entry point that is another function: a jump leaves all arguments where they are.
macro_rules! jump_to {
    ($target:ident) => {
        core::arch::naked_asm!("jmp {}", sym $target)
    };
}

/// The same for a function whose name is a literal.
macro_rules! jump_to_name {
    ($($target:expr),*) => {
        core::arch::naked_asm!(concat!("jmp ", $($target),*))
    };
}

/// The body of a function of six arguments that has `$body` called with its return address as the seventh.
macro_rules! call_with_caller_seventh {
    ($body:ident) => {
        core::arch::naked_asm!(
            "mov rax, [rsp]",
            "push rax",
            "call {body}",
            "add rsp, 8",
            "ret",
            body = sym $body,
        )
    };
}

/// The body of a function of up to three arguments that has `$body` called with its return address as the fourth. Where that returns 0, the
/// function whose address is in the static `$next` is called in its place, with the arguments that came in.
macro_rules! call_or_jump_on {
    ($body:ident, $next:ident) => {
        core::arch::naked_asm!(
            "push rdi",
            "push rsi",
            "push rdx",
            "mov rcx, [rsp + 24]",
            "call {body}",
            "pop rdx",
            "pop rsi",
            "pop rdi",
            "test rax, rax",
            "jz 2f",
            "ret",
            "2:",
            "jmp qword ptr [rip + {next}]",
            body = sym $body,
            next = sym $next,
        )
    };
}

/// The body of a function of seven arguments that has `$body` called with its return address as the eighth: repeats the argument
/// on the stack.
macro_rules! call_with_caller_eighth {
    ($body:ident) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            "mov rax, [rsp]",
            "sub rsp, 8",
            "push rax",
            "push qword ptr [rsp + 24]",
            ".cfi_adjust_cfa_offset 24",
            "call {body}",
            "add rsp, 24",
            ".cfi_adjust_cfa_offset -24",
            "ret",
            ".cfi_endproc",
            body = sym $body
        )
    };
}

/// The body of a function of eight arguments that has `$body` called with its return address as the ninth: repeats the two
/// arguments on the stack.
macro_rules! call_with_caller_ninth {
    ($body:ident) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            "mov rax, [rsp]",
            "push rax",
            "push qword ptr [rsp + 24]",
            "push qword ptr [rsp + 24]",
            ".cfi_adjust_cfa_offset 24",
            "call {body}",
            "add rsp, 24",
            ".cfi_adjust_cfa_offset -24",
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
            "push r9",
            "push r8",
            "push rcx",
            "push rdx",
            "push rsi",
            "push rdi",
            "mov rdi, rsp",
            "lea rsi, [rsp + 56]",
            "sub rsp, 8",
            ".cfi_adjust_cfa_offset 56",
            "call {body}",
            "add rsp, 56",
            ".cfi_adjust_cfa_offset -56",
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
            "mov r9, [rsp]",
            "sub rsp, 56",
            ".cfi_adjust_cfa_offset 56",
            "mov [rsp], rdx",
            "mov qword ptr [rsp + 8], 1",
            "mov [rsp + 16], r8",
            "mov rdi, rsp",
            "mov esi, ecx",
            "mov rdx, r9",
            "call {body}",
            "add rsp, 56",
            ".cfi_adjust_cfa_offset -56",
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
            "push rdi",
            "push rsi",
            "sub rsp, 8",
            "call {before}",
            "call {target}",
            "add rsp, 8",
            "pop rsi",
            "pop rdi",
            "jmp rax",
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
            "push rbx",
            "push rbp",
            "push r12",
            "push r13",
            "push r14",
            "push r15",
            "sub rsp, 8",
            "mov r12, rsp",
            "mov r13, rdi",
            "mov rdi, rsi",
            "mov rsi, rdx",
            "xor edx, edx",
            "xor r10d, r10d",
            "xor r8d, r8d",
            "mov eax, {clone}",
            "syscall",
            "mov rdi, r13",
            "test rax, rax",
            "jnz 2f",
            "call {become_own}",
            "mov rsp, r12",
            "xor eax, eax",
            "jmp 3f",
            // Nothing above this point of the stack changes before the new process has copied it.
            "2:",
            "mov rsi, rax",
            "call {wait_for}",
            "3:",
            "add rsp, 8",
            "pop r15",
            "pop r14",
            "pop r13",
            "pop r12",
            "pop rbp",
            "pop rbx",
            "ret",
            clone = const libc::SYS_clone as i32,
            become_own = sym $become_own,
            wait_for = sym $wait_for,
        )
    };
}

/// The body of `isize name(flags, stack, argument)`, which makes a thread that calls `$run` with the argument and ends without a
/// stack: it unmaps the `$bytes` bytes at the address that `$run` returns.
macro_rules! thread_on {
    ($run:ident, $bytes:ident) => {
        core::arch::naked_asm!(
            "mov r9, rdx",
            "xor edx, edx",
            "xor r10d, r10d",
            "xor r8d, r8d",
            "mov eax, {clone}",
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "mov rdi, r9",
            "call {run}",
            "mov rdi, rax",
            "mov esi, {bytes}",
            "mov eax, {munmap}",
            "syscall",
            "xor edi, edi",
            "mov eax, {exit}",
            "syscall",
            "ud2",
            "2:",
            "ret",
            clone = const libc::SYS_clone as i32,
            run = sym $run,
            bytes = const $bytes,
            munmap = const libc::SYS_munmap as i32,
            exit = const libc::SYS_exit as i32,
        )
    };
}

/// The body of the function that a signal's handler returns to: the system call `rt_sigreturn`.
macro_rules! return_from_signal {
    () => {
        core::arch::naked_asm!("mov eax, 15", "syscall")
    };
}

pub(crate) use {
    call_or_jump_on, call_then_jump, call_with_arguments, call_with_caller_eighth, call_with_caller_ninth,
    call_with_caller_seventh, call_with_frame_of_one, fork_on, jump_to, jump_to_name, return_from_signal,
    thread_on,
};
