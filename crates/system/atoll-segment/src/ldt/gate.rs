//! The gate: the code that a program calls for a system call, and the few instructions that take its core out of the segment.
//!
//! This is machine code, made here because it holds addresses; it leads to `switch.rs`. The program's page has 32-bit code
//! inside the segment. The other page has 64-bit code outside it. Both are read-only.

use super::switch::{CORES, IDENTITY, MOST_CORES, USER_CODE, leave};
use crate::shared_object::shared_object;

/// Offsets in the program's page, from its start; the header of a shared object is before them.
pub(super) const CALL: u32 = 0x100;
/// The offset where a call goes on.
pub(super) const RETURN: u32 = CALL + 7;
/// The offset that handlers of signals return to, in the newer form.
pub(super) const RT_SIGRETURN: u32 = CALL + 16;
/// The offset that handlers of signals return to, in the older form.
pub(super) const SIGRETURN: u32 = CALL + 32;

/// Returns the program's side; `outside` is the linear address of the 64-bit side.
pub(super) fn inside(outside: u32) -> Vec<u8> {
    let mut jump = vec![0xea];
    jump.extend(outside.to_le_bytes());
    jump.extend((USER_CODE as u16).to_le_bytes());
    let mut page = shared_object(CALL);
    assert!(page.len() <= CALL as usize, "the header is longer than its room");
    page.resize(CALL as usize, 0);
    page.extend(&jump);
    page.push(0xc3);
    page.resize(RT_SIGRETURN as usize, 0x90);
    // mov eax, 173 (rt_sigreturn)
    page.extend([0xb8, 173, 0, 0, 0]);
    page.extend(&jump);
    page.resize(SIGRETURN as usize, 0x90);
    // pop eax; mov eax, 119 (sigreturn)
    page.extend([0x58, 0xb8, 119, 0, 0, 0]);
    page.extend(&jump);
    page
}

/// Returns the 64-bit side, which finds the core and goes on in `switch.rs`.
pub(super) fn outside() -> Vec<u8> {
    let mut code = Vec::new();
    // mov r8d, IDENTITY; lsl r8d, r8d
    code.extend([0x41, 0xb8]);
    code.extend(IDENTITY.to_le_bytes());
    code.extend([0x45, 0x0f, 0x03, 0xc0]);
    // cmp r8d, MOST_CORES; jb over; ud2
    code.extend([0x41, 0x83, 0xf8, MOST_CORES as u8, 0x72, 2, 0x0f, 0x0b]);
    // mov r9, CORES; mov r9, [r9 + r8 * 8]
    code.extend([0x49, 0xb9]);
    code.extend((CORES.as_ptr() as u64).to_le_bytes());
    code.extend([0x4f, 0x8b, 0x0c, 0xc1]);
    // mov r10, leave; jmp r10
    code.extend([0x49, 0xba]);
    code.extend(leave().to_le_bytes());
    code.extend([0x41, 0xff, 0xe2]);
    code
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions, Mnemonic};

    #[test]
    fn the_bytes_are_the_instructions_meant() {
        let names = |bits, code: &[u8]| -> Vec<Mnemonic> {
            Decoder::new(bits, code, DecoderOptions::NONE).iter().map(|i| i.mnemonic()).collect()
        };
        use Mnemonic::{Cmp, Jb, Jmp, Lsl, Mov, Nop, Pop, Ret, Ud2};
        let code = inside(0x1f_0000);
        let call = CALL as usize;
        assert_eq!(names(32, &code[call..call + 8]), [Jmp, Ret]);
        assert_eq!(names(32, &code[RT_SIGRETURN as usize..call + 28]), [Mov, Jmp]);
        assert_eq!(names(32, &code[SIGRETURN as usize..]), [Pop, Mov, Jmp]);
        assert!(!names(32, &code[call + 8..call + 16]).iter().any(|&n| n != Nop));
        assert_eq!(names(64, &outside()), [Mov, Lsl, Cmp, Jb, Ud2, Mov, Mov, Mov, Jmp]);
    }
}
