//! The targets for what constructs cost, and the rule for noise.
//!
//! A construct is no slower where its median is not above the other runtime's by more than that runtime's own rounds differ.

use super::super::output::verdict;
use super::super::statistics::percentile;
use super::{Measured, Runtime};

/// Constructs that may take no longer than libgomp's.
const NO_SLOWER: [&str; 6] = ["parallel", "barrier", "static", "static,1", "dynamic,1", "guided,1"];
/// Constructs of tasks, and the most that they may take, times libomp's.
const TASKS: [&str; 3] = ["task-by-one", "tasks-by-all", "taskwait"];
const TASK_TIMES: f64 = 1.5;
/// The CPUs that all teams have.
const CPUS: u32 = 2;

/// Nanoseconds below which two overheads do not differ: the references' own differences are as large.
const NOTHING: f64 = 2.0;
/// The least and the most that noise may excuse, as a share.
const NOISE: [f64; 2] = [0.02, 0.10];

/// How many times another overhead an overhead is; what is next to nothing counts as [`NOTHING`].
pub(super) fn times(ours: f64, theirs: f64) -> f64 {
    ours.max(NOTHING) / theirs.max(NOTHING)
}

/// The share by which two measurements of the same differ: half the distance of the quartiles of the rounds.
fn noise(rounds: &[f64]) -> f64 {
    let at = |percent| percentile(rounds.to_vec(), percent);
    let median = at(50).max(NOTHING);
    ((at(75) - at(25)) / 2.0 / median).clamp(NOISE[0], NOISE[1])
}

/// Returns the lines about the targets for teams of `workers`.
pub(super) fn judge(measured: &Measured, workers: u32) -> Vec<String> {
    if workers > CPUS {
        return oversubscribed(measured, workers).into_iter().collect();
    }
    let team = if workers == 1 { "1 worker".to_owned() } else { format!("{workers} workers") };
    let mut lines = Vec::new();
    let mut line = |construct: &str, ours: Runtime, most: f64| {
        let Some(theirs) = ours.native() else { return };
        let both = measured.median(construct, workers, ours).zip(measured.median(construct, workers, theirs));
        let (Some((our, their)), Some(rounds)) = (both, measured.of(construct, workers, theirs)) else {
            return;
        };
        let (times, allowed) = (times(our, their), most * (1.0 + noise(rounds)));
        lines.push(format!(
            "{construct}, {team}: at most {most:.2} times {} ({allowed:.2} with its noise), measured {times:.2} times: {}",
            theirs.name(),
            verdict(times <= allowed)
        ));
    };
    NO_SLOWER.iter().for_each(|construct| line(construct, Runtime::AtollForGcc, 1.0));
    TASKS.iter().for_each(|construct| line(construct, Runtime::AtollForClang, TASK_TIMES));
    lines
}

/// The line about teams with more workers than CPUs: all constructs together.
fn oversubscribed(measured: &Measured, workers: u32) -> Option<String> {
    let mut all = Vec::new();
    for construct in &measured.constructs {
        let ours = measured.median(construct, workers, Runtime::AtollForGcc);
        let theirs = measured.median(construct, workers, Runtime::Gomp);
        all.extend(ours.zip(theirs).map(|(ours, theirs)| (times(ours, theirs), construct)));
    }
    let (most, slowest) = all.iter().copied().max_by(|a, b| a.0.total_cmp(&b.0))?;
    let mean = (all.iter().map(|(times, _)| times.ln()).sum::<f64>() / all.len() as f64).exp();
    Some(format!(
        "{workers} workers on {CPUS} CPUs, all constructs, geometric mean: at most 1.00 times libgomp, most {slowest} with {most:.2} \
         times, measured {mean:.2} times: {}",
        verdict(mean <= 1.0)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(workers: u32, all: &[(&str, Runtime, &[f64])]) -> Measured {
        let mut measured = Measured::default();
        for (construct, runtime, rounds) in all {
            for nanoseconds in *rounds {
                let text = format!("Overhead: {construct} {workers} {nanoseconds} 0");
                measured.add(workers, *runtime, &text).unwrap();
            }
        }
        measured
    }

    #[test]
    fn what_is_slower_by_less_than_the_rounds_differ_is_no_slower() {
        let quiet = [("barrier", Runtime::Gomp, &[100.0, 100.0, 100.0][..])];
        let noisy = [("barrier", Runtime::Gomp, &[90.0, 100.0, 106.0][..])];
        let ours = ("barrier", Runtime::AtollForGcc, &[105.0][..]);
        let line = |theirs: &[_; 1]| judge(&measured(2, &[theirs[0], ours]), 2).join("");
        assert!(line(&quiet).ends_with("measured 1.05 times: not met"), "{}", line(&quiet));
        assert!(line(&noisy).ends_with("measured 1.05 times: met"), "{}", line(&noisy));
    }

    #[test]
    fn overheads_near_nothing_are_alike() {
        assert_eq!(times(-3.0, 1.0), 1.0);
        assert_eq!(times(8.0, -1.0), 4.0);
    }

    #[test]
    fn tasks_are_judged_by_libomp_and_large_teams_by_their_mean() {
        let tasks =
            [("taskwait", Runtime::Omp, &[100.0][..]), ("taskwait", Runtime::AtollForClang, &[151.0][..])];
        let lines = judge(&measured(1, &tasks), 1);
        assert!(lines[0].starts_with("taskwait, 1 worker: at most 1.50 times libomp (1.53"), "{lines:?}");
        assert!(lines[0].ends_with("1.51 times: met"), "{lines:?}");
        let large = [
            ("lock", Runtime::Gomp, &[10.0][..]),
            ("lock", Runtime::AtollForGcc, &[40.0][..]),
            ("barrier", Runtime::Gomp, &[100.0][..]),
            ("barrier", Runtime::AtollForGcc, &[25.0][..]),
        ];
        let lines = judge(&measured(4, &large), 4);
        assert!(lines[0].ends_with("most lock with 4.00 times, measured 1.00 times: met"), "{lines:?}");
    }
}
