//! aarch64's instructions, told apart by `disarm64`: it names each word's class, and the fields of a class are read here.
//!
//! What writes are exact, and so is what decides a result, except for instructions marked opaque: vectors, mostly. What is not
//! listed here is not decoded: the scalable vectors, memory tags, and whatever comes later.
//!
//! Source: the Arm Architecture Reference Manual, chapter C4 ("A64 instruction set encoding").

use disarm64::InsnOpcode as _;
use disarm64::decoder;
use disarm64_defn::InsnClass as Class;

use super::{Access, Bound, Convention, Flow, Instruction, Isa, Memory, Op, Operand, Register, Registers};
use crate::finding::Kind;

mod compute;
mod memory;
#[cfg(test)]
mod tests;

/// The first vector's number: there is no general register 31.
const VECTOR: u8 = 31;
const FLAGS: Registers = 1 << 63;
const FRAME: Register = Register(29);
const LINK: Register = Register(30);

static CONVENTION: Convention = Convention {
    // x0 to x18, x30, the vectors but v8 to v15, flags.
    clobbered: 0x7_ffff | LINK.bit() | 0xffff_00ff << VECTOR | FLAGS,
    linking: Register(16).bit() | Register(17).bit() | LINK.bit(),
    arguments: &[
        Register(0),
        Register(1),
        Register(2),
        Register(3),
        Register(4),
        Register(5),
        Register(6),
        Register(7),
    ],
    // x8 is where a large result goes.
    passed: 0x1ff,
    // x0, x1, v0 to v3.
    returned: 0b11 | 0b1111 << VECTOR,
    flags: FLAGS,
    frame: FRAME,
};

/// The decoder.
#[derive(Debug)]
pub(crate) struct A64;

impl Isa for A64 {
    fn convention(&self) -> &'static Convention {
        &CONVENTION
    }

    fn decode(&self, bytes: &[u8], ip: u64) -> Option<Instruction> {
        let word = u32::from_le_bytes(*bytes.first_chunk()?);
        let known = decoder::decode(word)?;
        let definition = known.definition();
        let plain = Instruction { code: known.id() as u32, ..Instruction::plain(ip, 4) };
        Word(word).instruction(definition.class, definition.mnemonic, plain)
    }

    fn decode_again(&self, bytes: &[u8], ip: u64, access: Access) -> Option<Instruction> {
        self.decode(bytes, ip).map(|i| Instruction { access, ..i })
    }

    fn stub(&self, bytes: &[u8], ip: u64) -> Option<u64> {
        const LANDING: u32 = 0xd503_245f;
        let word = |at: usize| Some(u32::from_le_bytes(*bytes.get(4 * at..)?.first_chunk()?));
        let skip = usize::from(word(0)? == LANDING);
        // adrp x16, page; ldr x17, [x16, offset]; add x16, x16, offset; br x17
        let [page, load, add, jump] = [word(skip)?, word(skip + 1)?, word(skip + 2)?, word(skip + 3)?];
        let is_stub = page & 0x9f00_001f == 0x9000_0010
            && load & 0xffc0_03ff == 0xf940_0211
            && add & 0xffc0_03ff == 0x9100_0210
            && jump == 0xd61f_0220;
        let at = ip.wrapping_add(4 * skip as u64);
        is_stub.then(|| Word(page).page(at).wrapping_add(u64::from(load >> 10 & 0xfff) * 8))
    }
}

/// The register of a number, in places where 31 is the one that is always zero.
fn general(number: u32) -> Register {
    if number == 31 { Register::NONE } else { Register(number as u8) }
}

/// The same where 31 is the stack pointer.
fn or_stack(number: u32) -> Register {
    if number == 31 { Register::STACK } else { Register(number as u8) }
}

fn vector(number: u32) -> Register {
    Register(VECTOR + (number & 31) as u8)
}

/// The operand of a general register.
fn operand(number: u32) -> Operand {
    if number == 31 { Operand::Number(0) } else { Operand::Register(general(number)) }
}

/// An instruction's word.
#[derive(Clone, Copy)]
struct Word(u32);

impl Word {
    /// `count` bits from the bit `from` on.
    fn bits(self, from: u32, count: u32) -> u32 {
        self.0 >> from & ((1 << count) - 1)
    }

    fn bit(self, at: u32) -> bool {
        self.0 >> at & 1 != 0
    }

    /// The same with the sign in the highest of them.
    fn signed(self, from: u32, count: u32) -> i64 {
        let shift = 64 - count;
        (u64::from(self.bits(from, count)) << shift).cast_signed() >> shift
    }

    /// The registers in their places: destination, first and second source, third source.
    fn d(self) -> u32 {
        self.bits(0, 5)
    }

    fn n(self) -> u32 {
        self.bits(5, 5)
    }

    fn m(self) -> u32 {
        self.bits(16, 5)
    }

    fn a(self) -> u32 {
        self.bits(10, 5)
    }

    fn is_64(self) -> bool {
        self.bit(31)
    }

    /// The target of a branch whose distance in words is in these bits.
    fn branch(self, ip: u64, from: u32, count: u32) -> u64 {
        ip.wrapping_add_signed(self.signed(from, count) * 4)
    }

    /// The distance of an address instruction.
    fn distance(self) -> i64 {
        self.signed(5, 19) << 2 | i64::from(self.bits(29, 2))
    }

    fn page(self, ip: u64) -> u64 {
        (ip & !0xfff).wrapping_add_signed(self.distance() << 12)
    }

    /// Brings the word into the common form; `None` if it is not known to be harmless.
    fn instruction(self, class: Class, name: &str, plain: Instruction) -> Option<Instruction> {
        let (d, n, m, a) = (self.d(), self.n(), self.m(), self.a());
        let ip = plain.ip;
        let set = |registers: &[u32]| registers.iter().fold(0, |set, &number| set | general(number).bit());
        let vectors = |registers: &[u32]| registers.iter().fold(0, |set, &number| set | vector(number).bit());
        // Computes general registers from others.
        let computes = |reads: Registers, from: &[u32]| Instruction {
            first: Operand::Register(general(d)),
            taken: self.takes(from),
            access: Access { reads, writes: set(&[d]), ..Access::default() },
            ..plain
        };
        let into_vector = |reads: Registers| Instruction {
            access: Access { reads, writes: vectors(&[d]), ..Access::default() },
            ..plain
        };
        let opaque = Instruction { opaque: true, ..into_vector(0) };
        let sets_flags = |i: Instruction| Instruction {
            access: Access { writes: i.access.writes | FLAGS, ..i.access },
            ..i
        };
        Some(match class {
            Class::ADDSUB_IMM if !matches!(name, "addg" | "subg") => self.add_number(plain),
            Class::ADDSUB_SHIFT | Class::ADDSUB_EXT => self.add(class, plain),
            Class::ADDSUB_CARRY => {
                let i = computes(set(&[n, m]) | FLAGS, &[n, m]);
                if self.bit(29) { sets_flags(i) } else { i }
            }
            Class::LOG_IMM => self.logical_number(plain)?,
            Class::LOG_SHIFT => self.logical(plain),
            Class::MOVEWIDE => {
                let number = u64::from(self.bits(5, 16)) << (16 * self.bits(21, 2));
                match self.bits(29, 2) {
                    0b11 => computes(set(&[d]), &[]),
                    kind => {
                        let value = if kind == 0b10 { number } else { !number };
                        let value = if self.is_64() { value } else { value & 0xffff_ffff };
                        Instruction { op: Op::Number(value), ..computes(0, &[]) }
                    }
                }
            }
            Class::PCRELADDR => {
                let to = if self.bit(31) { self.page(ip) } else { ip.wrapping_add_signed(self.distance()) };
                Instruction { op: Op::Number(to), ..computes(0, &[]) }
            }
            Class::BITFIELD => self.field(plain),
            Class::EXTRACT => computes(set(&[n, m]), &[n, m]),
            Class::CONDSEL => computes(set(&[n, m]) | FLAGS, &[n, m]),
            Class::CONDCMP_IMM | Class::CONDCMP_REG => {
                let other = if class == Class::CONDCMP_REG { set(&[m]) } else { 0 };
                let access = Access { reads: set(&[n]) | other | FLAGS, writes: FLAGS, ..Access::default() };
                Instruction { access, ..plain }
            }
            // Signing an address reads what is signed, too.
            Class::DP_1SRC if name.starts_with(['p', 'a', 'x']) => computes(set(&[d, n]), &[]),
            Class::DP_1SRC => computes(set(&[n]), &[n]),
            Class::DP_2SRC
                if matches!(name, "asrv" | "lslv" | "lsrv" | "rorv" | "udiv" | "sdiv")
                    || name.starts_with("crc32") =>
            {
                computes(set(&[n, m]), &[n, m])
            }
            Class::DP_3SRC if matches!(name, "smulh" | "umulh") => computes(set(&[n, m]), &[n, m]),
            Class::DP_3SRC => computes(set(&[n, m, a]), &[n, m, a]),
            Class::BRANCH_IMM => {
                let to = self.branch(ip, 0, 26);
                let flow = if self.is_64() { Flow::Call(to) } else { Flow::Jump(to) };
                Instruction { flow, ..plain }
            }
            Class::COMPBRANCH if matches!(name, "cbz" | "cbnz") => {
                let access = Access { reads: set(&[d]), ..Access::default() };
                Instruction { flow: Flow::Branch(self.branch(ip, 5, 19)), access, ..plain }
            }
            Class::TESTBRANCH => {
                let access = Access { reads: set(&[d]), ..Access::default() };
                Instruction { flow: Flow::Branch(self.branch(ip, 5, 14)), access, ..plain }
            }
            Class::CONDBRANCH => Instruction {
                flow: Flow::Branch(self.branch(ip, 5, 19)),
                bound: match self.bits(0, 4) {
                    8 => Some(Bound::Above),
                    2 => Some(Bound::AtLeast),
                    3 => Some(Bound::Below),
                    9 => Some(Bound::AtMost),
                    _ => None,
                },
                access: Access { reads: FLAGS, ..Access::default() },
                ..plain
            },
            Class::BRANCH_REG => {
                let flow = match name {
                    "br" => Flow::IndirectJump,
                    "blr" => Flow::IndirectCall,
                    "ret" | "retaa" | "retab" => Flow::Return,
                    _ => return None,
                };
                let access = Access { reads: set(&[n]), ..Access::default() };
                Instruction { flow, first: Operand::Register(general(n)), access, ..plain }
            }
            Class::EXCEPTION => match name {
                "svc" => Instruction { flow: Flow::System, ..plain },
                "brk" | "udf" | "hlt" => Instruction { flow: Flow::Stop, ..plain },
                _ => return None,
            },
            Class::IC_SYSTEM => self.system(name, plain)?,
            Class::FLOATDP1 => into_vector(vectors(&[n])),
            Class::FLOATDP2 => into_vector(vectors(&[n, m])),
            Class::FLOATDP3 => into_vector(vectors(&[n, m, a])),
            Class::FLOATIMM => into_vector(0),
            Class::FLOATSEL => into_vector(vectors(&[n, m]) | FLAGS),
            Class::FLOATCMP => {
                let other = if self.bit(3) { 0 } else { vectors(&[m]) };
                let access = Access { reads: vectors(&[n]) | other, writes: FLAGS, ..Access::default() };
                Instruction { access, ..plain }
            }
            Class::FLOATCCMP => {
                let access = Access { reads: vectors(&[n, m]) | FLAGS, writes: FLAGS, ..Access::default() };
                Instruction { access, ..plain }
            }
            // fjcvtzs sets flags, and fmov to the upper half keeps the lower.
            Class::FLOAT2INT if name == "fjcvtzs" => return None,
            Class::FLOAT2INT if self.bits(16, 8) == 0b1010_1111 => opaque,
            Class::FLOAT2INT | Class::FLOAT2FIX => match self.bits(16, 3) {
                0b010 | 0b011 => into_vector(set(&[n])),
                0b111 if class == Class::FLOAT2INT => into_vector(set(&[n])),
                _ => computes(vectors(&[n]), &[]),
            },
            Class::ASIMDIMM if matches!(name, "movi" | "mvni" | "fmov") => into_vector(0),
            Class::ASISDPAIR => into_vector(vectors(&[n])),
            Class::ASISDMISC if !matches!(name, "suqadd" | "usqadd") => into_vector(vectors(&[n])),
            Class::ASIMDINS if matches!(name, "umov" | "smov") => computes(vectors(&[n]), &[]),
            Class::ASIMDIMM
            | Class::ASIMDINS
            | Class::ASISDMISC
            | Class::ASIMDALL
            | Class::ASIMDDIFF
            | Class::ASIMDELEM
            | Class::ASIMDEXT
            | Class::ASIMDMISC
            | Class::ASIMDPERM
            | Class::ASIMDSAME
            | Class::ASIMDSHF
            | Class::ASIMDTBL
            | Class::ASISDDIFF
            | Class::ASISDELEM
            | Class::ASISDONE
            | Class::ASISDSAME
            | Class::ASISDSHF
            | Class::CRYPTOAES
            | Class::CRYPTOSHA2
            | Class::CRYPTOSHA3
            | Class::DOTPRODUCT => opaque,
            _ => return memory::instruction(self, class, name, plain),
        })
    }

    /// Barriers, hints and system registers.
    fn system(self, name: &str, plain: Instruction) -> Option<Instruction> {
        let synchronises = |kind| Instruction { synchronises: Some(kind), ..plain };
        let reads_into = |reads: Registers, to: Register| Instruction {
            access: Access { reads, writes: to.bit(), ..Access::default() },
            ..plain
        };
        Some(match name {
            "dmb" | "dsb" | "isb" | "sb" => synchronises(Kind::Fence),
            "clrex" => synchronises(Kind::AtomicUpdate),
            "wfet" | "wfit" => synchronises(Kind::Wait),
            "hint" => match self.bits(5, 7) {
                // yield, wfe, wfi
                1..=3 => synchronises(Kind::Wait),
                // sev, sevl
                4 | 5 => synchronises(Kind::Fence),
                // The address in x17, or the return address, gets a signature or loses it.
                8 | 10 | 12 | 14 => reads_into(Register(16).bit() | Register(17).bit(), Register(17)),
                7 | 24..=31 => reads_into(LINK.bit(), LINK),
                // nop, csdb, bti and what does nothing to memory or registers.
                0 | 6 | 20 | 32 | 34 | 36 | 38 => plain,
                _ => return None,
            },
            "mrs" => {
                // The flags are one of the registers that may be read.
                let reads = if self.bits(5, 15) == 0b101_1010_0001_0000 { FLAGS } else { 0 };
                reads_into(reads, general(self.d()))
            }
            // The control and status of floating-point numbers may be written.
            "msr" if self.bits(8, 11) == 0b011_0100_0100 => Instruction {
                access: Access { reads: general(self.d()).bit(), ..Access::default() },
                ..plain
            },
            _ => return None,
        })
    }
}

/// Memory at a register.
fn at(base: Register) -> Memory {
    Memory {
        global: None,
        base,
        index: Register::NONE,
        scale: 1,
        displacement: 0,
        space: 0,
        own: false,
        bytes: 0,
        signed: false,
    }
}
