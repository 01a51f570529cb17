//! The services of the origin's agent for all workers of all nodes: locks, sleepers on words, and those of the program itself.
//!
//! Workers' questions come from `asked`; on other nodes than the origin they go on to it, and `heard` brings them there.

use std::time::Duration;

use super::Server;
use crate::futexes::{self, Futexes};
use crate::locks::{Locks, Taken};
use crate::mail::Service;
use crate::program::Who;
use crate::wire::Packet;
use crate::{ORIGIN, mail};

/// The origin's tables.
#[derive(Default)]
pub(super) struct Services {
    locks: Locks,
    futexes: Futexes,
    /// Workers that wait for an answer of the program's.
    waiting: usize,
}

impl Server {
    /// A worker of this node asks for a service of the origin.
    pub(super) fn ask_origin(&mut self, service: Service, words: [u64; 3], by: mail::Number) {
        if self.me == ORIGIN {
            self.serve(service, words, (ORIGIN, by));
        } else {
            self.peers.send(ORIGIN, Packet::Ask { service, words, by });
        }
        if service == Service::Unlock {
            mail::answer(by, [0; 2]);
        }
    }

    /// On the origin: serves a worker of any node.
    pub(super) fn serve(&mut self, service: Service, words: [u64; 3], who: Who) {
        match service {
            Service::Lock => match self.services.locks.take(words[0], who, words[1] == 0) {
                Taken::Yes => self.answer(who, [1, 0]),
                Taken::No => self.answer(who, [0; 2]),
                Taken::Later => {}
            },
            Service::Unlock => {
                if let Some(next) = self.services.locks.give(words[0]) {
                    self.answer(next, [1, 0]);
                }
            }
            Service::Futex => self.futex(words, who),
            Service::Program(what) => {
                match self.program.serve(what, words, who) {
                    Some(answers) => self.answer(who, answers),
                    None => self.services.waiting += 1,
                }
                self.answer_of_program();
            }
        }
    }

    /// How many workers of this node wait for locks, as far as this node knows.
    pub(super) fn waiting_for_locks(&self) -> usize {
        self.services.locks.waiting_of(self.me)
    }

    fn futex(&mut self, words: [u64; 3], who: Who) {
        let Some((ask, address)) = futexes::parse(words[0]) else { return self.answer(who, [0; 2]) };
        let futexes = &mut self.services.futexes;
        match ask {
            futexes::Ask::Enter => {
                futexes.enter(address, who, words[1] as u32);
                self.answer(who, [0; 2]);
            }
            futexes::Ask::Leave => {
                let woken = futexes.leave(address, who);
                self.answer(who, [woken.into(), 0]);
            }
            futexes::Ask::Sleep => {
                let limit = (words[1] != u64::MAX).then(|| Duration::from_nanos(words[1]));
                if futexes.sleep(address, who, limit) {
                    self.answer(who, [1, 0]);
                }
            }
            futexes::Ask::Wake => {
                let (count, slept) = futexes.wake(address, words[1] as u32, words[2] as u32);
                slept.into_iter().for_each(|sleeper| self.answer(sleeper, [1, 0]));
                self.answer(who, [count.into(), 0]);
            }
        }
    }

    /// Gives the program's answers that can be given now; returns how many.
    fn answer_of_program(&mut self) -> usize {
        let mut done = 0;
        while self.services.waiting > 0
            && let Some((who, answers)) = self.program.serve_late()
        {
            self.services.waiting -= 1;
            self.answer(who, answers);
            done += 1;
        }
        done
    }

    /// On the origin: lets sleepers go on whose time is over, and workers whose answer from the program is due; returns how many.
    pub(super) fn answer_in_time(&mut self) -> usize {
        let over = self.services.futexes.over();
        over.iter().for_each(|sleeper| self.answer(*sleeper, [0; 2]));
        over.len() + self.answer_of_program()
    }

    /// The time until such a worker can go on; none if nobody waits.
    pub(super) fn services_sleep(&self) -> Option<Duration> {
        let of_program = if self.services.waiting > 0 { self.program.next_time() } else { None };
        [self.services.futexes.longest_sleep(), of_program].into_iter().flatten().min()
    }
}
