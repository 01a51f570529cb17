//! The values of registers: constants, a function's address, or an entry of a jump table.
//!
//! Used by `body` for indirect calls and for functions given to the runtime, and by `table` for jumps.

use crate::graph::Graph;
use crate::isa::{Instruction, Memory, Op, Operand, Register};
use crate::listing::Listing;
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
    /// Whether an entry is a number with a sign, and how far it is shifted where it is added to something.
    pub(crate) signed: bool,
    pub(crate) shift: u8,
    /// The instruction that loads it.
    pub(crate) at: u32,
    /// The register with the number of the entry.
    pub(crate) index: Register,
}

/// Follows values through a function.
pub(crate) struct Values<'b, 'c, 'a> {
    pub(crate) code: &'c Code<'a>,
    pub(crate) ins: &'b Listing<'c>,
    pub(crate) graph: &'b Graph,
    pub(crate) budget: &'b mut Budget,
}

impl Values<'_, '_, '_> {
    fn instruction(&self, at: u32) -> Instruction {
        self.ins.instruction(at)
    }

    /// The value of the register before this instruction.
    pub(crate) fn register(&mut self, register: Register, at: u32) -> Option<Value> {
        self.followed(register, at, DEPTH)
    }

    fn followed(&mut self, register: Register, at: u32, depth: u32) -> Option<Value> {
        let set = register.bit();
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
        match (i.op, i.second) {
            (Op::Number(number), _) => Some(Value::Number(number)),
            (Op::Address, _) => self.address(at, depth).map(Value::Number),
            (Op::Move | Op::MoveSigned, Operand::Register(from)) => self.followed(from, at, depth),
            (Op::Move | Op::MoveSigned, Operand::Memory) => self.load(at, depth),
            // A part of a word is no address, but may be a table's entry.
            (Op::MovePart, Operand::Memory) => self.entry(at, depth).map(Value::Entry),
            (Op::Add(left, right), _) => {
                let left = self.operand(left, at, depth)?;
                let right = self.operand(right, at, depth)?;
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

    /// The value of an operand that is not memory.
    fn operand(&mut self, operand: Operand, at: u32, depth: u32) -> Option<Value> {
        match operand {
            Operand::Register(register) => self.followed(register, at, depth),
            Operand::Number(number) => Some(Value::Number(number)),
            Operand::Part { register, bytes, signed, shift } => match self.followed(register, at, depth)? {
                // An entry's own width, or one that keeps its value.
                Value::Entry(entry) if u32::from(bytes) == entry.size => {
                    Some(Value::Entry(Entry { signed, shift, ..entry }))
                }
                Value::Entry(entry) if u32::from(bytes) > entry.size => {
                    Some(Value::Entry(Entry { shift, ..entry }))
                }
                _ => None,
            },
            Operand::None | Operand::Memory => None,
        }
    }

    /// The address of the instruction's memory operand, if it is constant.
    fn address(&mut self, at: u32, depth: u32) -> Option<u64> {
        let memory = self.instruction(at).memory?;
        if memory.global.is_some() {
            return memory.global;
        }
        let mut sum = memory.displacement;
        if memory.base != Register::NONE {
            sum = sum.wrapping_add(self.number(memory.base, at, depth)?);
        }
        if memory.index != Register::NONE {
            let index = self.number(memory.index, at, depth)?;
            sum = sum.wrapping_add(index.wrapping_mul(u64::from(memory.scale)));
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
        let Memory { base, index, bytes: size, displacement, signed, scale, .. } =
            self.instruction(at).memory?;
        let entry = |table: u64, index| {
            let table = table.wrapping_add(displacement);
            Some(Entry { table, size, signed, shift: 0, at, index })
        };
        // The index may have been multiplied before.
        if index == Register::NONE || u32::from(scale) != size && scale != 1 {
            return None;
        }
        if base == Register::NONE {
            return entry(0, index);
        }
        if let Some(table) = self.number(base, at, depth) {
            return entry(table, index);
        }
        if scale == 1 {
            let table = self.number(index, at, depth)?;
            return entry(table, base);
        }
        None
    }

    /// The target of an indirect call or jump, or the table entry that holds it.
    pub(crate) fn branch(&mut self, at: u32) -> Option<Value> {
        let i = self.instruction(at);
        match i.first {
            Operand::Register(register) => self.register(register, at),
            Operand::Memory => self.load(at, DEPTH),
            _ => None,
        }
    }
}
