//! The registers and the memory that an instruction reads and writes, as bit masks.
//!
//! Used by `body` for every instruction, and through it by `value` and `loops`. The stack pointer is left out: memory addressed
//! by it is named by its offset.

use iced_x86::{Instruction, InstructionInfoFactory, OpAccess, Register, UsedMemory};

/// A set of registers: general ones, vectors, flags, masks, x87.
pub(crate) type Registers = u64;

const VECTOR: u32 = 16;
const FLAGS: u32 = 48;
const MASK: u32 = 49;
const X87: u32 = 57;

/// The set of the flags.
pub(crate) const FLAG_BIT: Registers = 1 << FLAGS;
/// The stack pointer's bit, which no set contains.
const RSP: Registers = 1 << 4;
/// The registers that a call may change: rax, rcx, rdx, rsi, rdi, r8 to r11, all vectors, flags, masks, x87.
pub(crate) const CLOBBERED: Registers =
    0b1111_1100_0111 & !(1 << 3) & !RSP | (0xffff_ffff << VECTOR) | FLAG_BIT | (0xff << MASK) | (1 << X87);
/// The registers in which a call may get arguments: rdi, rsi, rdx, rcx, r8, r9.
pub(crate) const ARGUMENTS: Registers = 1 << 7 | 1 << 6 | 1 << 2 | 1 << 1 | 1 << 8 | 1 << 9;

/// The set of this register alone; empty for the stack pointer and registers that are not followed.
pub(crate) fn bit(register: Register) -> Registers {
    let full = register.full_register();
    let set = if full.is_gpr() {
        1 << full.number()
    } else if full.is_vector_register() {
        1 << (VECTOR as usize + full.number())
    } else if full.is_k() {
        1 << (MASK as usize + full.number())
    } else if full.is_st() || full.is_mm() {
        1 << X87
    } else {
        0
    };
    set & !RSP
}

/// The effect of an instruction.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Access {
    pub(crate) reads: Registers,
    pub(crate) writes: Registers,
    /// Whether it reads memory.
    pub(crate) loads: bool,
    /// Whether it writes memory that is not addressed by the stack pointer.
    pub(crate) stores: bool,
}

/// Whether memory is addressed by the stack pointer, which is the worker's own, or is thread-local, by a segment register.
fn is_private(memory: &UsedMemory) -> bool {
    memory.base() == Register::RSP || matches!(memory.segment(), Register::FS | Register::GS)
}

/// The effect of the instruction, calls not counted.
pub(crate) fn access(factory: &mut InstructionInfoFactory, instruction: &Instruction) -> Access {
    let mut result = Access::default();
    let info = factory.info(instruction);
    for used in info.used_registers() {
        let set = bit(used.register());
        match used.access() {
            OpAccess::Read | OpAccess::CondRead => result.reads |= set,
            OpAccess::Write => result.writes |= set,
            // A register that is written on a condition may also keep its value.
            OpAccess::ReadWrite | OpAccess::ReadCondWrite | OpAccess::CondWrite => {
                result.reads |= set;
                result.writes |= set;
            }
            _ => {}
        }
    }
    for used in info.used_memory() {
        match used.access() {
            OpAccess::Read | OpAccess::CondRead => result.loads = true,
            OpAccess::Write | OpAccess::CondWrite => result.stores |= !is_private(used),
            OpAccess::ReadWrite | OpAccess::ReadCondWrite => {
                result.loads = true;
                result.stores |= !is_private(used);
            }
            _ => {}
        }
    }
    if instruction.rflags_read() != 0 {
        result.reads |= FLAG_BIT;
    }
    if instruction.rflags_modified() != 0 {
        result.writes |= FLAG_BIT;
    }
    result
}
