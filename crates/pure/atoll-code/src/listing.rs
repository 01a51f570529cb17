//! The instructions of one function, kept in little memory.
//!
//! Made by `body` as it decodes, read by everything behind it. The analysis runs beside the program in memory that cannot be
//! paged out, and functions have thousands of instructions, few of which are looked at again. So only what is asked of all of
//! them is kept, and an instruction that is looked at is decoded once more by `isa`.

use std::ops::{Deref, DerefMut};

use crate::graph::NONE;
use crate::isa::{Access, Flow, Instruction, Isa};
use crate::reach::Code;

/// What is kept of an instruction.
#[derive(Debug)]
pub(crate) struct Ins {
    pub(crate) ip: u64,
    /// Its effect, that of a call on registers included.
    pub(crate) access: Access,
    /// The next instruction in memory if control can pass to it, else [`NONE`].
    pub(crate) next: u32,
    /// Whether control goes on to the next instruction or elsewhere.
    pub(crate) branches: bool,
    /// Whether it writes its memory operand.
    pub(crate) writes_memory: bool,
}

/// The instructions of a function, in the order in which they were found.
#[derive(Debug)]
pub(crate) struct Listing<'c> {
    code: &'c Code<'c>,
    isa: &'c dyn Isa,
    ins: Vec<Ins>,
}

impl<'c> Listing<'c> {
    pub(crate) fn new(code: &'c Code<'c>, isa: &'c dyn Isa) -> Listing<'c> {
        Listing { code, isa, ins: Vec::new() }
    }

    /// Adds an instruction that no other follows yet, and returns its number.
    pub(crate) fn push(&mut self, i: &Instruction) -> u32 {
        let number = self.ins.len() as u32;
        self.ins.push(Ins {
            ip: i.ip,
            access: i.access,
            next: NONE,
            branches: matches!(i.flow, Flow::Branch(_)),
            writes_memory: i.writes_memory,
        });
        number
    }

    /// The whole of an instruction. Should its bytes have been changed since, nothing is known of it.
    pub(crate) fn instruction(&self, at: u32) -> Instruction {
        let &Ins { ip, access, .. } = &self.ins[at as usize];
        let again = self.code.code(ip).and_then(|bytes| self.isa.decode_again(bytes, ip, access));
        again.unwrap_or_else(|| Instruction::unknown(ip, access))
    }
}

impl Deref for Listing<'_> {
    type Target = [Ins];

    fn deref(&self) -> &[Ins] {
        &self.ins
    }
}

impl DerefMut for Listing<'_> {
    fn deref_mut(&mut self) -> &mut [Ins] {
        &mut self.ins
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_of_an_instruction_is_small() {
        assert!(size_of::<Ins>() <= 40, "{} bytes", size_of::<Ins>());
    }
}
