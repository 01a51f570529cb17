//! What this crate knows of x86-64.
//!
//! Source: Intel's manual, volume 3, section 4.7 for the page-fault error code; the System V ABI's chapter A.2 for system calls.

use core::arch::asm;

use super::Access;

/// The name of the processor as users know it.
pub const NAME: &str = "x86-64";

/// Makes system call `number` with six arguments, and returns what the kernel returns: a value, or an errno's negative.
///
/// # Safety
/// The arguments must be valid for that call; pointers must be valid for what the kernel does with them.
#[inline]
pub unsafe fn syscall(number: libc::c_long, a: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: the x86-64 system call convention; rcx and r11 are clobbered by the instruction, memory may be
    // read and written by the kernel (no `nomem`).
    unsafe {
        asm!("syscall",
            inlateout("rax") number as isize => result,
            in("rdi") a[0], in("rsi") a[1], in("rdx") a[2], in("r10") a[3], in("r8") a[4], in("r9") a[5],
            lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    result
}

/// The processor's time stamp counter, in ticks.
#[inline]
pub fn ticks() -> u64 {
    // SAFETY: every x86-64 has it.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Page-fault error code: the page was present / the access was a write.
const ERROR_PRESENT: i64 = 1;
const ERROR_WRITE: i64 = 2;

/// The access that faulted, of the frame of a SIGBUS or SIGSEGV that an access caused.
#[inline]
pub fn access(frame: &libc::ucontext_t) -> Access {
    let error = frame.uc_mcontext.gregs[libc::REG_ERR as usize];
    Access { write: error & ERROR_WRITE != 0, protection: error & ERROR_PRESENT != 0 }
}

/// The address of the instruction at which a signal interrupted the program.
#[inline]
pub fn instruction(frame: &libc::ucontext_t) -> u64 {
    frame.uc_mcontext.gregs[libc::REG_RIP as usize] as u64
}

/// The number and arguments of the system call that the frame of a SIGSYS is about.
pub fn call(frame: &libc::ucontext_t) -> (libc::c_long, [usize; 6]) {
    let at = |register: libc::c_int| frame.uc_mcontext.gregs[register as usize] as usize;
    let arguments = [libc::REG_RDI, libc::REG_RSI, libc::REG_RDX, libc::REG_R10, libc::REG_R8, libc::REG_R9];
    (at(libc::REG_RAX) as libc::c_long, arguments.map(at))
}

/// Sets what that system call returns when the program goes on.
pub fn set_result(frame: &mut libc::ucontext_t, result: isize) {
    frame.uc_mcontext.gregs[libc::REG_RAX as usize] = result as i64;
}
