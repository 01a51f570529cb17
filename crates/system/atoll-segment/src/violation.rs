//! Finds the offset that an instruction would have touched beyond its segment's limit.
//!
//! The processor names no address when it stops an access at a limit, so the instruction is decoded again. This is pure code
//! over its bytes and the registers, for every 32-bit backend.

use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory, Mnemonic, OpAccess, Register};

/// The registers of a 32-bit core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Registers {
    /// The register `eax`.
    pub eax: u32,
    /// The register `ebx`.
    pub ebx: u32,
    /// The register `ecx`.
    pub ecx: u32,
    /// The register `edx`.
    pub edx: u32,
    /// The register `esi`.
    pub esi: u32,
    /// The register `edi`.
    pub edi: u32,
    /// The register `ebp`.
    pub ebp: u32,
    /// The register `esp`.
    pub esp: u32,
    /// The register `eip`.
    pub eip: u32,
    /// The register `eflags`.
    pub eflags: u32,
}

/// An access or instruction of a program that its segment does not allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The first offset of the access, where it could be found.
    pub offset: Option<u64>,
    /// The number of bytes that the access would have touched.
    pub bytes: u64,
    /// Whether the access would have written.
    pub write: bool,
    /// The offset of the instruction.
    pub instruction: u64,
    /// The first offset beyond the segment.
    pub limit: u64,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Violation { offset, bytes, write, instruction, limit } = self;
        let what = if *write { "write" } else { "read" };
        match offset {
            Some(at) => write!(f, "the {what} of {bytes} bytes at offset {at:#x} is outside its segment")?,
            None => write!(f, "it did what its segment does not allow")?,
        }
        write!(f, " (instruction at {instruction:#x}, limit {limit:#x})")
    }
}

/// Returns the access of the instruction `code` that leaves `low..limit`; without an offset where no access leaves it.
///
/// `thread_pointer` is what gs-relative offsets are counted from.
pub fn explain(code: &[u8], registers: &Registers, thread_pointer: u64, low: u64, limit: u64) -> Violation {
    let r = registers;
    let value = |register: Register, _: usize, _: usize| -> Option<u64> {
        let full = |value: u32| Some(u64::from(value));
        match register {
            Register::GS => Some(thread_pointer),
            Register::CS | Register::DS | Register::ES | Register::FS | Register::SS => Some(0),
            Register::AX => full(r.eax & 0xffff),
            Register::BX => full(r.ebx & 0xffff),
            Register::BP => full(r.ebp & 0xffff),
            Register::SI => full(r.esi & 0xffff),
            Register::DI => full(r.edi & 0xffff),
            Register::AL => full(r.eax & 0xff),
            _ => match register.full_register32() {
                Register::EAX => full(r.eax),
                Register::EBX => full(r.ebx),
                Register::ECX => full(r.ecx),
                Register::EDX => full(r.edx),
                Register::ESI => full(r.esi),
                Register::EDI => full(r.edi),
                Register::EBP => full(r.ebp),
                Register::ESP => full(r.esp),
                _ => None,
            },
        }
    };
    find(code, 32, u64::from(r.eip), low, limit, value)
}

/// Does the same for 64-bit code; `registers` are numbered as in instructions (rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8 to
/// r15).
pub(crate) fn explain_64(
    code: &[u8],
    ip: u64,
    registers: &[u64; 16],
    thread_pointer: u64,
    low: u64,
    limit: u64,
) -> Violation {
    let value = |register: Register, _: usize, _: usize| -> Option<u64> {
        match register {
            Register::FS => Some(thread_pointer),
            Register::CS | Register::DS | Register::ES | Register::GS | Register::SS => Some(0),
            _ if register.is_gpr() => {
                let value = registers[register.full_register().number() & 15];
                Some(if register.is_gpr32() { value & 0xffff_ffff } else { value })
            }
            _ => None,
        }
    };
    find(code, 64, ip, low, limit, value)
}

/// Returns the signal of a fault, other than an access, that an instruction can make; `None` if it can make none.
pub(crate) fn signal_of(code: &[u8], bits: u32) -> Option<i32> {
    let instruction = Decoder::new(bits, code, DecoderOptions::NONE).decode();
    match instruction.mnemonic() {
        _ if code.len() >= 15 && instruction.is_invalid() => Some(libc::SIGILL),
        Mnemonic::Ud0 | Mnemonic::Ud1 | Mnemonic::Ud2 => Some(libc::SIGILL),
        Mnemonic::Div | Mnemonic::Idiv => Some(libc::SIGFPE),
        Mnemonic::Int3 | Mnemonic::Int1 => Some(libc::SIGTRAP),
        _ => None,
    }
}

fn find(
    code: &[u8],
    bits: u32,
    ip: u64,
    low: u64,
    limit: u64,
    value: impl Fn(Register, usize, usize) -> Option<u64>,
) -> Violation {
    let mut found = Violation { offset: None, bytes: 0, write: false, instruction: ip, limit };
    // The instruction's own address was outside.
    if ip >= limit {
        return Violation { offset: Some(ip), bytes: 1, ..found };
    }
    let instruction = Decoder::with_ip(bits, code, ip, DecoderOptions::NONE).decode();
    if instruction.is_invalid() {
        return found;
    }
    let mut factory = InstructionInfoFactory::new();
    for memory in factory.info(&instruction).used_memory() {
        let Some(at) = memory.virtual_address(0, &value) else { continue };
        let at = if bits == 32 { at & 0xffff_ffff } else { at };
        let bytes = memory.memory_size().size() as u64;
        if at >= low && at.checked_add(bytes).is_some_and(|end| end <= limit) {
            continue;
        }
        let writes = [OpAccess::Write, OpAccess::CondWrite, OpAccess::ReadWrite, OpAccess::ReadCondWrite];
        found.offset = Some(at);
        found.bytes = bytes;
        found.write = writes.contains(&memory.access());
        break;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_access_that_leaves_is_named() {
        let r = Registers { eax: 0x2000, ebx: 0x10, esp: 2, eip: 0x500, ..Registers::default() };
        let at = |code: &[u8]| {
            let v = explain(code, &r, 0x1800, 0x100, 0x1000);
            (v.offset, v.bytes, v.write)
        };
        // mov [eax+4], ebx; mov ecx, [eax+ebx*4]; push eax; mov eax, gs:[8]; nop; ud2
        assert_eq!(at(&[0x89, 0x58, 4]), (Some(0x2004), 4, true));
        assert_eq!(at(&[0x8b, 0x0c, 0x98]), (Some(0x2040), 4, false));
        assert_eq!(at(&[0x50]), (Some(0xffff_fffe), 4, true));
        assert_eq!(at(&[0x65, 0xa1, 8, 0, 0, 0]), (Some(0x1808), 4, false));
        assert_eq!(at(&[0x90]), (None, 0, false));
        assert_eq!(at(&[0x0f, 0x0b]), (None, 0, false));
    }

    #[test]
    fn a_message_names_offset_and_limit() {
        let r = Registers { eax: 0x2000, eip: 0x500, ..Registers::default() };
        let text = explain(&[0x89, 0x18], &r, 0, 0, 0x1000).to_string();
        assert_eq!(
            text,
            "the write of 4 bytes at offset 0x2000 is outside its segment (instruction at 0x500, limit 0x1000)"
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_explained(code in prop::collection::vec(any::<u8>(), 0..16), n: [u32; 10]) {
            let [eax, ebx, ecx, edx, esi, edi, ebp, esp, eip, eflags] = n;
            let r = Registers { eax, ebx, ecx, edx, esi, edi, ebp, esp, eip, eflags };
            let v = explain(&code, &r, 0x1000, 0x1000, 1 << 20);
            prop_assert!(v.offset.is_none_or(|at| at < 0x1000 || at + v.bytes > 1 << 20));
        }
    }
}
