//! From an interrupted instruction and its registers to the address it is about to touch.
//!
//! `timer` asks, with what a timer's interrupt left: the instruction that comes next and all registers. Where it touches no
//! memory, the code behind it is followed up to the first access, as long as the address can still be known from the registers:
//! plain arithmetic is done, anything else makes its result unknown. x86-64 only.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use atoll_record::profile::Access;
use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind,
    Register, UsedMemory,
};

/// Where the program's code can be read.
pub trait CodeBytes {
    /// Reads what is at `address` in process `pid` to `to`; says how many bytes that were.
    fn read(&mut self, pid: u32, address: u64, to: &mut [u8]) -> usize;
}

/// The registers that perf hands out with [`REGISTERS`], in its order.
const ORDER: [Option<Register>; 17] = [
    Some(Register::RAX),
    Some(Register::RBX),
    Some(Register::RCX),
    Some(Register::RDX),
    Some(Register::RSI),
    Some(Register::RDI),
    Some(Register::RBP),
    Some(Register::RSP),
    None,
    Some(Register::R8),
    Some(Register::R9),
    Some(Register::R10),
    Some(Register::R11),
    Some(Register::R12),
    Some(Register::R13),
    Some(Register::R14),
    Some(Register::R15),
];

/// `perf_event_attr.sample_regs_user` for all that [`Instructions::accesses`] needs: the general registers and the
/// instruction pointer.
pub const REGISTERS: u64 = 0x1ff | 0xff << 16;

/// Instructions followed at most until one touches memory.
const FOLLOWED: usize = 24;
/// Bytes of code read at once.
const WINDOW: usize = 192;
/// Places in code that are remembered; a program with more forgets all and begins again.
const REMEMBERED: usize = 1 << 18;

/// An access that an instruction makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Touch {
    /// The address.
    pub address: u64,
    /// Read or write.
    pub access: Access,
    /// The instruction.
    pub ip: u64,
}

/// What lies behind a place in the code: instructions to do, the last of which touches memory.
#[derive(Debug)]
struct Path {
    steps: Vec<Instruction>,
    memory: Vec<UsedMemory>,
}

/// Knows the code that samples meet.
pub struct Instructions {
    paths: HashMap<(u32, u64), Option<Path>>,
    factory: InstructionInfoFactory,
}

impl Default for Instructions {
    fn default() -> Self {
        Self { paths: HashMap::new(), factory: InstructionInfoFactory::new() }
    }
}

impl std::fmt::Debug for Instructions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Instructions").field("paths", &self.paths.len()).finish()
    }
}

impl Instructions {
    /// Calls `each` with what the code at `ip` of process `pid` touches next, given its `registers` in perf's order; an
    /// instruction that touches two places gives two. Nothing where that cannot be known.
    pub fn accesses(
        &mut self,
        pid: u32,
        ip: u64,
        registers: impl Iterator<Item = u64>,
        code: &mut dyn CodeBytes,
        mut each: impl FnMut(Touch),
    ) {
        if self.paths.len() >= REMEMBERED {
            self.paths.clear();
        }
        let path = match self.paths.entry((pid, ip)) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                let mut window = Window { bytes: [0; WINDOW], len: 0, start: 0 };
                window.load(pid, ip, code);
                // Code that cannot be read now may be readable later.
                if window.len == 0 {
                    return;
                }
                entry.insert(follow(&mut self.factory, pid, ip, window, code))
            }
        };
        let Some(path) = path else { return };
        let mut values = Values::new(registers);
        let Some((last, before)) = path.steps.split_last() else { return };
        for step in before {
            values.perform(step, &mut self.factory);
        }
        for memory in &path.memory {
            let Some(access) = access(memory.access()) else { continue };
            let address = memory.virtual_address(0, |register, _, _| values.get(register));
            if let Some(address) = address {
                each(Touch { address, access, ip: last.ip() });
            }
        }
    }

    /// The process executes another program: what was known of its code is not true any more.
    pub fn forget(&mut self, pid: u32) {
        self.paths.retain(|(of, _), _| *of != pid);
    }
}

fn access(access: OpAccess) -> Option<Access> {
    match access {
        OpAccess::Read | OpAccess::CondRead => Some(Access::Read),
        OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite => {
            Some(Access::Write)
        }
        OpAccess::None | OpAccess::NoMemAccess => None,
    }
}

/// A piece of code as it was read.
struct Window {
    bytes: [u8; WINDOW],
    len: usize,
    start: u64,
}

impl Window {
    fn load(&mut self, pid: u32, start: u64, code: &mut dyn CodeBytes) {
        self.start = start;
        self.len = code.read(pid, start, &mut self.bytes).min(WINDOW);
    }

    /// The instruction at an address inside; `None` where it is none, or not all of it is here.
    fn decode(&self, ip: u64) -> Option<Instruction> {
        let inside = usize::try_from(ip.checked_sub(self.start)?).ok()?;
        let bytes = self.bytes[..self.len].get(inside..)?;
        let instruction = Decoder::with_ip(64, bytes, ip, DecoderOptions::NONE).decode();
        (!instruction.is_invalid()).then_some(instruction)
    }
}

/// The instructions from `ip` to the first that touches memory; `None` where there is none in sight. Of a branch whose
/// outcome depends on data it is taken that it goes on with its loop, if it goes back, and else not elsewhere.
fn follow(
    factory: &mut InstructionInfoFactory,
    pid: u32,
    ip: u64,
    mut window: Window,
    code: &mut dyn CodeBytes,
) -> Option<Path> {
    let mut steps = Vec::new();
    let mut at = ip;
    while steps.len() < FOLLOWED {
        let instruction = match window.decode(at) {
            Some(instruction) => instruction,
            None => {
                window.load(pid, at, code);
                window.decode(at)?
            }
        };
        let memory: Vec<UsedMemory> = factory.info(&instruction).used_memory().to_vec();
        steps.push(instruction);
        if memory.iter().any(|m| access(m.access()).is_some()) {
            return Some(Path { steps, memory });
        }
        at = match instruction.flow_control() {
            FlowControl::Next => instruction.next_ip(),
            FlowControl::UnconditionalBranch => instruction.near_branch_target(),
            FlowControl::ConditionalBranch => instruction.next_ip().min(instruction.near_branch_target()),
            _ => return None,
        };
    }
    None
}

/// What the registers hold, as far as it is known.
struct Values([Option<u64>; 16]);

impl Values {
    fn new(registers: impl Iterator<Item = u64>) -> Self {
        let mut values = Self([None; 16]);
        for (register, value) in ORDER.iter().zip(registers) {
            if let Some(register) = register {
                values.0[register.number()] = Some(value);
            }
        }
        values
    }

    /// A register's value; segments other than those of threads' storage begin at 0.
    fn get(&self, register: Register) -> Option<u64> {
        if register.is_segment_register() {
            return (register != Register::FS && register != Register::GS).then_some(0);
        }
        if !register.is_gpr() {
            return None;
        }
        let value = self.0[register.full_register().number()]?;
        match register.size() {
            8 => Some(value),
            4 => Some(value & 0xffff_ffff),
            _ => None,
        }
    }

    fn operand(&self, instruction: &Instruction, operand: u32) -> Option<u64> {
        match instruction.op_kind(operand) {
            OpKind::Register => self.get(instruction.op_register(operand)),
            OpKind::Immediate8
            | OpKind::Immediate32
            | OpKind::Immediate64
            | OpKind::Immediate8to32
            | OpKind::Immediate8to64
            | OpKind::Immediate32to64 => Some(instruction.immediate(operand)),
            _ => None,
        }
    }

    /// Does one instruction that touches no memory.
    fn perform(&mut self, instruction: &Instruction, factory: &mut InstructionInfoFactory) {
        let result = self.result(instruction);
        for used in factory.info(instruction).used_registers() {
            let writes = !matches!(used.access(), OpAccess::Read | OpAccess::CondRead | OpAccess::None);
            if writes && used.register().is_gpr() {
                self.0[used.register().full_register().number()] = None;
            }
        }
        if let Some(value) = result
            && instruction.op_count() > 0
            && instruction.op_kind(0) == OpKind::Register
        {
            let register = instruction.op0_register();
            let value = match register.size() {
                8 => value,
                4 => value & 0xffff_ffff,
                _ => return,
            };
            if register.is_gpr() {
                self.0[register.full_register().number()] = Some(value);
            }
        }
    }

    /// What the instruction leaves in its first operand, if that is simple.
    fn result(&self, i: &Instruction) -> Option<u64> {
        match i.mnemonic() {
            Mnemonic::Mov => self.operand(i, 1),
            Mnemonic::Add => Some(self.operand(i, 0)?.wrapping_add(self.operand(i, 1)?)),
            Mnemonic::Sub => Some(self.operand(i, 0)?.wrapping_sub(self.operand(i, 1)?)),
            Mnemonic::Inc => Some(self.operand(i, 0)?.wrapping_add(1)),
            Mnemonic::Dec => Some(self.operand(i, 0)?.wrapping_sub(1)),
            Mnemonic::And => Some(self.operand(i, 0)? & self.operand(i, 1)?),
            Mnemonic::Or => Some(self.operand(i, 0)? | self.operand(i, 1)?),
            Mnemonic::Xor if i.op0_register() == i.op1_register() => Some(0),
            Mnemonic::Xor => Some(self.operand(i, 0)? ^ self.operand(i, 1)?),
            Mnemonic::Shl => Some(self.operand(i, 0)?.wrapping_shl(self.operand(i, 1)? as u32)),
            Mnemonic::Movsxd | Mnemonic::Cdqe => {
                let from = if i.mnemonic() == Mnemonic::Cdqe { None } else { self.operand(i, 1) };
                from.map(|value| i64::from(value as u32 as i32) as u64)
            }
            Mnemonic::Lea => {
                let base = match i.memory_base() {
                    Register::None => 0,
                    Register::RIP => return Some(i.ip_rel_memory_address()),
                    base => self.get(base)?,
                };
                let index = match i.memory_index() {
                    Register::None => 0,
                    index => self.get(index)?,
                };
                let scaled = index.wrapping_mul(u64::from(i.memory_index_scale()));
                Some(base.wrapping_add(scaled).wrapping_add(i.memory_displacement64()))
            }
            // Comparisons and jumps write no register; what is left is not followed.
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Bytes(Vec<u8>);

    impl CodeBytes for Bytes {
        fn read(&mut self, _: u32, address: u64, to: &mut [u8]) -> usize {
            let from = self.0.get(address.wrapping_sub(BASE) as usize..).unwrap_or_default();
            let n = from.len().min(to.len());
            to[..n].copy_from_slice(&from[..n]);
            n
        }
    }

    const BASE: u64 = 0x4000;

    fn touches(code: &[u8]) -> Vec<(u64, Access, u64)> {
        // rax=0x100 rbx=0x200 … in perf's order; the instruction pointer is the ninth.
        let registers = (1..=17).map(|n| n * 0x100);
        let mut touches = Vec::new();
        let mut each = |t: Touch| touches.push((t.address, t.access, t.ip));
        Instructions::default().accesses(1, BASE, registers, &mut Bytes(code.to_vec()), &mut each);
        touches
    }

    #[test]
    fn the_instruction_itself_is_taken() {
        // mov rcx, [rax+rbx*8+0x10]
        assert_eq!(touches(&[0x48, 0x8b, 0x4c, 0xd8, 0x10]), [(0x100 + 0x1000 + 0x10, Access::Read, 0x4000)]);
        // movsd [r15], xmm0
        assert_eq!(touches(&[0xf2, 0x41, 0x0f, 0x11, 0x07]), [(0x1100, Access::Write, 0x4000)]);
        // add qword [rdi], 1
        assert_eq!(touches(&[0x48, 0x83, 0x07, 0x01]), [(0x600, Access::Write, 0x4000)]);
        // mov eax, [rip+0x100]
        assert_eq!(touches(&[0x8b, 0x05, 0, 1, 0, 0]), [(0x4106, Access::Read, 0x4000)]);
        // movsq: from rsi to rdi
        let mut both = touches(&[0x48, 0xa5]);
        both.sort_by_key(|touch| touch.0);
        assert_eq!(both, [(0x500, Access::Read, 0x4000), (0x600, Access::Write, 0x4000)]);
    }

    #[test]
    fn what_comes_before_the_access_is_done() {
        // add rax, 8; lea rdx, [rax+rax]; cmp rax, rbx; mov ecx, [rdx]
        let code = [0x48, 0x83, 0xc0, 8, 0x48, 0x8d, 0x14, 0, 0x48, 0x39, 0xd8, 0x8b, 0x0a];
        assert_eq!(touches(&code), [(0x210, Access::Read, 0x400b)]);
        // je +1; mov rcx, [rax]: on the way straight on
        assert_eq!(touches(&[0x74, 1, 0x48, 0x8b, 0x08]), [(0x100, Access::Read, 0x4002)]);
        // jmp +1 over a hlt; push rbx
        assert_eq!(touches(&[0xeb, 1, 0xf4, 0x53]), [(0x7f8, Access::Write, 0x4003)]);
    }

    #[test]
    fn a_loop_goes_on() {
        // 0: mov rcx, [rax]; 3: add rax, 8; 7: cmp rax, rbx; 10: jne 0
        let code = [0x48, 0x8b, 0x08, 0x48, 0x83, 0xc0, 8, 0x48, 0x39, 0xd8, 0x75, 0xf4];
        let mut found = Vec::new();
        let registers = (1..=17).map(|n| n * 0x100);
        let each = |t: Touch| found.push((t.address, t.ip));
        Instructions::default().accesses(1, BASE + 3, registers, &mut Bytes(code.to_vec()), each);
        assert_eq!(found, [(0x108, BASE)]);
        // A loop without an access ends, too.
        assert_eq!(touches(&[0x48, 0xff, 0xc0, 0x75, 0xfb]), []);
    }

    #[test]
    fn what_cannot_be_known_is_not_made_up() {
        // imul rax, rbx; mov rcx, [rax]
        assert_eq!(touches(&[0x48, 0x0f, 0xaf, 0xc3, 0x48, 0x8b, 0x08]), []);
        // mov rcx, fs:[rax]
        assert_eq!(touches(&[0x64, 0x48, 0x8b, 0x08]), []);
        assert_eq!(touches(&[]), []);
        assert_eq!(touches(&[0xff; 40]), []);
    }
}
