//! aarch64's arithmetic on general registers: sums, which are addresses or comparisons, masks, copies and fields.
//!
//! Used by the decoder.

use disarm64_defn::InsnClass as Class;

use super::{FLAGS, FRAME, Word, at, general, operand, or_stack};
use crate::isa::{Access, Instruction, Memory, Op, Operand, Register};

impl Word {
    /// The mask of a logical instruction.
    fn mask(self) -> Option<u64> {
        let (n, rotate, ones) = (self.bits(22, 1), self.bits(16, 6), self.bits(10, 6));
        let length = (n << 6 | !ones & 0x3f).checked_ilog2().filter(|&length| length > 0)?;
        let size = 1u32 << length;
        let (ones, rotate) = (ones & (size - 1), rotate & (size - 1));
        let run = u64::MAX >> (63 - ones);
        let element = u64::MAX >> (64 - size);
        let turned = if rotate == 0 { run } else { run >> rotate | run << (size - rotate) } & element;
        let whole = (0..64 / size).fold(0, |mask, part| mask | turned << (part * size));
        (ones < size - 1).then_some(if self.is_64() { whole } else { whole & 0xffff_ffff })
    }

    /// The frame's address is computed with, other than by adding a number: where it may point is not known.
    pub(super) fn takes(self, registers: &[u32]) -> Option<(Register, i64)> {
        registers.contains(&u32::from(FRAME.0)).then_some((FRAME, i64::MIN))
    }

    /// Adds or subtracts a number: an address, or a comparison with a limit.
    pub(super) fn add_number(self, plain: Instruction) -> Instruction {
        let (d, n) = (self.d(), or_stack(self.n()));
        let number = u64::from(self.bits(10, 12)) << (12 * self.bits(22, 1));
        let subtracts = self.bit(30);
        let access = Access { reads: n.bit(), ..Access::default() };
        if self.bit(29) {
            let op = if subtracts { Op::Compare(Operand::Register(n), Some(number)) } else { Op::Other };
            let access = Access { writes: general(d).bit() | FLAGS, ..access };
            return Instruction { op, first: Operand::Register(general(d)), access, ..plain };
        }
        let to = or_stack(d);
        let displacement = if subtracts { number.wrapping_neg() } else { number };
        let memory = Memory { displacement, ..at(n) };
        let is_local = n == Register::STACK || n == FRAME;
        Instruction {
            op: if self.is_64() { Op::Address } else { Op::Other },
            first: Operand::Register(to),
            memory: self.is_64().then_some(memory),
            taken: is_local.then_some((n, displacement.cast_signed())),
            access: Access { writes: to.bit(), ..access },
            ..plain
        }
    }

    /// Adds or subtracts a register that is shifted or extended.
    pub(super) fn add(self, class: Class, plain: Instruction) -> Instruction {
        let extends = class == Class::ADDSUB_EXT;
        let (d, m) = (self.d(), self.m());
        let n = if extends { or_stack(self.n()) } else { general(self.n()) };
        let compares = self.bit(29);
        let to = if extends && !compares { or_stack(d) } else { general(d) };
        let left = if n == Register::NONE { Operand::Number(0) } else { Operand::Register(n) };
        let kind = self.bits(13, 3);
        let right = match (extends, self.bits(22, 2), self.bits(10, 6)) {
            (true, ..) => Some(Operand::Part {
                register: general(m),
                bytes: 1 << (kind & 3),
                signed: kind & 4 != 0,
                shift: self.bits(10, 3) as u8,
            }),
            (false, _, 0) => Some(operand(m)),
            (false, 0, shift) => {
                Some(Operand::Part { register: general(m), bytes: 8, signed: false, shift: shift as u8 })
            }
            _ => None,
        };
        let op = match right {
            _ if compares && self.bit(30) => Op::Compare(left, None),
            Some(right) if self.is_64() && !self.bit(30) && !compares => Op::Add(left, right),
            _ => Op::Other,
        };
        let local = |register| register == Register::STACK || register == FRAME;
        let taken = [n, general(m)].into_iter().find(|&register| local(register));
        Instruction {
            op,
            first: Operand::Register(to),
            taken: taken.filter(|_| to != Register::NONE).map(|register| (register, i64::MIN)),
            access: Access {
                reads: n.bit() | general(m).bit(),
                writes: to.bit() | if compares { FLAGS } else { 0 },
                ..Access::default()
            },
            ..plain
        }
    }

    pub(super) fn logical_number(self, plain: Instruction) -> Option<Instruction> {
        let mask = self.mask()?;
        let (d, n) = (self.d(), self.n());
        let tests = self.bits(29, 2) == 0b11;
        let to = if tests { general(d) } else { or_stack(d) };
        Some(Instruction {
            op: match self.bits(29, 2) {
                0b00 | 0b11 => Op::And(operand(n), Some(mask)),
                0b01 if n == 31 => Op::Number(mask),
                _ => Op::Other,
            },
            first: Operand::Register(to),
            taken: self.takes(&[n]).filter(|_| to != Register::NONE),
            access: Access {
                reads: general(n).bit(),
                writes: to.bit() | if tests { FLAGS } else { 0 },
                ..Access::default()
            },
            ..plain
        })
    }

    pub(super) fn logical(self, plain: Instruction) -> Instruction {
        let (d, n, m) = (self.d(), self.n(), self.m());
        let tests = self.bits(29, 2) == 0b11;
        let copies = self.bits(29, 2) == 0b01 && n == 31 && self.bits(10, 6) == 0 && !self.bit(21);
        let taken = if copies && general(m) == FRAME { Some((FRAME, 0)) } else { self.takes(&[n, m]) };
        Instruction {
            op: match m {
                31 if copies => Op::Number(0),
                _ if copies => Op::Move,
                _ => Op::Other,
            },
            first: Operand::Register(general(d)),
            second: if copies { operand(m) } else { Operand::None },
            taken: taken.filter(|_| d != 31),
            access: Access {
                reads: general(n).bit() | general(m).bit(),
                writes: general(d).bit() | if tests { FLAGS } else { 0 },
                ..Access::default()
            },
            ..plain
        }
    }

    /// Takes a field of a register: a shift, an extension, or a part put into another.
    pub(super) fn field(self, plain: Instruction) -> Instruction {
        let (d, n) = (self.d(), self.n());
        let (kind, rotate, last) = (self.bits(29, 2), self.bits(16, 6), self.bits(10, 6));
        let (op, second) = match (kind, rotate, last) {
            (0b01, ..) => (Op::Other, Operand::None),
            (0b00, 0, 31) if self.is_64() => (Op::MoveSigned, operand(n)),
            (0b00 | 0b10, 0, 7 | 15) => (Op::MovePart, operand(n)),
            _ => (Op::Scale(operand(n), u64::from(self.bits(10, 12))), Operand::None),
        };
        let kept = if kind == 0b01 { general(d).bit() } else { 0 };
        Instruction {
            op,
            first: Operand::Register(general(d)),
            second,
            taken: self.takes(&[n]),
            access: Access { reads: general(n).bit() | kept, writes: general(d).bit(), ..Access::default() },
            ..plain
        }
    }
}
