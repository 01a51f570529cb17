//! One function: its instructions, found by following its control flow, its calls, and the effects of single instructions.
//!
//! Used by `reach`. Jumps are followed into other parts of the function (`foo.cold`) wherever they lie; a jump to the start of
//! another function is a call. Indirect jumps are resolved by `table`, indirect calls by `value`.

use std::collections::{HashMap, HashSet};

use crate::finding::{Finding, Kind, Place};
use crate::graph::{Graph, NONE};
use crate::input::Handlers;
use crate::isa::{Flow, Instruction, Isa, Op, Operand, Register};
use crate::known::{self, Effect, Known};
use crate::listing::Listing;
use crate::reach::{Budget, Code};
use crate::table;
use crate::unwind;
use crate::value::{Value, Values};

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
    pub(crate) ins: Listing<'c>,
    pub(crate) graph: Graph,
    /// The calls, including functions that are given to a known one.
    pub(crate) calls: Vec<Call<'c>>,
    /// The findings in single instructions.
    pub(crate) findings: Vec<Finding>,
    /// Whether it writes memory other than its stack, calls not counted.
    pub(crate) stores: bool,
    /// The register that holds the frame, if there is one.
    pub(crate) frame: Option<Register>,
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
        isa: &'c dyn Isa,
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
            isa,
            ins: Listing::new(code, isa),
            index: HashMap::new(),
            jumps: Vec::new(),
            calls: Vec::new(),
            findings: Vec::new(),
            open: vec![(start, None)],
            indirect: Vec::new(),
            taken: Vec::new(),
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
        let offset = i.displacement().cast_signed();
        self.taken.iter().any(|&(base, from)| base != i.base() || from <= offset)
    }

    /// Whether the instruction's memory is the worker's own: its stack or its thread-local data.
    pub(crate) fn is_private(&self, i: &Instruction) -> bool {
        i.memory.is_some_and(|memory| {
            memory.base == Register::STACK || self.frame == Some(memory.base) || memory.own
        })
    }
}

/// An address, in the stack or by the frame's register, that an instruction puts somewhere.
struct Taken {
    base: Register,
    offset: i64,
    /// The register that it is put into, if it is one.
    to: Register,
}

/// A function that is being decoded.
struct Build<'b, 'c, 'a> {
    code: &'c Code<'a>,
    budget: &'b mut Budget,
    ending: &'b HashSet<u64>,
    start: u64,
    /// The known extent of the function; empty if unknown.
    own: (u64, u64),
    isa: &'c dyn Isa,
    ins: Listing<'c>,
    index: HashMap<u64, u32>,
    jumps: Vec<(u32, u32)>,
    calls: Vec<Call<'c>>,
    findings: Vec<Finding>,
    /// The addresses to decode from, each with the jump that leads there.
    open: Vec<(u64, Option<u32>)>,
    /// The addresses that may be the stack's and are put somewhere.
    taken: Vec<Taken>,
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
    fn find(&mut self, address: u64, kind: Kind, operand: Place) {
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
                let i = self.ins.instruction(at);
                self.find(i.ip, Kind::IndirectJump, place(&i));
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
                None => self.find(address, Kind::IndirectJump, Place::None),
            }
        }
    }

    fn decode_open(&mut self) {
        while let Some((address, from)) = self.open.pop() {
            if let Some(from) = from
                && let jump = self.ins.instruction(from)
                && let Some(callee) = self.leaves(address, matches!(jump.flow, Flow::Jump(_)))
            {
                // A jump out of the function is a call and a return.
                self.call(from, callee, jump.ip);
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
        self.slot(self.isa.stub(self.code.code(address)?, address)?)
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
                    Effect::Yields => self.find(address, Kind::Wait, Place::None),
                    Effect::Synchronises => self.find(address, Kind::SynchronisingCall, Place::None),
                    _ => {}
                }
                known.effect != Effect::NoReturn
            }
            Callee::Function(target) => {
                if self.code.code(target).is_none() {
                    self.find(address, Kind::NotCode, Place::None);
                }
                true
            }
            Callee::Unknown => {
                self.find(address, Kind::UnresolvedCall, Place::None);
                true
            }
        }
    }

    /// Decodes from an address to where control does not pass on. Returns the first instruction.
    fn run(&mut self, address: u64) -> Option<u32> {
        let Some(bytes) = self.code.code(address) else {
            self.find(address, Kind::NotCode, Place::None);
            return None;
        };
        let (mut first, mut last, mut ip) = (None, NONE, address);
        loop {
            if let Some(&at) = self.index.get(&ip) {
                self.follow(last, at);
                return first.or(Some(at));
            }
            if self.budget.instructions == 0 {
                self.find(ip, Kind::Limit, Place::None);
                return first;
            }
            let rest = (ip - address) as usize;
            let Some(rest) = bytes.get(rest..).filter(|rest| !rest.is_empty()) else {
                self.find(ip, Kind::NotCode, Place::None);
                return first;
            };
            self.budget.instructions -= 1;
            let Some(instruction) = self.isa.decode(rest, ip) else {
                self.find(ip, Kind::NotKnown, Place::None);
                return first;
            };
            let at = self.ins.push(&instruction);
            self.index.insert(ip, at);
            self.follow(last, at);
            first = first.or(Some(at));
            last = at;
            ip = instruction.next_ip();
            if !self.instruction(at, &instruction) {
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
    fn instruction(&mut self, at: u32, i: &Instruction) -> bool {
        if let Some(kind) = i.synchronises {
            self.find(i.ip, kind, place(i));
        }
        self.taken.extend(i.taken.map(|(base, offset)| Taken { base, offset, to: i.target() }));
        match i.flow {
            Flow::Next => true,
            Flow::Jump(to) => {
                self.open.push((to, Some(at)));
                false
            }
            Flow::Branch(to) => {
                self.open.push((to, Some(at)));
                true
            }
            Flow::Transaction(to) => {
                self.find(i.ip, Kind::AtomicUpdate, Place::Other);
                self.open.extend(to.map(|to| (to, Some(at))));
                true
            }
            Flow::Return => {
                self.returns = true;
                false
            }
            Flow::Stop => false,
            Flow::Call(to) => {
                self.clobber(at);
                let callee = self.callee(to);
                self.call(at, callee, i.ip) && self.comes_back(i)
            }
            Flow::IndirectCall => {
                self.clobber(at);
                match self.slot_of(i) {
                    Some(callee) => self.call(at, callee, i.ip) && self.comes_back(i),
                    None => {
                        // The call's target is searched for when the control flow is known.
                        self.pending.push(self.calls.len());
                        self.calls.push(Call { at, callee: Callee::Unknown, goes_on: false });
                        self.goes_on(i)
                    }
                }
            }
            Flow::IndirectJump => {
                match self.slot_of(i) {
                    Some(callee) => {
                        self.call(at, callee, i.ip);
                        self.tail(callee);
                    }
                    None => self.indirect.push(at),
                }
                false
            }
            Flow::System => {
                self.find(i.ip, Kind::SystemCall, Place::None);
                true
            }
        }
    }

    /// The callee by the linkage table's word that a call or jump goes through.
    fn slot_of(&self, i: &Instruction) -> Option<Callee<'c>> {
        let memory = i.memory.filter(|_| i.first == Operand::Memory)?;
        self.slot(memory.global?)
    }

    /// Notes the effects of any call.
    fn clobber(&mut self, at: u32) {
        self.handlers(self.ins[at as usize].ip);
        let convention = self.code.convention();
        let access = &mut self.ins[at as usize].access;
        access.writes |= convention.clobbered;
        access.reads |= convention.passed;
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
        match self.code.function(i.ip) {
            Some(f) if f.end > f.start && i.ip < f.end => next < f.end,
            _ => self.code.function(next).is_none_or(|f| f.start != next),
        }
    }

    /// Resolves indirect calls, and functions given to known ones, by values.
    fn values(&mut self, graph: &Graph) {
        let mut values = Values { code: self.code, ins: &self.ins, graph, budget: self.budget };
        let mut more = Vec::new();
        let mut resolved = Vec::new();
        let mut lost = Vec::new();
        for (number, call) in self.calls.iter().enumerate() {
            match call.callee {
                Callee::Unknown if self.pending.contains(&number) => match values.branch(call.at) {
                    Some(Value::Number(target)) => resolved.push((number, target)),
                    _ => lost.push(call.at),
                },
                Callee::Known(_, known) => {
                    for &argument in known.callbacks {
                        let register = self.code.convention().arguments[argument];
                        match values.register(register, call.at) {
                            Some(Value::Number(0)) => {}
                            Some(Value::Number(target)) => more.push((call.at, target)),
                            _ => lost.push(call.at),
                        }
                    }
                }
                _ => {}
            }
        }
        for at in lost {
            let i = self.ins.instruction(at);
            self.find(i.ip, Kind::IndirectCall, place(&i));
        }
        for (number, target) in resolved {
            let (at, callee) = (self.calls[number].at, self.callee(target));
            let address = self.ins[at as usize].ip;
            self.call(at, callee, address);
            self.calls.swap_remove(number);
            // The call just noted replaces the unknown one.
        }
        for (at, target) in more {
            let callee = self.callee(target);
            let address = self.ins[at as usize].ip;
            self.call(at, callee, address);
        }
    }

    fn finish(mut self, graph: Graph) -> Body<'c> {
        let register = self.code.convention().frame;
        let sets_up = |i: &Instruction| match i.op {
            Op::Move => i.second == Operand::Register(Register::STACK),
            Op::Address => i.base() == Register::STACK,
            _ => false,
        };
        let changes = |&at: &u32| self.ins[at as usize].access.writes & register.bit() != 0;
        let mut changes = (0..self.ins.len() as u32).filter(changes).map(|at| self.ins.instruction(at));
        let is_frame = changes.clone().all(|i| sets_up(&i) || i.restores)
            && changes.any(|i| sets_up(&i) && i.target() == register);
        let frame = is_frame.then_some(register);
        let mut stores = false;
        for at in 0..self.ins.len() {
            let by_frame = |register| self.ins.instruction(at as u32).base() == register;
            if self.ins[at].access.stores {
                self.ins[at].access.stores = !frame.is_some_and(by_frame);
                stores |= self.ins[at].access.stores;
            }
        }
        self.findings.sort_unstable();
        self.findings.dedup();
        let on_stack = |register| register == Register::STACK || frame == Some(register);
        let is_taken = |one: &&Taken| on_stack(one.base) && !on_stack(one.to);
        let taken = self.taken.iter().filter(is_taken).map(|one| (one.base, one.offset)).collect();
        // Where the flow is lost, the function may return.
        let lost =
            |f: &Finding| matches!(f.kind, Kind::IndirectJump | Kind::NotCode | Kind::NotKnown | Kind::Limit);
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

/// The memory that an instruction works on.
pub(crate) fn place(i: &Instruction) -> Place {
    let Some(memory) = i.memory else { return Place::None };
    match memory.global {
        Some(address) => Place::Global(address),
        None if memory.base == Register::STACK => Place::Stack,
        None if memory.base == Register::NONE && memory.index == Register::NONE && !memory.own => {
            Place::Global(memory.displacement)
        }
        None => Place::Other,
    }
}
