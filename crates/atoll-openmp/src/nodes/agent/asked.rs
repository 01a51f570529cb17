//! What the agent does when a worker of its node asks: pages, barriers, locks, iterations, the program's end.
//!
//! `mail` brings the questions; `heard` answers those that go on to the origin.

use std::time::{Duration, Instant};

use atoll_coherence::agent::{Fault, Mode};
use atoll_coherence::copy::State;
use atoll_coherence::merge::Page;
use atoll_memory::control::NodeCount;
use atoll_pages::Prefetcher;

use super::super::chunks::Wish;
use super::super::locks::Taken;
use super::super::mail::{self, Kind, Number, Question};
use super::super::pools::{self, Ask};
use super::super::wire::Packet;
use super::super::{ORIGIN, calls, futexes, measure, region, tls};
use super::Server;
use crate::omp::contention;

/// What a worker does with a page that it faults on: each kind has streams of its own.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Access {
    /// It needs the page's content.
    Read,
    /// It needs to be the page's only writer.
    Write,
    /// It writes a copy that is here, among many.
    Twin,
}

impl Access {
    fn of(fault: Fault, mode: Mode, state: State) -> Access {
        match (fault, mode) {
            (Fault::Read, _) => Access::Read,
            (Fault::Write, Mode::Many) if state == State::Nothing => Access::Read,
            (Fault::Write, Mode::Many) => Access::Twin,
            (Fault::Write, Mode::Single) => Access::Write,
        }
    }

    /// Pages done ahead at most. What is written ahead is taken from others.
    fn window(self) -> u32 {
        match self {
            Access::Read => 64,
            Access::Write => 16,
            Access::Twin => 8,
        }
    }
}

impl Server {
    /// A worker of this node asks.
    pub(super) fn asked(&mut self, question: Question) {
        let Question { number, kind, words } = question;
        match kind {
            Kind::Fault if !self.agent.released() && !self.agent.is_out() => self.late.push(question),
            Kind::Fault => {
                let (page, fault) = (words[0], if words[1] == 0 { Fault::Read } else { Fault::Write });
                let mode = if region::is_many() { Mode::Many } else { Mode::Single };
                let access = Access::of(fault, mode, self.agent.state(page));
                self.waiting.entry(page).or_default().push(number);
                // What is only to be written is not worth fetching to read.
                let missing = self.agent.state(page) == State::Nothing;
                self.phases.waits(page, missing && (fault == Fault::Read || mode == Mode::Many));
                self.asked.entry(page).or_insert_with(Instant::now);
                let result = self.agent.fault(page, fault, mode, &mut self.pages);
                self.step(result);
                if self.asked.contains_key(&page) {
                    let count = if access == Access::Read { NodeCount::Reads } else { NodeCount::Writes };
                    self.counts.add(count, 1);
                }
                self.stream(number, page, access);
            }
            Kind::Arrive => {
                self.arrived_at = Instant::now();
                self.pages.merging = region::is_many();
                self.arrived = Some(number);
                (self.site, self.last) = (words[0], words[1] != 0);
                // Before this node's arrival: the origin knows when it begins the next region.
                self.tell_if_crowded();
                if self.last && self.me != ORIGIN {
                    // Before what this node wrote: the origin goes on when it has heard of that.
                    let variables = tls::changed();
                    if !variables.is_empty() {
                        self.peers.send(ORIGIN, Packet::Variables(variables));
                    }
                    self.peers.send(ORIGIN, Packet::Part(measure::told()));
                }
                let result = self.agent.arrive(&mut self.pages);
                self.step(result);
            }
            Kind::Lock => self.lock(words[0], (self.me, number), words[1] == 0),
            Kind::Unlock => {
                self.unlock(words[0]);
                mail::answer(number, [0; 2]);
            }
            Kind::Touched => self.touched(words[0], words[1] as u32, number),
            Kind::Forget => self.have_forgotten(words, number),
            Kind::Pool => self.pool(words, (self.me, number)),
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
            Kind::Futex => self.futex(words, (self.me, number)),
            Kind::Threads => {
                let [wanted, limit, back] = words.map(|word| word as u32);
                self.threads([wanted, limit, back], (self.me, number));
            }
            Kind::Single => self.single(words[0], (self.me, number)),
            Kind::Chunk => {
                let (chunks, guided) = ((words[0] >> 1) as u16, words[0] & 1 != 0);
                let wish = Wish { count: words[1], chunk: words[2], chunks, guided };
                self.chunk(words[0] >> 17, wish, (self.me, number));
            }
            Kind::Region if self.agent.is_settled() => self.begin_region(number),
            // What is asked for ahead: it would take pages from nodes that write them beside others already.
            Kind::Region => self.begins = Some(number),
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

    /// A worker walks along pages: does ahead what it will want next.
    fn stream(&mut self, number: Number, page: Page, access: Access) {
        // Beyond it are pages of no address, which the agent cannot see either.
        let Some(stretch) = self.pager.stretch(page) else { return };
        let streams = self.streams.entry((number, access));
        let window = streams.or_insert_with(|| Prefetcher::new(access.window())).fault(page, stretch);
        for page in window.pages().skip(1) {
            let (fault, mode) = match (access, self.agent.state(page)) {
                (Access::Read, State::Nothing) => (Fault::Read, Mode::Single),
                (Access::Write, State::Nothing | State::Shared) => (Fault::Write, Mode::Single),
                (Access::Twin, State::Shared) => (Fault::Write, Mode::Many),
                _ => continue,
            };
            self.counts.add(NodeCount::Streamed, 1);
            if access == Access::Read {
                self.phases.streams(page);
            }
            let result = self.agent.fault(page, fault, mode, &mut self.pages);
            self.step(result);
        }
    }

    pub(super) fn lock(&mut self, name: u64, who: (u32, Number), wait: bool) {
        if self.me != ORIGIN {
            return self.peers.send(ORIGIN, Packet::Lock { name, by: who.1, wait });
        }
        match self.locks.take(name, who, wait) {
            Taken::Yes => self.locked(who, true),
            Taken::No => self.locked(who, false),
            Taken::Later => {}
        }
    }

    fn locked(&mut self, (node, by): (u32, Number), taken: bool) {
        if node == self.me {
            mail::answer(by, [u64::from(taken), 0]);
        } else {
            self.peers.send(node, Packet::Locked { by, taken });
        }
    }

    pub(super) fn unlock(&mut self, name: u64) {
        if self.me != ORIGIN {
            self.peers.send(ORIGIN, Packet::Unlock(name));
        } else if let Some(next) = self.locks.give(name) {
            self.locked(next, true);
        }
    }

    pub(super) fn pool(&mut self, words: [u64; 3], (node, by): (u32, Number)) {
        if self.me != ORIGIN {
            return self.peers.send(ORIGIN, Packet::Pool { words, by });
        }
        let (pools, [_, block, bytes]) = (&mut self.pools, words.map(|word| word as usize));
        let answer = match pools::parse(words[0]) {
            Some((Ask::Make, handle)) => {
                pools.make(handle, block);
                0
            }
            Some((Ask::Forget, handle)) => {
                pools.forget(handle);
                0
            }
            Some((Ask::Take, handle)) => pools.take(handle, block, bytes).into(),
            Some((Ask::Give, block)) => pools.give(block).unwrap_or(0),
            Some((Ask::Of, block)) => pools.of(block).unwrap_or(0),
            None => 0,
        } as u64;
        self.answer((node, by), answer);
    }

    /// To a worker of this node or, from the origin, of another.
    fn answer(&mut self, (node, by): (u32, Number), answer: u64) {
        if node == self.me {
            mail::answer(by, [answer, 0]);
        } else {
            self.peers.send(node, Packet::Answer { by, answer });
        }
    }

    pub(super) fn futex(&mut self, words: [u64; 3], who: (u32, Number)) {
        if self.me != ORIGIN {
            return self.peers.send(ORIGIN, Packet::Futex { words, by: who.1 });
        }
        let Some((ask, address)) = futexes::parse(words[0]) else { return self.answer(who, 0) };
        match ask {
            futexes::Ask::Enter => {
                self.futexes.enter(address, who, words[1] as u32);
                self.answer(who, 0);
            }
            futexes::Ask::Leave => {
                let woken = self.futexes.leave(address, who);
                self.answer(who, woken.into());
            }
            futexes::Ask::Sleep => {
                let limit = (words[1] != u64::MAX).then(|| Duration::from_nanos(words[1]));
                if self.futexes.sleep(address, who, limit) {
                    self.answer(who, 1);
                }
            }
            futexes::Ask::Wake => {
                let (count, slept) = self.futexes.wake(address, words[1] as u32, words[2] as u32);
                slept.into_iter().for_each(|sleeper| self.answer(sleeper, 1));
                self.answer(who, count.into());
            }
        }
    }

    /// On the origin: those who have slept for as long as they wanted go on; returns how many.
    pub(super) fn wake_in_time(&mut self) -> usize {
        let over = self.futexes.over();
        over.iter().for_each(|sleeper| self.answer(*sleeper, 0));
        over.len()
    }

    /// Threads wanted, how many there may be, threads given back.
    pub(super) fn threads(&mut self, [wanted, limit, back]: [u32; 3], (node, by): (u32, Number)) {
        if self.me != ORIGIN {
            return self.peers.send(ORIGIN, Packet::Threads { wanted, limit, back, by });
        }
        self.more_threads = self.more_threads.saturating_sub(back);
        let threads = contention::room(self.more_threads, wanted, limit);
        self.more_threads += threads;
        if node == self.me {
            mail::answer(by, [threads.into(), 0]);
        } else {
            self.peers.send(node, Packet::Granted { by, threads });
        }
    }

    pub(super) fn single(&mut self, number: u64, who: (u32, Number)) {
        if self.me != ORIGIN {
            return self.peers.send(ORIGIN, Packet::Single { number, by: who.1 });
        }
        if let Some(has) = self.singles.take(number, who, who.0 == ORIGIN) {
            self.locked(who, has);
        }
        self.answer_singles();
    }

    /// On the origin: tells those of their `single` constructs who have waited long enough; returns how many.
    pub(super) fn answer_singles(&mut self) -> usize {
        let mut done = 0;
        while let Some((who, has)) = self.singles.answer() {
            self.locked(who, has);
            done += 1;
        }
        done
    }

    pub(super) fn chunk(&mut self, share: u64, wish: Wish, (node, by): (u32, Number)) {
        if self.me != ORIGIN {
            return self.peers.send(ORIGIN, Packet::Chunk { share, wish, by });
        }
        let now = Duration::from_nanos(measure::now());
        let (from, to) = self.chunks.take(share, wish, (node, self.nodes), now);
        if node == self.me {
            mail::answer(by, [from, to]);
        } else {
            self.peers.send(node, Packet::Chunks { by, from, to });
        }
    }
}
