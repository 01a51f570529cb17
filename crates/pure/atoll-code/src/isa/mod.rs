//! Instructions in one form for all processors, and what the rest of this crate needs to know of each processor.
//!
//! `x86_64` and `aarch64` bring the instructions of theirs into the form; everything else here works on the form alone. What a
//! decoder does not know to be harmless it does not decode, and code that is not decoded is never safe.

#[cfg(any(target_arch = "aarch64", feature = "aarch64"))]
mod aarch64;
mod x86_64;

use std::fmt;

use crate::finding::Kind;
use crate::input::Processor;

/// A set of registers: general ones, vectors, flags and the processor's own kinds.
pub(crate) type Registers = u64;

/// A register that values are followed through, by the number of its bit in a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Register(u8);

impl Register {
    /// No register, or one that is not followed.
    pub(crate) const NONE: Register = Register(255);
    /// The stack pointer, which no set contains: memory addressed by it is named by its offset.
    pub(crate) const STACK: Register = Register(254);

    /// The set of this register alone.
    pub(crate) const fn bit(self) -> Registers {
        if self.0 < 64 { 1 << self.0 } else { 0 }
    }
}

/// Where control goes behind an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flow {
    Next,
    Jump(u64),
    /// To this address or to the next instruction.
    Branch(u64),
    IndirectJump,
    Call(u64),
    IndirectCall,
    Return,
    /// Nowhere: a trap.
    Stop,
    /// Into the kernel, and to the next instruction.
    System,
    /// To the next instruction, or to this address if a transaction fails.
    Transaction(Option<u64>),
}

/// An operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operand {
    None,
    Register(Register),
    /// A register's lowest bytes, extended with their sign or with zeros, times a power of two.
    #[cfg_attr(
        not(any(target_arch = "aarch64", feature = "aarch64")),
        allow(dead_code, reason = "only aarch64 has such operands")
    )]
    Part {
        register: Register,
        bytes: u8,
        signed: bool,
        shift: u8,
    },
    /// The instruction's memory.
    Memory,
    Number(u64),
}

/// What an instruction computes, as far as values are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    Other,
    /// Copies the second operand into the first.
    Move,
    /// Copies the second operand, which is narrower, with its sign.
    MoveSigned,
    /// Copies the second operand, which is narrower, in another way.
    MovePart,
    /// Puts a number into the first operand.
    Number(u64),
    /// Puts the address of the instruction's memory, which is not touched, into the first operand.
    Address,
    Add(Operand, Operand),
    /// Multiplies or shifts the operand by a number.
    Scale(Operand, u64),
    /// Takes the bits of the operand that are in the mask, if that is a number.
    And(Operand, Option<u64>),
    /// Compares the operand with a limit, if that is a number; the difference may go into the first operand.
    Compare(Operand, Option<u64>),
    /// Tests bits of its operands.
    Test,
}

/// A memory operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Memory {
    /// The address, where the instruction itself has it.
    pub(crate) global: Option<u64>,
    pub(crate) base: Register,
    pub(crate) index: Register,
    pub(crate) scale: u8,
    pub(crate) displacement: u64,
    /// What else tells it from memory of the same registers: a segment, or narrow registers.
    pub(crate) space: u8,
    /// Whether it is thread-local by the instruction itself.
    pub(crate) own: bool,
    /// The bytes of it.
    pub(crate) bytes: u32,
    /// Whether a table's entry that is loaded by it has a sign.
    pub(crate) signed: bool,
}

/// The effect of an instruction on registers and memory, calls not counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Access {
    pub(crate) reads: Registers,
    pub(crate) writes: Registers,
    /// Whether it reads memory.
    pub(crate) loads: bool,
    /// Whether it writes memory that is not addressed by the stack pointer.
    pub(crate) stores: bool,
}

/// An instruction.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Instruction {
    pub(crate) ip: u64,
    pub(crate) bytes: u8,
    pub(crate) flow: Flow,
    pub(crate) op: Op,
    /// A number of the operation and the widths of its operands.
    pub(crate) code: u32,
    pub(crate) first: Operand,
    pub(crate) second: Operand,
    pub(crate) memory: Option<Memory>,
    /// Whether it reads the memory operand, and whether it writes it.
    pub(crate) reads_memory: bool,
    pub(crate) writes_memory: bool,
    /// The synchronisation that the instruction is by itself.
    pub(crate) synchronises: Option<Kind>,
    /// The address that it puts somewhere, if that is a register's value plus this number; the least number if it may be any.
    pub(crate) taken: Option<(Register, i64)>,
    /// Whether it puts a caller's value back into the frame's register.
    pub(crate) restores: bool,
    /// Whether it is not known exactly what its result depends on.
    pub(crate) opaque: bool,
    /// The bound that a branch behind a comparison tests.
    pub(crate) bound: Option<Bound>,
    pub(crate) access: Access,
}

/// The condition of a branch, as bounds of tables need it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bound {
    /// Taken if the number compared was above the limit, without sign.
    Above,
    /// Taken if it was the limit or above.
    AtLeast,
    /// Taken if it was below the limit.
    Below,
    /// Taken if it was the limit or below.
    AtMost,
}

impl Instruction {
    /// An instruction that goes on to the next and computes nothing that is followed.
    fn plain(ip: u64, bytes: u8) -> Instruction {
        Instruction {
            ip,
            bytes,
            flow: Flow::Next,
            op: Op::Other,
            code: 0,
            first: Operand::None,
            second: Operand::None,
            memory: None,
            reads_memory: false,
            writes_memory: false,
            synchronises: None,
            taken: None,
            restores: false,
            opaque: false,
            bound: None,
            access: Access::default(),
        }
    }

    /// An instruction of which nothing but its effect is known.
    pub(crate) fn unknown(ip: u64, access: Access) -> Instruction {
        Instruction { opaque: true, access, ..Instruction::plain(ip, 0) }
    }

    /// The address behind it.
    pub(crate) fn next_ip(&self) -> u64 {
        self.ip.wrapping_add(u64::from(self.bytes))
    }

    /// The first operand, if it is a register.
    pub(crate) fn target(&self) -> Register {
        match self.first {
            Operand::Register(register) => register,
            _ => Register::NONE,
        }
    }

    pub(crate) fn is_call(&self) -> bool {
        matches!(self.flow, Flow::Call(_) | Flow::IndirectCall)
    }

    /// The register that its memory is addressed by.
    pub(crate) fn base(&self) -> Register {
        self.memory.map_or(Register::NONE, |memory| memory.base)
    }

    /// What is added to the registers of its memory.
    pub(crate) fn displacement(&self) -> u64 {
        self.memory.map_or(0, |memory| memory.displacement)
    }
}

/// What a processor's calling convention says of registers.
#[derive(Debug)]
pub(crate) struct Convention {
    /// The registers that a call may change.
    pub(crate) clobbered: Registers,
    /// The registers that the linker's own code between a call and its function may change, and the return address's.
    pub(crate) linking: Registers,
    /// The registers of a call's arguments, in their order.
    pub(crate) arguments: &'static [Register],
    /// All registers in which a call may get arguments.
    pub(crate) passed: Registers,
    /// The registers in which a call returns values.
    pub(crate) returned: Registers,
    pub(crate) flags: Registers,
    /// The register that may hold a function's frame.
    pub(crate) frame: Register,
}

/// A processor's instructions.
pub(crate) trait Isa: fmt::Debug {
    fn convention(&self) -> &'static Convention;

    /// The instruction at `ip`, with which `bytes` begin; `None` if it is not known what that does.
    fn decode(&self, bytes: &[u8], ip: u64) -> Option<Instruction>;

    /// The same for an instruction whose effect is known from before, and may be known better.
    fn decode_again(&self, bytes: &[u8], ip: u64, access: Access) -> Option<Instruction>;

    /// The word of a linkage table through which the code at `ip` jumps and does nothing else.
    fn stub(&self, bytes: &[u8], ip: u64) -> Option<u64>;
}

impl Processor {
    /// Has the decoder make the tables that it makes at first use and never frees: all that later work allocates it frees.
    pub fn prepare(self) {
        self.isa().decode(&[0; 16], 0);
    }

    /// A decoder of its instructions.
    pub(crate) fn isa(self) -> Box<dyn Isa> {
        match self {
            Processor::X86_64 => Box::new(x86_64::X86::new()),
            #[cfg(any(target_arch = "aarch64", feature = "aarch64"))]
            Processor::Aarch64 => Box::new(aarch64::A64),
        }
    }
}
