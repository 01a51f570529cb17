//! Follows one function to all code that it can reach, and gives the verdict.
//!
//! Stands on `body` (one function), `loops` (which of its loops wait) and `value` (the functions given as callbacks).

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::body::{Body, Callee};
use crate::finding::{Finding, Kind, Place, Verdict};
use crate::input::{Function, Object, Processor};
use crate::isa::{Convention, Registers};
use crate::known::Effect;
use crate::loops::{self, CallEffect};
use crate::phases::{self, Phase};

/// The work after which [`Kind::Limit`] is found.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The most instructions, over all functions.
    pub instructions: usize,
    /// The most functions.
    pub functions: usize,
    /// The most steps of following values and loops.
    pub steps: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { instructions: 200_000, functions: 2_000, steps: 20_000_000 }
    }
}

/// The rest of the limits.
#[derive(Debug)]
pub(crate) struct Budget {
    pub(crate) instructions: usize,
    pub(crate) steps: usize,
}

impl Budget {
    /// Takes one step; returns false if none is left.
    pub(crate) fn step(&mut self) -> bool {
        let left = self.steps > 0;
        self.steps = self.steps.saturating_sub(1);
        left
    }
}

/// The result for a function: all that it can reach.
#[derive(Debug, Clone)]
pub struct Reach {
    /// The consequence for the protocol.
    pub verdict: Verdict,
    /// All findings, by address.
    pub findings: Vec<Finding>,
    /// The known library entry points called, with their effects.
    pub calls: BTreeMap<String, Effect>,
    /// The phases from barrier to barrier, if they are known. The first begins with the function.
    pub phases: Vec<Phase>,
    /// The number of functions examined, the first included.
    pub functions: usize,
    /// The number of instructions examined.
    pub instructions: usize,
}

/// The code of a process.
#[derive(Debug)]
pub struct Code<'a> {
    objects: Vec<Object<'a>>,
    /// The segments: start, end, object, segment; sorted by start.
    stretches: Vec<(u64, u64, usize, usize)>,
    limits: Limits,
    convention: &'static Convention,
}

impl<'a> Code<'a> {
    /// The code of these objects, whose slots should be resolved between them already ([`crate::elf::link`]).
    pub fn new(mut objects: Vec<Object<'a>>) -> Code<'a> {
        let mut stretches = Vec::new();
        for (index, object) in objects.iter_mut().enumerate() {
            object.slots.sort_by_key(|slot| slot.address);
            // Of several symbols at one address, one with a name and an end is kept.
            object.functions.sort_by_key(|f| (f.start, f.name.is_none(), u64::MAX - f.end));
            object.functions.dedup_by(|next, kept| {
                let same = next.start == kept.start;
                if same {
                    kept.end = kept.end.max(next.end);
                    kept.handlers = kept.handlers.max(next.handlers);
                }
                same
            });
            for (segment, part) in object.segments.iter().enumerate() {
                let end = part.address.saturating_add(part.bytes.len() as u64);
                stretches.push((part.address, end, index, segment));
            }
        }
        stretches.sort_unstable();
        let processor = objects.first().map_or(Processor::HERE, |object| object.processor);
        let convention = processor.isa().convention();
        Code { objects, stretches, limits: Limits::default(), convention }
    }

    /// The code with other limits.
    pub fn with_limits(self, limits: Limits) -> Code<'a> {
        Code { limits, ..self }
    }

    /// The processor that the code is for: that of the first object.
    pub fn processor(&self) -> Processor {
        self.objects.first().map_or(Processor::HERE, |object| object.processor)
    }

    /// What the processor's calling convention says of registers.
    pub(crate) fn convention(&self) -> &'static Convention {
        self.convention
    }

    /// The objects given.
    pub fn objects(&self) -> &[Object<'a>] {
        &self.objects
    }

    fn stretch(&self, address: u64) -> Option<(usize, usize)> {
        let behind = self.stretches.partition_point(|s| s.0 <= address);
        let &(_, end, object, segment) = self.stretches.get(behind.checked_sub(1)?)?;
        (address < end).then_some((object, segment))
    }

    /// The object that has this address in code or constants.
    pub(crate) fn object_of(&self, address: u64) -> Option<usize> {
        self.stretch(address).map(|(object, _)| object)
    }

    /// The bytes from this address to the end of its segment.
    fn bytes(&self, address: u64, executable: bool) -> Option<&'a [u8]> {
        let (object, segment) = self.stretch(address)?;
        let segment = &self.objects[object].segments[segment];
        if executable && !segment.executable {
            return None;
        }
        segment.bytes.get(usize::try_from(address - segment.address).ok()?..)
    }

    /// The code from this address to the end of its segment.
    pub(crate) fn code(&self, address: u64) -> Option<&'a [u8]> {
        self.bytes(address, true)
    }

    /// The mapped bytes from this address to the end of its segment.
    pub(crate) fn table(&self, address: u64) -> Option<&'a [u8]> {
        self.bytes(address, false)
    }

    /// The slot at this address.
    pub(crate) fn slot(&self, address: u64) -> Option<&crate::input::Slot<'a>> {
        self.objects.iter().find_map(|object| {
            let at = object.slots.binary_search_by_key(&address, |slot| slot.address).ok()?;
            object.slots.get(at)
        })
    }

    /// The function, or part of one, that contains an address.
    pub fn function(&self, address: u64) -> Option<&Function<'a>> {
        let functions = &self.objects[self.object_of(address)?].functions;
        let behind = functions.partition_point(|f| f.start <= address);
        // Symbols may lie within others, so a few earlier ones are checked, too.
        functions[..behind].iter().rev().take(4).find(|f| address == f.start || address < f.end)
    }

    /// A description of an address: its function with the offset, and its object with the offset there.
    pub fn describe(&self, address: u64) -> String {
        let around = |o: &&Object<'_>| (o.base.max(1)..o.end).contains(&address);
        let Some(object) =
            self.object_of(address).map(|at| &self.objects[at]).or_else(|| self.objects.iter().find(around))
        else {
            return format!("{address:#x}");
        };
        let file = object.name.rsplit('/').next().filter(|n| !n.is_empty()).unwrap_or("the program");
        let inside = address.wrapping_sub(object.base);
        match self.function(address).and_then(|f| f.name.map(|name| (name, address - f.start))) {
            Some((name, 0)) => format!("{name} ({file}+{inside:#x})"),
            Some((name, offset)) => format!("{name}+{offset:#x} ({file}+{inside:#x})"),
            None => format!("{file}+{inside:#x}"),
        }
    }

    /// A finding as a sentence without a full stop.
    pub fn sentence(&self, finding: &Finding) -> String {
        let place = match finding.operand {
            Place::Global(address) => format!(" of the global at {}", self.describe(address)),
            Place::Stack => " on the stack".to_string(),
            Place::None | Place::Other => String::new(),
        };
        format!("{} has {}{place}", self.describe(finding.address), finding.kind)
    }

    /// Everything that the function at this address can reach.
    pub fn reach(&self, function: u64) -> Reach {
        let mut budget = Budget { instructions: self.limits.instructions, steps: self.limits.steps };
        let isa = self.processor().isa();
        let mut bodies: Vec<Body> = Vec::new();
        let mut index: HashMap<u64, usize> = HashMap::new();
        let mut findings: Vec<Finding> = Vec::new();
        let mut calls: BTreeMap<String, Effect> = BTreeMap::new();
        let mut ending: HashSet<u64> = HashSet::new();
        let mut waiting = vec![function];
        loop {
            let Some(start) = waiting.pop() else {
                // Code behind a call that never returns is not reached from there: the function is examined again without it.
                let more = never_return(&bodies, &index, &ending);
                if more.is_empty() {
                    break;
                }
                ending.extend(more);
                bodies.clear();
                index.clear();
                findings.clear();
                calls.clear();
                waiting.push(function);
                continue;
            };
            if index.contains_key(&start) {
                continue;
            }
            if bodies.len() >= self.limits.functions || budget.instructions == 0 {
                findings.push(Finding { address: start, kind: Kind::Limit, operand: Place::None });
                break;
            }
            let body = Body::new(self, &*isa, start, &ending, &mut budget);
            for call in &body.calls {
                match call.callee {
                    Callee::Function(target) => waiting.push(target),
                    Callee::Known(name, known) => {
                        calls.insert(name.to_string(), known.effect);
                    }
                    Callee::Unknown => {}
                }
            }
            findings.extend_from_slice(&body.findings);
            index.insert(start, bodies.len());
            bodies.push(body);
        }
        let stores = stores(&bodies, &index);
        let clobbered = self.convention.clobbered;
        let writes = writes(&bodies, &index, self.convention);
        for body in &bodies {
            let effect = |callee: &Callee<'_>| match callee {
                Callee::Function(target) => match index.get(target) {
                    Some(&at) => CallEffect { stores: stores[at], loads: true, writes: writes[at] },
                    None => CallEffect { stores: true, loads: true, writes: clobbered },
                },
                Callee::Known(_, known) => {
                    CallEffect { stores: known.writes, loads: known.reads, writes: clobbered }
                }
                Callee::Unknown => CallEffect { stores: true, loads: true, writes: clobbered },
            };
            loops::waits(self, body, &effect, &mut budget, &mut findings);
        }
        findings.sort_unstable();
        findings.dedup();
        let verdict = Verdict::of(&findings);
        let phases = phases::phases(self, &bodies, &index, &findings).unwrap_or_default();
        let instructions = self.limits.instructions - budget.instructions;
        Reach { verdict, findings, calls, phases, functions: bodies.len(), instructions }
    }
}

/// The functions that call others but never return, besides those already known. They are found upwards from functions that can
/// return, so an endless recursion counts.
fn never_return(bodies: &[Body<'_>], index: &HashMap<u64, usize>, known: &HashSet<u64>) -> Vec<u64> {
    let mut returns: Vec<bool> = bodies.iter().map(|body| body.returns).collect();
    loop {
        let more = |at: usize, body: &Body<'_>| {
            !returns[at] && body.tails.iter().any(|to| index.get(to).is_none_or(|&callee| returns[callee]))
        };
        let found: Vec<usize> =
            bodies.iter().enumerate().filter(|&(at, body)| more(at, body)).map(|(at, _)| at).collect();
        if found.is_empty() {
            break;
        }
        found.into_iter().for_each(|at| returns[at] = true);
    }
    // The answer matters only where code follows a call.
    let matters = |start: &u64| {
        !known.contains(start)
            && bodies
                .iter()
                .flat_map(|body| &body.calls)
                .any(|c| matches!(c.callee, Callee::Function(to) if to == *start && c.goes_on))
    };
    index.iter().filter(|(_, at)| !returns[**at]).map(|(start, _)| *start).filter(matters).collect()
}

/// For each body, the registers that it or anything it calls may have changed when it returns.
fn writes(bodies: &[Body<'_>], index: &HashMap<u64, usize>, convention: &Convention) -> Vec<Registers> {
    let calls = |body: &Body<'_>| -> HashSet<u32> { body.calls.iter().map(|call| call.at).collect() };
    // What links a call may come between, too.
    let own = |body: &Body<'_>| {
        let calls = calls(body);
        let plain = (0..body.ins.len() as u32).filter(|at| !calls.contains(at));
        plain.fold(convention.linking, |set, at| set | body.ins[at as usize].access.writes)
    };
    let mut writes: Vec<Registers> = bodies.iter().map(own).collect();
    loop {
        let before = writes.clone();
        for (at, body) in bodies.iter().enumerate() {
            for call in &body.calls {
                writes[at] |= match call.callee {
                    Callee::Function(target) => {
                        index.get(&target).map_or(convention.clobbered, |&callee| before[callee])
                    }
                    Callee::Known(..) | Callee::Unknown => convention.clobbered,
                };
            }
        }
        if writes == before {
            return writes;
        }
    }
}

/// For each body, whether it or anything it calls writes memory other than its own stack.
fn stores(bodies: &[Body<'_>], index: &HashMap<u64, usize>) -> Vec<bool> {
    let mut callers: Vec<Vec<usize>> = vec![Vec::new(); bodies.len()];
    let mut stores = vec![false; bodies.len()];
    for (at, body) in bodies.iter().enumerate() {
        stores[at] = body.stores;
        for call in &body.calls {
            match call.callee {
                Callee::Function(target) => match index.get(&target) {
                    Some(&callee) => callers[callee].push(at),
                    None => stores[at] = true,
                },
                Callee::Known(_, known) => stores[at] |= known.writes,
                Callee::Unknown => stores[at] = true,
            }
        }
    }
    let mut changed: Vec<usize> = (0..bodies.len()).filter(|&at| stores[at]).collect();
    while let Some(at) = changed.pop() {
        for &caller in &callers[at] {
            if !stores[caller] {
                stores[caller] = true;
                changed.push(caller);
            }
        }
    }
    stores
}
