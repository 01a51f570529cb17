//! Finds the addresses that a thread touched next, from an interrupted instruction and its registers.
//!
//! `timer` asks with the state at its interrupt, `faults` with the instruction that faulted. The instructions from there on are
//! followed, through loops and calls, by a `Machine` (`machine.rs`). It knows registers and flags, reads what the instructions
//! load from the program's memory, and marks the rest as not known. x86-64 only.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, Hasher};

use atoll_record::profile::Access;
use iced_x86::{
    Decoder, DecoderOptions, Instruction, InstructionInfoFactory, OpAccess, Register, UsedMemory,
};

use crate::machine::{Flow, Machine};
pub use crate::machine::{REGISTERS, STACK_POINTER};

/// A source of the program's code and data.
pub trait CodeBytes {
    /// Reads the bytes at `address` in process `pid` into `to`; returns the number of bytes read.
    fn read(&mut self, pid: u32, address: u64, to: &mut [u8]) -> usize;
}

/// A source of the data of one process.
pub(crate) trait DataBytes {
    /// Fills `to` from `address`; returns `false` where that is not possible.
    fn data(&mut self, address: u64, to: &mut [u8]) -> bool;
}

/// The number of bytes of code read at once.
const WINDOW: usize = 192;
/// The number of bytes of data read at once: a power of two that divides a page.
const LINE: usize = 256;
/// The most places in code that are remembered; a program with more forgets all of them and begins again.
const REMEMBERED: usize = 1 << 18;
/// The most lines of data that are remembered between two calls of [`Instructions::fresh`].
const LINES: usize = 1 << 12;
/// The number of branches with unknown outcome after which nothing is followed any further.
const GUESSES: u32 = 8;
/// The unit, in bytes, in which a string instruction's accesses are counted.
const WORD: u64 = 8;
/// The number of words that a string instruction moves in the time of another instruction.
const WORDS_AN_INSTRUCTION: usize = 2;

/// An access that an instruction makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Touch {
    /// The address; `None`: not known.
    pub address: Option<u64>,
    /// Whether the access reads or writes.
    pub access: Access,
    /// The address of the instruction.
    pub ip: u64,
    /// The number of bytes touched.
    pub bytes: u32,
}

/// The state of a thread where following begins.
#[derive(Debug, Clone)]
pub struct Start<'a, R> {
    /// The thread's process.
    pub pid: u32,
    /// The address of the instruction that comes next.
    pub ip: u64,
    /// The thread's registers, in perf's order.
    pub registers: R,
    /// The bytes on the thread's stack, from the stack pointer on.
    pub stack: &'a [u8],
}

/// A decoded instruction with the facts that are asked for again and again.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) instruction: Instruction,
    /// The memory operands that the instruction touches.
    touches: Vec<(UsedMemory, Access)>,
    /// A bit for each general register that the instruction changes.
    pub(crate) clobbers: u16,
    pub(crate) changes_flags: bool,
}

impl Step {
    fn new(instruction: Instruction, factory: &mut InstructionInfoFactory) -> Self {
        let info = factory.info(&instruction);
        let touches = info.used_memory().iter().filter_map(|m| Some((*m, access(m.access())?))).collect();
        let mut clobbers = 0;
        for used in info.used_registers() {
            let writes = !matches!(used.access(), OpAccess::Read | OpAccess::CondRead | OpAccess::None);
            if writes && used.register().is_gpr() {
                clobbers |= 1 << used.register().full_register().number();
            }
        }
        Self { instruction, touches, clobbers, changes_flags: instruction.rflags_modified() != 0 }
    }

    /// Returns the memory operands that the instruction writes, with the number of bytes of each.
    pub(crate) fn writes(&self) -> impl Iterator<Item = (&UsedMemory, usize)> {
        let writes = self.touches.iter().filter(|(_, access)| *access == Access::Write);
        writes.map(|(memory, _)| (memory, memory.memory_size().size()))
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

/// Lines of data by process and address; `None`: the line cannot be read.
type Lines = HashMap<(u32, u64), Option<Box<[u8; LINE]>>, Quick>;

/// Hashes addresses quickly, as several are looked up for each followed instruction.
type Quick = BuildHasherDefault<QuickHasher>;

#[derive(Debug, Default)]
struct QuickHasher(u64);

impl Hasher for QuickHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }
}

/// A cache of the decoded code that samples meet.
pub struct Instructions {
    steps: Vec<Step>,
    /// The index in `steps` of each address; `None`: no instruction, or one that cannot be read.
    at: HashMap<(u32, u64), Option<u32>, Quick>,
    lines: Lines,
    factory: InstructionInfoFactory,
}

impl Default for Instructions {
    fn default() -> Self {
        Self {
            steps: Vec::new(),
            at: HashMap::default(),
            lines: Lines::default(),
            factory: InstructionInfoFactory::new(),
        }
    }
}

impl std::fmt::Debug for Instructions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Instructions").field("steps", &self.steps.len()).finish()
    }
}

/// The data of one process, through the lines that were already read.
struct Data<'a> {
    pid: u32,
    lines: &'a mut Lines,
    code: &'a mut dyn CodeBytes,
}

impl DataBytes for Data<'_> {
    fn data(&mut self, address: u64, to: &mut [u8]) -> bool {
        let inside = address as usize % LINE;
        if inside + to.len() > LINE {
            return self.code.read(self.pid, address, to) >= to.len();
        }
        let start = address - inside as u64;
        if self.lines.len() >= LINES {
            self.lines.clear();
        }
        let line = self.lines.entry((self.pid, start)).or_insert_with(|| {
            let mut line = Box::new([0; LINE]);
            (self.code.read(self.pid, start, &mut line[..]) >= LINE).then_some(line)
        });
        match line {
            Some(line) => {
                to.copy_from_slice(&line[inside..inside + to.len()]);
                true
            }
            None => self.code.read(self.pid, address, to) >= to.len(),
        }
    }
}

impl Instructions {
    /// Calls `each` with what the next `count` instructions touch, beginning with the one at `start`, as long as it is known
    /// which instructions these are; returns the number of instructions followed.
    pub fn follow(
        &mut self,
        start: Start<'_, impl Iterator<Item = u64>>,
        count: usize,
        code: &mut dyn CodeBytes,
        mut each: impl FnMut(Touch),
    ) -> usize {
        let Start { pid, mut ip, registers, stack } = start;
        let mut machine = Machine::new(registers, stack);
        let (mut guesses, mut turns) = (0, 0);
        let mut done = 0;
        while done < count {
            let Some(number) = self.step(pid, ip, code) else { return done };
            let step = &self.steps[number as usize];
            done += 1;
            for (memory, access) in &step.touches {
                let bytes = memory.memory_size().size() as u32;
                let address = machine.address(memory).filter(|address| (4096..1 << 47).contains(address));
                let touch = Touch { address, access: *access, ip, bytes };
                if !repeats(&step.instruction) {
                    each(touch);
                    continue;
                }
                // A string instruction counts as a loop that moves a word at a time, with as many turns as there are
                // instructions left.
                let element = step.instruction.memory_size().size() as u64;
                let all = machine.get(Register::RCX).unwrap_or(1).saturating_mul(element);
                let words = all.div_ceil(WORD).min((WORDS_AN_INSTRUCTION * (count - done + 1)) as u64);
                for word in 0..words {
                    let address = address.map(|address| address + word * WORD);
                    each(Touch { address, bytes: WORD as u32, ..touch });
                }
                turns = turns.max(words as usize / WORDS_AN_INSTRUCTION);
            }
            done += std::mem::take(&mut turns);
            let behind = step.instruction.next_ip();
            let mut data = Data { pid, lines: &mut self.lines, code: &mut *code };
            ip = match machine.execute(step, &mut data) {
                Flow::Next => behind,
                Flow::To(to) => to,
                // A backward branch is assumed taken, and a forward branch not taken.
                Flow::Maybe(to) => {
                    guesses += 1;
                    if guesses > GUESSES {
                        return done.min(count);
                    }
                    behind.min(to)
                }
                Flow::End => return done.min(count),
            };
        }
        count
    }

    /// Forgets data, which may have changed since it was read.
    pub fn fresh(&mut self) {
        self.lines.clear();
    }

    /// Forgets the code of a process that executes another program.
    pub fn forget(&mut self, pid: u32) {
        self.at.retain(|(of, _), _| *of != pid);
        self.fresh();
    }

    fn step(&mut self, pid: u32, ip: u64, code: &mut dyn CodeBytes) -> Option<u32> {
        if self.steps.len() >= REMEMBERED {
            self.at.clear();
            self.steps.clear();
        }
        if let Some(known) = self.at.get(&(pid, ip)) {
            return *known;
        }
        let mut window = [0; WINDOW];
        let read = code.read(pid, ip, &mut window).min(WINDOW);
        // Code that cannot be read now may be readable later.
        if read == 0 {
            return None;
        }
        let mut decoder = Decoder::with_ip(64, &window[..read], ip, DecoderOptions::NONE);
        let mut first = None;
        let mut at = ip;
        // The other instructions in the window will soon be asked for.
        while decoder.can_decode() {
            let instruction = decoder.decode();
            let Entry::Vacant(entry) = self.at.entry((pid, at)) else { break };
            if instruction.is_invalid() {
                // The instruction may be cut off by the window.
                if at == ip {
                    entry.insert(None);
                }
                break;
            }
            let number = self.steps.len() as u32;
            entry.insert(Some(number));
            self.steps.push(Step::new(instruction, &mut self.factory));
            first = first.or(Some(number));
            at = instruction.next_ip();
        }
        first
    }
}

fn repeats(instruction: &Instruction) -> bool {
    instruction.has_rep_prefix() && instruction.is_string_instruction()
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

    fn follow(code: &[u8], ip: u64, count: usize, stack: &[u8]) -> Vec<(Option<u64>, Access, u64)> {
        // rax=0x10000 rbx=0x20000 and so on in perf's order; the instruction pointer is the ninth.
        let registers = (1..=17).map(|n| n * 0x10000);
        let mut touches = Vec::new();
        let start = Start { pid: 1, ip, registers, stack };
        let each = |t: Touch| touches.push((t.address, t.access, t.ip));
        Instructions::default().follow(start, count, &mut Bytes(code.to_vec()), each);
        touches
    }

    fn first(code: &[u8]) -> (Option<u64>, Access, u64) {
        follow(code, BASE, 4, &[])[0]
    }

    #[test]
    fn the_instruction_itself_is_taken() {
        // mov rcx, [rax+rbx*8+0x10]
        assert_eq!(first(&[0x48, 0x8b, 0x4c, 0xd8, 0x10]), (Some(0x110010), Access::Read, 0x4000));
        // movsd [r15], xmm0
        assert_eq!(first(&[0xf2, 0x41, 0x0f, 0x11, 0x07]), (Some(0x110000), Access::Write, 0x4000));
        // add qword [rdi], 1
        assert_eq!(first(&[0x48, 0x83, 0x07, 0x01]), (Some(0x60000), Access::Write, 0x4000));
        // mov eax, [rip+0x100]
        assert_eq!(first(&[0x8b, 0x05, 0, 1, 0, 0]), (Some(0x4106), Access::Read, 0x4000));
        // movsq: from rsi to rdi
        let mut both = follow(&[0x48, 0xa5], BASE, 1, &[]);
        both.sort_by_key(|touch| touch.0);
        assert_eq!(both, [(Some(0x50000), Access::Read, BASE), (Some(0x60000), Access::Write, BASE)]);
    }

    #[test]
    fn what_comes_before_the_access_is_done() {
        // add rax, 8; lea rdx, [rax+rax]; cmp rax, rbx; mov ecx, [rdx]
        let code = [0x48, 0x83, 0xc0, 8, 0x48, 0x8d, 0x14, 0, 0x48, 0x39, 0xd8, 0x8b, 0x0a];
        assert_eq!(first(&code), (Some(0x20010), Access::Read, 0x400b));
        // je +1; mov rcx, [rax]: on the way straight on
        assert_eq!(first(&[0x74, 1, 0x48, 0x8b, 0x08]), (Some(0x10000), Access::Read, 0x4002));
        // jmp +1 over a hlt; push rbx
        assert_eq!(first(&[0xeb, 1, 0xf4, 0x53]), (Some(0x7fff8), Access::Write, 0x4003));
    }

    #[test]
    fn a_loop_goes_on_until_its_end() {
        // 0: mov rcx, [rax]; 3: add rax, 8; 7: cmp rax, rbx; 10: jne 0; 12: mov [rbx], rcx
        let mut code = vec![0x48, 0x8b, 0x08, 0x48, 0x83, 0xc0, 8, 0x48, 0x39, 0xd8, 0x75, 0xf4];
        code.extend([0x48, 0x89, 0x0b]);
        let found = follow(&code, BASE + 3, 8, &[]);
        assert_eq!(found.iter().map(|t| t.0).collect::<Vec<_>>(), [Some(0x10008), Some(0x10010)]);
        // To 0x20000 there are 0x2000 elements; then comes the store.
        let found = follow(&code, BASE, 4 * 0x2000 + 1, &[]);
        assert_eq!(found.len(), 0x2001);
        assert_eq!(found.last(), Some(&(Some(0x20000), Access::Write, BASE + 12)));
        // A loop without an access ends, too.
        assert_eq!(follow(&[0x48, 0xff, 0xc0, 0x75, 0xfb], BASE, 1000, &[]), []);
    }

    #[test]
    fn what_is_loaded_is_known_where_it_can_be_read() {
        // mov eax, [rip+3] (0x4009); mov rcx, [rax]; int3; then 0x4009: 0x1234
        let code = [0x8b, 0x05, 3, 0, 0, 0, 0x48, 0x8b, 0x08, 0x34, 0x12, 0, 0];
        let found = follow(&code, BASE, 2, &[]);
        assert_eq!(found[1], (Some(0x1234), Access::Read, BASE + 6));
        // mov [rdi], rsi; mov rax, [rdi]; mov rcx, [rax]: through what was stored
        let code = [0x48, 0x89, 0x37, 0x48, 0x8b, 0x07, 0x48, 0x8b, 0x08];
        assert_eq!(follow(&code, BASE, 3, &[])[2].0, Some(0x50000));
        // mov rax, [rsp+8]; mov rcx, [rax]: through the stack as it was
        let code = [0x48, 0x8b, 0x44, 0x24, 8, 0x48, 0x8b, 0x08];
        let stack = [[0; 8], 0x7777u64.to_le_bytes()].concat();
        assert_eq!(follow(&code, BASE, 2, &stack)[1].0, Some(0x7777));
    }

    #[test]
    fn calls_return() {
        // call +1; int3; mov [rdi], rax; ret: the int3 then ends it
        let found = follow(&[0xe8, 1, 0, 0, 0, 0xcc, 0x48, 0x89, 0x07, 0xc3], BASE, 10, &[]);
        assert_eq!(found.iter().map(|t| t.2).collect::<Vec<_>>(), [BASE, BASE + 6, BASE + 9]);
        // ret to the address on the stack
        let found = follow(&[0xc3, 0x48, 0x89, 0x07], BASE, 2, &(BASE + 1).to_le_bytes());
        assert_eq!(found[1], (Some(0x60000), Access::Write, BASE + 1));
    }

    #[test]
    fn what_cannot_be_known_is_not_made_up() {
        // movq rax, xmm0; mov rcx, [rax]
        assert_eq!(first(&[0x66, 0x48, 0x0f, 0x7e, 0xc0, 0x48, 0x8b, 0x08]).0, None);
        // mov rcx, fs:[rax]
        assert_eq!(first(&[0x64, 0x48, 0x8b, 0x08]).0, None);
        // mov rax, [rbx], which cannot be read; mov rcx, [rax]
        assert_eq!(follow(&[0x48, 0x8b, 0x03, 0x48, 0x8b, 0x08], BASE, 2, &[])[1].0, None);
        assert_eq!(follow(&[], BASE, 9, &[]), []);
        assert_eq!(follow(&[0xff; 40], BASE, 9, &[]), []);
    }

    #[test]
    fn a_string_instruction_is_as_long_as_it_takes() {
        // rep movsb, with rcx 0x30000; then mov [rbx], rcx, which is not reached
        let code = [0xf3, 0xa4, 0x48, 0x89, 0x0b];
        let found = follow(&code, BASE, 10, &[]);
        let of = |access| found.iter().filter(|t| t.1 == access).map(|t| t.0.unwrap()).collect::<Vec<_>>();
        assert_eq!(of(Access::Write), (0..20).map(|n| 0x60000 + 8 * n).collect::<Vec<_>>());
        assert_eq!(of(Access::Read), (0..20).map(|n| 0x50000 + 8 * n).collect::<Vec<_>>());
    }

    #[test]
    fn any_code_ends() {
        let mut random = crate::random::Random::new(7);
        for _ in 0..2000 {
            let code: Vec<u8> = (0..200).map(|_| random.next_u64() as u8).collect();
            assert!(follow(&code, BASE, 300, &code).len() <= 300 * 8);
        }
    }
}
