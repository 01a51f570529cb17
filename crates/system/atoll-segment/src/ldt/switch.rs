//! The way into a 32-bit segment and out of it. Only this code runs in both worlds.
//!
//! A core's thread enters by `iretq` to a code segment of the local descriptor table, which is compatibility mode. It leaves by
//! a far jump to Linux's 64-bit code segment. Neither is a system call. `signal.rs` sends the thread to [`restore`] when it
//! leaves by a fault, a signal or `int 0x80`. The number of a thread's core is the limit of a descriptor of its own, which
//! `lsl` reads whatever the program did to the segment registers.
//!
//! Rules: between the marks `check` and `entered` a signal may come at any instruction and throws the entry away. Nothing may
//! be lost by that except copies of the core's state.

use std::arch::{asm, global_asm};
use std::mem::offset_of;
use std::sync::atomic::{AtomicPtr, AtomicU32};

use crate::violation::Registers;

/// The reason why a core left its segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Left {
    /// For a system call.
    Call = 1,
    /// By a fault.
    Fault = 2,
    /// Because a signal came.
    Signal = 3,
}

/// The kernel's description of a fault.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct Fault {
    pub(super) signal: i32,
    pub(super) code: i32,
    pub(super) trap: u64,
    pub(super) error: u64,
    /// The linear address of a page fault.
    pub(super) address: u64,
    /// The code segment that the fault happened in.
    pub(super) code_segment: u64,
}

/// The state of one core, for the code that enters and leaves.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct CoreState {
    pub(super) registers: Registers,
    pub(super) code: u32,
    pub(super) data: u32,
    pub(super) left: AtomicU32,
    /// Not zero while a signal is pending: the core must not enter.
    pub(super) pending: AtomicU32,
    pub(super) host_stack: u64,
    pub(super) host_fs: u64,
    pub(super) vectors: u64,
    pub(super) vectors_mask: u64,
    pub(super) has_fsgsbase: u32,
    pub(super) gate_return: u32,
    pub(super) fault: Fault,
    pub(super) tid: i32,
}

/// The most cores of one program.
pub(super) const MOST_CORES: usize = 64;

/// The cores by number.
pub(super) static CORES: [AtomicPtr<CoreState>; MOST_CORES] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; MOST_CORES];

/// Linux's selectors of 64-bit user code and data.
pub(super) const USER_CODE: u32 = 0x33;
pub(super) const USER_DATA: u32 = 0x2b;

/// The selector of the descriptor whose limit is the core's number.
pub(super) const IDENTITY: u32 = 14 * 8 + 3;

const ARCH_SET_FS: i32 = 0x1002;

global_asm!(
    ".pushsection .text.atoll_segment_switch,\"ax\",@progbits",
    ".p2align 4",
    ".hidden atoll_segment_enter",
    ".globl atoll_segment_enter",
    "atoll_segment_enter:",
    "push rbx", "push rbp", "push r12", "push r13", "push r14", "push r15",
    "mov r9, rdi",
    "mov [r9 + {host_stack}], rsp",
    "mov rax, [r9 + {vectors_mask}]",
    "mov rdx, rax",
    "shr rdx, 32",
    "mov r10, [r9 + {vectors}]",
    "xrstor64 [r10]",
    // From here on the vector registers hold the program's values.
    ".hidden atoll_segment_check",
    ".globl atoll_segment_check",
    "atoll_segment_check:",
    "cmp dword ptr [r9 + {pending}], 0",
    "jne 5f",
    "mov eax, [r9 + {data}]", "push rax",
    "mov eax, [r9 + 28]", "push rax",
    "mov eax, [r9 + 36]", "push rax",
    "mov eax, [r9 + {code}]", "push rax",
    "mov eax, [r9 + 32]", "push rax",
    "mov eax, [r9]",
    "mov ebx, [r9 + 4]",
    "mov ecx, [r9 + 8]",
    "mov edx, [r9 + 12]",
    "mov esi, [r9 + 16]",
    "mov edi, [r9 + 20]",
    "mov ebp, [r9 + 24]",
    "iretq",
    ".hidden atoll_segment_entered",
    ".globl atoll_segment_entered",
    "atoll_segment_entered:",
    "5:",
    "mov dword ptr [r9 + {left}], 3",
    "jmp atoll_segment_restore",

    // The gate comes here: r9 is the core, and the low halves of the other registers are the program's.
    ".p2align 4",
    ".hidden atoll_segment_leave",
    ".globl atoll_segment_leave",
    "atoll_segment_leave:",
    "mov [r9], eax",
    "mov [r9 + 4], ebx",
    "mov [r9 + 8], ecx",
    "mov [r9 + 12], edx",
    "mov [r9 + 16], esi",
    "mov [r9 + 20], edi",
    "mov [r9 + 24], ebp",
    "mov [r9 + 28], esp",
    "mov rsp, [r9 + {host_stack}]",
    "pushfq",
    "pop r10",
    "mov [r9 + 36], r10d",
    "mov r10d, [r9 + {gate_return}]",
    "mov [r9 + 32], r10d",
    "mov dword ptr [r9 + {left}], 1",
    // Signal handlers come here: r9 is the core, rsp its host stack; `left` and the registers are set.
    ".hidden atoll_segment_restore",
    ".globl atoll_segment_restore",
    "atoll_segment_restore:",
    "push 2",
    "popfq",
    "cmp dword ptr [r9 + {has_fsgsbase}], 0",
    "je 6f",
    "mov r10, [r9 + {host_fs}]",
    "wrfsbase r10",
    "7:",
    "mov rax, [r9 + {vectors_mask}]",
    "mov rdx, rax",
    "shr rdx, 32",
    "mov r10, [r9 + {vectors}]",
    "xsave64 [r10]",
    "push 0x1f80",
    "ldmxcsr [rsp]",
    "fninit",
    "pop rax",
    "mov eax, [r9 + {left}]",
    "pop r15", "pop r14", "pop r13", "pop r12", "pop rbp", "pop rbx",
    "ret",
    "6:",
    "mov eax, {sys_arch_prctl}",
    "mov edi, {arch_set_fs}",
    "mov rsi, [r9 + {host_fs}]",
    "syscall",
    "jmp 7b",

    // This is the handler of all signals: arguments as the kernel passes them, the core (or null) as a fourth.
    ".p2align 4",
    ".hidden atoll_segment_signal",
    ".globl atoll_segment_signal",
    "atoll_segment_signal:",
    "xor ecx, ecx",
    "mov r8d, {identity}",
    "lsl r8d, r8d",
    "jnz 8f",
    "cmp r8d, {most_cores}",
    "jae 8f",
    "lea r9, [rip + {cores}]",
    "mov r9, [r9 + r8 * 8]",
    "test r9, r9",
    "jz 8f",
    "cmp dword ptr [r9 + {has_fsgsbase}], 0",
    "je 9f",
    "mov r10, [r9 + {host_fs}]",
    "wrfsbase r10",
    "10:",
    "mov rcx, r9",
    "8:",
    "cld",
    "jmp {on_signal}",
    "9:",
    "mov r12, rdi", "mov r13, rsi", "mov r14, rdx",
    "mov eax, {sys_arch_prctl}",
    "mov edi, {arch_set_fs}",
    "mov rsi, [r9 + {host_fs}]",
    "syscall",
    "mov rdi, r12", "mov rsi, r13", "mov rdx, r14",
    "jmp 10b",
    ".popsection",
    host_stack = const offset_of!(CoreState, host_stack),
    vectors_mask = const offset_of!(CoreState, vectors_mask),
    vectors = const offset_of!(CoreState, vectors),
    pending = const offset_of!(CoreState, pending),
    data = const offset_of!(CoreState, data),
    code = const offset_of!(CoreState, code),
    left = const offset_of!(CoreState, left),
    gate_return = const offset_of!(CoreState, gate_return),
    has_fsgsbase = const offset_of!(CoreState, has_fsgsbase),
    host_fs = const offset_of!(CoreState, host_fs),
    sys_arch_prctl = const libc::SYS_arch_prctl,
    arch_set_fs = const ARCH_SET_FS,
    identity = const IDENTITY,
    most_cores = const MOST_CORES,
    cores = sym CORES,
    on_signal = sym super::signal::on_signal,
);

unsafe extern "C" {
    fn atoll_segment_enter(core: *mut CoreState) -> u32;
    fn atoll_segment_check();
    fn atoll_segment_entered();
    fn atoll_segment_leave();
    fn atoll_segment_restore();
    fn atoll_segment_signal();
}

/// Runs the program on this core until it leaves its segment.
///
/// # Safety
/// `core` must be this thread's, complete, registered in [`CORES`], its descriptors and handlers in place.
pub(super) unsafe fn enter(core: *mut CoreState) -> Left {
    // SAFETY: the caller's.
    match unsafe { atoll_segment_enter(core) } {
        1 => Left::Call,
        2 => Left::Fault,
        _ => Left::Signal,
    }
}

/// Returns the range of the code that is about to enter; a signal there throws the entry away.
pub(super) fn entering() -> std::ops::Range<u64> {
    atoll_segment_check as *const () as u64..atoll_segment_entered as *const () as u64
}

/// Returns the address that the gate jumps to.
pub(super) fn leave() -> u64 {
    atoll_segment_leave as *const () as u64
}

/// Returns the address to which a signal's handler sends a core that has left.
pub(super) fn restore() -> u64 {
    atoll_segment_restore as *const () as u64
}

/// Returns the address of the handler of all signals.
pub(super) fn handler() -> usize {
    atoll_segment_signal as *const () as usize
}

/// Loads the segment registers that the program finds: its data, and either no thread pointer's descriptor or one.
///
/// # Safety
/// The selectors must be null or of this process's descriptors for data.
pub(super) unsafe fn load_segments(data: u32, gs: u32) {
    // SAFETY: 64-bit code uses neither ds, es nor gs here.
    unsafe {
        asm!("mov ds, {0:x}", "mov es, {0:x}", "mov gs, {1:x}", in(reg) data, in(reg) gs, options(nostack));
    }
}

/// Returns the selector that the program has in gs.
pub(super) fn gs_selector() -> u32 {
    let value: u32;
    // SAFETY: reads a register.
    unsafe { asm!("mov {0:e}, gs", out(reg) value, options(nomem, nostack, preserves_flags)) };
    value & 0xffff
}

/// Returns the thread pointer of this thread of atoll's.
pub(super) fn fs_base() -> u64 {
    let value: u64;
    // SAFETY: the x86-64 ABI keeps the thread pointer's own address at its start.
    unsafe { asm!("mov {0}, fs:[0]", out(reg) value, options(nostack, preserves_flags, readonly)) };
    value
}

/// Makes a call of the 32-bit interface from 64-bit code.
///
/// # Safety
/// As for the call; `argument` must lie below 4 GiB.
pub(super) unsafe fn call_32(number: u32, argument: u32) -> i32 {
    let result: u32;
    // SAFETY: the caller keeps the contract above; the kernel clobbers r8 to r11 at most.
    unsafe {
        asm!("push rbx", "mov ebx, {argument:e}", "int 0x80", "pop rbx",
            argument = in(reg) argument, inout("eax") number => result,
            out("r8") _, out("r9") _, out("r10") _, out("r11") _);
    }
    result as i32
}
