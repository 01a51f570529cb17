//! What the agent does when another node's agent says something, and how the origin ends them all.
//!
//! `peers` brings the packets (`wire`); `asked` does the same for workers of this node.

use std::time::{Duration, Instant};

use atoll_coherence::agent::Message;
use atoll_coherence::copy::State;
use atoll_coherence::directory::Want;
use atoll_coherence::merge::Page;

use super::super::calls::{self, Come, Reply};
use super::super::mail;
use super::super::wire::{Content, Diff, Packet};
use super::super::{ORIGIN, measure, nonsense, races, region, tls};
use super::{GOODBYE, Server};

impl Server {
    /// Another node's agent says something.
    pub(super) fn hear(&mut self, from: u32, packet: Packet) {
        match packet {
            Packet::Coherence(message) => {
                if !self.is_sound(&message) {
                    nonsense(&format!("node {from} speaks of pages or nodes that do not exist"));
                }
                match self.taken(&message).filter(|page| self.hold.keeps(*page)) {
                    Some(page) if self.some_run() => self.hold.wait(page, from, message),
                    _ => self.receive(from, message),
                }
            }
            Packet::Files(process, numbers) => {
                if self.pages.direct.offered(from, &process, &numbers, self.pager) {
                    self.peers.send(from, Packet::Reads);
                }
            }
            Packet::Reads => self.pages.direct.is_read_by(from),
            Packet::Variables(news) if (from == ORIGIN || self.me == ORIGIN) && tls::put(&news) => {}
            Packet::Region(order) if from == ORIGIN => {
                // Others may be past a barrier while this node waits for differences: the last region is not over here.
                self.next = Some(order);
                self.begin_next();
            }
            Packet::Publish(value) if from == ORIGIN => region::set_published(value),
            Packet::Lock { name, by, wait } if self.me == ORIGIN => self.lock(name, (from, by), wait),
            Packet::Unlock(name) if self.me == ORIGIN => self.unlock(name),
            Packet::Touched { at, by } => self.lend_file(from, at, by),
            Packet::Mapped { by, found } if mail::is_number(by) => self.told(from, by, found),
            Packet::Forget { at, len, by } => self.forget(from, at, len, by),
            Packet::Forgotten { by } if mail::is_number(by) => self.forgotten(by),
            Packet::Pool { words, by } if self.me == ORIGIN => self.pool(words, (from, by)),
            Packet::Futex { words, by } if self.me == ORIGIN => self.futex(words, (from, by)),
            Packet::Answer { by, answer } if from == ORIGIN && mail::is_number(by) => {
                mail::answer(by, [answer, 0]);
            }
            Packet::Call { by, words, bytes } => calls::come(Come { from, by, words, bytes }),
            Packet::Called { by, result, errno, bytes } if mail::is_number(by) => {
                if let Some(at) = self.calls.remove(&by) {
                    // SAFETY: the worker's that called, which waits.
                    unsafe { (*(at as *mut calls::Call)).reply = Reply { result, errno, bytes } };
                    mail::answer(by, [0; 2]);
                }
            }
            Packet::Threads { wanted, limit, back, by } if self.me == ORIGIN => {
                self.threads([wanted, limit, back], (from, by));
            }
            Packet::Granted { by, threads } if from == ORIGIN && mail::is_number(by) => {
                mail::answer(by, [threads.into(), 0]);
            }
            Packet::Single { number, by } if self.me == ORIGIN => self.single(number, (from, by)),
            Packet::Locked { by, taken } if from == ORIGIN && mail::is_number(by) => {
                mail::answer(by, [u64::from(taken), 0]);
            }
            Packet::Chunk { share, wish, by } if self.me == ORIGIN => self.chunk(share, wish, (from, by)),
            Packet::Chunks { by, from: first, to } if from == ORIGIN && mail::is_number(by) => {
                mail::answer(by, [first, to]);
            }
            Packet::Actions(actions) if from == ORIGIN => crate::wrap::replay::actions_came(&actions),
            Packet::Signal { signal, raised } if self.me == ORIGIN => {
                crate::wrap::raise::came(signal, raised);
            }
            Packet::Free(block) => crate::heap::foreign::give_back(block as usize),
            Packet::Exit(_) if from == ORIGIN => {
                self.ending = true;
                let (counts, regions) = (self.counts.all().to_vec(), measure::counted(self.pager.control()));
                self.peers.send(ORIGIN, Packet::Goodbye(counts, regions));
                self.pages.settle();
                self.peers.deliver(GOODBYE);
                crate::wrap::end_node();
            }
            Packet::Races(found) if self.me == ORIGIN => races::count(&found),
            Packet::Crowded(function) if self.me == ORIGIN => region::crowded(function),
            Packet::Part(told) if self.me == ORIGIN => measure::heard(from, told),
            Packet::Counts(counts) if self.me == ORIGIN => {
                self.pager.control().nodes[from as usize].set(&counts);
            }
            Packet::Goodbye(counts, regions) if self.me == ORIGIN => {
                self.ended += 1;
                self.pager.control().nodes[from as usize].set(&counts);
                measure::add(self.pager.control(), from, regions);
            }
            // The thread that runs what the program registered needs this one.
            Packet::Leave { status, handlers: true } if self.me == ORIGIN => {
                crate::wrap::process::exit_for_node(status);
            }
            Packet::Leave { status, .. } if self.me == ORIGIN => {
                self.end_others(status);
                crate::wrap::end_by_node(status);
            }
            _ => nonsense(&format!("node {from} says what it should not say now")),
        }
    }

    /// The protocol's next step.
    pub(super) fn receive(&mut self, from: u32, message: Message<Content, Diff>) {
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

    /// Are the numbers in it some that this node has?
    fn is_sound(&self, message: &Message<Content, Diff>) -> bool {
        let page = |page: Page| self.pager.stretch(page).is_some();
        let node = |node: u8| u32::from(node) < self.nodes;
        match message {
            Message::Ask(p, _)
            | Message::Installed(p)
            | Message::Dropped(p)
            | Message::Invalidate(p)
            | Message::Grant(p)
            | Message::Data(p, ..)
            | Message::Diff(p, _) => page(*p),
            Message::Forward(p, to, _) => page(*p) && node(*to),
            Message::Withdraw | Message::Withdrawn => true,
            Message::Written(pages) => pages.iter().all(|p| page(*p)),
            Message::Merge(orders) => {
                orders.drop.iter().chain(&orders.keep).all(|p| page(*p))
                    && orders.send.iter().all(|(p, to)| page(*p) && node(*to))
                    && orders.merge.iter().all(|(p, _)| page(*p))
            }
        }
    }

    /// On the origin: the program has ended.
    pub(super) fn end_others(&mut self, status: i32) {
        self.ending = true;
        self.peers.broadcast(|| Packet::Exit(status));
        self.pages.settle();
        self.peers.deliver(GOODBYE);
        let until = Instant::now() + GOODBYE;
        while self.ended + 1 < self.nodes && Instant::now() < until {
            if self.round(true) == 0 {
                self.peers.wait(Duration::from_millis(10));
            }
        }
        self.peers.outlast(GOODBYE);
    }
}
