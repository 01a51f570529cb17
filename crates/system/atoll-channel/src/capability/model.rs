//! Tests the table against a slow and obvious one, and against the rule that no holder gets what it was not given.
//!
//! Random operations by random holders use handles that are valid, of other holders, revoked, altered and invented. After each
//! one the table must answer as the model does, down to the reason; whatever it allows was given to the holder by one who had
//! it; revoked capabilities are refused; its lists and counts agree.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::{HashMap, HashSet};

use proptest::prelude::*;

use crate::capability::{Handle, Holder, Limits, Refused, Rights, Secret, Span, Table};
use atoll_transport::Node;

const NODE: Node = Node(4);
const BYTES: u64 = 12;
const LIMITS: Limits = Limits { each: 12, all: 30 };
/// The holders, of which the first owns the memory.
const HOLDERS: [Holder; 4] = [
    Holder { node: NODE, process: 0 },
    Holder { node: NODE, process: 1 },
    Holder { node: Node(5), process: 0 },
    Holder { node: Node(5), process: 1 },
];

/// The handle that an operation uses.
#[derive(Clone, Debug)]
enum Which {
    /// A handle that was given out, at any time to anybody.
    Known(usize),
    /// A handle that was given out, altered.
    Altered(usize, Alter),
    /// A handle that was never given out, except with a chance of 2⁻⁶⁴.
    Invented(u32, u32, u64),
}

#[derive(Clone, Debug)]
enum Alter {
    Node(u32),
    Slot(u32),
    Generation(u32),
    Check(u64),
}

#[derive(Clone, Debug)]
enum Op {
    Create(Rights),
    Derive(Which, Span, Rights),
    Grant(Which, usize, Span, Rights),
    Split(Which, u64),
    Revoke(Which),
    Delete(Which),
    DropHolder(usize),
}

fn which() -> impl Strategy<Value = Which> {
    let alter = prop_oneof![
        any::<u32>().prop_map(Alter::Node),
        (0..LIMITS.all).prop_map(Alter::Slot),
        (0..4u32).prop_map(Alter::Generation),
        any::<u64>().prop_map(Alter::Check),
    ];
    prop_oneof![
        12 => any::<usize>().prop_map(Which::Known),
        1 => (any::<usize>(), alter).prop_map(|(known, alter)| Which::Altered(known, alter)),
        1 => (0..LIMITS.all, 0..4u32, any::<u64>()).prop_map(|(s, g, c)| Which::Invented(s, g, c)),
    ]
}

fn span() -> impl Strategy<Value = Span> {
    let usual = (0..BYTES, 0..=BYTES).prop_map(|(offset, length)| Span { offset, length });
    let edge = || prop_oneof![Just(0), Just(1), Just(u64::MAX), Just(u64::MAX - 1), 0..=BYTES + 1];
    let odd = (edge(), edge()).prop_map(|(offset, length)| Span { offset, length });
    let whole = Just(Span { offset: 0, length: BYTES });
    prop_oneof![6 => usual, 1 => odd, 2 => whole]
}

fn rights() -> impl Strategy<Value = Rights> {
    prop_oneof![
        2 => (0..32u8).prop_map(Rights::from_bits_truncate),
        3 => Just(Rights::all()),
        2 => Just(Rights::READ | Rights::GRANT),
        1 => Just(Rights::READ),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        2 => rights().prop_map(Op::Create),
        6 => (which(), span(), rights()).prop_map(|(w, s, r)| Op::Derive(w, s, r)),
        9 => (which(), 0..HOLDERS.len(), span(), rights()).prop_map(|(w, to, s, r)| Op::Grant(w, to, s, r)),
        3 => (which(), 0..=BYTES).prop_map(|(w, at)| Op::Split(w, at)),
        3 => which().prop_map(Op::Revoke),
        3 => which().prop_map(Op::Delete),
        1 => (0..HOLDERS.len()).prop_map(Op::DropHolder),
    ]
}

/// A capability of the model. It is never removed, only marked.
#[derive(Clone)]
struct Known {
    handle: Handle,
    parent: Option<usize>,
    holder: Holder,
    maker: Holder,
    memory: usize,
    /// The absolute range; the end is not included.
    bytes: (u64, u64),
    rights: Rights,
    alive: bool,
}

/// A power: one byte of one memory, and one right on it.
type Power = (usize, u64, Rights);

#[derive(Default)]
struct Model {
    known: Vec<Known>,
    memories: usize,
    /// All powers that each holder was ever given, by the owner or by a holder who had them and might grant them. Kept apart
    /// from all rules about capabilities.
    ever: HashMap<Holder, HashSet<Power>>,
}

impl Model {
    /// The capability that a handle names, alive or dead.
    fn named(&self, handle: Handle) -> Result<usize, Refused> {
        if handle.node != NODE {
            return Err(Refused::OtherNode { theirs: handle.node, ours: NODE });
        }
        let at = self.known.iter().position(|known| known.handle == handle).ok_or(Refused::Forged)?;
        if self.known[at].alive { Ok(at) } else { Err(Refused::Revoked) }
    }

    fn held(&self, by: Holder, handle: Handle) -> Result<usize, Refused> {
        let at = self.named(handle)?;
        if self.known[at].holder == by { Ok(at) } else { Err(Refused::NotHolder) }
    }

    /// The absolute bytes of a part.
    fn part(&self, at: usize, part: Span) -> Result<(u64, u64), Refused> {
        let (begin, end) = self.known[at].bytes;
        let (from, to) = (
            u128::from(begin) + u128::from(part.offset),
            u128::from(begin) + u128::from(part.offset) + u128::from(part.length),
        );
        if to > u128::from(end) {
            return Err(Refused::Range { asked: part, length: end - begin });
        }
        Ok((from as u64, to as u64))
    }

    fn allows(&self, at: usize, rights: Rights) -> Result<(), Refused> {
        let missing = Rights::from_bits_truncate(rights.bits() & !self.known[at].rights.bits());
        if missing == Rights::empty() { Ok(()) } else { Err(Refused::Rights { missing }) }
    }

    fn check(
        &self,
        by: Holder,
        handle: Handle,
        part: Span,
        rights: Rights,
    ) -> Result<(usize, u64, u64), Refused> {
        let at = self.held(by, handle)?;
        self.allows(at, rights)?;
        let (from, to) = self.part(at, part)?;
        Ok((self.known[at].memory, from, to))
    }

    fn alive(&self) -> impl Iterator<Item = &Known> {
        self.known.iter().filter(|known| known.alive)
    }

    fn made(&self, by: Holder) -> u32 {
        self.alive().filter(|known| known.maker == by).count() as u32
    }

    fn room(&self, by: Holder, more: u32) -> Result<(), Refused> {
        if self.made(by) + more > LIMITS.each {
            return Err(Refused::TooMany { most: LIMITS.each });
        }
        if self.alive().count() as u32 + more > LIMITS.all {
            return Err(Refused::Full { most: LIMITS.all });
        }
        Ok(())
    }

    /// The child of a capability; whether there is room for it is not checked.
    fn child(
        &self,
        by: Holder,
        handle: Handle,
        to: Holder,
        part: Span,
        rights: Rights,
        grant: bool,
    ) -> Result<Known, Refused> {
        let at = self.held(by, handle)?;
        self.allows(at, if grant { rights | Rights::GRANT } else { rights })?;
        let bytes = self.part(at, part)?;
        if bytes.0 == bytes.1 {
            let length = self.known[at].bytes.1 - self.known[at].bytes.0;
            return Err(Refused::Range { asked: part, length });
        }
        let memory = self.known[at].memory;
        Ok(Known { handle, parent: Some(at), holder: to, maker: by, memory, bytes, rights, alive: true })
    }

    /// Adds a capability, whose handle must be a new one.
    fn add(&mut self, known: Known, handle: Handle) {
        assert!(self.known.iter().all(|other| other.handle != handle), "a handle was given out twice");
        assert_eq!(handle.node, NODE);
        if known.maker != known.holder || known.parent.is_none() {
            let powers: Vec<Power> = (known.bytes.0..known.bytes.1)
                .flat_map(|byte| known.rights.iter().map(move |right| (known.memory, byte, right)))
                .collect();
            if known.parent.is_some() {
                let makers = &self.ever[&known.maker];
                assert!(powers.iter().all(|power| makers.contains(power)), "granted what it had not");
                let may = |&(memory, byte, _): &Power| makers.contains(&(memory, byte, Rights::GRANT));
                assert!(powers.iter().all(may), "granted what it might not");
            }
            self.ever.entry(known.holder).or_default().extend(powers);
        }
        self.known.push(Known { handle, ..known });
    }

    fn below(&self, mut at: usize, root: usize) -> bool {
        while let Some(parent) = self.known[at].parent {
            if parent == root {
                return true;
            }
            at = parent;
        }
        false
    }

    /// Marks the capabilities that `goes` selects, and returns their handles.
    fn kill(&mut self, goes: impl Fn(&Model, usize) -> bool) -> HashSet<Handle> {
        let going: Vec<usize> =
            (0..self.known.len()).filter(|at| self.known[*at].alive && goes(self, *at)).collect();
        going
            .into_iter()
            .map(|at| {
                self.known[at].alive = false;
                self.known[at].handle
            })
            .collect()
    }
}

struct Run {
    table: Table<usize>,
    model: Model,
}

impl Run {
    fn handle(&self, which: &Which) -> Handle {
        let invented = |slot, generation, check| Handle { node: NODE, slot, generation, check };
        let known = |number: usize| match self.model.known.len() {
            0 => invented(0, 0, 0),
            // Mostly one of the newest, so that chains become long.
            all => self.model.known[all - 1 - (number % all.min(1 + number % 17))].handle,
        };
        match which {
            Which::Known(number) => known(*number),
            Which::Invented(slot, generation, check) => invented(*slot, *generation, *check),
            Which::Altered(number, alter) => {
                let mut handle = known(*number);
                match alter {
                    Alter::Node(node) => handle.node = Node(*node),
                    Alter::Slot(slot) => handle.slot = *slot,
                    Alter::Generation(generation) => handle.generation = *generation,
                    Alter::Check(check) => handle.check = *check,
                }
                handle
            }
        }
    }

    /// The holder of the capability that an operation names, if there is one.
    fn honest(&self, op: &Op) -> Option<Holder> {
        let (Op::Derive(which, ..)
        | Op::Grant(which, ..)
        | Op::Split(which, _)
        | Op::Revoke(which)
        | Op::Delete(which)) = op
        else {
            return None;
        };
        let handle = self.handle(which);
        self.model.known.iter().find(|known| known.handle == handle).map(|known| known.holder)
    }

    fn step(&mut self, by: Holder, op: &Op) {
        match op {
            Op::Create(rights) => {
                let (owner, memory) = (HOLDERS[0], self.model.memories);
                let made = self.table.create(owner, memory, BYTES, *rights);
                assert_eq!(made.map(|_| ()), self.model.room(owner, 1));
                if let Ok(handle) = made {
                    self.model.memories += 1;
                    let known = Known {
                        handle,
                        parent: None,
                        holder: owner,
                        maker: owner,
                        memory,
                        bytes: (0, BYTES),
                        rights: *rights,
                        alive: true,
                    };
                    self.model.add(known, handle);
                }
            }
            Op::Derive(which, part, rights) => {
                let handle = self.handle(which);
                let made = self.table.derive(by, handle, *part, *rights);
                let expected = self.model.child(by, handle, by, *part, *rights, false);
                self.made(by, made, expected);
            }
            Op::Grant(which, to, part, rights) => {
                let handle = self.handle(which);
                let made = self.table.grant(by, handle, HOLDERS[*to], *part, *rights);
                let expected = self.model.child(by, handle, HOLDERS[*to], *part, *rights, true);
                self.made(by, made, expected);
            }
            Op::Split(which, at) => self.split(by, self.handle(which), *at),
            Op::Revoke(which) => {
                let handle = self.handle(which);
                let gone = self.table.revoke(by, handle).map(handles);
                let expected = self.model.held(by, handle);
                assert_eq!(gone, expected.map(|root| self.model.kill(|model, at| model.below(at, root))));
            }
            Op::Delete(which) => {
                let handle = self.handle(which);
                let gone = self.table.delete(by, handle).map(handles);
                let expected = self.model.named(handle).and_then(|root| {
                    let known = &self.model.known[root];
                    let above = known.parent.is_some_and(|parent| self.model.known[parent].holder == by);
                    if known.holder == by || above { Ok(root) } else { Err(Refused::NotHolder) }
                });
                let expected =
                    expected.map(|root| self.model.kill(|model, at| at == root || model.below(at, root)));
                assert_eq!(gone, expected);
            }
            Op::DropHolder(number) => {
                let holder = HOLDERS[*number];
                let gone = handles(self.table.drop_holder(holder));
                let held: Vec<usize> = (0..self.model.known.len())
                    .filter(|at| self.model.known[*at].alive && self.model.known[*at].holder == holder)
                    .collect();
                let expected = self
                    .model
                    .kill(|model, at| held.iter().any(|root| at == *root || model.below(at, *root)));
                assert_eq!(gone, expected);
                assert_eq!((self.table.held_by(holder), self.table.made_by(holder)), (0, 0));
            }
        }
    }

    fn made(&mut self, by: Holder, made: Result<Handle, Refused>, expected: Result<Known, Refused>) {
        let expected = expected.and_then(|known| self.model.room(by, 1).map(|()| known));
        match (made, expected) {
            (Ok(handle), Ok(known)) => self.model.add(known, handle),
            (made, expected) => assert_eq!(made.err(), expected.err()),
        }
    }

    fn split(&mut self, by: Holder, handle: Handle, at: u64) {
        let made = self.table.split(by, handle, at);
        let expected = self.model.held(by, handle).and_then(|known| {
            let Known { bytes, rights, .. } = self.model.known[known];
            let length = bytes.1 - bytes.0;
            if at == 0 || at >= length {
                return Err(Refused::Range { asked: Span { offset: at, length: 0 }, length });
            }
            self.model.room(by, 2)?;
            let child = |offset, length| {
                self.model.child(by, handle, by, Span { offset, length }, rights, false).unwrap()
            };
            Ok((child(0, at), child(at, length - at)))
        });
        match (made, expected) {
            (Ok(made), Ok(expected)) => {
                self.model.add(expected.0, made.0);
                self.model.add(expected.1, made.1);
            }
            (made, expected) => assert_eq!(made.err(), expected.err()),
        }
    }

    /// Makes every holder try every handle there ever was, and compares the table with the model.
    fn agree(&self, part: Span, rights: Rights) {
        self.table.assert_sound();
        assert_eq!(self.table.len() as usize, self.model.alive().count());
        for holder in HOLDERS {
            let held = self.model.alive().filter(|known| known.holder == holder).count();
            assert_eq!(self.table.held_by(holder) as usize, held);
            assert_eq!(self.table.made_by(holder), self.model.made(holder));
            for known in &self.model.known {
                let view = self.table.view(holder, known.handle);
                let expected = self.model.held(holder, known.handle);
                assert_eq!(view.map(|view| view.rights), expected.map(|_| known.rights));
                // The whole with all its rights, and then something random.
                let whole = Span { offset: 0, length: known.bytes.1 - known.bytes.0 };
                for (part, rights) in [(whole, known.rights), (part, rights)] {
                    self.try_check(holder, known.handle, part, rights);
                }
            }
        }
    }

    fn try_check(&self, holder: Holder, handle: Handle, part: Span, rights: Rights) {
        let checked = self.table.check(holder, handle, part, rights);
        let checked = checked.map(|checked| {
            let end = checked.span.offset + checked.span.length;
            (**checked.memory, checked.span.offset, end)
        });
        assert_eq!(checked, self.model.check(holder, handle, part, rights));
        let Ok((memory, from, to)) = checked else { return };
        let ever = &self.model.ever[&holder];
        for byte in from..to {
            for right in rights.iter() {
                assert!(ever.contains(&(memory, byte, right)), "{holder} was never given {right} on {byte}");
            }
        }
    }
}

fn handles(gone: Vec<crate::capability::Revoked<usize>>) -> HashSet<Handle> {
    let count = gone.len();
    let handles: HashSet<Handle> = gone.into_iter().map(|one| one.handle).collect();
    assert_eq!(handles.len(), count);
    handles
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn nobody_gets_what_he_was_not_given(
        ops in proptest::collection::vec((0..HOLDERS.len(), any::<bool>(), op(), span(), rights()), 1..120),
        secret: [u8; 16],
    ) {
        let mut run = Run { table: Table::new(NODE, LIMITS, Secret(secret)), model: Model::default() };
        run.step(HOLDERS[0], &Op::Create(Rights::all()));
        for (by, honest, op, part, rights) in &ops {
            let by = HOLDERS[*by];
            run.step(run.honest(op).filter(|_| *honest).unwrap_or(by), op);
            run.agree(*part, *rights);
        }
        // At the end nothing is left over.
        for holder in HOLDERS {
            run.table.drop_holder(holder);
        }
        prop_assert!(run.table.is_empty());
        run.table.assert_sound();
    }
}
