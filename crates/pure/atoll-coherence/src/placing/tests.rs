//! Tests of where regions run, as [`placing`](super) decides it.

use super::*;

/// A program of regions, each with its times spread and alone, the work in CPU time, and the cost if its pages are
/// elsewhere.
struct Program {
    placing: Placing<u32>,
    now: u64,
    pages_at: Place,
    switches: u32,
    at_home: bool,
}

#[derive(Clone, Copy)]
struct Costs {
    spread: u64,
    alone: u64,
    cpu: u64,
    fetch: u64,
    thrashes: bool,
}

impl Program {
    fn new() -> Program {
        Program { placing: Placing::new(), now: 1, pages_at: Spread, switches: 0, at_home: false }
    }

    fn run(&mut self, key: u32, costs: Costs) -> Place {
        let hope = Hope { origin_workers: 2, all_workers: 4, at_home: self.at_home };
        let Go { place, measure, .. } = self.placing.begin(key, self.now, hope);
        let mut ns = if place == Spread { costs.spread } else { costs.alone };
        if costs.fetch > 0 && self.pages_at != place {
            self.pages_at = place;
            self.switches += 1;
            ns += costs.fetch;
        }
        let cpu_ns = if measure { costs.cpu } else { 0 };
        self.now += ns;
        self.placing.ended(Took { ns, cpu_ns, thrashed: costs.thrashes && place == Spread });
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

const LOSES: Costs = Costs { spread: 10_000, alone: 4_000, cpu: 6_000, fetch: 20_000, thrashes: false };
const GAINS: Costs = Costs { spread: 10_000, alone: 19_000, cpu: 38_000, fetch: 20_000, thrashes: false };
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
    let small = Costs { spread: 3_000, alone: 300, cpu: 400, fetch: 0, thrashes: false };
    let mut program = Program::new();
    assert_eq!(program.rounds(&[GAINS, small, GAINS], 60), [Spread, Alone, Spread]);
}

#[test]
fn a_region_that_takes_the_others_pages_to_the_origin_stays_with_them() {
    // Alone it takes less time, but the next region fetches the pages back.
    let small = Costs { spread: 3_000, alone: 300, cpu: 400, fetch: 5_000, thrashes: false };
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
fn a_region_that_is_new_begins_where_the_others_are_and_is_tried_the_other_way() {
    let mut program = Program::new();
    assert_eq!(program.rounds(&[LOSES; 2], 100), [Alone; 2]);
    let heavy = Costs { spread: 600_000, alone: 1_000_000, cpu: 2_000_000, fetch: 10_000, thrashes: false };
    assert_eq!(program.run(9, heavy), Alone);
    let places: Vec<_> = (0..40).map(|_| program.run(9, heavy)).collect();
    assert_eq!(places.last(), Some(&Spread));
}

#[test]
fn a_region_that_synchronises_begins_at_home() {
    let mut program = Program { at_home: true, ..Program::new() };
    let gains = Costs { spread: 600_000, alone: 1_000_000, cpu: 2_000_000, fetch: 0, thrashes: false };
    let places: Vec<_> = (0..6).map(|_| program.run(1, gains)).collect();
    assert_eq!(places, [Alone, Alone, Spread, Spread, Spread, Spread]);
    // Beginning and ending it on all nodes would take as long.
    let places: Vec<_> = (0..60).map(|_| program.run(2, LOSES)).collect();
    assert!(places.iter().all(|place| *place == Alone), "{places:?}");
}

#[test]
fn a_region_whose_pages_went_to_and_fro_stays_at_home() {
    let mut program = Program::new();
    let thrashes = Costs { spread: 70_000_000, alone: 1_000_000, cpu: 2_000_000, fetch: 0, thrashes: true };
    assert_eq!(program.run(1, thrashes), Spread);
    let places: Vec<_> = (0..300).map(|_| program.run(1, thrashes)).collect();
    assert!(places.iter().all(|place| *place == Alone), "{places:?}");
}

/// A program of many regions that each run a few times, and lose less than what is called thrashing.
#[test]
fn what_spreading_loses_is_bounded() {
    let mut program = Program::new();
    let costs = Costs { spread: 9_000_000, alone: 3_000_000, cpu: 6_000_000, fetch: 0, thrashes: false };
    let (mut spread, mut runs) = (0, 0);
    for key in 0..100 {
        for _ in 0..5 {
            spread += u32::from(program.run(key, costs) == Spread);
            runs += 1;
        }
    }
    let lost = u64::from(spread) * 6_000_000;
    assert!(lost < 40_000_000 + runs * 3_000_000 / 5, "{spread}");
}

#[test]
fn what_a_program_begins_with_decides_nothing_for_the_rest() {
    let mut program = Program::new();
    for _ in 0..6 {
        program.run(7, LOSES);
    }
    // The region tried alone never comes again.
    program.rounds(&[GAINS; 2], 10);
    for _ in 0..100 {
        assert_eq!(program.rounds(&[GAINS; 2], 1), [Spread; 2]);
    }
}

#[test]
fn a_region_that_runs_once_is_not_waited_for() {
    let mut program = Program::new();
    program.run(7, Costs { spread: 10_000_000, alone: 1, cpu: 1, fetch: 0, thrashes: false });
    assert_eq!(program.rounds(&[LOSES; 3], 16), [Alone; 3]);
}

#[test]
fn what_was_won_pays_for_a_run_that_fetches_all_pages() {
    let mut program = Program::new();
    let millis = |spread: u64, alone: u64| {
        let [spread, alone] = [spread, alone].map(|ms| ms * 1_000_000);
        Costs { spread, alone, cpu: 2 * alone, fetch: 0, thrashes: false }
    };
    assert_eq!(program.run(1, millis(100, 200)), Spread);
    assert_eq!(program.run(2, millis(180, 110)), Spread);
    for _ in 0..10 {
        assert_eq!(program.run(3, millis(60, 110)), Spread);
    }
}

#[test]
fn regions_that_come_and_go_do_not_take_pages_to_and_fro() {
    let mut program = Program::new();
    let costs =
        Costs { spread: 2_500_000, alone: 2_000_000, cpu: 4_000_000, fetch: 30_000_000, thrashes: false };
    for key in 0..60 {
        (0..8).for_each(|_| _ = program.run(key, costs));
    }
    assert!(program.switches <= 3, "{}", program.switches);
}
