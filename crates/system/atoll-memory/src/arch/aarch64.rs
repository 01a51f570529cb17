//! What this crate knows of aarch64, the 64-bit state of Arm processors.
//!
//! Source: the Arm Architecture Reference Manual, ESR_EL1 ("ISS encoding for an exception from a Data Abort"), and Linux's
//! `arch/arm64/include/uapi/asm/sigcontext.h` for the records of a signal frame.

use core::arch::asm;

use super::Access;

/// The name of the processor as users know it.
pub const NAME: &str = "aarch64";

/// Makes system call `number` with six arguments, and returns what the kernel returns: a value, or an errno's negative.
///
/// # Safety
/// The arguments must be valid for that call; pointers must be valid for what the kernel does with them.
#[inline]
pub unsafe fn syscall(number: libc::c_long, a: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: Linux's convention for aarch64: the kernel changes x0 alone, and may read and write memory (no `nomem`).
    unsafe {
        asm!("svc 0",
            in("x8") number,
            inlateout("x0") a[0] => result,
            in("x1") a[1], in("x2") a[2], in("x3") a[3], in("x4") a[4], in("x5") a[5],
            options(nostack));
    }
    result
}

/// The processor's virtual counter, in ticks. It may be read before earlier instructions have ended, as on x86-64.
#[inline]
pub fn ticks() -> u64 {
    let ticks;
    // SAFETY: Linux lets programs read this register.
    unsafe { asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack, preserves_flags)) };
    ticks
}

/// `esr_context`'s magic number, and those of a record that says where more records are.
const ESR_MAGIC: u32 = 0x4553_5201;
const EXTRA_MAGIC: u32 = 0x4558_5401;

/// The exception classes of data aborts, from the program and (as the kernel copies it) from the kernel.
const DATA_ABORTS: [u64; 2] = [0x24, 0x25];
/// The access was a write ("write, not read").
const WRITE: u64 = 1 << 6;
/// The access was cache maintenance, for which the processor always claims a write.
const MAINTENANCE: u64 = 1 << 8;

/// A record in the reserved part of a signal frame begins with this.
#[repr(C)]
#[derive(Clone, Copy)]
struct Record {
    magic: u32,
    /// Bytes of the record, this head included.
    size: u32,
}

/// The exception syndrome that the kernel wrote into the frame; 0 if it wrote none.
fn syndrome(frame: &libc::ucontext_t) -> u64 {
    /// The kernel's reserved part of `mcontext_t`: its offset, a multiple of 16, eight bytes after that of libc's type; its bytes.
    const OFFSET: usize = (std::mem::offset_of!(libc::mcontext_t, pstate) + 8).next_multiple_of(16);
    const RESERVED: usize = 4096;
    const { assert!(OFFSET + RESERVED == size_of::<libc::mcontext_t>()) };
    let begin = &raw const frame.uc_mcontext as usize + OFFSET;
    let mut at = begin;
    while at + size_of::<Record>() <= begin + RESERVED {
        // SAFETY: the kernel's frame holds all of the reserved part, in which records follow each other up to one of zeros.
        let record = unsafe { *(at as *const Record) };
        match record.magic {
            // SAFETY: this record is its head and one word.
            ESR_MAGIC => return unsafe { *((at + size_of::<Record>()) as *const u64) },
            0 | EXTRA_MAGIC => return 0,
            _ if record.size < size_of::<Record>() as u32 => return 0,
            _ => at += record.size as usize,
        }
    }
    0
}

/// What an exception syndrome says of the access.
fn access_of(syndrome: u64) -> Access {
    let data = DATA_ABORTS.contains(&(syndrome >> 26 & 0x3f));
    // The status is 0x0c to 0x0f for protection, by the table's level, and 0x04 to 0x07 for a page that is not mapped.
    Access {
        write: data && syndrome & WRITE != 0 && syndrome & MAINTENANCE == 0,
        protection: syndrome & 0x3c == 0x0c,
    }
}

/// The access that faulted, of the frame of a SIGBUS or SIGSEGV that an access caused. An exclusive load counts as a read, so that
/// a pair of exclusives may fault twice: absent first, then protected.
#[inline]
pub fn access(frame: &libc::ucontext_t) -> Access {
    access_of(syndrome(frame))
}

/// The address of the instruction at which a signal interrupted the program.
#[inline]
pub fn instruction(frame: &libc::ucontext_t) -> u64 {
    frame.uc_mcontext.pc
}

/// The number and arguments of the system call that the frame of a SIGSYS is about.
pub fn call(frame: &libc::ucontext_t) -> (libc::c_long, [usize; 6]) {
    let registers = &frame.uc_mcontext.regs;
    let arguments = std::array::from_fn(|register| registers[register] as usize);
    (registers[8] as libc::c_long, arguments)
}

/// Sets what that system call returns when the program goes on.
pub fn set_result(frame: &mut libc::ucontext_t, result: isize) {
    frame.uc_mcontext.regs[0] = result as u64;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syndromes_tell_reads_from_writes_and_absent_from_protected() {
        let told = |syndrome| {
            let access = access_of(syndrome);
            (access.write, access.protection)
        };
        // Data aborts from the program, of an instruction of four bytes (bit 25).
        assert_eq!(told(0x9200_0007), (false, false));
        assert_eq!(told(0x9200_0047), (true, false));
        assert_eq!(told(0x9200_004f), (true, true));
        // Cache maintenance claims a write; the code of an absent page is read.
        assert_eq!(told(0x9200_0147), (false, false));
        assert_eq!(told(0x8200_0047), (false, false));
        assert_eq!(told(0), (false, false));
    }
}
