//! aarch64's loads, stores and atomic operations.
//!
//! Used by the decoder. Memory is named by its width, too: a load of two words is not the store of one of them.

use disarm64_defn::InsnClass as Class;

use super::{FRAME, Word, at, general, operand, or_stack, vector};
use crate::finding::Kind;
use crate::isa::{Access, Instruction, Memory, Op, Operand, Register, Registers};

/// How a load or store finds its memory and changes its base register.
struct Place {
    memory: Memory,
    /// Whether the base register gets another value.
    moves: bool,
}

/// The instruction, if it is of these classes; `None` also if it is not known to be harmless.
pub(super) fn instruction(word: Word, class: Class, name: &str, plain: Instruction) -> Option<Instruction> {
    match class {
        Class::LDST_POS if name == "prfm" => Some(plain),
        Class::LDST_REGOFF if name == "prfm" => Some(plain),
        Class::LDST_UNSCALED if name == "prfum" => Some(plain),
        Class::LOADLIT if name == "prfm" => Some(plain),
        Class::LDST_POS | Class::LDST_REGOFF => Some(word.single(class, plain)),
        Class::LDST_IMM9 if name.starts_with("ldr") || name.starts_with("str") => {
            Some(word.single(class, plain))
        }
        Class::LDST_UNSCALED if name.starts_with("ldur") || name.starts_with("stur") => {
            Some(word.single(class, plain))
        }
        Class::LDST_UNSCALED if name.starts_with("ldapur") || name.starts_with("stlur") => {
            Some(Instruction { synchronises: Some(Kind::Fence), ..word.single(class, plain) })
        }
        Class::LOADLIT => Some(word.literal(plain)),
        Class::LDSTPAIR_OFF | Class::LDSTPAIR_INDEXED | Class::LDSTNAPAIR_OFFS
            if matches!(name, "ldp" | "stp" | "ldpsw" | "ldnp" | "stnp") =>
        {
            Some(word.pair(plain))
        }
        Class::LDSTEXCL if name.ends_with('m') => None,
        Class::LDSTEXCL => Some(word.exclusive(name, plain)),
        Class::LSE_ATOMIC if name.starts_with("cas") => Some(word.compare_and_swap(name, plain)),
        Class::LSE_ATOMIC if !name.contains("64b") && !word.bit(26) => Some(word.update(plain)),
        Class::LSE128_ATOMIC | Class::THE => Some(word.other_atomic(plain)),
        Class::RCPC3 => Some(Instruction { synchronises: Some(Kind::Fence), ..word.other_atomic(plain) }),
        Class::ASISDLSE | Class::ASISDLSEP | Class::ASISDLSO | Class::ASISDLSOP => {
            Some(word.structure(class, plain))
        }
        _ => None,
    }
}

impl Word {
    /// The memory of a load or store of one register of `bytes` bytes.
    fn place(self, class: Class, bytes: u32) -> Place {
        let base = or_stack(self.n());
        let width = bytes.trailing_zeros() as u8;
        let memory = Memory { bytes, space: width, ..at(base) };
        match class {
            Class::LDST_POS => {
                let displacement = u64::from(self.bits(10, 12)) * u64::from(bytes);
                Place { memory: Memory { displacement, ..memory }, moves: false }
            }
            Class::LDST_REGOFF => {
                let scale = if self.bit(12) { bytes as u8 } else { 1 };
                let space = width | (self.bits(13, 3) as u8) << 4;
                let memory = Memory { index: general(self.m()), scale, space, ..memory };
                Place { memory, moves: false }
            }
            _ => {
                let distance = self.signed(12, 9).cast_unsigned();
                let (before, moves) = match (class, self.bits(10, 2)) {
                    (Class::LDST_IMM9, 0b01) => (0, true),
                    (Class::LDST_IMM9, _) => (distance, true),
                    _ => (distance, false),
                };
                Place { memory: Memory { displacement: before, ..memory }, moves }
            }
        }
    }

    /// A load or store of one register.
    fn single(self, class: Class, plain: Instruction) -> Instruction {
        let (size, kind, is_vector) = (self.bits(30, 2), self.bits(22, 2), self.bit(26));
        let bytes = if is_vector && kind & 2 != 0 { 16 } else { 1 << size };
        let loads = if is_vector { kind & 1 != 0 } else { kind != 0 };
        let signed = !is_vector && kind & 2 != 0;
        let place = self.place(class, bytes);
        let memory = Memory { signed, ..place.memory };
        let data = if is_vector { vector(self.d()) } else { general(self.d()) };
        let op = match (is_vector, size, signed) {
            (true, ..) => Op::Other,
            (_, 3, _) | (_, 2, false) => Op::Move,
            (_, 2, true) => Op::MoveSigned,
            _ if loads => Op::MovePart,
            _ => Op::Other,
        };
        self.moved(
            place.moves,
            data.bit(),
            loads,
            Instruction {
                op,
                first: if loads { Operand::Register(data) } else { Operand::Memory },
                second: match (loads, is_vector) {
                    (true, _) => Operand::Memory,
                    (false, true) => Operand::None,
                    (false, false) => operand(self.d()),
                },
                memory: Some(memory),
                taken: (!loads && data == FRAME).then_some((FRAME, 0)),
                restores: loads && data == FRAME && memory.base == Register::STACK,
                ..plain
            },
        )
    }

    /// A load or store of two registers.
    fn pair(self, plain: Instruction) -> Instruction {
        let (size, is_vector, loads) = (self.bits(30, 2), self.bit(26), self.bit(22));
        let word: u32 = match (is_vector, size) {
            (true, size) => 4 << size,
            (false, 0b10) => 8,
            (false, _) => 4,
        };
        let distance = (self.signed(15, 7) * i64::from(word)).cast_unsigned();
        let kind = self.bits(23, 2);
        let displacement = if kind == 0b01 { 0 } else { distance };
        let base = or_stack(self.n());
        // No single register has this many bytes.
        let space = 0x80 | word.trailing_zeros() as u8;
        let memory = Memory { bytes: 2 * word, displacement, space, ..at(base) };
        let of = |number| if is_vector { vector(number) } else { general(number) };
        let data = [of(self.d()), of(self.a())];
        let has_frame = data.contains(&FRAME);
        self.moved(
            kind & 1 != 0,
            data[0].bit() | data[1].bit(),
            loads,
            Instruction {
                first: if loads { Operand::None } else { Operand::Memory },
                memory: Some(memory),
                // A caller's frame is kept on the stack; elsewhere it is an address that others get.
                taken: (!loads && has_frame && base != Register::STACK).then_some((FRAME, 0)),
                restores: loads && has_frame && base == Register::STACK,
                ..plain
            },
        )
    }

    /// Adds what a load or store does to registers and memory. `data` are the registers loaded or stored.
    fn moved(self, moves: bool, data: Registers, loads: bool, i: Instruction) -> Instruction {
        let base = i.base();
        let index = i.memory.map_or(Register::NONE, |memory| memory.index);
        let address = base.bit() | index.bit();
        Instruction {
            reads_memory: loads,
            writes_memory: !loads,
            access: Access {
                reads: address | if loads { 0 } else { data },
                writes: if moves { base.bit() } else { 0 } | if loads { data } else { 0 },
                loads,
                stores: !loads && base != Register::STACK,
            },
            // Moving the frame's register along is nothing that a function with a frame does.
            taken: if moves && base == FRAME { Some((FRAME, i64::MIN)) } else { i.taken },
            ..i
        }
    }

    /// A load of a constant beside the code.
    fn literal(self, plain: Instruction) -> Instruction {
        let (size, is_vector) = (self.bits(30, 2), self.bit(26));
        let global = plain.ip.wrapping_add_signed(self.signed(5, 19) * 4);
        let bytes = match (is_vector, size) {
            (true, size) => 4 << size,
            (false, 1) => 8,
            (false, _) => 4,
        };
        let data = if is_vector { vector(self.d()) } else { general(self.d()) };
        let memory = Memory {
            global: Some(global),
            displacement: global,
            bytes,
            signed: size == 2,
            ..at(Register::NONE)
        };
        Instruction {
            op: match (is_vector, size) {
                (true, _) => Op::Other,
                (false, 2) => Op::MoveSigned,
                (false, _) => Op::Move,
            },
            first: Operand::Register(data),
            second: Operand::Memory,
            memory: Some(memory),
            reads_memory: true,
            access: Access { writes: data.bit(), loads: true, ..Access::default() },
            ..plain
        }
    }

    /// The memory of an operation that is atomic or ordered, of one word or of two.
    fn atomic_memory(self, is_pair: bool) -> Memory {
        let (width, pair) = if is_pair { (2 + self.bits(30, 1), 0x80) } else { (self.bits(30, 2), 0) };
        Memory {
            bytes: (1 << width) << u32::from(is_pair),
            space: width as u8 | pair,
            ..at(or_stack(self.n()))
        }
    }

    /// An exclusive load or store, or one that orders others.
    fn exclusive(self, name: &str, plain: Instruction) -> Instruction {
        let ordered = ["ldar", "stlr", "ldlar", "stllr", "ldapr"].iter().any(|n| name.starts_with(n));
        let (loads, is_pair) = (name.starts_with("ld"), name.contains("xp"));
        let second = if is_pair { general(self.a()).bit() } else { 0 };
        let data = general(self.d()).bit() | second;
        // An exclusive store tells whether it stored.
        let status = if loads || ordered { 0 } else { general(self.m()).bit() };
        let memory = self.atomic_memory(is_pair);
        Instruction {
            synchronises: Some(if ordered { Kind::Fence } else { Kind::AtomicUpdate }),
            memory: Some(memory),
            reads_memory: loads,
            writes_memory: !loads,
            access: Access {
                reads: memory.base.bit() | if loads { 0 } else { data },
                writes: status | if loads { data } else { 0 },
                loads,
                stores: !loads && memory.base != Register::STACK,
            },
            ..plain
        }
    }

    /// An operation that reads and writes memory at once: `reads` and `writes` are registers besides the address.
    fn atomic(self, is_pair: bool, reads: Registers, writes: Registers, plain: Instruction) -> Instruction {
        let memory = self.atomic_memory(is_pair);
        Instruction {
            synchronises: Some(Kind::AtomicUpdate),
            memory: Some(memory),
            reads_memory: true,
            writes_memory: true,
            access: Access { reads: reads | memory.base.bit(), writes, loads: true, stores: true },
            ..plain
        }
    }

    fn update(self, plain: Instruction) -> Instruction {
        self.atomic(false, general(self.m()).bit(), general(self.d()).bit(), plain)
    }

    fn compare_and_swap(self, name: &str, plain: Instruction) -> Instruction {
        let is_pair = name.starts_with("casp");
        let both =
            |first: u32| general(first).bit() | if is_pair { general((first + 1) & 31).bit() } else { 0 };
        let (compared, stored) = (both(self.m()), both(self.d()));
        self.atomic(is_pair, compared | stored, compared, plain)
    }

    /// An atomic operation with registers in other places: all that may be among them are taken for written, and what its result
    /// depends on is not told.
    fn other_atomic(self, plain: Instruction) -> Instruction {
        let used = [self.d(), self.d() | 1, self.a(), self.m(), self.m() | 1];
        let registers = used.iter().fold(0, |set, &number| set | general(number).bit());
        let base = or_stack(self.n());
        Instruction {
            synchronises: Some(Kind::AtomicUpdate),
            memory: Some(Memory { space: 0x7f, ..at(base) }),
            opaque: true,
            access: Access {
                reads: registers | base.bit() | vector(self.d()).bit(),
                writes: registers | base.bit() | vector(self.d()).bit(),
                loads: true,
                stores: true,
            },
            ..plain
        }
    }

    /// A load or store of several vectors, or of one element of each.
    fn structure(self, class: Class, plain: Instruction) -> Instruction {
        let loads = self.bit(22);
        let is_lane = matches!(class, Class::ASISDLSO | Class::ASISDLSOP);
        let moves = matches!(class, Class::ASISDLSEP | Class::ASISDLSOP);
        let count = match (is_lane, self.bits(12, 4)) {
            (true, _) => 1 + (u32::from(self.bit(13)) << 1 | u32::from(self.bit(21))),
            (false, 0b0111) => 1,
            (false, 0b1000 | 0b1010) => 2,
            (false, 0b0100 | 0b0110) => 3,
            (false, _) => 4,
        };
        let data = (0..count).fold(0, |set, number| set | vector(self.d() + number).bit());
        let base = or_stack(self.n());
        let step = if moves { general(self.m()).bit() } else { 0 };
        let i = Instruction { memory: Some(Memory { space: 0x7e, ..at(base) }), opaque: loads, ..plain };
        let moved = self.moved(moves, data, loads, i);
        // What of the memory is written is not told, so that no load is taken for its.
        Instruction {
            reads_memory: false,
            writes_memory: false,
            access: Access { reads: moved.access.reads | step, ..moved.access },
            ..moved
        }
    }
}
