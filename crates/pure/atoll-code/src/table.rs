//! Jump tables: the targets of a `switch`.
//!
//! Used by `body`; `value` tells which table is used. The number of its entries is taken from the comparison before the jump
//! and never guessed: with an entry too few, some code would not be examined.

use iced_x86::{Instruction, Mnemonic, OpKind, Register};

use crate::access::{FLAG_BIT, bit};
use crate::graph::NONE;
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

/// The register or simple memory operand with the number `operand`.
fn index_of(i: &Instruction, operand: u32) -> Option<Index> {
    match i.try_op_kind(operand).ok()? {
        OpKind::Register => Some(Index::In(i.try_op_register(operand).ok()?.full_register())),
        OpKind::Memory if i.memory_index() == Register::None => {
            Some(Index::At(i.memory_base(), i.memory_displacement64()))
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
        let target = match (entry.size, base) {
            (8, None) => u64::from_le_bytes(values.code.constant(address)?),
            (4, None) => u64::from(u32::from_le_bytes(values.code.constant(address)?)),
            (4, Some(base)) => {
                base.wrapping_add_signed(i64::from(i32::from_le_bytes(values.code.constant(address)?)))
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

/// The number of entries of the table, by the comparison or mask that the index went through.
fn count(values: &mut Values<'_, '_, '_>, entry: &Entry) -> Option<u64> {
    let (mut block, place) = values.graph.place(entry.at);
    let mut index = Index::In(entry.index.full_register());
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
            let i = values.ins[at as usize].instruction;
            let writes = values.ins[at as usize].access.writes;
            index = before(&i, writes, index)?;
            compared = match (wanted, i.mnemonic(), i.try_immediate(1)) {
                (Some(more), Mnemonic::Cmp | Mnemonic::Sub, Ok(limit)) => {
                    index_of(&i, 0).zip(limit.checked_add(more))
                }
                // Before the instruction that produced it, the place holds something else.
                _ => compared.filter(|&(place, _)| keeps(&i, writes, place)),
            };
            if let Some((place, limit)) = compared
                && place == index
            {
                return (limit > 0 && limit <= MOST).then_some(limit);
            }
            if writes & FLAG_BIT != 0 {
                wanted = None;
            }
            if let (Mnemonic::And, Ok(mask)) = (i.mnemonic(), i.try_immediate(1))
                && index_of(&i, 0) == Some(index)
            {
                return (mask < MOST).then_some(mask + 1);
            }
        }
        let &[previous] = &current.before[..] else { return None };
        let last = *values.graph.blocks[previous as usize].ins.last()?;
        let (i, next) = (values.ins[last as usize].instruction, values.ins[last as usize].next);
        let falls = next != NONE && values.graph.place(next).0 == block;
        wanted = match (i.mnemonic(), falls) {
            (Mnemonic::Ja, true) | (Mnemonic::Jbe, false) => Some(1),
            (Mnemonic::Jae, true) | (Mnemonic::Jb, false) => Some(0),
            _ => None,
        };
        block = previous;
        end = values.graph.blocks[block as usize].ins.len();
    }
    None
}

/// Whether an instruction leaves the content of this place unchanged.
fn keeps(i: &Instruction, writes: u64, place: Index) -> bool {
    let unwritten = match place {
        Index::In(register) => writes & bit(register) == 0,
        Index::At(..) => true,
    };
    unwritten && before(i, writes, place) == Some(place)
}

/// The place of the index before an instruction; `None` if the instruction produced it.
fn before(i: &Instruction, writes: u64, index: Index) -> Option<Index> {
    match index {
        Index::In(register) if writes & bit(register) != 0 => match i.mnemonic() {
            Mnemonic::Mov | Mnemonic::Movzx | Mnemonic::Movsx | Mnemonic::Movsxd => index_of(i, 1),
            Mnemonic::Cdqe | Mnemonic::And => Some(index),
            Mnemonic::Lea if i.memory_base() == Register::None && i.memory_displacement64() == 0 => {
                Some(Index::In(i.memory_index().full_register()))
            }
            _ => None,
        },
        Index::At(base, _) if writes & bit(base) != 0 => None,
        Index::At(base, displacement) => {
            let same =
                i.op0_kind() == OpKind::Memory && index_of(i, 0) == Some(Index::At(base, displacement));
            match i.mnemonic() {
                _ if !same => Some(index),
                Mnemonic::Cmp | Mnemonic::Test => Some(index),
                Mnemonic::Mov => index_of(i, 1),
                _ => None,
            }
        }
        Index::In(_) => Some(index),
    }
}
