//! Decides which regions run on the origin alone: those whose faults cost more than remote workers bring, by measurement.
//!
//! The driver keeps one [`Placing`] for the program and tells it, with the time, when regions begin and end. `region.rs` decides
//! under which protocol a spread region runs.
//!
//! The place of a region decides where its pages are afterwards, so regions cannot be judged one by one: if the next region is
//! spread, it fetches the pages that this one took to the origin. So all regions are tried together first, and then single ones
//! against the result. The measure is the time from a region's begin to the next one's, which includes the faults between them,
//! or the whole round from one run of a region to its next.
//!
//! No trial may cost much. A region whose code synchronises memory begins on the origin and is spread at first in its third run.
//! While regions are measured, all of them go to the origin as soon as spreading has lost more than a small part of the time so
//! far. A region whose pages went to and fro (`thrash.rs`) goes to the origin at once.

use std::collections::{BTreeMap, BTreeSet};

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
/// What a single region's trial must promise doubles with each trial that was in vain, but not more often than this.
const MOST_VAIN: u32 = 10;
/// The number of begins of regions within which a single region's trial must end.
const PATIENCE: u32 = 2000;

/// No trial is needed to tell that spread runs are faster if they take this percentage of the estimated time on the origin, or less.
const CLEAR: u64 = 65;
/// The time after which other spread regions are tried on the origin, in multiples of the time that moving pages has taken so far.
const TRIAL: u64 = 40;
/// The time that unknown regions on the origin have to take before they are measured spread, in multiples of the time that moving pages
/// has taken so far.
const MOVES: u64 = 4;

/// The number of runs on the origin with which a region begins whose code synchronises memory.
const AT_HOME: u32 = 2;
/// The number of such runs of a region whose pages went to and fro, when everything is measured again.
const THRASHED_AT_HOME: u32 = 64;
/// The least time of a run on the origin, in nanoseconds, for which a region that began there is spread: beginning and ending a
/// region on all nodes takes a good part of that.
const WORTH_SPREADING: u64 = 50_000;
/// The nanoseconds that spreading may lose against the origin alone until all regions go there, and the percentage of the
/// program's time that it may lose besides.
const MAY_LOSE: u64 = 20_000_000;
const MAY_LOSE_PERCENT: u64 = 10;
/// A trial of all regions ends when it has taken so many times the time that measuring took before, as those that were to be tried
/// do not come back.
const NOBODY_COMES: u64 = 20;

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

/// The reason why a run is on the origin alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Home {
    /// It takes less time there.
    Measured,
    /// To measure what it takes there.
    Trial,
    /// It is one of the first runs of a region whose code synchronises memory.
    First,
    /// The region's pages went to and fro.
    Thrashed,
}

/// How a region's run is to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Go {
    /// The place.
    pub place: Place,
    /// The reason, if the place is the origin.
    pub home: Home,
    /// Whether its CPU time is to be measured.
    pub measure: bool,
}

/// What is known of a region before it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hope {
    /// The number of its workers that the origin can run at once.
    pub origin_workers: u32,
    /// The number of its workers that all nodes together can run at once.
    pub all_workers: u32,
    /// Whether it begins on the origin, as its code synchronises memory.
    pub at_home: bool,
}

impl Hope {
    /// Whether the other nodes bring CPUs for its workers. If not, it cannot become faster by running on them.
    #[must_use]
    pub fn promises(&self) -> bool {
        self.all_workers > self.origin_workers
    }
}

/// The cost of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Took {
    /// The nanoseconds from its begin to its end.
    pub ns: u64,
    /// The CPU time of all workers together, without the time in which they waited for pages and for each other, in nanoseconds; 0
    /// if it was not measured.
    pub cpu_ns: u64,
    /// Whether its pages went to and fro between nodes.
    pub thrashed: bool,
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
    /// The runs that it still has on the origin before it is spread at first.
    at_home: u32,
    /// The time of the last spread run that moved pages; 0 before.
    cold_spread: u64,
    /// The time on the origin alone that is estimated by the CPU time of that run.
    cold_estimate: Option<u64>,
    /// The nanoseconds that moving pages added to the last run that moved them.
    moved: u64,
    /// Whether what is known of it has to be enough.
    enough: bool,
    /// Whether its pages went to and fro.
    thrashed: bool,
    hope: Hope,
}

impl Known {
    fn new(place: Place, hope: Hope) -> Known {
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
            at_home: if hope.at_home { AT_HOME } else { 0 },
            cold_spread: 0,
            cold_estimate: None,
            moved: 0,
            enough: false,
            thrashed: false,
            hope,
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
        self.enough || self.spread.count() >= KNOWN
    }

    /// The time of a spread run, as far as it is known.
    fn spread_time(&self) -> Option<u64> {
        self.spread.median().or((self.cold_spread > 0).then_some(self.cold_spread))
    }

    /// The time of a run on the origin, as far as it is known: measured, else estimated.
    fn alone_time(&self) -> Option<u64> {
        self.alone.median().or(self.estimate.median())
    }

    /// The time of a run in that place that moves no pages, as far as it is known. `estimate`: the time on the origin that this run
    /// promises.
    fn warm_time(&self, place: Place, estimate: Option<u64>) -> Option<u64> {
        let alone = self.alone_time().or(estimate).or(self.cold_estimate);
        match place {
            Place::Spread => self.spread.median().or(alone.map(|alone| self.promised(alone))),
            Place::Alone => alone,
        }
    }

    /// The time of a spread run that costs nothing but the work, from that of a run on the origin.
    fn promised(&self, alone: u64) -> u64 {
        let Hope { origin_workers, all_workers, .. } = self.hope;
        alone * u64::from(origin_workers) / u64::from(all_workers.max(1)) + WORTH_SPREADING
    }

    /// The time of a run in the present place, and the estimated time in the other.
    fn both(&self) -> Option<(u64, u64)> {
        let alone = self.alone_time()?;
        let spread = self.spread_time().unwrap_or_else(|| self.promised(alone));
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
    /// The place before.
    from: Place,
    /// Whether it took much longer, so that it is over.
    failed: bool,
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
    /// The time when the program began its first region.
    born: u64,
    /// The nanoseconds that spread runs and the moves of pages back to the origin have cost since then, beyond the time on the origin
    /// alone; negative: what they have saved.
    lost: i64,
    /// The nanoseconds that moving pages added to each of the last runs that moved them.
    moving: Recent,
    /// The nanoseconds that moving pages added to all runs since the program began its first region.
    moved: u64,
    /// Whether all regions are to be tried on the origin once, though estimates do not promise that they take less time there.
    doubt: bool,
    /// How many trials of single regions in a row were in vain.
    vain: u32,
    /// Regions whose pages went to and fro.
    thrashed: BTreeSet<K>,
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
            born: 0,
            lost: 0,
            moving: Recent::NONE,
            moved: 0,
            doubt: true,
            vain: 0,
            thrashed: BTreeSet::new(),
        }
    }

    /// Begins a region at `now`, of which `hope` is known; returns how it is to run.
    pub fn begin(&mut self, key: K, now: u64, hope: Hope) -> Go {
        if self.since == 0 {
            (self.since, self.stage_since, self.born) = (now, now, now);
        }
        self.close(now);
        let known = self.known(key, hope);
        known.hope = hope;
        if let Some(begun) = known.begun.replace(now) {
            known.rounds.push(now.saturating_sub(begun));
        }
        self.unseen += 1;
        if self.unseen >= self.regions.len() || self.loses(now) {
            self.unseen = 0;
            self.look(now);
        }
        if matches!(self.stage, Stage::Settled { .. }) {
            self.single(key);
        }
        let on_trial = self.trial.is_some_and(|trial| trial.key == key);
        let stage = self.stage;
        let known = self.known(key, hope);
        let place = match stage {
            Stage::Learn | Stage::Settled { .. } if known.at_home > 0 => Place::Alone,
            Stage::Learn => Place::Spread,
            Stage::Try { .. } => Place::Alone,
            Stage::Settled { .. } => known.place,
        };
        let home = match stage {
            _ if known.thrashed => Home::Thrashed,
            Stage::Try { .. } => Home::Trial,
            _ if known.at_home > 0 => Home::First,
            _ if on_trial => Home::Trial,
            _ => Home::Measured,
        };
        let measure = place == Place::Spread && known.estimate.count() <= KNOWN;
        self.last = Some(Run { key, place, began: now, took: Took::default() });
        Go { place, home, measure }
    }

    /// What is known of a region. One that is new begins where the others are, as their pages are there.
    fn known(&mut self, key: K, hope: Hope) -> &mut Known {
        let place = if matches!(self.stage, Stage::Learn) { Place::Spread } else { self.base };
        let thrashed = self.thrashed.contains(&key);
        self.regions.entry(key).or_insert_with(|| {
            let mut known = Known::new(place, hope);
            if thrashed {
                (known.at_home, known.thrashed) = (THRASHED_AT_HOME, true);
            }
            known
        })
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
        let may_lose = self.may_lose(now);
        let Some(known) = self.regions.get_mut(&run.key) else { return };
        let ns = now.saturating_sub(run.began);
        known.runs += 1;
        known.ns += ns;
        let tries = matches!(self.stage, Stage::Try { .. });
        if (run.place == Place::Spread || tries) && !known.is_known() {
            self.strange += ns;
        }
        if let Stage::Try { expected } = &mut self.stage {
            *expected += known.spread_time().unwrap_or(ns);
        }
        let cold = std::mem::take(&mut known.cold);
        let work = run.took.cpu_ns / u64::from(known.hope.origin_workers.max(1));
        let estimate = (run.took.cpu_ns > 0).then(|| ns.saturating_sub(run.took.ns) + work);
        if cold && let Some(warm) = known.warm_time(run.place, estimate) {
            known.moved = ns.saturating_sub(warm);
            self.moving.push(known.moved);
            self.moved += known.moved;
            if run.place == Place::Alone {
                self.lost += ns as i64 - warm as i64;
            }
        }
        if run.place == Place::Spread {
            let alone = known.alone.median().or(estimate).or(known.estimate.median());
            // Once regions are known to take less time spread, what it takes to bring their pages is no reason to go to the origin.
            let settled = matches!(self.stage, Stage::Settled { .. }) && self.base == Place::Spread;
            let took = if cold && settled { known.spread.median().unwrap_or(ns).min(ns) } else { ns };
            self.lost += alone.map_or(0, |alone| took as i64 - alone as i64);
            self.lost = self.lost.max(-may_lose);
            if cold {
                known.cold_spread = ns;
                known.cold_estimate = estimate;
            }
            let trial = self.trial.as_mut().filter(|trial| trial.key == run.key);
            if let (Some(trial), Some(alone)) = (trial, alone)
                && !cold
                && ns > alone.saturating_mul(TOO_LONG)
            {
                trial.failed = true;
            }
        } else if known.at_home > 0 {
            known.at_home -= 1;
            if known.at_home == 0 {
                let small = known.alone.median().unwrap_or(ns) < WORTH_SPREADING;
                known.at_home = if small { LOOK } else { 0 };
                known.cold = !small;
            }
        }
        if run.took.thrashed {
            self.thrashed.insert(run.key);
            known.turn(Place::Alone);
            (known.at_home, known.thrashed) = (THRASHED_AT_HOME, true);
            known.enough = true;
            if let Some(trial) = self.trial.as_mut().filter(|trial| trial.key == run.key) {
                trial.failed = true;
            }
        }
        // Another region's trial disturbs this measurement, which is then not used.
        let disturbed = self.trial.is_some_and(|trial| trial.key != run.key);
        if disturbed || cold {
            return;
        }
        match run.place {
            Place::Alone => known.alone.push(ns),
            Place::Spread => {
                known.spread.push(ns);
                estimate.into_iter().for_each(|estimate| known.estimate.push(estimate));
            }
        }
    }

    /// What spread runs may lose until `now`, in nanoseconds; as much of what they won counts against what they lose later.
    fn may_lose(&self, now: u64) -> i64 {
        (MAY_LOSE + (now - self.born) / 100 * MAY_LOSE_PERCENT) as i64
    }

    /// Whether spread runs have lost more than they may.
    fn loses(&self, now: u64) -> bool {
        self.lost > self.may_lose(now)
    }

    /// Looks at all regions, and begins another stage if it is time to.
    fn look(&mut self, now: u64) {
        // Most of the time goes to regions that came later, for instance those after the program's beginning.
        let strange = self.strange * 2 > now - self.stage_since;
        // To measure regions spread that are on the origin moves their pages, which their time has to be worth.
        let strange_enough = strange && self.strange >= self.moved.saturating_mul(MOVES);
        match self.stage {
            Stage::Settled { .. } if self.base == Place::Spread && self.loses(now) => self.all_go_home(now),
            Stage::Learn if self.loses(now) => self.all_go_home(now),
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
                let spread = sum(|k| k.spread_time().or(k.alone_time()));
                let alone = sum(Known::alone_time);
                // Their pages would have to come back. What they gain in as many runs as they had so far is to pay for that.
                let moved: u64 = known().map(|k| k.moved).sum();
                if let (Some(spread), Some(alone)) = (spread, alone)
                    && is_better(alone, spread, BETTER)
                    && spread - alone >= moved
                {
                    self.try_alone(now);
                } else {
                    // The estimate by CPU time is too high where it includes the work that moving pages makes: only a trial tells.
                    let clear =
                        spread.zip(alone).is_none_or(|(spread, alone)| is_better(spread, alone, CLEAR));
                    self.settle(Place::Spread, now);
                    self.doubt &= !clear;
                    if let (true, Stage::Settled { until }) = (self.doubt, &mut self.stage) {
                        *until = (*until).min(now.saturating_add(self.moved.saturating_mul(TRIAL)));
                    }
                }
            }
            Stage::Try { .. } if strange_enough && !self.loses(now) => self.start_over(now),
            Stage::Try { expected } => {
                let known = || self.regions.values().filter(|k| k.is_known());
                let tried = || known().filter(|k| k.alone.count() >= TRIED);
                let time = |k: &Known| k.runs * k.spread_time().unwrap_or(0);
                let (all, done): (u64, u64) = (known().map(time).sum(), tried().map(time).sum());
                if done > 0 && done * 100 >= all * MOST {
                    // In either place the first few runs fetch pages, too, where regions do not all use the same ones.
                    let measured = || tried().filter(|k| k.spread_time().is_some());
                    let alone: u64 = measured().map(|k| k.runs * k.alone.least().unwrap_or(0)).sum();
                    let least = |k: &Known| k.runs * k.spread.least().unwrap_or(k.cold_spread);
                    let spread: u64 = measured().map(least).sum();
                    let base = if is_better(alone, spread, BETTER) { Place::Alone } else { Place::Spread };
                    self.settle(base, now);
                } else if now - self.stage_since
                    > expected.saturating_mul(TOO_LONG) + (self.stage_since - self.since) + SLACK
                {
                    self.settle(Place::Spread, now);
                } else if now - self.stage_since
                    > (self.stage_since - self.since).saturating_mul(NOBODY_COMES) + SLACK
                {
                    self.settle(Place::Alone, now);
                }
            }
            Stage::Settled { until } if now >= until && self.base == Place::Spread && self.doubt => {
                self.all_go_home(now);
            }
            Stage::Settled { .. } if strange && (strange_enough || self.base == Place::Spread) => {
                self.start_over(now);
            }
            Stage::Settled { until } if now >= until => self.start_over(now),
            Stage::Settled { .. } => {}
        }
    }

    /// Tries the origin with all regions, of which what is known has to be enough.
    fn all_go_home(&mut self, now: u64) {
        self.regions.values_mut().for_each(|known| known.enough = true);
        self.try_alone(now);
    }

    /// Tries the origin with all regions.
    fn try_alone(&mut self, now: u64) {
        self.enter(Stage::Try { expected: 0 }, now);
        self.turn_all(Place::Alone);
        self.doubt = false;
    }

    fn enter(&mut self, stage: Stage, now: u64) {
        self.stage = stage;
        (self.stage_since, self.strange) = (now, 0);
    }

    /// Measures everything again.
    fn start_over(&mut self, now: u64) {
        self.enter(Stage::Learn, now);
        self.since = now;
        self.doubt = true;
        self.trial = None;
        self.regions.clear();
    }

    fn turn_all(&mut self, place: Place) {
        self.regions.values_mut().for_each(|known| known.turn(place));
    }

    fn settle(&mut self, base: Place, now: u64) {
        self.same = if base == self.base { (self.same + 1).min(MOST_SAME) } else { 0 };
        self.base = base;
        if base == Place::Spread {
            self.lost = 0;
        }
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
            let over = gone || trial.failed;
            if trial.key != key && !over {
                return;
            }
            let Some(known) = self.regions.get_mut(&trial.key) else { return };
            if known.rounds.count() <= TRIED && !over {
                return;
            }
            let after = known.rounds.median().filter(|_| !over).unwrap_or(u64::MAX);
            if after.saturating_add(trial.gain / 2) >= trial.before {
                known.turn(trial.from);
                self.vain = (self.vain + 1).min(MOST_VAIN);
            } else {
                self.vain = 0;
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
        if known.rests > 0 || known.at_home > 0 {
            known.rests = known.rests.saturating_sub(1);
            return;
        }
        if known.rounds.count() < KNOWN {
            return;
        }
        let (Some((here, there)), Some(before)) = (known.both(), known.rounds.median()) else { return };
        // A program may well go on for as long as it went on so far. The region's pages move there, and other regions move them back.
        let gains = here.saturating_sub(there).saturating_mul(known.runs);
        let pays = gains >= self.moving.median().unwrap_or(0).saturating_mul(2 << self.vain);
        if is_better(there, here, SINGLE) && pays {
            let from = known.place;
            known.turn(from.other());
            let gain = here - there;
            self.trial = Some(Trial { key, before, gain, patience: PATIENCE, from, failed: false });
        } else {
            known.rests = LOOK;
        }
    }
}

fn is_better(one: u64, other: u64, percent: u64) -> bool {
    u128::from(one) * 100 < u128::from(other) * u128::from(percent)
}

#[cfg(test)]
mod tests;
