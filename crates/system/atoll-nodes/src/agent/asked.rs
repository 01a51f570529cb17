//! Questions of the node's workers: each goes to whose trade it is.
//!
//! `mail` brings the questions; `heard` does the same for other nodes' agents.

use super::Server;
use crate::mail::{self, Kind, Question};
use crate::wire::Packet;
use crate::{ORIGIN, calls, region};

impl Server {
    /// A worker of this node asks.
    pub(super) fn asked(&mut self, question: Question) {
        let Question { number, kind, words } = question;
        match kind {
            Kind::Fault => self.fault(question),
            Kind::Arrive => self.arrive(number, words[0], words[1] != 0),
            Kind::Origin(service) => self.ask_origin(service, words, number),
            Kind::Touched => self.touched(words[0], words[1] as u32, number),
            Kind::Forget => self.have_forgotten(words, number),
            Kind::Call => {
                // SAFETY: the worker's, which waits.
                let call = unsafe { &mut *(words[0] as *mut calls::Call) };
                let (to, words, bytes) = (call.to, call.words, std::mem::take(&mut call.bytes));
                self.calls.insert(number, std::ptr::from_mut(call) as usize);
                self.peers.send(to, Packet::Call { by: number, words, bytes });
            }
            Kind::Called => {
                // SAFETY: the thread's, which waits.
                let calls::Done { to, by, reply } = unsafe { &mut *(words[0] as *mut calls::Done) };
                let calls::Reply { result, errno, bytes } = std::mem::take(reply);
                self.peers.send(*to, Packet::Called { by: *by, result, errno, bytes });
                mail::answer(number, [0; 2]);
            }
            Kind::Speak => {
                self.speak();
                mail::answer(number, [0; 2]);
            }
            Kind::Region if self.agent.is_settled() => self.begin_region(number),
            // What is asked for ahead: it would take pages from nodes that write them beside others already.
            Kind::Region => self.phase.begins = Some(number),
            Kind::Publish => {
                self.peers.broadcast(|| Packet::Publish(words[0]));
                region::set_published(words[0]);
                mail::answer(number, [0; 2]);
            }
            Kind::Free => {
                self.peers.send(words[1] as u32, Packet::Free(words[0]));
                mail::answer(number, [0; 2]);
            }
            Kind::Signal => {
                self.peers.send(ORIGIN, Packet::Signal { signal: words[0] as i32, raised: true });
                mail::answer(number, [0; 2]);
            }
            Kind::Exit if self.me == ORIGIN => {
                self.end_others(words[0] as i32);
                mail::answer(number, [0; 2]);
            }
            // The worker is not answered: the origin ends the program.
            Kind::Exit => {
                let (status, handlers) = (words[0] as i32, words[1] != 0);
                self.peers.send(ORIGIN, Packet::Leave { status, handlers });
            }
        }
    }
}
