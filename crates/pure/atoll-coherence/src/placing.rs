//! Decides which regions run on the origin alone: those whose faults cost more than remote workers bring, by measurement.
//!
//! The driver keeps one [`Placing`] for the program and tells it, with the time, when regions begin and end. `region.rs` decides
//! under which protocol a spread region runs.
//!
//! The place of a region decides where its pages are afterwards, so regions cannot be judged one by one: if the next region is
//! spread, it fetches the pages that this one took to the origin. So all regions are tried together first, and then single ones
//! against the result. The measure is the time from a region's begin to the next one's, which includes the faults between them,
//! or the whole round from one run of a region to its next.

use std::collections::BTreeMap;

use crate::recent::Recent;

/// The number of measured runs in each place after which a region is known, besides the first run, which moves pages.
const KNOWN: u32 = 4;
/// The number of measured runs for trials of all regions.
const TRIED: u32 = 3;
/// The percentage of the time of repeating regions that known regions must account for.
const MOST: u64 = 80;
/// The greatest percentage of the present time that another place may take to be chosen.
const BETTER: u64 = 95;
/// The greatest percentage of the present time that a single region's estimate may have to be tried.
const SINGLE: u64 = 80;
/// A trial ends when it takes this many times the expected time, and this many nanoseconds more, as somebody else may have had
/// the CPUs.
const TOO_LONG: u64 = 2;
const SLACK: u64 = 50_000_000;
/// The time until everything is measured again, in multiples of the time that measuring took; doubled each time that nothing
/// has changed.
const REVISIT: u64 = 50;
/// The greatest number of doublings.
const MOST_SAME: u32 = 4;
/// The number of runs after which a single region is reconsidered; doubled each time that nothing has changed.
const LOOK: u32 = 64;
/// The number of begins of regions within which a single region's trial must end.
const PATIENCE: u32 = 2000;

/// The place where a region runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// On all nodes.
    Spread,
    /// On the origin.
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

/// How a region's run is to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Go {
    /// The place.
    pub place: Place,
    /// Whether the run is a trial.
    pub trial: bool,
    /// Whether its CPU time is to be measured.
    pub measure: bool,
}

/// The cost of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Took {
    /// The nanoseconds from its begin to its end.
    pub ns: u64,
    /// The CPU time of all workers together, in nanoseconds; 0 if it was not measured.
    pub cpu_ns: u64,
    /// The number of workers that the origin could run at once.
    pub origin_workers: u32,
}

#[derive(Debug, Clone)]
struct Known {
    place: Place,
    /// The times from a spread run's begin to the next region's begin.
    spread: Recent,
    alone: Recent,
    /// The estimated times on the origin alone, by the CPU time of spread runs.
    estimate: Recent,
    /// The times from run to run in the present place.
    rounds: Recent,
    begun: Option<u64>,
    /// The number of runs since measuring began.
    runs: u64,
    ns: u64,
    /// Whether the next run moves pages.
    cold: bool,
    /// The number of runs until it is reconsidered.
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

    /// Whether the time of a spread run is known.
    fn is_known(&self) -> bool {
        self.spread.count() >= KNOWN
    }

    /// The time of a run in the present place, and the estimated time in the other.
    fn both(&self) -> Option<(u64, u64)> {
        let alone = self.alone.median().or(self.estimate.median())?;
        let spread = self.spread.median()?;
        Some(if self.place == Place::Spread { (spread, alone) } else { (alone, spread) })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// All regions are spread.
    Learn,
    /// All regions are alone; spread, they would have taken the expected time.
    Try { expected: u64 },
    /// The best places are known, until the given time.
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
    /// The time of a round before the trial.
    before: u64,
    /// The estimated gain.
    gain: u64,
    patience: u32,
}

/// The measurements of a program's regions. Times are in nanoseconds of one clock.
#[derive(Debug)]
pub struct Placing<K> {
    stage: Stage,
    base: Place,
    regions: BTreeMap<K, Known>,
    last: Option<Run<K>>,
    trial: Option<Trial<K>>,
    /// The times when measuring began, and when the stage did.
    since: u64,
    stage_since: u64,
    /// The time of unknown regions since then.
    strange: u64,
    /// The number of begins since the last look at all regions.
    unseen: usize,
    /// How often in a row the same result was found.
    same: u32,
}

impl<K: Ord + Copy> Default for Placing<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Ord + Copy> Placing<K> {
    /// A value without measurements.
    #[must_use]
    pub const fn new() -> Self {
        Placing {
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

    /// Begins a region at `now`; returns how it is to run.
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

    /// Ends the region that began last.
    pub fn ended(&mut self, took: Took) {
        if let Some(run) = &mut self.last {
            run.took = took;
        }
    }

    /// Ends the account of the last run and what followed it.
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
        // Another region's trial disturbs this measurement, which is then not used.
        let disturbed = self.trial.is_some_and(|trial| trial.key != run.key);
        if disturbed || std::mem::take(&mut known.cold) {
            return;
        }
        match run.place {
            Place::Alone => known.alone.push(ns),
            Place::Spread => {
                known.spread.push(ns);
                if run.took.cpu_ns > 0 {
                    let work = run.took.cpu_ns / u64::from(run.took.origin_workers.max(1));
                    known.estimate.push(ns.saturating_sub(run.took.ns) + work);
                }
            }
        }
    }

    /// Looks at all regions, and begins another stage if it is time to.
    fn look(&mut self, now: u64) {
        // Most of the time goes to regions that came later, for instance those after the program's beginning.
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

    /// Measures everything again.
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

    /// Begins or ends the trial of the one region that begins, while all others are in their best place.
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

    /// A program of regions, each with its times spread and alone, the work in CPU time, and the cost if its pages are
    /// elsewhere.
    struct Program {
        placing: Placing<u32>,
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
            Program { placing: Placing::new(), now: 1, pages_at: Spread, switches: 0 }
        }

        fn run(&mut self, key: u32, costs: Costs) -> Place {
            let Go { place, measure, .. } = self.placing.begin(key, self.now);
            let mut ns = if place == Spread { costs.spread } else { costs.alone };
            if costs.fetch > 0 && self.pages_at != place {
                self.pages_at = place;
                self.switches += 1;
                ns += costs.fetch;
            }
            let cpu_ns = if measure { costs.cpu } else { 0 };
            self.now += ns;
            self.placing.ended(Took { ns, cpu_ns, origin_workers: 2 });
            self.now += 100;
            place
        }

        /// The places of the regions after `rounds` rounds of all of them.
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
        // The region's CPU time promises more than there is to gain.
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
    fn a_region_that_takes_the_others_pages_to_the_origin_stays_with_them() {
        // Alone it takes less time, but the next region fetches the pages back.
        let small = Costs { spread: 3_000, alone: 300, cpu: 400, fetch: 5_000 };
        let mut program = Program::new();
        assert_eq!(program.rounds(&[GAINS, small, GAINS], 60), [Spread; 3]);
        assert!(program.switches < 20);
    }

    #[test]
    fn what_was_decided_is_revisited() {
        let mut program = Program::new();
        assert_eq!(program.rounds(&[LOSES; 2], 20), [Alone; 2]);
        // The program goes on with larger data: after a while everything is measured again.
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
        // The region tried alone never comes again.
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
