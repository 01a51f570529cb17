//! The values of registers: constants, a function's address, or an entry of a jump table.
//!
//! Used by `body` for indirect calls and for functions given to the runtime, and by `table` for jumps.

use iced_x86::{Instruction, Mnemonic, OpKind, Register};

use crate::access::bit;
use crate::body::Ins;
use crate::graph::Graph;
use crate::reach::{Budget, Code};

/// The number of instructions through which a value is followed.
const DEPTH: u32 = 16;

/// The value of a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Value {
    Number(u64),
    /// An entry of a table.
    Entry(Entry),
    /// An entry of a table added to a number.
    Offset(u64, Entry),
}

/// A load from a table of constants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) table: u64,
    /// The bytes of an entry.
    pub(crate) size: u32,
    /// The instruction that loads it.
    pub(crate) at: u32,
    /// The register with the number of the entry.
    pub(crate) index: Register,
}

/// Follows values through a function.
pub(crate) struct Values<'b, 'c, 'a> {
    pub(crate) code: &'c Code<'a>,
    pub(crate) ins: &'b [Ins],
    pub(crate) graph: &'b Graph,
    pub(crate) budget: &'b mut Budget,
}

impl Values<'_, '_, '_> {
    fn instruction(&self, at: u32) -> Instruction {
        self.ins[at as usize].instruction
    }

    /// The value of the register before this instruction.
    pub(crate) fn register(&mut self, register: Register, at: u32) -> Option<Value> {
        self.followed(register, at, DEPTH)
    }

    fn followed(&mut self, register: Register, at: u32, depth: u32) -> Option<Value> {
        let set = bit(register);
        if depth == 0 || set == 0 {
            return None;
        }
        let ins = self.ins;
        let writes = |i: u32| ins[i as usize].access.writes & set != 0;
        let definitions = self.graph.definitions(None, at, &|b| b.writes & set != 0, &writes, self.budget)?;
        if definitions.outside {
            return None;
        }
        let mut values = definitions.found.into_iter().map(|i| self.definition(i, depth - 1));
        let first = values.next()??;
        values.all(|v| v == Some(first)).then_some(first)
    }

    fn number(&mut self, register: Register, at: u32, depth: u32) -> Option<u64> {
        match self.followed(register, at, depth)? {
            Value::Number(number) => Some(number),
            _ => None,
        }
    }

    fn definition(&mut self, at: u32, depth: u32) -> Option<Value> {
        let i = self.instruction(at);
        match i.mnemonic() {
            Mnemonic::Lea => self.address(at, depth).map(Value::Number),
            Mnemonic::Mov | Mnemonic::Movsxd => match i.op1_kind() {
                OpKind::Register => self.followed(i.op1_register(), at, depth),
                OpKind::Memory => self.load(at, depth),
                _ => {
                    let immediate = i.try_immediate(1).ok()?;
                    let narrow = i.op0_register().size() == 4;
                    Some(Value::Number(if narrow { immediate & 0xffff_ffff } else { immediate }))
                }
            },
            Mnemonic::Cdqe => self.followed(Register::RAX, at, depth),
            Mnemonic::Xor if i.op1_kind() == OpKind::Register && i.op0_register() == i.op1_register() => {
                Some(Value::Number(0))
            }
            Mnemonic::Add => {
                let left = self.followed(i.op0_register(), at, depth)?;
                let right = match i.op1_kind() {
                    OpKind::Register => self.followed(i.op1_register(), at, depth)?,
                    OpKind::Memory => return None,
                    _ => Value::Number(i.try_immediate(1).ok()?),
                };
                match (left, right) {
                    (Value::Number(a), Value::Number(b)) => Some(Value::Number(a.wrapping_add(b))),
                    (Value::Entry(entry), Value::Number(base))
                    | (Value::Number(base), Value::Entry(entry)) => Some(Value::Offset(base, entry)),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// The address of the instruction's memory operand, if it is constant.
    fn address(&mut self, at: u32, depth: u32) -> Option<u64> {
        let i = self.instruction(at);
        if i.is_ip_rel_memory_operand() {
            return Some(i.ip_rel_memory_address());
        }
        let mut sum = i.memory_displacement64();
        if i.memory_base() != Register::None {
            sum = sum.wrapping_add(self.number(i.memory_base(), at, depth)?);
        }
        if i.memory_index() != Register::None {
            let index = self.number(i.memory_index(), at, depth)?;
            sum = sum.wrapping_add(index.wrapping_mul(u64::from(i.memory_index_scale())));
        }
        Some(sum)
    }

    fn load(&mut self, at: u32, depth: u32) -> Option<Value> {
        if let Some(address) = self.address(at, depth) {
            return self.code.slot(address)?.target.map(Value::Number);
        }
        self.entry(at, depth).map(Value::Entry)
    }

    /// The table from which the instruction's memory operand is an entry.
    fn entry(&mut self, at: u32, depth: u32) -> Option<Entry> {
        let i = self.instruction(at);
        let (base, index) = (i.memory_base(), i.memory_index());
        let size = i.memory_size().size() as u32;
        let displacement = i.memory_displacement64();
        let entry =
            |table: u64, index| Some(Entry { table: table.wrapping_add(displacement), size, at, index });
        if index == Register::None {
            return None;
        }
        if base == Register::None {
            return entry(0, index);
        }
        if let Some(table) = self.number(base, at, depth) {
            return entry(table, index);
        }
        if i.memory_index_scale() == 1 {
            let table = self.number(index, at, depth)?;
            return entry(table, base);
        }
        None
    }

    /// The target of an indirect call or jump, or the table entry that holds it.
    pub(crate) fn branch(&mut self, at: u32) -> Option<Value> {
        let i = self.instruction(at);
        match i.op0_kind() {
            OpKind::Register => self.register(i.op0_register(), at),
            OpKind::Memory => self.load(at, DEPTH),
            _ => None,
        }
    }
}
