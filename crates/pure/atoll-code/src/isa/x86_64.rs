//! x86-64's instructions, decoded by `iced-x86`.

use std::cell::RefCell;

use iced_x86::{
    Code as Opcode, Decoder, DecoderOptions, FlowControl, Instruction as Iced, InstructionInfoFactory,
    Mnemonic, OpAccess, OpKind, Register as Name, UsedMemory,
};

use super::{Access, Bound, Convention, Flow, Instruction, Isa, Memory, Op, Operand, Register, Registers};
use crate::finding::Kind;

const VECTOR: u8 = 16;
const FLAGS: u8 = 48;
const MASK: u8 = 49;
const X87: u8 = 57;

const RAX: Register = Register(0);
const RCX: Register = Register(1);
const RDX: Register = Register(2);
const RBP: Register = Register(5);
const RSI: Register = Register(6);
const RDI: Register = Register(7);
const R8: Register = Register(8);
const R9: Register = Register(9);

static CONVENTION: Convention = Convention {
    // rax, rcx, rdx, rsi, rdi, r8 to r11, all vectors, flags, masks, x87.
    clobbered: 0b1111_1100_0111 & !(1 << 3) & !(1 << 4)
        | (0xffff_ffff << VECTOR)
        | 1 << FLAGS
        | (0xff << MASK)
        | (1 << X87),
    linking: Register(11).bit(),
    arguments: &[RDI, RSI, RDX, RCX, R8, R9],
    passed: RDI.bit() | RSI.bit() | RDX.bit() | RCX.bit() | R8.bit() | R9.bit(),
    // rax, rdx, two vectors, x87.
    returned: RAX.bit() | RDX.bit() | 0b11 << VECTOR | 1 << X87,
    flags: 1 << FLAGS,
    frame: RBP,
};

/// The decoder.
#[derive(Debug)]
pub(crate) struct X86 {
    /// What tells the effects of instructions; it keeps memory for its answers.
    factory: RefCell<InstructionInfoFactory>,
}

impl X86 {
    pub(crate) fn new() -> X86 {
        X86 { factory: RefCell::new(InstructionInfoFactory::new()) }
    }
}

impl Isa for X86 {
    fn convention(&self) -> &'static Convention {
        &CONVENTION
    }

    fn decode(&self, bytes: &[u8], ip: u64) -> Option<Instruction> {
        let i = decoded(bytes, ip)?;
        Some(translated(&i, access(&mut self.factory.borrow_mut(), &i)))
    }

    fn decode_again(&self, bytes: &[u8], ip: u64, access: Access) -> Option<Instruction> {
        decoded(bytes, ip).map(|i| translated(&i, access))
    }

    fn stub(&self, bytes: &[u8], ip: u64) -> Option<u64> {
        let mut decoder = Decoder::with_ip(64, &bytes[..bytes.len().min(32)], ip, DecoderOptions::NONE);
        for _ in 0..2 {
            let i = decoder.decode();
            match i.mnemonic() {
                Mnemonic::Endbr64 => {}
                Mnemonic::Jmp if i.is_ip_rel_memory_operand() => return Some(i.ip_rel_memory_address()),
                _ => return None,
            }
        }
        None
    }
}

fn decoded(bytes: &[u8], ip: u64) -> Option<Iced> {
    let mut decoder = Decoder::with_ip(64, bytes, ip, DecoderOptions::NONE);
    let i = decoder.decode();
    (!i.is_invalid()).then_some(i)
}

/// A register of any width.
fn register(name: Name) -> Register {
    let full = name.full_register();
    if full == Name::RSP {
        Register::STACK
    } else if full.is_gpr() {
        Register(full.number() as u8)
    } else if full.is_vector_register() {
        Register(VECTOR + full.number() as u8)
    } else if full.is_k() {
        Register(MASK + full.number() as u8)
    } else if full.is_st() || full.is_mm() {
        Register(X87)
    } else {
        Register::NONE
    }
}

fn bit(name: Name) -> Registers {
    register(name).bit()
}

/// Whether memory is addressed by the stack pointer, which is the worker's own, or is thread-local, by a segment register.
fn is_private(memory: &UsedMemory) -> bool {
    memory.base() == Name::RSP || matches!(memory.segment(), Name::FS | Name::GS)
}

fn access(factory: &mut InstructionInfoFactory, i: &Iced) -> Access {
    let mut result = Access::default();
    let info = factory.info(i);
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
    if i.rflags_read() != 0 {
        result.reads |= CONVENTION.flags;
    }
    if i.rflags_modified() != 0 {
        result.writes |= CONVENTION.flags;
    }
    result
}

/// The operand with this number; a register that is not followed is none.
fn operand(i: &Iced, number: u32) -> Operand {
    match i.try_op_kind(number) {
        Ok(OpKind::Register) => Operand::Register(register(i.op_register(number))),
        Ok(OpKind::Memory) => Operand::Memory,
        Ok(_) => i.try_immediate(number).map_or(Operand::None, Operand::Number),
        Err(_) => Operand::None,
    }
}

fn memory(i: &Iced) -> Option<Memory> {
    (0..i.op_count()).any(|n| i.op_kind(n) == OpKind::Memory).then(|| {
        let own = matches!(i.memory_segment(), Name::FS | Name::GS);
        let narrow = i.memory_base().size() == 4 || i.memory_index().size() == 4;
        let segment = if own { i.memory_segment().number() as u8 + 1 } else { 0 };
        let global = i.is_ip_rel_memory_operand();
        Memory {
            global: global.then(|| i.ip_rel_memory_address()),
            base: if global { Register::NONE } else { register(i.memory_base()) },
            index: register(i.memory_index()),
            scale: i.memory_index_scale() as u8,
            displacement: i.memory_displacement64(),
            space: segment | u8::from(narrow) << 7,
            own,
            bytes: i.memory_size().size() as u32,
            signed: i.mnemonic() != Mnemonic::Movzx,
        }
    })
}

fn flow(i: &Iced) -> Flow {
    if matches!(i.code(), Opcode::Syscall | Opcode::Sysenter) {
        return Flow::System;
    }
    match i.flow_control() {
        FlowControl::Next => Flow::Next,
        FlowControl::UnconditionalBranch => Flow::Jump(i.near_branch_target()),
        FlowControl::ConditionalBranch => Flow::Branch(i.near_branch_target()),
        FlowControl::XbeginXabortXend => {
            Flow::Transaction((i.mnemonic() == Mnemonic::Xbegin).then(|| i.near_branch_target()))
        }
        FlowControl::Return => Flow::Return,
        FlowControl::Exception => Flow::Stop,
        FlowControl::Call if i.is_call_near() => Flow::Call(i.near_branch_target()),
        FlowControl::IndirectCall => Flow::IndirectCall,
        FlowControl::IndirectBranch => Flow::IndirectJump,
        FlowControl::Interrupt if i.mnemonic() == Mnemonic::Int3 => Flow::Stop,
        FlowControl::Interrupt | FlowControl::Call => Flow::System,
    }
}

fn operation(i: &Iced, first: Operand, second: Operand) -> Op {
    let number = |operand| match operand {
        Operand::Number(number) => Some(number),
        _ => None,
    };
    match i.mnemonic() {
        Mnemonic::Mov => match number(second) {
            Some(number) if i.op0_kind() == OpKind::Register && i.op0_register().size() == 4 => {
                Op::Number(number & 0xffff_ffff)
            }
            Some(number) => Op::Number(number),
            None => Op::Move,
        },
        Mnemonic::Movsxd => Op::MoveSigned,
        Mnemonic::Cdqe => Op::MoveSigned,
        Mnemonic::Movzx | Mnemonic::Movsx => Op::MovePart,
        Mnemonic::Lea => Op::Address,
        Mnemonic::Xor
            if i.op0_kind() == OpKind::Register
                && i.op1_kind() == OpKind::Register
                && i.op0_register() == i.op1_register() =>
        {
            Op::Number(0)
        }
        Mnemonic::Add => Op::Add(first, second),
        Mnemonic::Shl | Mnemonic::Sal | Mnemonic::Imul if i.op_count() == 2 => {
            number(second).map_or(Op::Other, |number| Op::Scale(first, number))
        }
        Mnemonic::And => Op::And(first, number(second)),
        Mnemonic::Cmp | Mnemonic::Sub => Op::Compare(first, number(second)),
        Mnemonic::Test => Op::Test,
        _ => Op::Other,
    }
}

/// Whether the instruction writes its memory operand.
fn writes_memory(i: &Iced) -> bool {
    i.op_count() > 0
        && i.op0_kind() == OpKind::Memory
        && !matches!(
            i.mnemonic(),
            Mnemonic::Cmp
                | Mnemonic::Test
                | Mnemonic::Bt
                | Mnemonic::Push
                | Mnemonic::Ucomisd
                | Mnemonic::Nop
        )
}

/// The synchronisation that an instruction is by itself.
fn synchronises(i: &Iced, memory: Option<&Memory>) -> Option<Kind> {
    Some(match i.mnemonic() {
        Mnemonic::Mfence | Mnemonic::Sfence | Mnemonic::Lfence | Mnemonic::Serialize => Kind::Fence,
        Mnemonic::Pause | Mnemonic::Tpause | Mnemonic::Umwait | Mnemonic::Mwait | Mnemonic::Mwaitx => {
            Kind::Wait
        }
        Mnemonic::Xchg if memory.is_some() => Kind::AtomicUpdate,
        Mnemonic::Aadd | Mnemonic::Aand | Mnemonic::Aor | Mnemonic::Axor => Kind::AtomicUpdate,
        _ if i.has_lock_prefix() => match memory {
            Some(memory) if memory.base == Register::STACK => Kind::Fence,
            _ => Kind::AtomicUpdate,
        },
        _ => return None,
    })
}

/// The address of the stack or of the frame that an instruction puts into a register or memory.
fn taken(i: &Iced, memory: Option<&Memory>, second: Operand) -> Option<(Register, i64)> {
    let may_be_stack = |register| register == Register::STACK || register == RBP;
    match (i.mnemonic(), memory, second) {
        (Mnemonic::Lea, Some(memory), _) if may_be_stack(memory.base) => {
            let offset = memory.displacement.cast_signed();
            Some((memory.base, if memory.index == Register::NONE { offset } else { i64::MIN }))
        }
        (Mnemonic::Mov, _, Operand::Register(register)) if may_be_stack(register) => Some((register, 0)),
        _ => None,
    }
}

fn translated(i: &Iced, access: Access) -> Instruction {
    let (mut first, mut second) = (operand(i, 0), operand(i, 1));
    if i.mnemonic() == Mnemonic::Cdqe {
        (first, second) = (Operand::Register(RAX), Operand::Register(RAX));
    }
    let memory = memory(i);
    let has_memory = memory.is_some();
    Instruction {
        flow: flow(i),
        op: operation(i, first, second),
        code: i.code() as u32,
        first,
        second,
        memory,
        reads_memory: has_memory && i.mnemonic() != Mnemonic::Lea,
        writes_memory: writes_memory(i),
        synchronises: synchronises(i, memory.as_ref()),
        taken: taken(i, memory.as_ref(), second),
        restores: matches!(i.mnemonic(), Mnemonic::Pop | Mnemonic::Leave | Mnemonic::Enter),
        bound: match i.mnemonic() {
            Mnemonic::Ja => Some(Bound::Above),
            Mnemonic::Jae => Some(Bound::AtLeast),
            Mnemonic::Jb => Some(Bound::Below),
            Mnemonic::Jbe => Some(Bound::AtMost),
            _ => None,
        },
        access,
        ..Instruction::plain(i.ip(), i.len() as u8)
    }
}
