//! One function: its instructions, found by following its control flow, its calls, and the effects of single instructions.
//!
//! Used by `reach`. Jumps are followed into other parts of the function (`foo.cold`) wherever they lie; a jump to the start of
//! another function is a call. Indirect jumps are resolved by `table`, indirect calls by `value`.

use std::collections::{HashMap, HashSet};

use iced_x86::{
    Code as Opcode, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic,
    OpKind, Register,
};

use crate::access::{self, Access};
use crate::finding::{Finding, Kind, Operand};
use crate::graph::{Graph, NONE};
use crate::input::Handlers;
use crate::known::{self, Effect, Known};
use crate::reach::{Budget, Code};
use crate::table;
use crate::unwind;
use crate::value::{Value, Values};

/// An instruction with its effects and its successors.
#[derive(Debug)]
pub(crate) struct Ins {
    pub(crate) instruction: Instruction,
    pub(crate) access: Access,
    /// The next instruction in memory if control can pass to it, else [`NONE`].
    pub(crate) next: u32,
}

/// The target of a call.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Callee<'c> {
    /// The function at this address.
    Function(u64),
    /// A library's entry point that is not followed.
    Known(&'c str, Known),
    /// A target that is reported as a finding.
    Unknown,
}

/// A call or a tail call.
#[derive(Debug)]
pub(crate) struct Call<'c> {
    pub(crate) at: u32,
    pub(crate) callee: Callee<'c>,
    /// Whether there is code behind the call to which it returns.
    pub(crate) goes_on: bool,
}

/// A function.
#[derive(Debug)]
pub(crate) struct Body<'c> {
    pub(crate) ins: Vec<Ins>,
    pub(crate) graph: Graph,
    /// The calls, including functions that are given to a known one.
    pub(crate) calls: Vec<Call<'c>>,
    /// The findings in single instructions.
    pub(crate) findings: Vec<Finding>,
    /// Whether it writes memory other than its stack, calls not counted.
    pub(crate) stores: bool,
    /// Whether rbp holds the frame.
    pub(crate) frame: bool,
    /// The stack addresses that are put into registers, through which others may write to the stack: base, offset.
    pub(crate) taken: Vec<(Register, i64)>,
    /// Whether it can return, tail calls not counted.
    pub(crate) returns: bool,
    /// The functions that it calls at its end.
    pub(crate) tails: Vec<u64>,
}

impl<'c> Body<'c> {
    /// Decodes the function at this address. Calls of functions in `ending` do not return.
    pub(crate) fn new(
        code: &'c Code<'_>,
        start: u64,
        ending: &HashSet<u64>,
        budget: &mut Budget,
    ) -> Body<'c> {
        let mut build = Build {
            code,
            budget,
            ending,
            start,
            own: code.function(start).map_or((start, start), |f| (f.start, f.end)),
            factory: InstructionInfoFactory::new(),
            ins: Vec::new(),
            index: HashMap::new(),
            jumps: Vec::new(),
            calls: Vec::new(),
            findings: Vec::new(),
            open: vec![(start, None)],
            indirect: Vec::new(),
            pending: Vec::new(),
            tails: Vec::new(),
            returns: false,
            parts: HashSet::new(),
            pads: Vec::new(),
        };
        let graph = build.flow();
        build.values(&graph);
        build.finish(graph)
    }

    /// Whether memory of its own may be written by an address taken of it. Objects are written at and above their addresses.
    pub(crate) fn is_taken(&self, i: &Instruction) -> bool {
        let offset = i.memory_displacement64().cast_signed();
        self.taken.iter().any(|&(base, from)| base != i.memory_base() || from <= offset)
    }

    /// Whether the instruction's memory is the worker's own: its stack or its thread-local data.
    pub(crate) fn is_private(&self, i: &Instruction) -> bool {
        is_private(i, self.frame)
    }
}

/// The stack address that an instruction puts into a register.
fn taken(i: &Instruction, frame: bool) -> Option<(Register, i64)> {
    let on_stack = |r: Register| r == Register::RSP || frame && r == Register::RBP;
    match i.mnemonic() {
        Mnemonic::Lea
            if on_stack(i.memory_base())
                && i.op0_register() != Register::RBP
                && i.op0_register() != Register::RSP =>
        {
            let offset = i.memory_displacement64().cast_signed();
            Some((i.memory_base(), if i.memory_index() == Register::None { offset } else { i64::MIN }))
        }
        Mnemonic::Mov if i.op1_kind() == OpKind::Register && on_stack(i.op1_register()) => {
            let frame = i.op0_kind() == OpKind::Register && on_stack(i.op0_register());
            (!frame).then_some((i.op1_register(), 0))
        }
        _ => None,
    }
}

fn is_private(i: &Instruction, frame: bool) -> bool {
    i.memory_base() == Register::RSP
        || frame && i.memory_base() == Register::RBP
        || matches!(i.memory_segment(), Register::FS | Register::GS)
}

/// A function that is being decoded.
struct Build<'b, 'c, 'a> {
    code: &'c Code<'a>,
    budget: &'b mut Budget,
    ending: &'b HashSet<u64>,
    start: u64,
    /// The known extent of the function; empty if unknown.
    own: (u64, u64),
    factory: InstructionInfoFactory,
    ins: Vec<Ins>,
    index: HashMap<u64, u32>,
    jumps: Vec<(u32, u32)>,
    calls: Vec<Call<'c>>,
    findings: Vec<Finding>,
    /// The addresses to decode from, each with the jump that leads there.
    open: Vec<(u64, Option<u32>)>,
    /// The jumps whose targets are not known yet.
    indirect: Vec<u32>,
    /// The calls whose targets are not known yet.
    pending: Vec<usize>,
    tails: Vec<u64>,
    returns: bool,
    /// The starts of the function's parts whose handlers were examined.
    parts: HashSet<u64>,
    pads: Vec<u64>,
}

impl<'c> Build<'_, 'c, '_> {
    fn find(&mut self, address: u64, kind: Kind, operand: Operand) {
        self.findings.push(Finding { address, kind, operand });
    }

    /// Decodes all instructions that control reaches.
    fn flow(&mut self) -> Graph {
        self.decode();
        let mut graph = Graph::new(&self.ins, &self.jumps);
        let mut known: HashMap<u32, Vec<u64>> = HashMap::new();
        // Each round can only add code; the effect of a new part on an earlier jump shows in the last round.
        for _ in 0..16 {
            let mut changed = false;
            for at in self.indirect.clone() {
                let mut values =
                    Values { code: self.code, ins: &self.ins, graph: &graph, budget: self.budget };
                let Some(targets) = table::targets(&mut values, at) else {
                    known.remove(&at);
                    continue;
                };
                let old = known.entry(at).or_default();
                for target in targets {
                    if !old.contains(&target) {
                        old.push(target);
                        self.open.push((target, Some(at)));
                        changed = true;
                    }
                }
            }
            if !changed {
                break;
            }
            self.decode();
            graph = Graph::new(&self.ins, &self.jumps);
        }
        for at in std::mem::take(&mut self.indirect) {
            if !known.contains_key(&at) {
                let i = self.ins[at as usize].instruction;
                self.find(i.ip(), Kind::IndirectJump, operand(&i));
            }
        }
        graph
    }

    fn decode(&mut self) {
        loop {
            self.decode_open();
            let Some(pad) = self.pads.pop() else { return };
            // Control comes here from any call that throws: register values are unknown, as at the entry.
            let first = self.index.get(&pad).copied().or_else(|| self.run(pad));
            self.jumps.extend(first.map(|to| (0, to)));
        }
    }

    /// Notes where control goes when something is thrown in the function's part around a call.
    fn handlers(&mut self, address: u64) {
        let Some(function) = self.code.function(address) else { return };
        if function.handlers != Handlers::None && self.parts.insert(function.start) {
            let pads = match function.handlers {
                Handlers::At(table) => {
                    self.code.table(table).and_then(|bytes| unwind::landing_pads(function, table, bytes))
                }
                _ => None,
            };
            match pads {
                Some(pads) => self.pads.extend(pads),
                None => self.find(address, Kind::IndirectJump, Operand::None),
            }
        }
    }

    fn decode_open(&mut self) {
        while let Some((address, from)) = self.open.pop() {
            if let Some(from) = from
                && let jump = self.ins[from as usize].instruction
                && let Some(callee) =
                    self.leaves(address, jump.flow_control() == FlowControl::UnconditionalBranch)
            {
                // A jump out of the function is a call and a return.
                self.call(from, callee, jump.ip());
                self.tail(callee);
                continue;
            }
            let first = match self.index.get(&address) {
                Some(&at) => Some(at),
                None => self.run(address),
            };
            if let (Some(from), Some(to)) = (from, first) {
                self.jumps.push((from, to));
            }
        }
    }

    /// The callee, if a jump to this address is a tail call.
    fn leaves(&self, target: u64, always: bool) -> Option<Callee<'c>> {
        if (self.own.0..self.own.1).contains(&target) || target == self.start {
            return None;
        }
        if let Some(callee) = self.through_stub(target) {
            return Some(callee);
        }
        let function = self.code.function(target)?;
        // Without a name, the target of a conditional jump is the function's cold part.
        let part = function.name.map_or(!always, |name| name.contains(".cold"));
        (function.start == target && !part).then_some(Callee::Function(target))
    }

    /// The target of a linkage stub at this address.
    fn through_stub(&self, address: u64) -> Option<Callee<'c>> {
        let bytes = self.code.code(address)?;
        let mut decoder = Decoder::with_ip(64, &bytes[..bytes.len().min(32)], address, DecoderOptions::NONE);
        for _ in 0..2 {
            let i = decoder.decode();
            match i.mnemonic() {
                Mnemonic::Endbr64 => {}
                Mnemonic::Jmp if i.is_ip_rel_memory_operand() => return self.slot(i.ip_rel_memory_address()),
                _ => return None,
            }
        }
        None
    }

    /// The callee that a word of a linkage table stands for.
    fn slot(&self, address: u64) -> Option<Callee<'c>> {
        let slot = self.code.slot(address)?;
        let target = slot.target.filter(|&t| self.code.code(t).is_some());
        if let Some(name) = slot.name
            && let Some(known) = known::lookup(name)
        {
            let library = target.and_then(|t| self.code.object_of(t)).map(|o| &self.code.objects()[o].name);
            if known::is_replaceable(name) || library.is_none_or(|name| known::is_system_library(name)) {
                return Some(Callee::Known(name, known));
            }
        }
        Some(target.map_or(Callee::Unknown, Callee::Function))
    }

    /// The callee at an address.
    fn callee(&self, target: u64) -> Callee<'c> {
        self.through_stub(target).unwrap_or(Callee::Function(target))
    }

    /// Notes that the function ends with this call.
    fn tail(&mut self, callee: Callee<'c>) {
        match callee {
            Callee::Function(target) => self.tails.push(target),
            Callee::Known(_, known) => self.returns |= known.effect != Effect::NoReturn,
            Callee::Unknown => self.returns = true,
        }
    }

    /// Notes a call; returns false if it does not return.
    fn call(&mut self, at: u32, callee: Callee<'c>, address: u64) -> bool {
        self.calls.push(Call { at, callee, goes_on: false });
        match callee {
            Callee::Known(_, known) => {
                match known.effect {
                    Effect::Yields => self.find(address, Kind::Wait, Operand::None),
                    Effect::Synchronises => self.find(address, Kind::SynchronisingCall, Operand::None),
                    _ => {}
                }
                known.effect != Effect::NoReturn
            }
            Callee::Function(target) => {
                if self.code.code(target).is_none() {
                    self.find(address, Kind::NotCode, Operand::None);
                }
                true
            }
            Callee::Unknown => {
                self.find(address, Kind::UnresolvedCall, Operand::None);
                true
            }
        }
    }

    /// Decodes from an address to where control does not pass on. Returns the first instruction.
    fn run(&mut self, address: u64) -> Option<u32> {
        let Some(bytes) = self.code.code(address) else {
            self.find(address, Kind::NotCode, Operand::None);
            return None;
        };
        let mut decoder = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE);
        let (mut first, mut last) = (None, NONE);
        loop {
            let ip = decoder.ip();
            if let Some(&at) = self.index.get(&ip) {
                self.follow(last, at);
                return first.or(Some(at));
            }
            if self.budget.instructions == 0 {
                self.find(ip, Kind::Limit, Operand::None);
                return first;
            }
            if !decoder.can_decode() {
                self.find(ip, Kind::NotCode, Operand::None);
                return first;
            }
            self.budget.instructions -= 1;
            let instruction = decoder.decode();
            if instruction.is_invalid() {
                self.find(ip, Kind::NotCode, Operand::None);
                return first;
            }
            let at = self.ins.len() as u32;
            let access = access::access(&mut self.factory, &instruction);
            self.ins.push(Ins { instruction, access, next: NONE });
            self.index.insert(ip, at);
            self.follow(last, at);
            first = first.or(Some(at));
            last = at;
            if !self.instruction(at) {
                return first;
            }
        }
    }

    fn follow(&mut self, last: u32, next: u32) {
        if let Some(ins) = self.ins.get_mut(last as usize) {
            ins.next = next;
        }
    }

    /// Examines one instruction; returns false if control does not pass to the next.
    fn instruction(&mut self, at: u32) -> bool {
        let i = self.ins[at as usize].instruction;
        self.synchronisation(&i);
        match i.code() {
            Opcode::Syscall | Opcode::Sysenter => {
                self.find(i.ip(), Kind::SystemCall, Operand::None);
                return true;
            }
            _ => {}
        }
        match i.flow_control() {
            FlowControl::Next => true,
            FlowControl::UnconditionalBranch => {
                self.open.push((i.near_branch_target(), Some(at)));
                false
            }
            FlowControl::ConditionalBranch => {
                self.open.push((i.near_branch_target(), Some(at)));
                true
            }
            FlowControl::XbeginXabortXend => {
                self.find(i.ip(), Kind::AtomicUpdate, Operand::Other);
                if i.mnemonic() == Mnemonic::Xbegin {
                    self.open.push((i.near_branch_target(), Some(at)));
                }
                true
            }
            FlowControl::Return => {
                self.returns = true;
                false
            }
            FlowControl::Exception => false,
            FlowControl::Call if i.is_call_near() => {
                self.clobber(at);
                let callee = self.callee(i.near_branch_target());
                self.call(at, callee, i.ip()) && self.comes_back(&i)
            }
            FlowControl::IndirectCall => {
                self.clobber(at);
                match self.slot_of(&i) {
                    Some(callee) => self.call(at, callee, i.ip()) && self.comes_back(&i),
                    None => {
                        // The call's target is searched for when the control flow is known.
                        self.pending.push(self.calls.len());
                        self.calls.push(Call { at, callee: Callee::Unknown, goes_on: false });
                        self.goes_on(&i)
                    }
                }
            }
            FlowControl::IndirectBranch => {
                match self.slot_of(&i) {
                    Some(callee) => {
                        self.call(at, callee, i.ip());
                        self.tail(callee);
                    }
                    None => self.indirect.push(at),
                }
                false
            }
            FlowControl::Interrupt if i.mnemonic() == Mnemonic::Int3 => false,
            FlowControl::Interrupt | FlowControl::Call => {
                self.find(i.ip(), Kind::SystemCall, Operand::None);
                true
            }
        }
    }

    /// The callee by the linkage table's word that a call or jump goes through.
    fn slot_of(&self, i: &Instruction) -> Option<Callee<'c>> {
        if i.op0_kind() == OpKind::Memory && i.is_ip_rel_memory_operand() {
            self.slot(i.ip_rel_memory_address())
        } else {
            None
        }
    }

    /// Notes the effects of any call.
    fn clobber(&mut self, at: u32) {
        self.handlers(self.ins[at as usize].instruction.ip());
        let access = &mut self.ins[at as usize].access;
        access.writes |= access::CLOBBERED;
        access.reads |= access::ARGUMENTS;
    }

    /// Whether the last call noted returns to code of this function.
    fn comes_back(&mut self, i: &Instruction) -> bool {
        let goes_on = self.goes_on(i);
        let Some(call) = self.calls.last_mut() else { return goes_on };
        call.goes_on =
            goes_on && !matches!(call.callee, Callee::Function(target) if self.ending.contains(&target));
        call.goes_on
    }

    /// Whether code of the function follows a call. A call at a function's end does not return.
    fn goes_on(&self, i: &Instruction) -> bool {
        let next = i.next_ip();
        match self.code.function(i.ip()) {
            Some(f) if f.end > f.start && i.ip() < f.end => next < f.end,
            _ => self.code.function(next).is_none_or(|f| f.start != next),
        }
    }

    /// Notes the synchronisation in a single instruction.
    fn synchronisation(&mut self, i: &Instruction) {
        let memory = operand(i);
        let kind = match i.mnemonic() {
            Mnemonic::Mfence | Mnemonic::Sfence | Mnemonic::Lfence | Mnemonic::Serialize => Kind::Fence,
            Mnemonic::Pause | Mnemonic::Tpause | Mnemonic::Umwait | Mnemonic::Mwait | Mnemonic::Mwaitx => {
                Kind::Wait
            }
            Mnemonic::Xchg if memory != Operand::None => Kind::AtomicUpdate,
            Mnemonic::Aadd | Mnemonic::Aand | Mnemonic::Aor | Mnemonic::Axor => Kind::AtomicUpdate,
            _ if i.has_lock_prefix() => match memory {
                Operand::Stack => Kind::Fence,
                _ => Kind::AtomicUpdate,
            },
            _ => return,
        };
        self.find(i.ip(), kind, memory);
    }

    /// Resolves indirect calls, and functions given to known ones, by values.
    fn values(&mut self, graph: &Graph) {
        let mut values = Values { code: self.code, ins: &self.ins, graph, budget: self.budget };
        let mut more = Vec::new();
        let mut resolved = Vec::new();
        let mut lost = Vec::new();
        for (number, call) in self.calls.iter().enumerate() {
            let i = values.ins[call.at as usize].instruction;
            match call.callee {
                Callee::Unknown if self.pending.contains(&number) => match values.branch(call.at) {
                    Some(Value::Number(target)) => resolved.push((number, target)),
                    _ => lost.push(i),
                },
                Callee::Known(_, known) => {
                    for &register in known.callbacks {
                        match values.register(register, call.at) {
                            Some(Value::Number(0)) => {}
                            Some(Value::Number(target)) => more.push((call.at, target)),
                            _ => lost.push(i),
                        }
                    }
                }
                _ => {}
            }
        }
        for i in lost {
            self.find(i.ip(), Kind::IndirectCall, operand(&i));
        }
        for (number, target) in resolved {
            let (at, callee) = (self.calls[number].at, self.callee(target));
            let address = self.ins[at as usize].instruction.ip();
            self.call(at, callee, address);
            self.calls.swap_remove(number);
            // The call just noted replaces the unknown one.
        }
        for (at, target) in more {
            let callee = self.callee(target);
            let address = self.ins[at as usize].instruction.ip();
            self.call(at, callee, address);
        }
    }

    fn finish(mut self, graph: Graph) -> Body<'c> {
        let frame =
            self.ins.iter().filter(|one| one.access.writes & access::bit(Register::RBP) != 0).all(|one| {
                let i = &one.instruction;
                match i.mnemonic() {
                    Mnemonic::Mov => i.op1_kind() == OpKind::Register && i.op1_register() == Register::RSP,
                    Mnemonic::Lea => i.memory_base() == Register::RSP,
                    Mnemonic::Pop | Mnemonic::Leave | Mnemonic::Enter => true,
                    _ => false,
                }
            }) && self.ins.iter().any(|one| {
                let i = &one.instruction;
                matches!(i.mnemonic(), Mnemonic::Mov | Mnemonic::Lea) && i.op0_register() == Register::RBP
            });
        let mut stores = false;
        for one in &mut self.ins {
            if frame && one.instruction.memory_base() == Register::RBP {
                one.access.stores = false;
            }
            stores |= one.access.stores;
        }
        self.findings.sort_unstable();
        self.findings.dedup();
        let taken = self.ins.iter().filter_map(|one| taken(&one.instruction, frame)).collect();
        // Where the flow is lost, the function may return.
        let lost = |f: &Finding| matches!(f.kind, Kind::IndirectJump | Kind::NotCode | Kind::Limit);
        Body {
            returns: self.returns || self.findings.iter().any(lost),
            tails: self.tails,
            ins: self.ins,
            graph,
            calls: self.calls,
            findings: self.findings,
            stores,
            frame,
            taken,
        }
    }
}

/// The kind of an instruction's memory operand.
pub(crate) fn operand(i: &Instruction) -> Operand {
    let has_memory = (0..i.op_count()).any(|n| i.op_kind(n) == OpKind::Memory);
    if !has_memory {
        Operand::None
    } else if i.is_ip_rel_memory_operand() {
        Operand::Global(i.ip_rel_memory_address())
    } else if i.memory_base() == Register::RSP {
        Operand::Stack
    } else if i.memory_base() == Register::None
        && i.memory_index() == Register::None
        && !matches!(i.memory_segment(), Register::FS | Register::GS)
    {
        Operand::Global(i.memory_displacement64())
    } else {
        Operand::Other
    }
}
