//! FIFO that keeps part of a sweep: some frames stay while the others take what passes, as long as that pays.
//!
//! For programs that sweep over more than near memory again and again, where `fifo` and `lru` fault on everything
//! (`DESIGN.md`, trap 19) and `cmcp` keeps only what its ratio and the core maps say. The paper has no such policy;
//! keeping most of a loop in place is what Belady's MIN does with it, and trying at the side whether it pays is as
//! in DIP (Qureshi and others, ISCA'07), here with pairs of evicted pages, since a runtime sees no hits.
//!
//! * New pages join the *pass*, a FIFO list. A page that returns after an eviction (`insert_again`) joins the
//!   *stay*, a second FIFO list, while that is below its limit.
//! * The victim is the oldest of the pass. The oldest of the stay goes instead when the stay is above its limit,
//!   and in its turn, once in each 1/16 of the capacity evicted (in 32 at least), so that nothing stays for ever.
//! * Such an eviction and the next one of the pass make a *duel*. The page of the pass was used when it was fetched
//!   and is used when it returns; the stay wins when its page returns within as much time as lies between (and an
//!   eighth more), and loses if it does not. Time is counted in evictions. In a sweep all pages return once a
//!   round, so the stay wins; it loses when it holds what is used no more, or more seldom than what passes.
//! * The score of the duels, 0 to 8 (one up for one won, two down for one lost), is the limit of the stay in
//!   eighths of the capacity, less a sixteenth that always is for the pass (and 64 pages if that is no more than a
//!   quarter: pages fetched together must not evict each other).
//! * At score 0, as at the start, the policy is FIFO. While half of what is fetched are pages that return, it tries
//!   again with a small stay; each attempt that fails doubles the wait to the next, from one to 64 times the
//!   capacity in evictions.
//!
//! What it costs where FIFO is at its best, such as tiles that just fit, is 12 % more faults at most on the traces of
//! `tests/adaptive.rs`, where LRU and CMCP have up to seven times as many; other traces with 300 to 20,000 frames,
//! tried with earlier constants, cost up to 30 %. The constants were chosen on such traces, not on programs.

use core::fmt;

use crate::links::Links;
use crate::policy::Policy;
use crate::spec::{Options, SpecError};
use crate::storage::Storage;

/// Options of [`Adaptive`]: none.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct AdaptiveOptions;

impl Options for AdaptiveOptions {
    type Policy<'a> = Adaptive<'a>;
    const NAME: &'static str = "adaptive";
    const DEFAULT: Self = Self;
    const LISTS: usize = 2;
    const TAGGED: bool = true;

    fn set(&mut self, _key: &str, _value: &str) -> Result<(), SpecError> {
        Err(SpecError::UnknownOption { policy: Self::NAME, known: "none" })
    }

    fn build(self, storage: Storage<'_>) -> Adaptive<'_> {
        let frames = storage.frames;
        Adaptive {
            links: Links::new(storage.next, storage.prev, frames),
            tag: storage.tag,
            len: [0; 2],
            clock: 0,
            turned: 0,
            score: 0,
            duels: [Duel::Over; DUELS],
            duel: 0,
            partner_due: false,
            token: 0,
            wait: u64::from(frames),
            waited: 0,
            returned: 0,
        }
    }
}

impl fmt::Display for AdaptiveOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::NAME)
    }
}

const PASS: u32 = 0;
const STAY: u32 = 1;

/// The score at which the stay has all it may have.
const BEST: u32 = 8;
/// The score of a new attempt.
const ATTEMPT: u32 = 2;
/// What a lost duel costs, where a won one is worth 1: a stay kept in error can cost many faults for each it could
/// save.
const LOSS: u32 = 2;
/// The fewest evictions from one turn of the stay to the next.
const TURN: u64 = 32;
/// Duels remembered. With one in each 1/16 of the capacity evicted, their pages have four times the capacity to
/// return.
const DUELS: usize = 64;

/// A pair of evicted pages.
#[derive(Debug, Clone, Copy)]
enum Duel {
    Over,
    /// The page of the pass has not returned. That of the stay was evicted at the first time, that of the pass
    /// was fetched at the second.
    Open {
        evicted: u64,
        fetched: u64,
    },
    /// The page of the pass has returned; that of the stay must before this time.
    Until(u64),
}

/// The adaptive policy; 12 bytes a frame. A restored victim joins the pass anew. Its limits mean something only to
/// a caller that keeps tokens; to others it is FIFO.
#[derive(Debug)]
pub struct Adaptive<'a> {
    links: Links<'a>,
    /// The list each frame is in, below the time it was fetched.
    tag: &'a mut [u32],
    len: [u32; 2],
    /// Evictions so far.
    clock: u64,
    /// When the stay was evicted from in its turn last.
    turned: u64,
    score: u32,
    duels: [Duel; DUELS],
    /// The number of the latest duel, and whether its page of the pass is still to be evicted.
    duel: u32,
    partner_due: bool,
    /// Of the last victim: the duel's number above two bits, 1 for its page of the stay, 2 for that of the pass. 0
    /// for a page in no duel.
    token: u32,
    /// At score 0: evictions until the next attempt, those of them that are over, and pages returned meanwhile.
    wait: u64,
    waited: u64,
    returned: u64,
}

impl Adaptive<'_> {
    /// How many pages are in the stay.
    pub fn staying(&self) -> usize {
        self.len[STAY as usize] as usize
    }

    fn limit(&self) -> u32 {
        let frames = self.links.frames();
        let pass = (frames / 16).max(64.min(frames / 4)).max(1);
        (u64::from(frames.saturating_sub(pass)) * u64::from(self.score) / u64::from(BEST)) as u32
    }

    /// Evictions from one in the stay's turn to the next.
    fn turn(&self) -> u64 {
        u64::from(self.links.frames() / 16).max(TURN)
    }

    fn list(&self, frame: u32) -> u32 {
        self.tag[frame as usize] & 1
    }

    /// When the page in `frame` was fetched.
    fn fetched(&self, frame: u32) -> u64 {
        let age = (self.clock as u32).wrapping_sub(self.tag[frame as usize] >> 1) & (u32::MAX >> 1);
        self.clock - u64::from(age)
    }

    fn enter(&mut self, frame: u32, list: u32) {
        self.links.push_back(list, frame);
        self.tag[frame as usize] = (self.clock as u32) << 1 | list;
        self.len[list as usize] += 1;
    }

    fn leave(&mut self, frame: u32) {
        self.links.unlink(frame);
        self.len[self.list(frame) as usize] -= 1;
    }

    fn won(&mut self) {
        if self.score > 0 {
            self.score = (self.score + 1).min(BEST);
        }
        if self.score == BEST {
            self.wait = u64::from(self.links.frames());
        }
    }

    fn lost(&mut self) {
        if self.score == 0 {
            return;
        }
        self.score = self.score.saturating_sub(LOSS);
        if self.score == 0 {
            self.wait = (self.wait * 2).min(u64::from(self.links.frames()) * 64);
            (self.waited, self.returned) = (0, 0);
            self.duels = [Duel::Over; DUELS];
        }
    }

    /// The page of a duel has returned.
    fn settle(&mut self, token: u32) {
        let number = token >> 2;
        let age = self.duel.wrapping_sub(number) & (u32::MAX >> 2);
        if token == 0 || age as usize >= DUELS {
            return;
        }
        let slot = number as usize % DUELS;
        match (token & 3, self.duels[slot]) {
            (1, Duel::Open { .. } | Duel::Until(_)) => {
                self.duels[slot] = Duel::Over;
                self.won();
            }
            (2, Duel::Open { evicted, fetched }) => {
                let period = self.clock - fetched;
                self.duels[slot] = Duel::Until(evicted + period + period / 8 + TURN);
            }
            _ => {}
        }
    }

    /// One eviction is over: time for the duels, and at score 0 for another attempt.
    fn advance(&mut self) {
        self.clock += 1;
        // One slot an eviction; a duel that ends some evictions late ends the same way.
        let slot = self.clock as usize % DUELS;
        if let Duel::Until(end) = self.duels[slot]
            && self.clock > end
        {
            self.duels[slot] = Duel::Over;
            self.lost();
        }
        if self.score == 0 {
            self.waited += 1;
            if self.waited >= self.wait {
                if self.returned * 2 >= self.waited {
                    self.score = ATTEMPT;
                }
                (self.waited, self.returned) = (0, 0);
            }
        }
    }
}

impl Policy for Adaptive<'_> {
    fn insert(&mut self, frame: u32, _mappers: u32) {
        if !self.links.is_linked(frame) {
            self.enter(frame, PASS);
        }
    }

    fn insert_again(&mut self, frame: u32, _mappers: u32, token: u32) {
        if self.links.is_linked(frame) {
            return;
        }
        self.returned += 1;
        self.settle(token);
        self.enter(frame, if self.len[STAY as usize] < self.limit() { STAY } else { PASS });
    }

    fn mapped(&mut self, _frame: u32, _mappers: u32) {}

    fn peek(&self) -> Option<u32> {
        let over = self.len[STAY as usize] > self.limit();
        let turn = over || self.clock - self.turned >= self.turn();
        let (first, second) = if turn { (STAY, PASS) } else { (PASS, STAY) };
        self.links.front(first).or_else(|| self.links.front(second))
    }

    fn evict(&mut self) -> Option<u32> {
        let victim = self.peek()?;
        self.token = 0;
        if self.list(victim) == STAY {
            // No duel while the stay shrinks: it is losing already.
            if self.len[STAY as usize] <= self.limit() {
                self.turned = self.clock;
                if !self.partner_due {
                    self.duel = self.duel.wrapping_add(1) & (u32::MAX >> 2);
                    let duel = Duel::Open { evicted: self.clock, fetched: self.clock };
                    self.duels[self.duel as usize % DUELS] = duel;
                    self.partner_due = true;
                    self.token = self.duel << 2 | 1;
                }
            }
        } else if self.partner_due {
            self.partner_due = false;
            self.token = self.duel << 2 | 2;
            let fetched = self.fetched(victim);
            if let Duel::Open { fetched: partner, .. } = &mut self.duels[self.duel as usize % DUELS] {
                *partner = fetched;
            }
        }
        self.leave(victim);
        self.advance();
        Some(victim)
    }

    fn token(&self) -> u32 {
        self.token
    }

    fn remove(&mut self, frame: u32) {
        if self.links.is_linked(frame) {
            self.leave(frame);
        }
    }

    fn scan(&mut self, _unmap: &mut dyn FnMut(u32)) {}

    fn len(&self) -> usize {
        (self.len[0] + self.len[1]) as usize
    }

    fn contains(&self, frame: u32) -> bool {
        self.links.is_linked(frame)
    }

    fn name(&self) -> &'static str {
        AdaptiveOptions::NAME
    }
}
