//! Measures one program in all settings: its runs, round by round, and the counts of coherence.

use atoll_bench_common::Output;
use atoll_record::figures::Node;

use crate::error::Error;
use crate::places::Places;
use crate::plan::{FIRST, Program};
use crate::setting::Setting;
use crate::stats::median;

/// A run that ended well.
#[derive(Debug, Clone)]
pub(crate) struct Sample {
    /// The program's own time in seconds, without its start.
    pub(crate) seconds: f64,
    /// The counts of all nodes together.
    pub(crate) counts: Counts,
}

/// The counts of coherence, over all nodes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Counts {
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    pub(crate) single: u64,
    pub(crate) batched: u64,
    pub(crate) twins: u64,
    pub(crate) diffs: u64,
    pub(crate) ahead: u64,
    pub(crate) used: u64,
    pub(crate) streamed: u64,
    pub(crate) sent: u64,
    pub(crate) messages: u64,
    pub(crate) message_bytes: u64,
    /// The number of barriers of all nodes: as many as each node had.
    pub(crate) barriers: u64,
    pub(crate) barrier_seconds: f64,
    pub(crate) fault_seconds: f64,
}

impl Counts {
    pub(crate) fn of(nodes: &[Node]) -> Counts {
        let mut all = Counts::default();
        for node in nodes {
            all.reads += node.read_faults;
            all.writes += node.write_faults;
            all.single += node.single_invalidations;
            all.batched += node.batched_invalidations;
            all.twins += node.twins;
            all.diffs += node.diffs;
            all.ahead += node.ahead;
            all.used += node.ahead_used;
            all.streamed += node.streamed;
            all.sent += node.pages_sent;
            all.messages += node.messages;
            all.message_bytes += node.message_bytes;
            all.barriers = all.barriers.max(node.barriers);
            all.barrier_seconds += node.barrier_seconds;
            all.fault_seconds += node.fault_seconds;
        }
        all
    }

    /// Returns the counts beyond `first`, where there are more.
    pub(crate) fn beyond(&self, first: &Counts) -> Counts {
        Counts {
            reads: self.reads.saturating_sub(first.reads),
            writes: self.writes.saturating_sub(first.writes),
            single: self.single.saturating_sub(first.single),
            batched: self.batched.saturating_sub(first.batched),
            twins: self.twins.saturating_sub(first.twins),
            diffs: self.diffs.saturating_sub(first.diffs),
            ahead: self.ahead.saturating_sub(first.ahead),
            used: self.used.saturating_sub(first.used),
            streamed: self.streamed.saturating_sub(first.streamed),
            sent: self.sent.saturating_sub(first.sent),
            messages: self.messages.saturating_sub(first.messages),
            message_bytes: self.message_bytes.saturating_sub(first.message_bytes),
            barriers: self.barriers.saturating_sub(first.barriers),
            barrier_seconds: (self.barrier_seconds - first.barrier_seconds).max(0.0),
            fault_seconds: (self.fault_seconds - first.fault_seconds).max(0.0),
        }
    }
}

/// The runs in one setting.
pub(crate) struct Cell {
    pub(crate) setting: Setting,
    pub(crate) samples: Vec<Sample>,
    /// The counts of the first iterations alone.
    first: Option<Counts>,
}

impl Cell {
    pub(crate) fn seconds(&self) -> Option<f64> {
        median(self.samples.iter().map(|s| s.seconds))
    }

    /// Returns the counts of the median run.
    pub(crate) fn counts(&self) -> Option<Counts> {
        let middle = self.seconds()?;
        let distance = |s: &&Sample| (s.seconds - middle).abs();
        self.samples.iter().min_by(|a, b| distance(a).total_cmp(&distance(b))).map(|s| s.counts)
    }

    /// Returns the part of these counts that came after the first iterations.
    pub(crate) fn later(&self) -> Option<Counts> {
        Some(self.counts()?.beyond(&self.first?))
    }
}

/// The measurements of one program.
pub(crate) struct Sheet {
    pub(crate) program: Program,
    pub(crate) class: String,
    pub(crate) cells: Vec<Cell>,
    /// The runs that failed, or whose result was wrong.
    pub(crate) wrong: Vec<String>,
}

impl Sheet {
    pub(crate) fn new(program: Program, class: &str) -> Sheet {
        let cell = |setting| Cell { setting, samples: Vec::new(), first: None };
        Sheet { program, class: class.to_owned(), cells: Setting::ALL.map(cell).into(), wrong: Vec::new() }
    }

    pub(crate) fn cell(&self, setting: Setting) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.setting == setting)
    }

    pub(crate) fn seconds(&self, setting: Setting) -> Option<f64> {
        self.cell(setting)?.seconds()
    }

    /// Runs every setting once; the first time also with as many iterations as it takes until every region is known.
    ///
    /// # Errors
    /// If a program cannot be started.
    pub(crate) fn round(&mut self, places: &Places) -> Result<(), Error> {
        let path = places.program(self.program.name);
        let (name, class) = (self.program.name, self.class.clone());
        for cell in &mut self.cells {
            if cell.setting.several() && cell.first.is_none() {
                let short = [class.clone(), "--iterations".to_owned(), FIRST.to_string()];
                let outcome = places.run(cell.setting, &path, &short)?;
                cell.first = outcome.figures().map(|figures| Counts::of(&figures.nodes));
            }
            let outcome = places.run(cell.setting, &path, std::slice::from_ref(&class))?;
            match sample(&outcome) {
                Ok(sample) => {
                    places.say(&format!("{name} {class} {}: {:.3} s", cell.setting, sample.seconds));
                    cell.samples.push(sample);
                }
                Err(why) => {
                    places.say(&format!("{name} {class} {}: {why}", cell.setting));
                    self.wrong.push(format!("{name} {class}, {}: {why}", cell.setting));
                }
            }
        }
        Ok(())
    }
}

/// Returns the result of a run that ended well, or why the run counts for nothing.
pub(crate) fn sample(outcome: &Output) -> Result<Sample, String> {
    if let Some(why) = outcome.failure_or_cut() {
        return Err(why);
    }
    let seconds = outcome.number("Seconds:").ok_or("it did not say how long it took")?;
    let counts = outcome.figures().map(|figures| Counts::of(&figures.nodes)).unwrap_or_default();
    // Times are printed in milliseconds, and a ratio needs a divisor above zero.
    Ok(Sample { seconds: seconds.max(0.0005), counts })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_beyond_the_first_runs_is_never_negative() {
        let (first, all) =
            (Counts { reads: 7, ..Counts::default() }, Counts { reads: 5, writes: 3, ..Counts::default() });
        let later = all.beyond(&first);
        assert_eq!((later.reads, later.writes), (0, 3));
    }

    #[test]
    fn counts_are_of_the_run_in_the_middle() {
        let sample = |seconds, reads| Sample { seconds, counts: Counts { reads, ..Counts::default() } };
        let samples = vec![sample(3.0, 30), sample(1.0, 10), sample(2.0, 20)];
        let first = Some(Counts { reads: 5, ..Counts::default() });
        let cell = Cell { setting: Setting::Sc, samples, first };
        assert_eq!(cell.counts().map(|c| c.reads), Some(20));
        assert_eq!(cell.later().map(|c| c.reads), Some(15));
    }
}
