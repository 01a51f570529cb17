//! Finds the round a program repeats in the marks it passes, and says how far into it the program is.
//!
//! Used by `adaptive`. Marks are what a runtime sees for nothing: parallel regions beginning, barriers opening
//! (`policy::Policy::mark`). A time step of a solver is always the same sequence of them, whatever the memory does;
//! a clock of faults would run slower the better the policy is. Between two marks, which may be far apart, the
//! pages fetched since the last one measure the way, against how many these were in the last rounds.
//!
//! * A round is found when the last marks, as many as it has and six at least, are the same as those before them. Of
//!   several the shortest counts.
//! * Each mark that is not the one foretold loses the place. It is found again where the last marks (eight, or a
//!   whole round of fewer) lie in the round. What foretells less than 85 % of the last marks gives way
//!   to a longer round: the time step with three equal stages to the stage, but not the outer loop, which runs 25
//!   sweeps, to the sweep.
//! * The round is divided by the pages fetched in it when it was found. That division stays as long as the round,
//!   so that a place in the program keeps its number while the policy changes what is fetched where.

/// Marks remembered; a round has half as many at most.
const MARKS: usize = 512;
/// The fewest equal marks that make a round.
const LEAST: usize = 6;
/// The share of marks, of 2^16, that a round must foretell to stay when a longer one is found: 85 %. And what a new
/// one is taken to foretell.
const GOOD: u32 = 55_705;
const NEW: u32 = 60_000;
/// Marks after which the place in a round that is known is found again.
const AGAIN: usize = 8;

/// What a mark was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// No round is known, or the place in it is not.
    Lost,
    /// The place is known.
    On,
    /// A round begins: another of the known kind, all of the last one having been followed.
    Round,
    /// A new kind of round begins.
    New,
}

/// A mark of the round, and the stretch up to the next.
#[derive(Debug, Clone, Copy)]
struct Beat {
    id: u32,
    /// Pages fetched before it in the round, and in its stretch, when the round was found.
    start: u32,
    weight: u32,
    /// Pages fetched in its stretch lately.
    expected: u32,
}

/// The tracker; 8 KB.
#[derive(Debug)]
pub(crate) struct Rhythm {
    /// The last marks and when they were passed, in pages fetched: rings.
    ids: [u32; MARKS],
    times: [u32; MARKS],
    seen: usize,
    round: [Beat; MARKS / 2],
    /// Marks of the round; 0 when none is known.
    length: usize,
    /// Pages fetched in the round when it was found.
    total: u32,
    /// The mark passed last, if `following`.
    index: usize,
    following: bool,
    /// Marks followed since the place was lost.
    followed: usize,
    /// The share of marks that were foretold, of 2^16.
    foretold: u32,
    /// When the last mark was passed.
    passed: u32,
}

impl Rhythm {
    pub(crate) const fn new() -> Self {
        Self {
            ids: [0; MARKS],
            times: [0; MARKS],
            seen: 0,
            round: [Beat { id: 0, start: 0, weight: 0, expected: 0 }; MARKS / 2],
            length: 0,
            total: 0,
            index: 0,
            following: false,
            followed: 0,
            foretold: 0,
            passed: 0,
        }
    }

    /// Whether the place in the round is known.
    pub(crate) fn following(&self) -> bool {
        self.following
    }

    /// The program passed mark `id` at time `now`, in pages fetched. `least`: a round with fewer is none.
    pub(crate) fn mark(&mut self, id: u32, now: u32, least: u32) -> Step {
        let spent = now.wrapping_sub(self.passed);
        self.passed = now;
        let slot = self.seen % MARKS;
        (self.ids[slot], self.times[slot]) = (id, now);
        self.seen += 1;
        let next = if self.index + 1 < self.length { self.index + 1 } else { 0 };
        let right = self.following && self.round[next].id == id;
        self.foretold = self.foretold - self.foretold / 128 + if right { 512 } else { 0 };
        if right {
            let expected = &mut self.round[self.index].expected;
            *expected = (u64::from(*expected) * 3 + u64::from(spent)).div_ceil(4) as u32;
            self.index = next;
            self.followed += 1;
            return if next == 0 && self.followed >= self.length { Step::Round } else { Step::On };
        }
        self.following = false;
        self.followed = 0;
        let good = self.length > 0 && self.foretold >= GOOD;
        if !good
            && let Some(length) = self.find()
            && self.time(0).wrapping_sub(self.time(length)) >= least
            && !(length == self.length && self.place(length))
        {
            self.take(length);
            return Step::New;
        }
        if self.following || self.place(self.length.min(AGAIN)) { Step::On } else { Step::Lost }
    }

    /// Where in the round the program is, if it is divided into `parts`.
    pub(crate) fn part(&self, now: u32, parts: u32) -> u32 {
        let beat = self.round[self.index];
        let since = u64::from(now.wrapping_sub(self.passed).min(beat.expected.saturating_sub(1)));
        let done = u64::from(beat.weight) * since / u64::from(beat.expected.max(1));
        let part = (u64::from(beat.start) + done) * u64::from(parts) / u64::from(self.total.max(1));
        (part as u32).min(parts - 1)
    }

    /// Pages fetched in a round lately.
    pub(crate) fn expected(&self) -> u32 {
        self.round[..self.length].iter().fold(0, |sum, beat| beat.expected.saturating_add(sum))
    }

    /// Pages fetched since the same mark in the last round.
    pub(crate) fn last(&self) -> u32 {
        self.time(0).wrapping_sub(self.time(self.length))
    }

    /// The mark passed so many marks ago.
    fn id(&self, ago: usize) -> u32 {
        self.ids[(self.seen + MARKS - 1 - ago) % MARKS]
    }

    fn time(&self, ago: usize) -> u32 {
        self.times[(self.seen + MARKS - 1 - ago) % MARKS]
    }

    /// The shortest round that the last marks are.
    fn find(&self) -> Option<usize> {
        let have = self.seen.min(MARKS);
        (1..=MARKS / 2)
            .take_while(|&length| length.max(LEAST) + length <= have)
            .find(|&length| (0..length.max(LEAST)).all(|ago| self.id(ago) == self.id(ago + length)))
    }

    /// Finds the place in the round by the last `marks`.
    fn place(&mut self, marks: usize) -> bool {
        if marks == 0 || marks > self.seen {
            return false;
        }
        let length = self.length;
        let fits = |&end: &usize| {
            (0..marks).all(|ago| self.id(ago) == self.round[(end + marks * length - ago) % length].id)
        };
        if let Some(index) = (0..length).find(fits) {
            self.index = index;
            self.following = true;
        }
        self.following
    }

    /// The last `length` marks are the round from now on, which begins with the present one.
    fn take(&mut self, length: usize) {
        self.length = length;
        let began = self.time(length);
        self.total = self.time(0).wrapping_sub(began);
        for index in 0..length {
            let at = self.time(length - index);
            let weight = self.time(length - index - 1).wrapping_sub(at);
            let start = at.wrapping_sub(began);
            self.round[index] = Beat { id: self.id(length - index), start, weight, expected: weight };
        }
        self.index = 0;
        self.following = true;
        self.foretold = NEW;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Passes marks, ten pages apart.
    fn pass(rhythm: &mut Rhythm, now: &mut u32, marks: impl Iterator<Item = u32>) -> Step {
        let mut last = Step::Lost;
        for id in marks {
            *now += 10;
            last = rhythm.mark(id, *now, 1);
        }
        last
    }

    #[test]
    fn a_round_is_found_followed_and_found_again() {
        let (mut rhythm, mut now) = (Rhythm::new(), 0);
        let round = || [1, 2, 2, 3, 4].into_iter();
        assert_eq!(pass(&mut rhythm, &mut now, (0..2).flat_map(|_| round())), Step::Lost);
        assert_eq!(pass(&mut rhythm, &mut now, round().take(1)), Step::New);
        assert_eq!(pass(&mut rhythm, &mut now, round().skip(1)), Step::On);
        assert_eq!(pass(&mut rhythm, &mut now, round().take(1)), Step::Round);
        assert_eq!((rhythm.part(now, 10), rhythm.part(now + 9, 10)), (0, 1));
        assert_eq!(rhythm.part(now + 1000, 10), 1, "no further than the stretch");
        assert_eq!((rhythm.expected(), rhythm.last()), (50, 50));
        assert_eq!(pass(&mut rhythm, &mut now, [7, 8].into_iter()), Step::Lost);
        assert_eq!(pass(&mut rhythm, &mut now, round()), Step::On);
        assert_eq!(rhythm.part(now, 10), 8, "at the 4, its last mark");
    }

    #[test]
    fn a_longer_round_replaces_what_it_contains() {
        let (mut rhythm, mut now) = (Rhythm::new(), 0);
        let step = || [9, 9, 8].into_iter().chain((0..4).flat_map(|_| 1..15));
        let steps = |count: usize| (0..count).flat_map(move |_| step());
        pass(&mut rhythm, &mut now, steps(1));
        assert_eq!(rhythm.length, 14);
        pass(&mut rhythm, &mut now, steps(3));
        assert_eq!(rhythm.length, 59);
    }

    #[test]
    fn a_round_that_foretells_nearly_all_stays() {
        let (mut rhythm, mut now) = (Rhythm::new(), 0);
        let step = || [9, 8].into_iter().chain((0..25).flat_map(|_| 1..4));
        pass(&mut rhythm, &mut now, (0..12).flat_map(|_| step()));
        assert_eq!(rhythm.length, 3);
        assert!(rhythm.following());
    }

    #[test]
    fn what_fetches_little_or_never_repeats_is_no_round() {
        let mut rhythm = Rhythm::new();
        for index in 0..2000 {
            assert_eq!(rhythm.mark(index % 7, index, 100), Step::Lost);
        }
        for index in 0..2000_u32 {
            assert_eq!(rhythm.mark(index, 2000 + index * 1000, 1), Step::Lost);
        }
    }
}
