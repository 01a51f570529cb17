//! Decides how many pages stay while others pass, and tries at the side whether that pays.
//!
//! Used by `adaptive` where it knows no round. In a plain sweep over more than near memory FIFO faults on everything
//! (`DESIGN.md`, trap 19); keeping part of the sweep in place is what Belady's MIN does with it. Trying whether it pays
//! is as in DIP (Qureshi and others, ISCA'07), here with pairs of evicted pages, since a runtime sees no hits.
//!
//! * Pages that return after an eviction stay, as long as fewer do than the limit. The others pass, in FIFO order.
//! * Once in each 1/16 of the capacity evicted (in 32 at least) the oldest that stays is evicted, so that nothing
//!   stays for ever. It and the next eviction of those that pass make a *duel*: the page that passed was used when it
//!   was fetched and is used when it returns; the stay wins when its page returns within as much time as lies
//!   between (and an eighth more), and loses if it does not. Time is counted in evictions. In a sweep all pages return
//!   once a round, so the stay wins; it loses when it holds what is used no more, or more seldom than what passes.
//! * The score of the duels, 0 to 8 (one up for one won, two down for one lost), is the limit in eighths of the
//!   capacity, less a sixteenth that always is for what passes (and 64 pages if that is no more than a quarter: pages
//!   fetched together must not evict each other).
//! * At score 0, as at the start, nothing stays. While half of what is fetched are pages that return, it is tried again
//!   with a small stay; each attempt that fails doubles the wait to the next, from one to 64 times the capacity
//!   in evictions.

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
/// Bits of a duel's number in a token, above the two that tell which page of the duel it is.
const NUMBER_BITS: u32 = 20;

/// A pair of evicted pages.
#[derive(Debug, Clone, Copy)]
enum Duel {
    Over,
    /// The page that passed has not returned. The one that stayed was evicted at the first time, the one that passed
    /// was fetched at the second.
    Open {
        evicted: u64,
        fetched: u64,
    },
    /// The page that passed has returned; the one that stayed must before this time.
    Until(u64),
}

/// Which pages of the duels a victim was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum From {
    Stay,
    Pass,
    /// Neither.
    Elsewhere,
}

/// The stay's size, limit and duels; its pages are its user's.
#[derive(Debug)]
pub(crate) struct Stay {
    frames: u32,
    /// Pages that stay.
    pub(crate) len: u32,
    /// Evictions so far.
    clock: u64,
    /// When the stay was evicted from in its turn last.
    turned: u64,
    score: u32,
    duels: [Duel; DUELS],
    /// The number of the latest duel, and whether its page that passed is still to be evicted.
    duel: u32,
    partner_due: bool,
    /// At score 0: evictions until the next attempt, those of them that are over, and pages returned meanwhile.
    wait: u64,
    waited: u64,
    returned: u64,
}

impl Stay {
    /// For a policy of so many frames.
    pub(crate) const fn new(frames: u32) -> Stay {
        Stay {
            frames,
            len: 0,
            clock: 0,
            turned: 0,
            score: 0,
            duels: [Duel::Over; DUELS],
            duel: 0,
            partner_due: false,
            wait: frames as u64,
            waited: 0,
            returned: 0,
        }
    }

    fn limit(&self) -> u32 {
        let pass = (self.frames / 16).max(64.min(self.frames / 4)).max(1);
        (u64::from(self.frames.saturating_sub(pass)) * u64::from(self.score) / u64::from(BEST)) as u32
    }

    /// Whether the next victim is one that stays.
    pub(crate) fn has_turn(&self) -> bool {
        let is_due = self.clock - self.turned >= u64::from(self.frames / 16).max(TURN);
        self.len > self.limit() || self.len > 0 && is_due
    }

    /// A page returns, or a huge page of so many `pages`, with what `evicted` said of it, 0 for nothing. Does it stay?
    pub(crate) fn returns(&mut self, note: u32, pages: u32) -> bool {
        self.returned += u64::from(pages);
        let number = note >> 2;
        let age = self.duel.wrapping_sub(number) & ((1 << NUMBER_BITS) - 1);
        if note & 3 != 0 && (age as usize) < DUELS {
            let slot = number as usize % DUELS;
            match (note & 3, self.duels[slot]) {
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
        self.len < self.limit()
    }

    /// A page is evicted, or a huge page of so many `pages`. `passing`: how many pages pass, it included. Returns what to remember of it, below
    /// 2^22.
    pub(crate) fn evicted(&mut self, from: From, passing: u32, pages: u32) -> u32 {
        let mut note = 0;
        match from {
            // No duel while the stay shrinks: it is losing already.
            From::Stay if self.len <= self.limit() => {
                self.turned = self.clock;
                if !self.partner_due {
                    self.duel = self.duel.wrapping_add(1) & ((1 << NUMBER_BITS) - 1);
                    let duel = Duel::Open { evicted: self.clock, fetched: self.clock };
                    self.duels[self.duel as usize % DUELS] = duel;
                    self.partner_due = true;
                    note = self.duel << 2 | 1;
                }
            }
            From::Pass if self.partner_due => {
                self.partner_due = false;
                note = self.duel << 2 | 2;
                if let Duel::Open { fetched, .. } = &mut self.duels[self.duel as usize % DUELS] {
                    // First in, first out: since then as many were evicted as pass.
                    *fetched = self.clock.saturating_sub(u64::from(passing));
                }
            }
            _ => {}
        }
        self.advance(pages);
        note
    }

    /// Its pages are no longer its own: the duels end.
    pub(crate) fn over(&mut self) {
        self.len = 0;
        self.score = 0;
        self.rest();
    }

    fn rest(&mut self) {
        (self.waited, self.returned) = (0, 0);
        self.duels = [Duel::Over; DUELS];
    }

    fn won(&mut self) {
        if self.score > 0 {
            self.score = (self.score + 1).min(BEST);
        }
        if self.score == BEST {
            self.wait = u64::from(self.frames);
        }
    }

    fn lost(&mut self) {
        if self.score == 0 {
            return;
        }
        self.score = self.score.saturating_sub(LOSS);
        if self.score == 0 {
            self.wait = (self.wait * 2).min(u64::from(self.frames) * 64);
            self.rest();
        }
    }

    /// An eviction of so many pages is over: time for the duels, and at score 0 for another attempt.
    fn advance(&mut self, pages: u32) {
        self.clock += u64::from(pages);
        // One slot a page; a duel that ends some evictions late ends the same way.
        for behind in 0..(pages as usize).min(DUELS) {
            let slot = (self.clock as usize).wrapping_sub(behind) % DUELS;
            if let Duel::Until(end) = self.duels[slot]
                && self.clock > end
            {
                self.duels[slot] = Duel::Over;
                self.lost();
            }
        }
        if self.score == 0 {
            self.waited += u64::from(pages);
            if self.waited >= self.wait {
                if self.returned * 2 >= self.waited {
                    self.score = ATTEMPT;
                }
                (self.waited, self.returned) = (0, 0);
            }
        }
    }
}
