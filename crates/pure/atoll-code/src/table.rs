//! Jump tables: the targets of a `switch`.
//!
//! Used by `body`; `value` tells which table is used. The number of its entries is taken from the comparison before the jump
//! and never guessed: with an entry too few, some code would not be examined.

use crate::graph::NONE;
use crate::isa::{Bound, Instruction, Op, Operand, Register, Registers};
use crate::value::{Entry, Value, Values};

/// The most entries of a table that is followed.
const MOST: u64 = 16_384;
/// The number of instructions before the jump within which its comparison is searched for.
const DISTANCE: usize = 200;

/// The place of the index, going backwards from its use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Index {
    In(Register),
    At(Register, u64),
}

/// The place that an operand is, if it is a register or simple memory.
fn index_of(i: &Instruction, operand: Operand) -> Option<Index> {
    match (operand, i.memory) {
        (Operand::Register(register), _) => Some(Index::In(register)),
        (Operand::Memory, Some(memory)) if memory.index == Register::NONE => {
            Some(Index::At(memory.base, memory.displacement))
        }
        _ => None,
    }
}

/// The targets of an indirect jump; `None` if they are not known.
pub(crate) fn targets(values: &mut Values<'_, '_, '_>, jump: u32) -> Option<Vec<u64>> {
    let (base, entry) = match values.branch(jump)? {
        Value::Number(target) => return Some(vec![target]),
        Value::Entry(entry) => (None, entry),
        Value::Offset(base, entry) => (Some(base), entry),
    };
    let count = count(values, &entry)?;
    let mut found = Vec::new();
    for k in 0..count {
        let address = entry.table.wrapping_add(k * u64::from(entry.size));
        let constant = values.code.table(address)?;
        let target = match (entry.size, base) {
            (8, None) => number(constant, 8, false)?.cast_unsigned(),
            (4, None) => number(constant, 4, false)?.cast_unsigned(),
            (size @ (1 | 2 | 4), Some(base)) => {
                base.wrapping_add_signed(number(constant, size, entry.signed)? << entry.shift)
            }
            _ => return None,
        };
        values.code.code(target)?;
        if !found.contains(&target) {
            found.push(target);
        }
    }
    Some(found)
}

/// The number of `size` bytes with which these begin.
fn number(bytes: &[u8], size: u32, signed: bool) -> Option<i64> {
    let mut word = [0; 8];
    word[..size as usize].copy_from_slice(bytes.get(..size as usize)?);
    let shift = 64 - 8 * size;
    let number = u64::from_le_bytes(word) << shift;
    Some(if signed { number.cast_signed() >> shift } else { (number >> shift).cast_signed() })
}

/// The number of entries of the table, by the comparison or mask that the index went through.
fn count(values: &mut Values<'_, '_, '_>, entry: &Entry) -> Option<u64> {
    let (mut block, place) = values.graph.place(entry.at);
    let mut index = Index::In(entry.index);
    let flags = values.code.convention().flags;
    let mut end = place as usize;
    // The comparison must have found at most the number compared with, plus this.
    let mut wanted: Option<u64> = None;
    // The compared place, and the number of entries if the index is a copy of it.
    let mut compared: Option<(Index, u64)> = None;
    for _ in 0..DISTANCE {
        let current = &values.graph.blocks[block as usize];
        for &at in current.ins[..end].iter().rev() {
            if !values.budget.step() {
                return None;
            }
            let i = values.ins.instruction(at);
            let writes = i.access.writes;
            index = before(&i, writes, index)?;
            compared = match (wanted, i.op) {
                (Some(more), Op::Compare(left, Some(limit))) => {
                    index_of(&i, left).zip(limit.checked_add(more))
                }
                // Before the instruction that produced it, the place holds something else.
                _ => compared.filter(|&(place, _)| keeps(&i, writes, place)),
            };
            if let Some((place, limit)) = compared
                && place == index
            {
                return (limit > 0 && limit <= MOST).then_some(limit);
            }
            if writes & flags != 0 {
                wanted = None;
            }
            if let Op::And(left, Some(mask)) = i.op
                && index_of(&i, left) == Some(index)
            {
                return (mask < MOST).then_some(mask + 1);
            }
        }
        let &[previous] = &current.before[..] else { return None };
        let last = *values.graph.blocks[previous as usize].ins.last()?;
        let (i, next) = (values.ins.instruction(last), values.ins[last as usize].next);
        let falls = next != NONE && values.graph.place(next).0 == block;
        wanted = match (i.bound, falls) {
            (Some(Bound::Above), true) | (Some(Bound::AtMost), false) => Some(1),
            (Some(Bound::AtLeast), true) | (Some(Bound::Below), false) => Some(0),
            _ => None,
        };
        block = previous;
        end = values.graph.blocks[block as usize].ins.len();
    }
    None
}

/// Whether an instruction leaves the content of this place unchanged.
fn keeps(i: &Instruction, writes: Registers, place: Index) -> bool {
    let unwritten = match place {
        Index::In(register) => writes & register.bit() == 0,
        Index::At(..) => true,
    };
    unwritten && before(i, writes, place) == Some(place)
}

/// The place of the index before an instruction; `None` if the instruction produced it.
fn before(i: &Instruction, writes: Registers, index: Index) -> Option<Index> {
    match index {
        Index::In(register) if writes & register.bit() != 0 => match (i.op, i.memory) {
            (Op::Move | Op::MoveSigned | Op::MovePart, _) => index_of(i, i.second),
            (Op::And(left, _), _) => index_of(i, left),
            (Op::Address, Some(memory)) if memory.displacement == 0 => match (memory.base, memory.index) {
                (Register::NONE, index) => Some(Index::In(index)),
                _ => None,
            },
            _ => None,
        },
        Index::At(base, _) if writes & base.bit() != 0 => None,
        Index::At(base, displacement) => {
            let same =
                i.first == Operand::Memory && index_of(i, i.first) == Some(Index::At(base, displacement));
            match i.op {
                _ if !same => Some(index),
                Op::Compare(..) | Op::Test if !i.writes_memory => Some(index),
                Op::Move => index_of(i, i.second),
                _ => None,
            }
        }
        Index::In(_) => Some(index),
    }
}
