//! Messages of other nodes' agents: each goes to whose trade it is.
//!
//! `peers` brings the packets (`wire`); `asked` does the same for workers of this node. What a node should not say, or not to this one,
//! ends the run.

use atoll_coherence::agent::Message;
use atoll_coherence::merge::Page;

use super::Server;
use crate::calls::{self, Come, Reply};
use crate::wire::{Content, Diff, Packet};
use crate::{ORIGIN, mail, nonsense, races, region};

impl Server {
    /// Another node's agent says something.
    pub(super) fn hear(&mut self, from: u32, packet: Packet) {
        match packet {
            Packet::Coherence(message) => {
                if !self.is_sound(&message) {
                    nonsense(&format!("node {from} speaks of pages or nodes that do not exist"));
                }
                self.receive_or_hold(from, message);
            }
            Packet::Files(process, numbers) => {
                if self.pages.direct.offered(from, &process, &numbers, self.pager) {
                    self.peers.send(from, Packet::Reads);
                }
            }
            Packet::Reads => self.pages.direct.is_read_by(from),
            Packet::Program(message) if self.program.hear(from, &message) => {
                self.speak();
                self.leave_for_work();
            }
            Packet::Region(region) if from == ORIGIN => {
                // Others may be past a barrier while this node waits for differences: the last region is not over here.
                self.phase.next = Some(region);
                self.begin_next();
            }
            Packet::Publish(value) if from == ORIGIN => region::set_published(value),
            Packet::Ask { service, words, by } if self.me == ORIGIN => self.serve(service, words, (from, by)),
            Packet::Answer { by, answers } if from == ORIGIN && mail::is_number(by) => {
                mail::answer(by, answers);
            }
            Packet::Touched { at, by } => self.lend_file(from, at, by),
            Packet::Mapped { by, found } if mail::is_number(by) => self.told(from, by, found),
            Packet::Forget { at, len, by } => self.forget(from, at, len, by),
            Packet::Forgotten { by } if mail::is_number(by) => self.forgotten(by),
            Packet::Call { by, words, bytes } => calls::come(Come { from, by, words, bytes }),
            Packet::Called { by, result, errno, bytes } if mail::is_number(by) => {
                if let Some(at) = self.calls.remove(&by) {
                    // SAFETY: the worker's that called, which waits.
                    unsafe { (*(at as *mut calls::Call)).reply = Reply { result, errno, bytes } };
                    mail::answer(by, [0; 2]);
                }
            }
            Packet::Signal { signal, raised } if self.me == ORIGIN => self.program.raise(signal, raised),
            Packet::Free(block) => self.program.free(block as usize),
            Packet::Races(found) if self.me == ORIGIN => races::count(&found),
            Packet::Crowded(code) if self.me == ORIGIN => self.program.crowded(code),
            Packet::Thrashes if self.me == ORIGIN => self.calm(),
            Packet::Calm if from == ORIGIN => self.faults.hold.set_calm(true),
            Packet::Counts(counts) if self.me == ORIGIN => {
                self.pager.control().nodes[from as usize].set(&counts);
            }
            Packet::Goodbye(counts) if self.me == ORIGIN => {
                self.ending.ended += 1;
                self.pager.control().nodes[from as usize].set(&counts);
            }
            Packet::Exit(_) if from == ORIGIN => self.leave(),
            Packet::Leave { status, handlers } if self.me == ORIGIN => self.end_by_node(status, handlers),
            _ => nonsense(&format!("node {from} says what it should not say now")),
        }
    }

    /// Does this node know all pages and nodes that the message speaks of?
    fn is_sound(&self, message: &Message<Content, Diff>) -> bool {
        let page = |page: Page| self.pager.stretch(page).is_some();
        let node = |node: u8| u32::from(node) < self.nodes;
        match message {
            Message::Ask(p, _)
            | Message::Installed(p)
            | Message::InstalledAlone(p)
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
}
