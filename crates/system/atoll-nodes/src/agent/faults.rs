//! Pages that workers of this node wait for: they ask, the protocol brings them, and each worker tries again.
//!
//! `asked` brings the questions and `heard` the protocol's messages; those that would take a page which was only just given wait
//! (`hold`). Where workers walk along pages, what they will want next is done ahead.

use std::collections::HashMap;
use std::time::Instant;

use atoll_coherence::agent::{Fault, Message, Mode};
use atoll_coherence::copy::State;
use atoll_coherence::directory::Want;
use atoll_coherence::merge::Page;
use atoll_coherence::thrash::Thrash;
use atoll_memory::control::NodeCount;
use atoll_pages::Prefetcher;

use super::Server;
use crate::hold::Hold;
use crate::mail::{self, Number, Question};
use crate::region::{self, Calming};
use crate::wire::{Content, Diff, Packet};
use crate::{ORIGIN, clock};

/// A kind of access to a page on which a worker faults. Each kind has streams of its own.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Access {
    /// The worker needs the page's content.
    Read,
    /// The worker needs to be the page's only writer.
    Write,
    /// The worker writes a copy that is here, as one of many writers.
    Twin,
}

impl Access {
    fn of(fault: Fault, mode: Mode, state: State) -> Access {
        match (fault, mode) {
            (Fault::Read, _) => Access::Read,
            (Fault::Write, Mode::ManyWriters) if state == State::Nothing => Access::Read,
            (Fault::Write, Mode::ManyWriters) => Access::Twin,
            (Fault::Write, Mode::OneWriter) => Access::Write,
        }
    }

    /// The most pages that are done ahead. Pages to be written are taken from other nodes, so they are fewer.
    fn window(self) -> u32 {
        match self {
            Access::Read => 256,
            Access::Write => 128,
            Access::Twin => 64,
        }
    }
}

/// The workers that wait for pages.
pub(super) struct Faults {
    /// Workers that wait for a page.
    pub(super) waiting: HashMap<Page, Vec<Number>>,
    /// The time since which faults on a page wait.
    asked: HashMap<Page, Instant>,
    streams: HashMap<(Number, Access), Prefetcher>,
    /// Messages that would take what a worker was only just given.
    pub(super) hold: Hold<Message<Content, Diff>>,
    /// Whether pages go to and fro, where that is looked for.
    thrash: Option<Thrash>,
}

impl Faults {
    pub(super) fn new() -> Faults {
        Faults {
            waiting: HashMap::new(),
            asked: HashMap::new(),
            streams: HashMap::new(),
            hold: Hold::new(),
            thrash: None,
        }
    }
}

impl Server {
    /// A worker may not do what it does with a page.
    pub(super) fn fault(&mut self, question: Question) {
        let Question { number, words, .. } = question;
        if !self.agent.released() && !self.agent.is_out() {
            return self.barriers.late.push(question);
        }
        let (page, fault) = (words[0], if words[1] == 0 { Fault::Read } else { Fault::Write });
        while let Some((from, message)) = self.faults.hold.take_of(page) {
            self.receive(from, message);
        }
        if let Some(thrash) = &mut self.faults.thrash {
            thrash.asked(page);
        }
        let mode = if self.phase.many { Mode::ManyWriters } else { Mode::OneWriter };
        let access = Access::of(fault, mode, self.agent.state(page));
        self.faults.waiting.entry(page).or_default().push(number);
        // What is only to be written is not worth fetching to read.
        let missing = self.agent.state(page) == State::Nothing;
        self.phase.phases.waits(page, missing && (fault == Fault::Read || mode == Mode::ManyWriters));
        self.faults.asked.entry(page).or_insert_with(Instant::now);
        let result = self.agent.fault(page, fault, mode, &mut self.pages);
        self.step(result);
        if self.faults.asked.contains_key(&page) {
            let count = if access == Access::Read { NodeCount::Reads } else { NodeCount::Writes };
            self.counts.add(count, 1);
        }
        self.stream(number, page, access);
    }

    /// A worker walks along pages: does ahead what it will want next.
    fn stream(&mut self, number: Number, page: Page, access: Access) {
        // Beyond it are pages of no address, which the agent cannot see either.
        let Some(stretch) = self.pager.stretch(page) else { return };
        let streams = self.faults.streams.entry((number, access));
        let window = streams.or_insert_with(|| Prefetcher::new(access.window(), 0)).fault(page, stretch);
        for page in window.pages().skip(1) {
            let (fault, mode) = match (access, self.agent.state(page)) {
                (Access::Read, State::Nothing) => (Fault::Read, Mode::OneWriter),
                (Access::Write, State::Nothing | State::Shared) => (Fault::Write, Mode::OneWriter),
                (Access::Twin, State::Shared) => (Fault::Write, Mode::ManyWriters),
                _ => continue,
            };
            self.counts.add(NodeCount::Streamed, 1);
            if access == Access::Read {
                self.phase.phases.streams(page);
            }
            let result = self.agent.fault(page, fault, mode, &mut self.pages);
            self.step(result);
        }
    }

    /// Lets the workers try again whose pages are here.
    pub(super) fn resume(&mut self) {
        for page in std::mem::take(&mut self.pages.resumed) {
            self.phase.phases.came(page);
            if let Some(asked) = self.faults.asked.remove(&page) {
                let waited = asked.elapsed().as_nanos() as u64;
                self.counts.add(NodeCount::FaultNs, waited);
                self.look_for_thrashing(waited);
            }
            let mut asleep = None;
            let waiting = self.faults.waiting.remove(&page);
            if waiting.is_some() {
                self.pages.settle();
            }
            for number in waiting.into_iter().flatten() {
                *asleep.get_or_insert(false) |= mail::answer(number, [0; 2]);
            }
            if let Some(asleep) = asleep
                && !self.phase.many
            {
                self.faults.hold.given(page, asleep, Instant::now());
            }
        }
    }

    /// Does a worker of this node run, and may use the pages that it has? Where all wait for pages, none is kept from other nodes.
    fn some_run(&self) -> bool {
        let waiting: usize = self.faults.waiting.values().map(Vec::len).sum();
        !self.barriers.waits() && waiting < region::workers() as usize
    }

    /// In a calmed region, do workers of this node come before those of higher numbers? Also while all wait for pages: the others,
    /// which wait for pages of this node, give theirs at once. Not while they wait for what others' workers must do: at a
    /// barrier, or for locks.
    fn comes_before(&self) -> bool {
        !self.barriers.waits() && self.waiting_for_locks() < region::workers() as usize
    }

    /// A region begins: its pages are watched, or it is calmed.
    pub(super) fn watch_for_thrashing(&mut self, calming: Calming) {
        self.faults.hold.set_calm(calming == Calming::AtOnce);
        if self.me == ORIGIN {
            region::set_thrashed(calming == Calming::AtOnce);
        }
        self.faults.thrash = (calming == Calming::Watched).then(|| {
            let mut thrash = Thrash::default();
            thrash.restart(clock::now());
            thrash
        });
    }

    /// A worker has waited `ns` for a page: has the origin calm the region if its pages go to and fro.
    fn look_for_thrashing(&mut self, ns: u64) {
        let Some(thrash) = &mut self.faults.thrash else { return };
        if !thrash.waited(ns, clock::now(), region::workers()) {
            return;
        }
        self.faults.thrash = None;
        if self.me == ORIGIN {
            self.calm();
        } else {
            self.peers.send(ORIGIN, Packet::Thrashes);
        }
    }

    /// On the origin: the region that runs is calmed on all nodes.
    pub(super) fn calm(&mut self) {
        if !self.faults.hold.is_calm() {
            self.faults.hold.set_calm(true);
            self.faults.thrash = None;
            region::set_thrashed(true);
            self.peers.broadcast(|| Packet::Calm);
        }
    }

    /// Is the message of a node of a higher number, for which it would take a page of this one in a calmed region?
    fn is_calmed(&self, from: u32, message: &Message<Content, Diff>) -> bool {
        let (page, whose) = match message {
            Message::Ask(page, _) => (*page, from),
            Message::Forward(page, to, _) => (*page, u32::from(*to)),
            // It does not say for whom: on the origin for another node.
            Message::Invalidate(page) if self.me == ORIGIN => (*page, u32::MAX),
            _ => return false,
        };
        self.faults.hold.is_calm() && whose > self.me && self.agent.state(page) != State::Nothing
    }

    /// The protocol's message from node `from` takes its next step, or waits where it would take what a worker was only just given.
    pub(super) fn receive_or_hold(&mut self, from: u32, message: Message<Content, Diff>) {
        let Some(page) = self.taken(&message) else { return self.receive(from, message) };
        let calmed = self.is_calmed(from, &message);
        if calmed && self.comes_before() || self.faults.hold.keeps(page) && self.some_run() {
            return self.faults.hold.wait(page, from, message, calmed);
        }
        self.receive(from, message);
    }

    /// The protocol's next step.
    fn receive(&mut self, from: u32, message: Message<Content, Diff>) {
        if self.faults.thrash.is_some()
            && let Some(page) = self.taken(&message)
            && let Some(thrash) = &mut self.faults.thrash
        {
            thrash.taken(page);
        }
        let result = self.agent.receive(from as u8, message, &mut self.pages);
        self.step(result);
    }

    /// The page that the message takes from this node's workers, or their leave to write it.
    fn taken(&self, message: &Message<Content, Diff>) -> Option<Page> {
        let (page, want) = match message {
            Message::Invalidate(page) => (*page, Want::Write),
            Message::Ask(page, want) | Message::Forward(page, _, want) => (*page, *want),
            _ => return None,
        };
        (want == Want::Write || self.agent.state(page) == State::Exclusive).then_some(page)
    }

    /// Takes the next steps of the messages that were held and need not wait any more; returns how many these were.
    pub(super) fn let_go(&mut self) -> usize {
        let mut done = 0;
        if !self.faults.hold.waits() {
            return done;
        }
        let over = !self.faults.hold.is_calm() || !self.comes_before();
        while let Some((from, message)) = self.faults.hold.take(!self.some_run(), over) {
            done += 1;
            self.receive(from, message);
        }
        done
    }
}
