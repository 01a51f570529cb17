//! Which regions run on the home node alone: those whose faults cost more than remote workers bring, by measurement.
//!
//! Who drives it keeps one [`Home`] for the program and tells it when regions begin and end, with the time. `region.rs` decides
//! how a region runs that is spread.
//!
//! Where a region runs decides where its pages are afterwards, so regions cannot be judged one by one: spread, the next one
//! fetches what this one took home. So all of them are tried together first, and then single ones against what that gave. What
//! counts is the time from a region's begin to the next one's, in which the faults between them are, or the whole round from one
//! run of a region to its next.
//!
//! Source: the Popcorn paper runs every region on all nodes; that some lose by it is its Figure 2.

use std::collections::BTreeMap;

use crate::recent::Recent;

/// Measured runs of each way from which a region is known, besides the first, which moves pages.
const KNOWN: u32 = 4;
/// The same for trials of all regions.
const TRIED: u32 = 3;
/// Of the time of regions that repeat, in percent, what those that are known must have.
const MOST: u64 = 80;
/// Percent of the time that another way may take at most to be taken.
const BETTER: u64 = 95;
/// The same for a single region, by what is estimated of it.
const SINGLE: u64 = 80;
/// A trial that takes so many times what was expected ends, and so many nanoseconds more: somebody else may have had the CPUs.
const TOO_LONG: u64 = 2;
const SLACK: u64 = 50_000_000;
/// All is measured again after so many times what measuring took; twice that if nothing has changed, and so on.
const REVISIT: u64 = 50;
/// Of which there are so many at most.
const MOST_SAME: u32 = 4;
/// Runs after which a single region is looked at again; twice that if nothing has changed, and so on.
const LOOK: u32 = 64;
/// Begins of regions in which a single region's trial must be over.
const PATIENCE: u32 = 2000;

/// Where a region runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// On all nodes.
    Spread,
    /// On the home node.
    Alone,
}

impl Place {
    fn other(self) -> Place {
        match self {
            Place::Spread => Place::Alone,
            Place::Alone => Place::Spread,
        }
    }
}

/// How a region's run goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Go {
    /// Where.
    pub place: Place,
    /// It is a trial.
    pub trial: bool,
    /// The CPU time that it takes is wanted.
    pub measure: bool,
}

/// What a run took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Took {
    /// Nanoseconds from its begin to its end.
    pub ns: u64,
    /// CPU time of all workers together; 0 if it was not measured.
    pub cpu_ns: u64,
    /// So many of them the home node could run at once.
    pub home_workers: u32,
}

#[derive(Debug, Clone)]
struct Known {
    place: Place,
    /// From a run's begin to the next region's.
    spread: Recent,
    alone: Recent,
    /// What that would be alone, by the CPU time of runs that were spread.
    estimate: Recent,
    /// From run to run, as the region runs now.
    rounds: Recent,
    begun: Option<u64>,
    /// Since measuring began.
    runs: u64,
    ns: u64,
    /// The next run moves pages.
    cold: bool,
    /// Runs until it is looked at.
    rests: u32,
    rest: u32,
}

impl Known {
    fn new(place: Place) -> Known {
        Known {
            place,
            spread: Recent::NONE,
            alone: Recent::NONE,
            estimate: Recent::NONE,
            rounds: Recent::NONE,
            begun: None,
            runs: 0,
            ns: 0,
            cold: true,
            rests: 0,
            rest: LOOK,
        }
    }

    fn turn(&mut self, place: Place) {
        self.place = place;
        self.cold = true;
        self.rounds = Recent::NONE;
        self.begun = None;
    }

    /// Is it known what it takes spread?
    fn is_known(&self) -> bool {
        self.spread.count() >= KNOWN
    }

    /// What its run takes where it runs now, and would take elsewhere.
    fn both(&self) -> Option<(u64, u64)> {
        let alone = self.alone.median().or(self.estimate.median())?;
        let spread = self.spread.median()?;
        Some(if self.place == Place::Spread { (spread, alone) } else { (alone, spread) })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// All are spread.
    Learn,
    /// All are alone; spread they would have taken so long.
    Try { expected: u64 },
    /// It is known what is best, until then.
    Settled { until: u64 },
}

#[derive(Debug, Clone, Copy)]
struct Run<K> {
    key: K,
    place: Place,
    began: u64,
    took: Took,
}

#[derive(Debug, Clone, Copy)]
struct Trial<K> {
    key: K,
    /// A round before it.
    before: u64,
    /// What was estimated to be gained.
    gain: u64,
    patience: u32,
}

/// What is known of a program's regions. Times are in nanoseconds of one clock.
#[derive(Debug)]
pub struct Home<K> {
    stage: Stage,
    base: Place,
    regions: BTreeMap<K, Known>,
    last: Option<Run<K>>,
    trial: Option<Trial<K>>,
    /// When measuring began, and when the stage did.
    since: u64,
    stage_since: u64,
    /// What runs of regions took since then that are not known.
    strange: u64,
    /// Begins since the last look at all regions.
    unseen: usize,
    /// How often the same was found in a row.
    same: u32,
}

impl<K: Ord + Copy> Default for Home<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Ord + Copy> Home<K> {
    /// Nothing is known.
    #[must_use]
    pub const fn new() -> Self {
        Home {
            stage: Stage::Learn,
            base: Place::Spread,
            regions: BTreeMap::new(),
            last: None,
            trial: None,
            since: 0,
            stage_since: 0,
            strange: 0,
            unseen: 0,
            same: 0,
        }
    }

    /// A region begins at `now`.
    pub fn begin(&mut self, key: K, now: u64) -> Go {
        if self.since == 0 {
            (self.since, self.stage_since) = (now, now);
        }
        self.close(now);
        let known = self.regions.entry(key).or_insert_with(|| Known::new(Place::Spread));
        if let Some(begun) = known.begun.replace(now) {
            known.rounds.push(now.saturating_sub(begun));
        }
        self.unseen += 1;
        if self.unseen >= self.regions.len() {
            self.unseen = 0;
            self.look(now);
        }
        if matches!(self.stage, Stage::Settled { .. }) {
            self.single(key);
        }
        let on_trial = self.trial.is_some_and(|trial| trial.key == key);
        let known = self.regions.entry(key).or_insert_with(|| Known::new(Place::Spread));
        let (place, trial) = match self.stage {
            Stage::Learn => (Place::Spread, false),
            Stage::Try { .. } if known.is_known() => (Place::Alone, true),
            Stage::Try { .. } => (Place::Spread, false),
            Stage::Settled { .. } => (known.place, on_trial),
        };
        let measure = place == Place::Spread && known.estimate.count() <= KNOWN;
        self.last = Some(Run { key, place, began: now, took: Took::default() });
        Go { place, trial, measure }
    }

    /// The region that began last has ended.
    pub fn ended(&mut self, took: Took) {
        if let Some(run) = &mut self.last {
            run.took = took;
        }
    }

    /// The last run and what followed it are over.
    fn close(&mut self, now: u64) {
        let Some(run) = self.last.take() else { return };
        let Some(known) = self.regions.get_mut(&run.key) else { return };
        let ns = now.saturating_sub(run.began);
        known.runs += 1;
        known.ns += ns;
        if !known.is_known() {
            self.strange += ns;
        }
        if let Stage::Try { expected } = &mut self.stage {
            *expected += known.spread.median().unwrap_or(ns);
        }
        // What another region's trial does to this one says nothing of it.
        let disturbed = self.trial.is_some_and(|trial| trial.key != run.key);
        if disturbed || std::mem::take(&mut known.cold) {
            return;
        }
        match run.place {
            Place::Alone => known.alone.push(ns),
            Place::Spread => {
                known.spread.push(ns);
                if run.took.cpu_ns > 0 {
                    let work = run.took.cpu_ns / u64::from(run.took.home_workers.max(1));
                    known.estimate.push(ns.saturating_sub(run.took.ns) + work);
                }
            }
        }
    }

    /// Looks at all regions: is it time for another stage?
    fn look(&mut self, now: u64) {
        // Most of the time goes to regions that came later, such as those behind the program's beginning.
        let strange = self.strange * 2 > now - self.stage_since;
        match self.stage {
            Stage::Learn => {
                let repeats: u64 = self.regions.values().filter(|k| k.runs > 1).map(|k| k.ns).sum();
                let known = || self.regions.values().filter(|k| k.is_known());
                let time: u64 = known().map(|k| k.ns).sum();
                if time == 0 || time * 100 < repeats * MOST {
                    return;
                }
                let sum = |of: fn(&Known) -> Option<u64>| -> Option<u64> {
                    known().map(|k| Some(k.runs.saturating_mul(of(k)?))).sum()
                };
                let (spread, alone) = (sum(|k| k.spread.median()), sum(|k| k.estimate.median()));
                if let (Some(spread), Some(alone)) = (spread, alone)
                    && is_better(alone, spread, BETTER)
                {
                    self.enter(Stage::Try { expected: 0 }, now);
                    self.turn_all(Place::Alone);
                } else {
                    self.settle(Place::Spread, now);
                }
            }
            Stage::Try { .. } if strange => self.start_over(now),
            Stage::Try { expected } => {
                let known = || self.regions.values().filter(|k| k.is_known());
                let tried = || known().filter(|k| k.alone.count() >= TRIED);
                let time = |k: &Known| k.runs * k.spread.median().unwrap_or(0);
                let (all, done): (u64, u64) = (known().map(time).sum(), tried().map(time).sum());
                if done > 0 && done * 100 >= all * MOST {
                    let alone: u64 = tried().map(|k| k.runs * k.alone.median().unwrap_or(0)).sum();
                    let base = if is_better(alone, done, BETTER) { Place::Alone } else { Place::Spread };
                    self.settle(base, now);
                } else if now - self.stage_since
                    > expected.saturating_mul(TOO_LONG) + (self.stage_since - self.since) + SLACK
                {
                    self.settle(Place::Spread, now);
                }
            }
            Stage::Settled { until } if now >= until || strange => self.start_over(now),
            Stage::Settled { .. } => {}
        }
    }

    fn enter(&mut self, stage: Stage, now: u64) {
        self.stage = stage;
        (self.stage_since, self.strange) = (now, 0);
    }

    /// All is measured again.
    fn start_over(&mut self, now: u64) {
        self.enter(Stage::Learn, now);
        self.since = now;
        self.trial = None;
        self.regions.clear();
    }

    fn turn_all(&mut self, place: Place) {
        self.regions.values_mut().for_each(|known| known.turn(place));
    }

    fn settle(&mut self, base: Place, now: u64) {
        self.same = if base == self.base { (self.same + 1).min(MOST_SAME) } else { 0 };
        self.base = base;
        self.turn_all(base);
        let measuring = now.saturating_sub(self.since).max(1);
        let until = now.saturating_add(measuring.saturating_mul(REVISIT << self.same));
        self.enter(Stage::Settled { until }, now);
    }

    /// One region begins while all else is as is best: begins its trial, or ends it.
    fn single(&mut self, key: K) {
        if let Some(trial) = &mut self.trial {
            trial.patience -= 1;
            let (trial, gone) = (*trial, trial.patience == 0);
            if trial.key != key && !gone {
                return;
            }
            let Some(known) = self.regions.get_mut(&trial.key) else { return };
            if known.rounds.count() <= TRIED && !gone {
                return;
            }
            let after = known.rounds.median().filter(|_| !gone).unwrap_or(u64::MAX);
            if after.saturating_add(trial.gain / 2) >= trial.before {
                known.turn(known.place.other());
            }
            known.rests = known.rest;
            known.rest = known.rest.saturating_mul(2);
            self.trial = None;
            for known in self.regions.values_mut() {
                (known.cold, known.rounds, known.begun) = (true, Recent::NONE, None);
            }
            return;
        }
        let Some(known) = self.regions.get_mut(&key) else { return };
        if known.rests > 0 {
            known.rests -= 1;
            return;
        }
        if known.rounds.count() < KNOWN {
            return;
        }
        let (Some((here, there)), Some(before)) = (known.both(), known.rounds.median()) else { return };
        if is_better(there, here, SINGLE) {
            known.turn(known.place.other());
            self.trial = Some(Trial { key, before, gain: here - there, patience: PATIENCE });
        } else {
            known.rests = LOOK;
        }
    }
}

fn is_better(one: u64, other: u64, percent: u64) -> bool {
    u128::from(one) * 100 < u128::from(other) * u128::from(percent)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program of regions, each with its times spread and alone, the work that its CPU time tells, and what it costs if
    /// its pages are not where it runs.
    struct Program {
        home: Home<u32>,
        now: u64,
        pages_at: Place,
        switches: u32,
    }

    #[derive(Clone, Copy)]
    struct Costs {
        spread: u64,
        alone: u64,
        cpu: u64,
        fetch: u64,
    }

    impl Program {
        fn new() -> Program {
            Program { home: Home::new(), now: 1, pages_at: Spread, switches: 0 }
        }

        fn run(&mut self, key: u32, costs: Costs) -> Place {
            let Go { place, measure, .. } = self.home.begin(key, self.now);
            let mut ns = if place == Spread { costs.spread } else { costs.alone };
            if costs.fetch > 0 && self.pages_at != place {
                self.pages_at = place;
                self.switches += 1;
                ns += costs.fetch;
            }
            let cpu_ns = if measure { costs.cpu } else { 0 };
            self.now += ns;
            self.home.ended(Took { ns, cpu_ns, home_workers: 2 });
            self.now += 100;
            place
        }

        /// Where the regions run after so many rounds of all of them.
        fn rounds(&mut self, regions: &[Costs], rounds: u32) -> Vec<Place> {
            let mut places = Vec::new();
            for _ in 0..rounds {
                places = (0..).zip(regions).map(|(key, costs)| self.run(key, *costs)).collect();
            }
            places
        }
    }

    const LOSES: Costs = Costs { spread: 10_000, alone: 4_000, cpu: 6_000, fetch: 20_000 };
    const GAINS: Costs = Costs { spread: 10_000, alone: 19_000, cpu: 38_000, fetch: 20_000 };
    use Place::{Alone, Spread};

    #[test]
    fn regions_that_lose_run_alone_after_a_few_runs() {
        let mut program = Program::new();
        assert_eq!(program.rounds(&[LOSES; 3], 4), [Spread; 3]);
        assert_eq!(program.rounds(&[LOSES; 3], 12), [Alone; 3]);
        assert_eq!(program.switches, 1);
        assert_eq!(program.rounds(&[LOSES; 3], 300), [Alone; 3]);
        assert_eq!(program.switches, 1);
    }

    #[test]
    fn regions_whose_work_would_take_longer_alone_are_never_tried() {
        let mut program = Program::new();
        for _ in 0..2000 {
            assert_eq!(program.rounds(&[GAINS; 2], 1), [Spread; 2]);
        }
    }

    #[test]
    fn a_trial_that_takes_longer_leaves_them_spread() {
        // Its CPU time promises more than there is.
        let promises = Costs { cpu: 10_000, ..GAINS };
        let mut program = Program::new();
        assert_eq!(program.rounds(&[promises; 2], 30), [Spread; 2]);
        assert_eq!(program.switches, 2);
    }

    #[test]
    fn a_small_region_runs_alone_among_large_ones_that_gain() {
        let small = Costs { spread: 3_000, alone: 300, cpu: 400, fetch: 0 };
        let mut program = Program::new();
        assert_eq!(program.rounds(&[GAINS, small, GAINS], 60), [Spread, Alone, Spread]);
    }

    #[test]
    fn a_region_that_takes_the_others_pages_home_stays_with_them() {
        // Alone it takes less time, but the next one fetches the pages back.
        let small = Costs { spread: 3_000, alone: 300, cpu: 400, fetch: 5_000 };
        let mut program = Program::new();
        assert_eq!(program.rounds(&[GAINS, small, GAINS], 60), [Spread; 3]);
        assert!(program.switches < 20);
    }

    #[test]
    fn what_was_decided_is_revisited() {
        let mut program = Program::new();
        assert_eq!(program.rounds(&[LOSES; 2], 20), [Alone; 2]);
        // The program goes on with larger data: after a while all is measured again.
        program.rounds(&[GAINS; 2], 1000);
        assert_eq!(program.rounds(&[GAINS; 2], 1000), [Spread; 2]);
    }

    #[test]
    fn a_region_that_is_new_is_spread_first() {
        let mut program = Program::new();
        assert_eq!(program.rounds(&[LOSES; 2], 100), [Alone; 2]);
        let heavy = Costs { spread: 20_000, alone: 60_000, cpu: 100_000, fetch: 10_000 };
        for _ in 0..4 {
            assert_eq!(program.run(9, heavy), Spread);
        }
        assert_eq!(program.run(0, LOSES), Alone);
    }

    #[test]
    fn what_a_program_begins_with_decides_nothing_for_the_rest() {
        let mut program = Program::new();
        for _ in 0..6 {
            program.run(7, LOSES);
        }
        // Tried alone, that one never comes again.
        for _ in 0..100 {
            assert_eq!(program.rounds(&[GAINS; 2], 1), [Spread; 2]);
        }
    }

    #[test]
    fn a_region_that_runs_once_is_not_waited_for() {
        let mut program = Program::new();
        program.run(7, Costs { spread: 10_000_000, alone: 1, cpu: 1, fetch: 0 });
        assert_eq!(program.rounds(&[LOSES; 3], 16), [Alone; 3]);
    }
}
