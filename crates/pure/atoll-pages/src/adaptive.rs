//! Keeps the pages that are used again soonest, as far as the rounds of the program foretell it; else FIFO.
//!
//! For programs that sweep over more than near memory again and again, where `fifo` and `lru` fault on everything
//! (`DESIGN.md`, trap 19). The paper has no such policy. Belady's MIN evicts what is used last; what is needed for
//! that, when each page is used, is the same in every time step of a solver. `rhythm` finds the step in the marks
//! that the program passes, and divides it into 22 *parts*.
//!
//! * Of each page it is remembered in which parts it is used: a bit each, near in the frame's tag, far in the token.
//!   A fetch, or one more worker that maps it, is a use. Uses of a mapped page are unseen, so its bits stay. In
//!   parts in which it was far all the time it was not used: those bits go when it returns.
//! * Fetched pages wait in a FIFO list, the *guard*, as a page is used several times within a part; it is two
//!   fifths of what is fetched in a part, between a 1/16 and a third of the frames. Behind it are lists of pages by
//!   the part of their next use. The victim is a page of the list that is farthest off; pages used in one part only
//!   have a whole round to go. Pages whose part begins wait in a list until it is over, and then are sorted anew.
//! * One in 256 of those is evicted early instead, so that nothing stays for ever for what it once was.
//!
//! Where the pager gives victims a second chance (`Policy::rescued`), pages that were used meanwhile have a list of their own as long as the policy is
//! FIFO: one of them is named after sixteen victims that passed. So what is used often is no victim for what passes once, as in 2Q (Johnson and Shasha,
//! VLDB'94), and is asked for its uses more seldom. A huge page is used if any of its pages is. Where single pages are fetched all the time, one after the
//! other is let go all the same: it stays huge if the program walks through it, and is single pages if it is entered in its midst.
//!
//! What that is worth shows in the pages fetched in a round. The first round is FIFO, which only learns and sets the
//! measure, the second has a guard of half the frames. If from the fourth on two in succession fetch a 1/20 more than
//! the measure, or any one half as much again, the policy is FIFO for at least four rounds (at the next failure eight,
//! and so on), measures and tries again. While no round is known, or the place in it is lost, it is FIFO too, but for
//! two things: a page that several workers map gets one more turn, and `stay` keeps part of what passes where that pays.
//!
//! Pages fetched, in per cent of FIFO's, first touches not counted; near memory of so much of the footprint. Replayed
//! from page traces of this repository's `programs`, class A (`randomaccess` W), two workers, 4K pages, recorded over 7
//! or 8 time steps and then repeated up to 30 to 37 (`cg`: 3 outer steps of 25 sweeps; `graph500`: 5 searches):
//!
//! ```text
//!                        75 %                  50 %                  25 %
//!                 MIN  CMCP  here       MIN  CMCP  here       MIN  CMCP  here
//! stencil          26    82    43        36    92    55        47    99    81
//! bt               15    73    39        33    80    64        55    93    91
//! sp               16    80    39        32    80    61        51    94    88
//! lu               25    67    56        33    81    61        54    83    85
//! cg               21    76    47        40    73    60        69    88    90
//! graph500         37   109   106        37    68    80        24    88    93
//! randomaccess     24    97   100        29    93   100        31    90    98
//! ```
//!
//! So at a quarter of the footprint 22 parts are too coarse for much, and where next uses cannot be foretold CMCP is
//! up to a fifth better. In tiles that just fit FIFO is at its best and this up to 12 % worse (`tests/adaptive.rs`), where
//! LRU and CMCP have seven times as many faults.

use core::fmt;

use crate::links::Links;
use crate::policy::{Foresight, Policy, Wants};
use crate::rhythm::{Rhythm, Step};
use crate::spec::{Options, SpecError};
use crate::stay::{From, Stay};
use crate::storage::Storage;

/// Options of [`Adaptive`]: none.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct AdaptiveOptions;

impl Options for AdaptiveOptions {
    type Policy<'a> = Adaptive<'a>;
    const NAME: &'static str = "adaptive";
    const DEFAULT: Self = Self;
    const LISTS: usize = LISTS;
    const TAGGED: bool = true;
    const WANTS: Wants = Wants { mapped: true, marks: true, second_chance: true, ..Wants::NOTHING };

    fn set(&mut self, _key: &str, _value: &str) -> Result<(), SpecError> {
        Err(SpecError::UnknownOption { policy: Self::NAME, known: "none" })
    }

    fn build(self, storage: Storage<'_>) -> Adaptive<'_> {
        Adaptive {
            links: Links::new(storage.next, storage.prev, storage.frames),
            tag: storage.tag,
            len: 0,
            guarded: 0,
            guard: storage.frames,
            fetched: 0,
            part: 0,
            epoch: 0,
            due: 0,
            token: 0,
            huge_pages: 1,
            away: 0,
            rhythm: Rhythm::new(),
            stay: Stay::new(storage.frames),
            used: 0,
            passed: 0,
            was_used: false,
            singles: 0,
            trial: Trial { rounds: 0, measure: 0, began: 0, strikes: 0, rest: 0, next_rest: REST },
        }
    }
}

impl fmt::Display for AdaptiveOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::NAME)
    }
}

/// Parts of a round. With the part of the eviction and the epoch they fill the 28 bits of a token.
const PARTS: u32 = 22;
/// Lists 0 to 21: pages whose next use is in that part. Then two of pages whose part is (or was) the present one,
/// for even and odd parts, and the guard.
const DUE: u32 = PARTS;
const GUARD: u32 = PARTS + 2;
/// Pages that stay while the rest passes through the guard, as long as the policy is FIFO.
const STAY: u32 = PARTS + 3;
/// Pages that were used while they were about to leave, as long as the policy is FIFO.
const USED: u32 = PARTS + 4;
const LISTS: usize = PARTS as usize + 5;

/// In tags and tokens: the parts in which the page is used.
const USES: u32 = (1 << PARTS) - 1;
/// In tags and tokens: which kind of round, odd or even, the uses are of.
const EPOCH: u32 = 27;
/// In a tag: the page is in the guard; several workers have mapped it; it is in the stay.
const GUARDED: u32 = 1 << 22;
const SHARED: u32 = 1 << 23;
const STAYING: u32 = 1 << 24;
/// In a tag: it is a huge page.
const HUGE: u32 = 1 << 25;
/// In a tag: it is in the list of those that were used.
const WAS_USED: u32 = 1 << 26;
/// In a tag, from this bit on: in which eighth of a turnover of near memory, modulo 16, the page was brought.
const EIGHTH: u32 = 28;
/// A page that was brought so many eighths ago leaves with its neighbours, as long as the policy is FIFO.
const OLD: u32 = 4;
/// After so many victims that passed, one of the used pages is a victim.
const USED_TURN: i32 = 16;
/// After so many single pages that were fetched, and an eighth of the frames, one used huge page is let go.
const SINGLES: u32 = 4096;
/// In a token, in place of the part in which the page was evicted: not known; the uses are a number of `stay`.
const NO_PART: u32 = 31;
const NUMBERED: u32 = 30;

/// Pages sorted at each call at most.
const SORTED: u32 = 3;
/// One of so many pages that were due is evicted early.
const PROBE: u32 = 256;
/// Rounds without a trial, after the first that failed.
const REST: u32 = 4;
/// Fewer pages fetched in a round, and it is none; nor is it with less than a quarter of the frames, as FIFO is
/// good at what it is then.
const LEAST: u32 = 4 * PARTS;

/// Whether sorting pays.
#[derive(Debug)]
struct Trial {
    /// Rounds since it began, the one that only learns included.
    rounds: u32,
    /// Pages FIFO fetched in a round.
    measure: u32,
    /// When the round began, in pages fetched.
    began: u32,
    strikes: u32,
    /// Rounds to go without one, and after the next failure.
    rest: u32,
    next_rest: u32,
}

/// The adaptive policy; 12 bytes a frame. A restored victim joins the guard without its uses. To a caller that passes
/// no marks it is FIFO, but for pages that several workers map.
#[derive(Debug)]
pub struct Adaptive<'a> {
    links: Links<'a>,
    tag: &'a mut [u32],
    len: u32,
    guarded: u32,
    /// The size the guard may have; all frames while it is FIFO.
    guard: u32,
    /// Pages that became resident so far.
    fetched: u32,
    part: u32,
    epoch: u32,
    /// Pages sorted after they were due.
    due: u32,
    token: u32,
    /// Pages of a huge page.
    huge_pages: u32,
    /// How many parts off the next use of the last victim was; 0 if it was not sorted.
    away: u32,
    rhythm: Rhythm,
    stay: Stay,
    /// Pages in the list of used ones.
    used: u32,
    /// Victims that passed, less [`USED_TURN`] for each victim that was a used page.
    passed: i32,
    /// Whether the last victim of `evict` was a used page.
    was_used: bool,
    /// Single pages that were fetched again, less those that came as parts of huge pages, since a used huge page was let go.
    singles: u32,
    trial: Trial,
}

/// How many parts after `part` the next use is: 1 to 22.
fn distance(uses: u32, part: u32) -> u32 {
    let later = (uses >> part | uses << (PARTS - part)) & USES & !1;
    if later == 0 { PARTS } else { later.trailing_zeros() }
}

impl Adaptive<'_> {
    fn uses(&self, frame: u32) -> u32 {
        let tag = self.tag[frame as usize];
        if tag >> EPOCH & 1 == self.epoch & 1 { tag & USES } else { 0 }
    }

    fn set_uses(&mut self, frame: u32, uses: u32) {
        let tag = &mut self.tag[frame as usize];
        *tag = *tag & !(USES | 1 << EPOCH) | uses | (self.epoch & 1) << EPOCH;
    }

    /// How many pages what is in `frame` counts for.
    fn pages(&self, frame: u32) -> u32 {
        if self.tag[frame as usize] & HUGE != 0 { self.huge_pages } else { 1 }
    }

    /// A page became resident, or is restored, and joins that list: the guard, the stay or the used ones. Its tag says already whether it is a huge one.
    fn enter(&mut self, frame: u32, uses: u32, list: u32) {
        self.tag[frame as usize] = self.tag[frame as usize] & HUGE | self.eighth() << EIGHTH;
        self.set_uses(frame, if self.rhythm.following() { uses | 1 << self.part } else { uses });
        self.join(list, frame);
        self.len += 1;
        self.sort();
    }

    /// Appends to the guard, the stay or the used pages.
    fn join(&mut self, list: u32, frame: u32) {
        let pages = self.pages(frame);
        let (flag, count) = match list {
            STAY => (STAYING, &mut self.stay.len),
            USED => (WAS_USED, &mut self.used),
            _ => (GUARDED, &mut self.guarded),
        };
        *count += pages;
        self.tag[frame as usize] |= flag;
        self.links.push_back(list, frame);
    }

    fn leave(&mut self, frame: u32) {
        self.links.unlink(frame);
        self.count_less(frame, self.pages(frame));
        self.tag[frame as usize] &= !(GUARDED | STAYING | WAS_USED);
    }

    /// What is in `frame` counts for so many pages less.
    fn count_less(&mut self, frame: u32, pages: u32) {
        let tag = self.tag[frame as usize];
        self.guarded -= if tag & GUARDED != 0 { pages } else { 0 };
        self.stay.len -= if tag & STAYING != 0 { pages } else { 0 };
        self.used -= if tag & WAS_USED != 0 { pages } else { 0 };
    }

    /// Whether the policy is FIFO now, and does not sort.
    fn passing(&self) -> bool {
        self.guard == self.links.frames()
    }

    /// Sets the size of the guard. When it sorts, the stay and the used pages are part of the guard.
    fn set_guard(&mut self, guard: u32) {
        self.guard = guard;
        if !self.passing() && self.stay.len + self.used > 0 {
            while let Some(frame) = self.links.front(STAY).or_else(|| self.links.front(USED)) {
                self.leave(frame);
                self.join(GUARD, frame);
            }
            self.stay.over();
        }
    }

    /// Whether the next victim is the oldest of the used pages, as long as the policy is FIFO.
    fn is_turn_of_used(&self) -> bool {
        self.used > 0 && self.passed >= self.used_turn()
    }

    /// [`USED_TURN`], or 1 where less than a sixteenth of the frames passes: these pages would leave before they can be used.
    fn used_turn(&self) -> i32 {
        if self.guarded < self.links.frames() / 16 { 1 } else { USED_TURN }
    }

    /// Sorts some pages: those whose part is over, those that leave the guard.
    fn sort(&mut self) {
        let over = DUE + (self.part + 1) % 2;
        for _ in 0..SORTED {
            if let Some(frame) = self.links.front(over) {
                self.links.unlink(frame);
                self.due = self.due.wrapping_add(1);
                let probe = self.due.is_multiple_of(PROBE);
                self.file(frame, if probe { PARTS } else { distance(self.uses(frame), self.part) });
            } else if self.guarded > self.guard
                && let Some(frame) = self.links.front(GUARD)
            {
                self.leave(frame);
                self.file(frame, distance(self.uses(frame), self.part));
            } else if self.passing()
                && let Some(frame) = self.links.front(GUARD)
                && self.tag[frame as usize] & SHARED != 0
            {
                self.leave(frame);
                self.tag[frame as usize] &= !SHARED;
                self.join(GUARD, frame);
            } else {
                return;
            }
        }
    }

    fn file(&mut self, frame: u32, distance: u32) {
        self.links.push_back((self.part + distance) % PARTS, frame);
    }

    /// One more page was fetched, or a mark passed: the program may have come to another part.
    fn advance(&mut self) {
        if !self.rhythm.following() {
            return;
        }
        let to = self.rhythm.part(self.fetched, PARTS);
        let ahead = (to + PARTS - self.part) % PARTS;
        // A part or two back is a stretch that fetched more than foretold, and is waited for.
        if ahead <= PARTS - 3 {
            for _ in 0..ahead {
                self.part = (self.part + 1) % PARTS;
                self.links.append(DUE + self.part % 2, self.part);
            }
        }
        let spent = self.fetched.wrapping_sub(self.trial.began);
        if !self.passing() && u64::from(spent) * 2 > u64::from(self.trial.measure) * 3 {
            self.give_up();
        }
    }

    /// A round is over that fetched so many pages.
    fn judge(&mut self, fetched: u32) {
        let passing = self.passing();
        let trial = &mut self.trial;
        trial.began = self.fetched;
        if passing {
            trial.measure = fetched;
            if trial.rest > 0 {
                trial.rest -= 1;
                return;
            }
            trial.rounds = 0;
        }
        trial.rounds += 1;
        let worse = trial.rounds > 3 && u64::from(fetched) * 20 > u64::from(trial.measure) * 21;
        trial.strikes = if worse { trial.strikes + 1 } else { 0 };
        if trial.strikes >= 2 {
            self.give_up();
        } else if trial.rounds > 8 {
            trial.next_rest = REST;
        }
    }

    /// Sorting does not pay.
    fn give_up(&mut self) {
        let trial = &mut self.trial;
        // A failure can cost as many fetches as there are frames; those are to be few among the others.
        trial.rest = trial.next_rest.max(4 * (self.links.frames() / trial.measure.max(1)));
        trial.next_rest = trial.next_rest.saturating_mul(2);
        trial.strikes = 0;
        self.set_guard(self.links.frames());
    }

    fn resize_guard(&mut self) {
        let frames = self.links.frames();
        let guard = match self.trial.rounds {
            _ if self.trial.rest > 0 => frames,
            0 => frames,
            1 => frames / 2,
            _ => (self.rhythm.expected() / PARTS * 2 / 5).clamp(frames / 16, frames / 3),
        };
        self.set_guard(guard);
    }
}

impl Adaptive<'_> {
    /// How many parts off the next use is of a page that is sorted; 0 for others.
    fn away(&self, frame: u32) -> u32 {
        let sorted = !self.passing() && self.tag[frame as usize] & (GUARDED | STAYING | WAS_USED) == 0;
        if sorted { distance(self.uses(frame), self.part) } else { 0 }
    }

    /// The eighth of a turnover of near memory that pages are brought in now, modulo 16.
    fn eighth(&self) -> u32 {
        self.fetched / (self.links.frames() / 8).max(1) % 16
    }

    /// Whether the policy is FIFO and the page is among those brought long ago.
    fn is_old(&self, frame: u32) -> bool {
        let tag = self.tag[frame as usize];
        self.passing() && tag & GUARDED != 0 && (self.eighth() + 16 - (tag >> EIGHTH)) % 16 >= OLD
    }

    /// A page, or a huge page, became resident; `token`: that of its eviction, if it was evicted before. Its tag says already whether it is a huge one.
    fn arrive(&mut self, frame: u32, token: Option<u32>) {
        self.fetched = self.fetched.wrapping_add(self.pages(frame));
        self.advance();
        let Some(token) = token else { return self.enter(frame, 0, GUARD) };
        self.singles = match self.pages(frame) {
            1 => self.singles.saturating_add(1),
            huge => self.singles.saturating_sub(huge),
        };
        let evicted = token >> PARTS & NO_PART;
        let known = evicted != NUMBERED && token >> EPOCH & 1 == self.epoch & 1;
        let mut uses = if known { token & USES } else { 0 };
        if evicted < PARTS && self.rhythm.following() {
            let far = (self.part + PARTS - evicted) % PARTS;
            for away in 1..far {
                uses &= !(1 << ((evicted + away) % PARTS));
            }
        }
        let note = if evicted == NUMBERED { token & USES } else { 0 };
        let stays = self.stay.returns(note, self.pages(frame)) && self.passing();
        self.enter(frame, uses, if stays { STAY } else { GUARD });
    }

    /// Removes a victim and makes its token.
    fn give(&mut self, victim: u32) {
        let part = if self.rhythm.following() { self.part } else { NO_PART };
        self.token = self.uses(victim) | part << PARTS | (self.epoch & 1) << EPOCH;
        let kind = self.tag[victim as usize] & (STAYING | WAS_USED);
        if self.passing() {
            let (pages, most) = (self.pages(victim) as i32, self.links.frames().min(1 << 30) as i32);
            let (from, change) = match kind {
                STAYING => (From::Stay, pages),
                WAS_USED => (From::Elsewhere, -self.used_turn() * pages),
                _ => (From::Pass, pages),
            };
            self.passed = (self.passed + change).clamp(-most, most / 16);
            let note = self.stay.evicted(from, self.guarded, self.pages(victim));
            if note != 0 {
                self.token = note | NUMBERED << PARTS;
            }
        }
        self.remove(victim);
    }
}

impl Policy for Adaptive<'_> {
    fn insert(&mut self, frame: u32, mappers: u32) {
        if self.links.is_linked(frame) {
            return self.mapped(frame, mappers);
        }
        self.tag[frame as usize] = 0;
        self.arrive(frame, None);
    }

    fn insert_again(&mut self, frame: u32, mappers: u32, token: u32) {
        if self.links.is_linked(frame) {
            return self.mapped(frame, mappers);
        }
        self.tag[frame as usize] = 0;
        self.arrive(frame, Some(token));
    }

    fn insert_huge(&mut self, frame: u32, pages: u32, token: Option<u32>) {
        if self.links.is_linked(frame) {
            return;
        }
        self.huge_pages = pages;
        self.tag[frame as usize] = HUGE;
        self.arrive(frame, token);
    }

    fn split_huge(&mut self, frame: u32) {
        if self.links.is_linked(frame) {
            self.count_less(frame, self.pages(frame) - 1);
        }
        self.tag[frame as usize] &= !HUGE;
    }

    fn mapped(&mut self, frame: u32, mappers: u32) {
        if !self.links.is_linked(frame) {
            return;
        }
        if self.rhythm.following() {
            self.set_uses(frame, self.uses(frame) | 1 << self.part);
        }
        if mappers > 1 {
            self.tag[frame as usize] |= SHARED;
        }
    }

    fn peek(&self) -> Option<u32> {
        let farthest = (0..PARTS).find_map(|nearer| self.links.back((self.part + PARTS - nearer) % PARTS));
        let (over, due) = (DUE + (self.part + 1) % 2, DUE + self.part % 2);
        let last = match self.stay.has_turn() {
            true => [STAY, GUARD, USED],
            false if self.is_turn_of_used() => [USED, GUARD, STAY],
            false => [GUARD, STAY, USED],
        };
        farthest.or_else(|| [over, due].into_iter().chain(last).find_map(|list| self.links.front(list)))
    }

    fn evict(&mut self) -> Option<u32> {
        let victim = self.peek()?;
        self.away = self.away(victim);
        self.was_used = self.tag[victim as usize] & WAS_USED != 0;
        self.give(victim);
        self.sort();
        Some(victim)
    }

    fn evict_also(&mut self, frame: u32) -> bool {
        let as_far = |away: u32| away > 0 && self.away(frame) * 4 >= away * 3;
        let also = self.links.is_linked(frame) && (as_far(self.away) || self.is_old(frame));
        if also {
            self.give(frame);
        }
        also
    }

    /// Used pages do not leave with others.
    fn evict_this(&mut self, frame: u32) -> bool {
        let goes = self.links.is_linked(frame) && (self.was_used || self.tag[frame as usize] & WAS_USED == 0);
        if goes {
            self.give(frame);
        }
        goes
    }

    fn lets_go(&mut self) -> bool {
        // To fetch a huge page's pages alone takes as long as an eighth of these took.
        let goes = self.passing() && self.singles >= SINGLES.max(self.links.frames() / 8);
        if goes {
            self.singles = 0;
        }
        goes
    }

    fn token(&self) -> u32 {
        self.token
    }

    fn remove(&mut self, frame: u32) {
        if self.links.is_linked(frame) {
            self.leave(frame);
            self.len -= 1;
        }
    }

    fn restore(&mut self, frame: u32, mappers: u32) {
        if self.links.is_linked(frame) {
            return self.mapped(frame, mappers);
        }
        self.enter(frame, 0, GUARD);
    }

    fn rescued(&mut self, frame: u32, mappers: u32, token: u32) {
        if self.links.is_linked(frame) {
            return self.mapped(frame, mappers);
        }
        let numbered = token >> PARTS & NO_PART == NUMBERED;
        let known = !numbered && token >> EPOCH & 1 == self.epoch & 1;
        let stays = numbered && self.stay.returns(token & USES, self.pages(frame));
        let list = match self.passing() {
            true if stays => STAY,
            true => USED,
            false => GUARD,
        };
        self.enter(frame, if known { token & USES } else { 0 }, list);
    }

    fn scan(&mut self, _unmap: &mut dyn FnMut(u32)) {}

    fn mark(&mut self, id: u32) {
        let followed = self.rhythm.following();
        let least = LEAST.max(self.links.frames() / 4);
        match self.rhythm.mark(id, self.fetched, least) {
            Step::Lost => self.set_guard(self.links.frames()),
            Step::On => {
                if !followed {
                    self.trial.began = self.fetched;
                }
                self.resize_guard();
            }
            Step::Round => {
                self.judge(self.rhythm.last());
                self.resize_guard();
            }
            Step::New => {
                self.epoch = self.epoch.wrapping_add(1);
                self.part = 0;
                self.trial = Trial { rounds: 0, measure: 0, began: 0, strikes: 0, rest: 0, next_rest: REST };
                self.set_guard(self.links.frames());
            }
        }
        self.advance();
    }

    fn foresight(&self) -> Foresight {
        match self.passing() {
            false => Foresight::NextUses,
            true if self.stay.len > self.links.frames() / 16 => Foresight::Returns,
            true => Foresight::Nothing,
        }
    }

    fn len(&self) -> usize {
        self.len as usize
    }

    fn contains(&self, frame: u32) -> bool {
        self.links.is_linked(frame)
    }

    fn name(&self) -> &'static str {
        AdaptiveOptions::NAME
    }
}
