//! The part of a processor that addresses depend on: general registers, flags, and memory as far as it is known.
//!
//! `instruction` has it execute the instructions that a sampled thread executed next. Integer arithmetic, moves, comparisons
//! and calls are carried out. Whatever else an instruction changes is unknown afterwards, and so is all that follows from it.
//! x86-64 only.

use iced_x86::{ConditionCode, FlowControl, Instruction, Mnemonic, OpKind, Register};

use crate::instruction::{DataBytes, Step};

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

/// `perf_event_attr.sample_regs_user` for the registers needed: the general registers and the instruction pointer.
pub const REGISTERS: u64 = 0x1ff | 0xff << 16;

/// The index of the stack pointer among these registers.
pub const STACK_POINTER: usize = 7;

/// The number of stores that are remembered; older ones are forgotten.
const STORES: usize = 64;

/// Where execution goes on after an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flow {
    /// Execution goes on behind the instruction.
    Next,
    /// Execution goes on at this address.
    To(u64),
    /// A branch whose outcome is not known, to there or behind the instruction.
    Maybe(u64),
    /// The next address is not known.
    End,
}

/// The flags that conditions look at; `None`: not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Flags {
    zero: Option<bool>,
    sign: Option<bool>,
    carry: Option<bool>,
    overflow: Option<bool>,
}

/// A store, and the value that it stored if that is known.
#[derive(Debug, Clone, Copy)]
struct Store {
    address: u64,
    bytes: usize,
    value: Option<u64>,
}

/// A thread's state while its code is followed.
pub(crate) struct Machine<'a> {
    registers: [Option<u64>; 16],
    flags: Flags,
    stores: Vec<Store>,
    /// The top of the stack when the sample was taken, from this address on.
    stack: (u64, &'a [u8]),
}

impl<'a> Machine<'a> {
    /// Makes the state from `registers`, in perf's order, and the bytes from the stack pointer on.
    pub(crate) fn new(registers: impl Iterator<Item = u64>, stack: &'a [u8]) -> Self {
        let mut machine =
            Self { registers: [None; 16], flags: Flags::default(), stores: Vec::new(), stack: (0, stack) };
        for (register, value) in ORDER.iter().zip(registers) {
            if let Some(register) = register {
                machine.registers[register.number()] = Some(value);
            }
        }
        machine.stack.0 = machine.get(Register::RSP).unwrap_or(0);
        machine
    }

    /// Returns a register's value; all segments begin at 0, except those of threads' storage.
    pub(crate) fn get(&self, register: Register) -> Option<u64> {
        if register.is_segment_register() {
            return (register != Register::FS && register != Register::GS).then_some(0);
        }
        if !register.is_gpr() || is_high(register) {
            return None;
        }
        Some(mask(self.registers[register.full_register().number()]?, register.size()))
    }

    fn set(&mut self, register: Register, value: Option<u64>, before: Option<u64>) {
        if !register.is_gpr() || is_high(register) {
            return;
        }
        let size = register.size();
        self.registers[register.full_register().number()] = match (value, size) {
            (Some(value), 4 | 8) => Some(mask(value, size)),
            (Some(value), _) => before.map(|old| old & !mask(u64::MAX, size) | mask(value, size)),
            (None, _) => None,
        };
    }

    /// Executes one instruction and returns where execution goes on.
    pub(crate) fn execute(&mut self, step: &Step, memory: &mut dyn DataBytes) -> Flow {
        let i = &step.instruction;
        match i.flow_control() {
            FlowControl::Next => {
                self.compute(step, memory);
                Flow::Next
            }
            FlowControl::UnconditionalBranch => Flow::To(i.near_branch_target()),
            FlowControl::ConditionalBranch => match self.condition(i.condition_code()) {
                Some(true) => Flow::To(i.near_branch_target()),
                Some(false) => Flow::Next,
                None => Flow::Maybe(i.near_branch_target()),
            },
            FlowControl::IndirectBranch => self.operand(i, 0, memory).map_or(Flow::End, Flow::To),
            FlowControl::Call => {
                self.push(Some(i.next_ip()));
                Flow::To(i.near_branch_target())
            }
            FlowControl::IndirectCall => {
                let to = self.operand(i, 0, memory);
                self.push(Some(i.next_ip()));
                to.map_or(Flow::End, Flow::To)
            }
            // Of the stack only the bytes that were kept with the sample are known to be as they were.
            FlowControl::Return => match self.pop_own() {
                Some(to) => Flow::To(to),
                None => Flow::End,
            },
            _ => Flow::End,
        }
    }

    fn compute(&mut self, step: &Step, memory: &mut dyn DataBytes) {
        let i = &step.instruction;
        match i.mnemonic() {
            Mnemonic::Push => {
                let value = self.operand(i, 0, memory);
                return self.push(value);
            }
            Mnemonic::Pop => {
                let value = self.get(Register::RSP).and_then(|at| self.load(at, 8, memory));
                self.move_stack(8);
                if i.op_kind(0) == OpKind::Register {
                    self.set(i.op_register(0), value, None);
                }
                return;
            }
            Mnemonic::Leave => {
                let frame = self.get(Register::RBP);
                let value = frame.and_then(|at| self.load(at, 8, memory));
                self.registers[Register::RSP.number()] = frame.map(|at| at.wrapping_add(8));
                self.registers[Register::RBP.number()] = value;
                return;
            }
            _ => {}
        }
        let (value, flags) = self.result(i, memory);
        let addresses: Vec<_> = step.writes().map(|(memory, bytes)| (self.address(memory), bytes)).collect();
        let before = if i.op_count() > 0 && i.op_kind(0) == OpKind::Register {
            let register = i.op_register(0);
            if register.is_gpr() { self.registers[register.full_register().number()] } else { None }
        } else {
            None
        };
        let mut clobbers = step.clobbers;
        while clobbers != 0 {
            self.registers[clobbers.trailing_zeros() as usize] = None;
            clobbers &= clobbers - 1;
        }
        if step.changes_flags {
            self.flags = flags.unwrap_or_default();
        }
        let to_memory = i.op_count() > 0 && i.op_kind(0) == OpKind::Memory;
        for (address, bytes) in addresses {
            if let Some(address) = address {
                self.store(address, bytes, if to_memory { value } else { None });
            }
        }
        if i.op_count() > 0 && i.op_kind(0) == OpKind::Register && value.is_some() {
            self.set(i.op_register(0), value, before);
        }
    }

    /// Returns the address of a memory operand.
    pub(crate) fn address(&self, memory: &iced_x86::UsedMemory) -> Option<u64> {
        memory.virtual_address(0, |register, _, _| self.get(register))
    }

    fn push(&mut self, value: Option<u64>) {
        self.move_stack(-8);
        if let Some(at) = self.get(Register::RSP) {
            self.store(at, 8, value);
        }
    }

    fn pop_own(&mut self) -> Option<u64> {
        let value = self.known(self.get(Register::RSP)?, 8)?;
        self.move_stack(8);
        value
    }

    fn move_stack(&mut self, by: i64) {
        let number = Register::RSP.number();
        self.registers[number] = self.registers[number].map(|at| at.wrapping_add_signed(by));
    }

    fn store(&mut self, address: u64, bytes: usize, value: Option<u64>) {
        if self.stores.len() >= STORES {
            self.stores.drain(..STORES / 2);
        }
        self.stores.push(Store { address, bytes, value });
    }

    /// Returns what was stored at this address, or lay there on the stack; the outer `None` means neither.
    fn known(&self, address: u64, bytes: usize) -> Option<Option<u64>> {
        let end = address.wrapping_add(bytes as u64);
        let over = |s: &&Store| s.address < end && address < s.address.wrapping_add(s.bytes as u64);
        if let Some(store) = self.stores.iter().rev().find(over) {
            let same = store.address == address && store.bytes == bytes;
            return Some(if same { store.value } else { None });
        }
        let at = usize::try_from(address.checked_sub(self.stack.0)?).ok()?;
        let kept = self.stack.1.get(at..at.checked_add(bytes)?)?;
        Some(Some(little_endian(kept)))
    }

    fn load(&self, address: u64, bytes: usize, memory: &mut dyn DataBytes) -> Option<u64> {
        if bytes == 0 || bytes > 8 {
            return None;
        }
        if let Some(known) = self.known(address, bytes) {
            return known;
        }
        let mut word = [0; 8];
        memory.data(address, &mut word[..bytes]).then(|| u64::from_le_bytes(word))
    }

    fn operand(&self, i: &Instruction, operand: u32, memory: &mut dyn DataBytes) -> Option<u64> {
        match i.op_kind(operand) {
            OpKind::Register => self.get(i.op_register(operand)),
            OpKind::Memory => {
                let address = i.virtual_address(operand, 0, |register, _, _| self.get(register))?;
                self.load(address, i.memory_size().size(), memory)
            }
            OpKind::Immediate8
            | OpKind::Immediate16
            | OpKind::Immediate32
            | OpKind::Immediate64
            | OpKind::Immediate8to16
            | OpKind::Immediate8to32
            | OpKind::Immediate8to64
            | OpKind::Immediate32to64 => Some(i.immediate(operand)),
            _ => None,
        }
    }

    /// Returns what the instruction leaves in its first operand and in the flags; `None`: not known.
    fn result(&self, i: &Instruction, memory: &mut dyn DataBytes) -> (Option<u64>, Option<Flags>) {
        let size = size_of_operand(i, 0);
        let mut of = |n: u32| self.operand(i, n, memory);
        let plain = |value: Option<u64>| (value, None);
        match i.mnemonic() {
            Mnemonic::Mov => plain(of(1)),
            Mnemonic::Movzx => plain(of(1)),
            Mnemonic::Movsx | Mnemonic::Movsxd => {
                let from = size_of_operand(i, 1);
                plain(of(1).map(|value| mask(extend(value, from), size)))
            }
            Mnemonic::Cdqe => plain(self.get(Register::EAX).map(|value| extend(value, 4))),
            Mnemonic::Lea => plain(self.lea(i)),
            Mnemonic::Add => both(of(0), of(1), |a, b| add(a, b, size)),
            Mnemonic::Sub | Mnemonic::Cmp => {
                let (value, flags) = if i.op_kind(0) == OpKind::Register
                    && i.op_kind(1) == OpKind::Register
                    && i.op_register(0) == i.op_register(1)
                {
                    both(Some(0), Some(0), |a, b| sub(a, b, size))
                } else {
                    both(of(0), of(1), |a, b| sub(a, b, size))
                };
                (if i.mnemonic() == Mnemonic::Cmp { None } else { value }, flags)
            }
            Mnemonic::Inc | Mnemonic::Dec => {
                let (value, flags) = both(of(0), Some(1), |a, b| {
                    if i.mnemonic() == Mnemonic::Inc { add(a, b, size) } else { sub(a, b, size) }
                });
                (value, flags.map(|flags| Flags { carry: self.flags.carry, ..flags }))
            }
            Mnemonic::And | Mnemonic::Test => {
                let (value, flags) = both(of(0), of(1), |a, b| logic(a & b, size));
                (if i.mnemonic() == Mnemonic::Test { None } else { value }, flags)
            }
            Mnemonic::Or => both(of(0), of(1), |a, b| logic(a | b, size)),
            Mnemonic::Xor
                if i.op_kind(1) == OpKind::Register
                    && i.op_kind(0) == OpKind::Register
                    && i.op_register(0) == i.op_register(1) =>
            {
                both(Some(0), Some(0), |_, _| logic(0, size))
            }
            Mnemonic::Xor => both(of(0), of(1), |a, b| logic(a ^ b, size)),
            Mnemonic::Not => plain(of(0).map(|value| mask(!value, size))),
            Mnemonic::Neg => both(Some(0), of(0), |a, b| sub(a, b, size)),
            Mnemonic::Shl | Mnemonic::Shr | Mnemonic::Sar => {
                let count = of(1).map(|count| count as u32 & if size == 8 { 63 } else { 31 });
                both(of(0), count.map(u64::from), |a, count| {
                    let value = match i.mnemonic() {
                        Mnemonic::Shl => a << count,
                        Mnemonic::Shr => mask(a, size) >> count,
                        _ => (extend(a, size) as i64 >> count) as u64,
                    };
                    let flags = Flags { carry: None, overflow: None, ..signs(value, size) };
                    (mask(value, size), if count == 0 { self.flags } else { flags })
                })
            }
            Mnemonic::Imul if i.op_count() >= 2 => {
                let (a, b) = if i.op_count() == 3 { (of(1), of(2)) } else { (of(0), of(1)) };
                plain(a.zip(b).map(|(a, b)| mask(a.wrapping_mul(b), size)))
            }
            _ if i.is_setcc_or_cmov() => {
                let holds = self.condition(i.condition_code());
                plain(match (holds, i.op_count()) {
                    (Some(holds), 1) => Some(u64::from(holds)),
                    (Some(true), _) => of(1),
                    (Some(false), _) => of(0),
                    (None, _) => None,
                })
            }
            _ => (None, None),
        }
    }

    fn lea(&self, i: &Instruction) -> Option<u64> {
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

    fn condition(&self, code: ConditionCode) -> Option<bool> {
        let f = &self.flags;
        let less = || Some(f.sign? != f.overflow?);
        Some(match code {
            ConditionCode::o => f.overflow?,
            ConditionCode::no => !f.overflow?,
            ConditionCode::b => f.carry?,
            ConditionCode::ae => !f.carry?,
            ConditionCode::e => f.zero?,
            ConditionCode::ne => !f.zero?,
            ConditionCode::be => f.carry? || f.zero?,
            ConditionCode::a => !(f.carry? || f.zero?),
            ConditionCode::s => f.sign?,
            ConditionCode::ns => !f.sign?,
            ConditionCode::l => less()?,
            ConditionCode::ge => !less()?,
            ConditionCode::le => less()? || f.zero?,
            ConditionCode::g => !(less()? || f.zero?),
            _ => return None,
        })
    }
}

trait Conditional {
    fn is_setcc_or_cmov(&self) -> bool;
}

impl Conditional for Instruction {
    fn is_setcc_or_cmov(&self) -> bool {
        self.condition_code() != ConditionCode::None && self.flow_control() == FlowControl::Next
    }
}

fn is_high(register: Register) -> bool {
    matches!(register, Register::AH | Register::BH | Register::CH | Register::DH)
}

fn size_of_operand(i: &Instruction, operand: u32) -> usize {
    if operand >= i.op_count() {
        return 8;
    }
    match i.op_kind(operand) {
        OpKind::Register => i.op_register(operand).size(),
        OpKind::Memory => i.memory_size().size(),
        _ => 8,
    }
}

fn mask(value: u64, bytes: usize) -> u64 {
    if bytes >= 8 { value } else { value & ((1 << (8 * bytes)) - 1) }
}

/// Extends the value's lowest bytes with their sign.
fn extend(value: u64, bytes: usize) -> u64 {
    let shift = 64 - 8 * bytes.clamp(1, 8) as u32;
    ((value << shift) as i64 >> shift) as u64
}

fn little_endian(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

fn both(
    a: Option<u64>,
    b: Option<u64>,
    does: impl FnOnce(u64, u64) -> (u64, Flags),
) -> (Option<u64>, Option<Flags>) {
    match (a, b) {
        (Some(a), Some(b)) => {
            let (value, flags) = does(a, b);
            (Some(value), Some(flags))
        }
        _ => (None, None),
    }
}

fn negative(value: u64, size: usize) -> bool {
    extend(value, size) >> 63 != 0
}

fn signs(value: u64, size: usize) -> Flags {
    let (zero, sign) = (Some(mask(value, size) == 0), Some(negative(value, size)));
    Flags { zero, sign, carry: Some(false), overflow: Some(false) }
}

fn logic(value: u64, size: usize) -> (u64, Flags) {
    (mask(value, size), signs(value, size))
}

fn add(a: u64, b: u64, size: usize) -> (u64, Flags) {
    let (a, b) = (mask(a, size), mask(b, size));
    let sum = mask(a.wrapping_add(b), size);
    let over = negative(!(a ^ b) & (a ^ sum), size);
    (sum, Flags { carry: Some(sum < a), overflow: Some(over), ..signs(sum, size) })
}

fn sub(a: u64, b: u64, size: usize) -> (u64, Flags) {
    let (a, b) = (mask(a, size), mask(b, size));
    let difference = mask(a.wrapping_sub(b), size);
    let over = negative((a ^ b) & (a ^ difference), size);
    (difference, Flags { carry: Some(a < b), overflow: Some(over), ..signs(difference, size) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The flags must agree with the comparisons of Rust's own integers.
        #[test]
        fn flags_are_those_of_a_comparison(a in any::<u64>(), b in any::<u64>(), small in any::<bool>()) {
            let size = if small { 4 } else { 8 };
            let (_, f) = sub(a, b, size);
            let machine = |flags| Machine { registers: [None; 16], flags, stores: vec![], stack: (0, &[]) };
            let m = machine(f);
            let (x, y) = (mask(a, size), mask(b, size));
            let (sx, sy) = (extend(a, size) as i64, extend(b, size) as i64);
            prop_assert_eq!(m.condition(ConditionCode::b), Some(x < y));
            prop_assert_eq!(m.condition(ConditionCode::be), Some(x <= y));
            prop_assert_eq!(m.condition(ConditionCode::e), Some(x == y));
            prop_assert_eq!(m.condition(ConditionCode::l), Some(sx < sy));
            prop_assert_eq!(m.condition(ConditionCode::g), Some(sx > sy));
            let (sum, f) = add(a, b, size);
            prop_assert_eq!(sum, mask(x.wrapping_add(y), size));
            let carries = if small { (x + y) >> 32 != 0 } else { x.checked_add(y).is_none() };
            prop_assert_eq!(machine(f).condition(ConditionCode::b), Some(carries));
        }
    }
}
