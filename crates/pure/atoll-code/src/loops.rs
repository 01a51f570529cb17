//! Loops that end only when another worker stores something.
//!
//! Used by `reach` on each function. An acquire load is an ordinary load on this machine, so a wait for a flag shows only in
//! the loop. A loop makes *progress* if the values that its exits test come from something it changes itself: a counter, a
//! pointer that advances, a word it stores, the result of a call with effects. It *polls* if an exit's test comes only from
//! loads of memory it does not change.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::body::{self, Body, Callee};
use crate::finding::{Finding, Kind, Place};
use crate::isa::{Instruction, Memory, Op, Operand, Register, Registers};
use crate::reach::{Budget, Code};

/// The most loops of one function that are examined.
const MOST: usize = 4_096;
/// The number of instructions through which an address is named by its computation.
const DEPTH: u32 = 6;

/// The effect of a call on a loop around it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallEffect {
    /// Whether it may write memory that a loop tests.
    pub(crate) stores: bool,
    /// Whether it may read memory that other workers write.
    pub(crate) loads: bool,
    /// The registers that it may change: compilers know those of functions beside.
    pub(crate) writes: Registers,
}

/// Adds the loops of a function that wait, or may wait, to the findings.
pub(crate) fn waits(
    code: &Code<'_>,
    body: &Body<'_>,
    effect: &dyn Fn(&Callee<'_>) -> CallEffect,
    budget: &mut Budget,
    findings: &mut Vec<Finding>,
) {
    if search(code, body, effect, budget, findings).is_none()
        && let Some(first) = body.ins.first()
    {
        findings.push(Finding { address: first.ip, kind: Kind::Limit, operand: Place::None });
    }
}

fn search(
    code: &Code<'_>,
    body: &Body<'_>,
    effect: &dyn Fn(&Callee<'_>) -> CallEffect,
    budget: &mut Budget,
    findings: &mut Vec<Finding>,
) -> Option<()> {
    let all: Vec<u32> = (0..body.graph.blocks.len() as u32).collect();
    let mut open = body.graph.cycles(&all, budget)?;
    if open.is_empty() {
        return Some(());
    }
    let mut effects: Vec<Option<CallEffect>> = vec![None; body.ins.len()];
    for call in &body.calls {
        let new = effect(&call.callee);
        let old = &mut effects[call.at as usize];
        let both = old.map_or(new, |o| CallEffect {
            stores: o.stores || new.stores,
            loads: o.loads || new.loads,
            writes: o.writes | new.writes,
        });
        *old = Some(both);
    }
    let quiet: Vec<bool> = body
        .graph
        .blocks
        .iter()
        .map(|block| {
            block.ins.iter().all(|&at| {
                !body.ins[at as usize].access.stores && effects[at as usize].is_none_or(|e| !e.stores)
            })
        })
        .collect();
    let mut looked_at = 0;
    while let Some(blocks) = open.pop() {
        looked_at += 1;
        if looked_at > MOST {
            return None;
        }
        let found = Loop::new(code, body, &effects, &blocks).judge(budget)?;
        findings.extend(found.map(|f| f.finding));
        // A loop that does work can contain a path on which it only reads, such as one that moves on when a flag is set.
        for part in quiet_parts(body, &blocks, &quiet, budget)? {
            looked_at += 1;
            let inner = Loop::new(code, body, &effects, &part);
            // A part with a counter ends by itself.
            findings.extend(inner.judge(budget)?.filter(|f| !f.counts).map(|f| f.finding));
        }
        let header = header(body, &blocks);
        let rest: Vec<u32> = blocks.iter().copied().filter(|&b| b != header).collect();
        open.extend(body.graph.cycles(&rest, budget)?);
    }
    Some(())
}

/// The block by which a loop is entered; the first if there are several.
fn header(body: &Body<'_>, blocks: &[u32]) -> u32 {
    let entered = |b: u32| b == 0 || body.graph.blocks[b as usize].before.iter().any(|p| !blocks.contains(p));
    let first = blocks.iter().copied().filter(|&b| entered(b)).min();
    first.or_else(|| blocks.iter().copied().min()).unwrap_or(0)
}

/// The smaller loops, of quiet blocks only, that are left if one branch of a loop never goes one way.
fn quiet_parts(
    body: &Body<'_>,
    blocks: &[u32],
    quiet: &[bool],
    budget: &mut Budget,
) -> Option<Vec<Vec<u32>>> {
    let mut inside = vec![false; quiet.len()];
    for &block in blocks.iter().filter(|&&b| quiet[b as usize]) {
        inside[block as usize] = true;
    }
    let mut parts: Vec<Vec<u32>> = Vec::new();
    for &branch in blocks.iter().filter(|&&b| inside[b as usize]) {
        let next = &body.graph.blocks[branch as usize].next;
        if next.len() < 2 {
            continue;
        }
        for &never in next.iter().filter(|to| blocks.contains(to)) {
            // The blocks that the branch reaches, and those that reach it, without that way.
            let mut forward = vec![false; quiet.len()];
            let mut open: Vec<u32> = next.iter().copied().filter(|&to| to != never).collect();
            while let Some(block) = open.pop() {
                if !budget.step() {
                    return None;
                }
                let at = block as usize;
                if inside[at] && !std::mem::replace(&mut forward[at], true) && block != branch {
                    open.extend(&body.graph.blocks[at].next);
                }
            }
            if !forward[branch as usize] {
                continue;
            }
            let mut part = vec![branch];
            let mut at = 0;
            while let Some(&block) = part.get(at) {
                at += 1;
                if !budget.step() {
                    return None;
                }
                for &before in &body.graph.blocks[block as usize].before {
                    let skipped = block == never && before == branch;
                    if forward[before as usize] && !skipped && !part.contains(&before) {
                        part.push(before);
                    }
                }
            }
            part.sort_unstable();
            if part.len() < blocks.len() && !parts.contains(&part) {
                parts.push(part);
            }
        }
    }
    Some(parts)
}

/// The origin of the value that an exit tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Test {
    /// Something that the loop changes.
    Progress,
    /// A load, by this instruction, of memory the loop does not change.
    Poll(u32),
    /// Nothing that changes.
    Constant,
}

/// A finding of a loop that waits.
struct Waiting {
    finding: Finding,
    /// Whether it gives up by itself.
    counts: bool,
}

/// One loop.
struct Loop<'b, 'c, 'a> {
    code: &'b Code<'a>,
    body: &'b Body<'c>,
    effects: &'b [Option<CallEffect>],
    blocks: &'b [u32],
    /// Whether each block is in the loop.
    within: Vec<bool>,
    /// The registers written in the loop.
    writes: Registers,
    /// The places written by explicit operands whose registers do not change in the loop.
    written: HashSet<u64>,
    /// All stores by explicit operands, by their displacement.
    stores: HashMap<u64, Vec<u32>>,
    /// Whether it writes memory other than its stack, calls not counted.
    writes_memory: bool,
    /// Whether it calls something that may write memory.
    calls_writer: bool,
}

impl<'b, 'c, 'a> Loop<'b, 'c, 'a> {
    fn new(
        code: &'b Code<'a>,
        body: &'b Body<'c>,
        effects: &'b [Option<CallEffect>],
        blocks: &'b [u32],
    ) -> Loop<'b, 'c, 'a> {
        let mut within = vec![false; body.graph.blocks.len()];
        for &block in blocks {
            within[block as usize] = true;
        }
        let mut one = Loop {
            code,
            body,
            effects,
            blocks,
            within,
            writes: 0,
            written: HashSet::new(),
            stores: HashMap::new(),
            writes_memory: false,
            calls_writer: false,
        };
        one.writes = one.instructions().fold(0, |set, at| set | one.writes_of(at));
        for at in one.instructions() {
            let ins = &body.ins[at as usize];
            one.writes_memory |= ins.access.stores;
            one.calls_writer |= effects[at as usize].is_some_and(|e| e.stores);
            if ins.writes_memory {
                let i = one.instruction(at);
                one.stores.entry(i.displacement()).or_default().push(at);
                one.written.extend(one.simple_place(&i));
            }
        }
        one
    }

    fn instructions(&self) -> impl Iterator<Item = u32> + use<'b, 'c> {
        let body = self.body;
        let blocks = self.blocks;
        blocks.iter().flat_map(move |&b| body.graph.blocks[b as usize].ins.iter().copied())
    }

    /// The stores to the place of this name that the instruction `reader` reads.
    fn stores_to(&self, name: u64, reader: &Instruction, budget: &mut Budget) -> Option<Vec<u32>> {
        let mut found = Vec::new();
        for &at in self.stores.get(&reader.displacement()).into_iter().flatten() {
            if self.place(at, DEPTH, budget)? == Some(name) {
                found.push(at);
            }
        }
        Some(found)
    }

    /// The registers that an instruction writes, a call only those that what it calls does.
    fn writes_of(&self, at: u32) -> Registers {
        let writes = self.body.ins[at as usize].access.writes;
        match self.effects[at as usize] {
            Some(effect) => writes & (effect.writes | !self.code.convention().clobbered),
            None => writes,
        }
    }

    fn instruction(&self, at: u32) -> Instruction {
        self.body.ins.instruction(at)
    }

    /// Whether it neither writes shared memory nor calls anything that does.
    fn only_looks(&self) -> bool {
        !self.writes_memory && !self.calls_writer
    }

    /// The finding, if it waits. The outer `None` means that the budget is used up.
    fn judge(&self, budget: &mut Budget) -> Option<Option<Waiting>> {
        let mut poll = None;
        let mut progress = false;
        // Whether all polling exits lead to where the program gives up, as for an error.
        let mut checks = true;
        for &number in self.blocks {
            let block = &self.body.graph.blocks[number as usize];
            let Some(&last) = block.ins.last() else { continue };
            if block.next.iter().all(|&to| self.within[to as usize]) {
                continue;
            }
            match self.test(last, budget)? {
                Test::Progress => progress = true,
                Test::Poll(at) => {
                    let outside = block.next.iter().filter(|&&to| !self.within[to as usize]);
                    checks &= outside.into_iter().all(|&to| !self.body.graph.comes_to_an_end[to as usize]);
                    let better = |old: &u32| !self.body.is_private(&self.instruction(*old));
                    poll = poll.filter(better).or(Some(at));
                }
                Test::Constant => {}
            }
        }
        let Some(at) = poll else { return Some(None) };
        // A counter beside the poll ends the loop without another worker, unless the loop only reads.
        let kind = match (progress, self.only_looks()) {
            (_, true) => Kind::Wait,
            (false, false) => Kind::MayWait,
            (true, false) => return Some(None),
        };
        let i = self.instruction(at);
        let private = self.body.is_private(&i);
        if progress && (private || checks) {
            return Some(None);
        }
        let operand = if private { Place::Stack } else { body::place(&i) };
        Some(Some(Waiting { finding: Finding { address: i.ip, kind, operand }, counts: progress }))
    }

    /// The origin of the value that the branch at a block's end tests.
    fn test(&self, branch: u32, budget: &mut Budget) -> Option<Test> {
        let mut poll = None;
        // A depth-first search without recursion: 1 is on the path, 2 is done.
        let mut state = vec![0u8; self.body.ins.len()];
        let mut path: Vec<(u32, Vec<u32>)> = Vec::new();
        let mut open = Some(branch);
        loop {
            if let Some(at) = open.take() {
                let mut sources = Vec::new();
                match self.sources(at, &mut sources, budget)? {
                    Test::Progress => return Some(Test::Progress),
                    Test::Poll(load) => {
                        // Shared memory counts before the worker's own.
                        let shared = |old: &u32| !self.body.is_private(&self.instruction(*old));
                        poll = poll.filter(shared).or(Some(load));
                    }
                    Test::Constant => {}
                }
                state[at as usize] = 1;
                path.push((at, sources));
            }
            let Some((at, sources)) = path.last_mut() else { break };
            match sources.pop() {
                Some(source) if state[source as usize] == 1 => return Some(Test::Progress),
                Some(source) if state[source as usize] == 0 => open = Some(source),
                Some(_) => {}
                None => {
                    state[*at as usize] = 2;
                    path.pop();
                }
            }
        }
        Some(poll.map_or(Test::Constant, Test::Poll))
    }

    /// The instructions of the loop that produced the values that this one reads, and the result for its memory.
    fn sources(&self, at: u32, sources: &mut Vec<u32>, budget: &mut Budget) -> Option<Test> {
        let i = self.instruction(at);
        if let Some(effect) = self.effects[at as usize]
            && i.is_call()
        {
            if effect.stores {
                return Some(Test::Progress);
            }
            let first = sources.len();
            self.makers(at, i.access.reads, sources, budget)?;
            // Registers that the last call left are no arguments of this one.
            let mut kept = sources.split_off(first);
            kept.retain(|&source| self.effects[source as usize].is_none());
            sources.append(&mut kept);
            return Some(if effect.loads { Test::Poll(at) } else { Test::Constant });
        }
        if i.opaque {
            return Some(Test::Poll(at));
        }
        self.makers(at, i.access.reads, sources, budget)?;
        if !i.access.loads || !i.reads_memory {
            return Some(Test::Constant);
        }
        let place = self.place(at, DEPTH, budget)?;
        if let Some(name) = place {
            let stores = self.stores_to(name, &i, budget)?;
            if !stores.is_empty() {
                let same = |i: u32| stores.contains(&i);
                let made = self.body.graph.definitions(Some(&self.within), at, &|_| true, &same, budget)?;
                if !made.found.is_empty() {
                    sources.extend(made.found);
                    return Some(Test::Constant);
                }
            }
        }
        let global = i.memory.and_then(|memory| memory.global);
        if global.is_some_and(|address| self.code.table(address).is_some()) {
            return Some(Test::Constant);
        }
        if self.body.is_private(&i) || self.is_on_stack(at, budget)? {
            // The variable is the worker's own: others can write it only through its address, and most likely this loop does.
            return Some(match (self.body.is_taken(&i), self.only_looks()) {
                (false, _) => Test::Constant,
                (true, false) => Test::Progress,
                (true, true) => Test::Poll(at),
            });
        }
        Some(Test::Poll(at))
    }

    /// Whether an instruction's memory is addressed by a register that can only hold an address of the worker's own stack.
    fn is_on_stack(&self, at: u32, budget: &mut Budget) -> Option<bool> {
        let base = self.instruction(at).base().bit();
        if base == 0 {
            return Some(false);
        }
        let writes = |i: u32| self.writes_of(i) & base != 0;
        let made = self.body.graph.definitions(None, at, &|b| b.writes & base != 0, &writes, budget)?;
        let of_stack = |&maker: &u32| {
            let i = self.instruction(maker);
            let index = i.memory.map_or(Register::NONE, |memory| memory.index);
            i.op == Op::Address && index == Register::NONE && self.body.is_private(&i)
        };
        Some(!made.outside && !made.found.is_empty() && made.found.iter().all(of_stack))
    }

    /// The instructions of the loop that produced the values of these registers for an instruction.
    fn makers(
        &self,
        at: u32,
        registers: Registers,
        sources: &mut Vec<u32>,
        budget: &mut Budget,
    ) -> Option<()> {
        let returned = self.code.convention().returned;
        let mut left = registers & self.writes;
        while left != 0 {
            let one = left & left.wrapping_neg();
            left &= left - 1;
            let writes = |i: u32| self.writes_of(i) & one != 0;
            let made = self.body.graph.definitions(
                Some(&self.within),
                at,
                &|b| b.writes & one != 0,
                &writes,
                budget,
            )?;
            for source in made.found {
                // The value that a call leaves in other registers is undefined.
                let is_call =
                    || self.effects[source as usize].is_some() && self.instruction(source).is_call();
                if one & returned != 0 || !is_call() {
                    sources.push(source);
                }
            }
        }
        Some(())
    }

    /// A name for the place of a memory operand that is the same in all rounds, if no register in it changes.
    fn simple_place(&self, i: &Instruction) -> Option<u64> {
        let memory = i.memory?;
        if (memory.base.bit() | memory.index.bit()) & self.writes != 0 && memory.global.is_none() {
            return None;
        }
        let part = |register| if register == Register::NONE { 0 } else { named(&("register", register)) };
        Some(place_name(&memory, part(memory.base), part(memory.index)))
    }

    /// A name for the place of a memory operand, also where the address is computed in the loop from values that do not change.
    /// The outer `None` means that the budget is used up.
    fn place(&self, at: u32, depth: u32, budget: &mut Budget) -> Option<Option<u64>> {
        let i = self.instruction(at);
        if let Some(name) = self.simple_place(&i) {
            return Some(Some(name));
        }
        let Some(memory) = i.memory else { return Some(None) };
        let mut parts = [0; 2];
        for (part, register) in parts.iter_mut().zip([memory.base, memory.index]) {
            if register != Register::NONE {
                match self.held(register, at, depth, budget)? {
                    Some(name) => *part = name,
                    None => return Some(None),
                }
            }
        }
        Some(Some(place_name(&memory, parts[0], parts[1])))
    }

    /// A name for the value of a register, if that is the same in all rounds.
    fn held(&self, register: Register, at: u32, depth: u32, budget: &mut Budget) -> Option<Option<u64>> {
        let set = register.bit();
        if set & self.writes == 0 {
            return Some(Some(named(&("register", register))));
        }
        if depth == 0 {
            return Some(None);
        }
        let writes = |i: u32| self.writes_of(i) & set != 0;
        let made =
            self.body.graph.definitions(Some(&self.within), at, &|b| b.writes & set != 0, &writes, budget)?;
        let &[maker] = &made.found[..] else { return Some(None) };
        if made.outside {
            return Some(None);
        }
        let i = self.instruction(maker);
        let code = i.code;
        Some(match (i.op, i.second) {
            (Op::Number(number), _) => Some(named(&("number", number))),
            (Op::Move, Operand::Register(from)) => self.held(from, maker, depth - 1, budget)?,
            (Op::Move | Op::MoveSigned, Operand::Memory) => {
                let stored = self.simple_place(&i).is_some_and(|name| self.written.contains(&name));
                if stored {
                    None
                } else {
                    self.place(maker, depth - 1, budget)?.map(|name| named(&("load", code, name)))
                }
            }
            (Op::MoveSigned, Operand::Register(from)) => {
                self.held(from, maker, depth - 1, budget)?.map(|name| named(&(code, name)))
            }
            (Op::Address, _) => self.place(maker, depth - 1, budget)?.map(|name| named(&("address", name))),
            (Op::Add(Operand::Register(left), Operand::Register(right)), _) => {
                let left = self.held(left, maker, depth - 1, budget)?;
                let right = self.held(right, maker, depth - 1, budget)?;
                // The sum is the same in either order.
                left.zip(right).map(|(a, b)| named(&(code, a.min(b), a.max(b))))
            }
            (
                Op::Add(Operand::Register(left), Operand::Part { register: right, bytes, signed, shift }),
                _,
            ) => {
                let left = self.held(left, maker, depth - 1, budget)?;
                let right = self.held(right, maker, depth - 1, budget)?;
                left.zip(right).map(|(a, b)| named(&(code, a, b, bytes, signed, shift)))
            }
            (
                Op::Add(Operand::Register(from), Operand::Number(number))
                | Op::Scale(Operand::Register(from), number),
                _,
            ) => self.held(from, maker, depth - 1, budget)?.map(|name| named(&(code, name, number))),
            _ => None,
        })
    }
}

fn named(what: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

fn place_name(memory: &Memory, base: u64, index: u64) -> u64 {
    if let Some(address) = memory.global {
        return named(&("global", address));
    }
    let scale = if memory.index == Register::NONE { 0 } else { memory.scale };
    named(&("memory", base, index, scale, memory.displacement, memory.space))
}
