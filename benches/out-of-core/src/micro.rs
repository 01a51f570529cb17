//! Measures the cost of one page: `sweep` over a table twice as large as near memory.

use crate::bench::{Asked, Bench};
use crate::error::Error;
use crate::sheet::KILLED;
use crate::stats::{Figure, Sample, figure};
use crate::subject::{Atoll, Device, Subject, Waiting};

/// The patterns in which each worker has a part of the table.
pub(crate) const PATTERNS: [&str; 2] = ["sequential", "random"];
/// The patterns in which all workers visit all of the table, in random order.
pub(crate) const SHARED: [&str; 2] = ["look", "update"];
const PAGES_A_MEBIBYTE: u64 = 256;

/// Returns the number of passes over the table. A sweep is long enough to show what a policy learns from its first passes.
/// Random visits teach it nothing, and two passes of them take Linux swap half a minute.
fn passes(pattern: &str) -> u64 {
    if pattern == "sequential" { 8 } else { 2 }
}

/// The runs of one subject with one pattern. A sample's seconds are those of a 4K page.
pub(crate) struct MicroCell {
    pub(crate) pattern: &'static str,
    pub(crate) workers: usize,
    /// The size of the table in MiB.
    mebibytes: u64,
    pub(crate) subject: Subject,
    pub(crate) samples: Vec<Sample>,
    pub(crate) out: Option<String>,
}

impl MicroCell {
    pub(crate) fn figure(&self) -> Option<Figure> {
        figure(&self.samples)
    }
}

/// The microbenchmark.
pub(crate) struct Micro {
    /// The size of the table that one worker sweeps, in MiB.
    pub(crate) mebibytes: u64,
    pub(crate) cells: Vec<MicroCell>,
    pub(crate) wrong: Vec<String>,
}

/// Returns atoll with far memory `ram`, so that only paging is measured.
pub(crate) fn atoll(page: &'static str) -> Subject {
    Subject::Atoll(Atoll { limited: true, far: Some("ram"), page: Some(page), ..Atoll::default() })
}

/// Returns atoll with far memory `lz4`, which compresses as zram does.
pub(crate) fn compressing() -> Subject {
    Subject::Atoll(Atoll { limited: true, far: Some("lz4"), page: Some("4K"), ..Atoll::default() })
}

impl Micro {
    /// Makes the microbenchmark: one worker on a table of `mebibytes`; then two workers, each on as much as one worker alone
    /// has.
    pub(crate) fn new(mebibytes: u64) -> Micro {
        let mut cells = Vec::new();
        for pattern in PATTERNS {
            let subjects = [
                Subject::Native,
                Subject::Swap(Device::Zram),
                Subject::Swap(Device::File),
                atoll("4K"),
                atoll("64K"),
            ];
            let mut add = |workers, mebibytes, subject| {
                cells.push(MicroCell {
                    pattern,
                    workers,
                    mebibytes,
                    subject,
                    samples: Vec::new(),
                    out: None,
                });
            };
            subjects.into_iter().for_each(|subject| add(1, mebibytes, subject));
            for subject in [Subject::Native, atoll("4K")] {
                add(2, 2 * mebibytes, subject);
            }
        }
        for pattern in SHARED {
            for subject in [Subject::Native, Subject::Swap(Device::Zram), compressing(), atoll("4K")] {
                let (samples, out) = (Vec::new(), None);
                cells.push(MicroCell { pattern, workers: 2, mebibytes, subject, samples, out });
            }
        }
        Micro { mebibytes, cells, wrong: Vec::new() }
    }

    pub(crate) fn cell(&self, pattern: &str, workers: usize, subject: &Subject) -> Option<&MicroCell> {
        let fits = |c: &&MicroCell| c.pattern == pattern && c.workers == workers && c.subject == *subject;
        self.cells.iter().find(fits)
    }

    /// Returns the microseconds for a 4K page.
    pub(crate) fn cost(&self, pattern: &str, workers: usize, subject: &Subject) -> Option<f64> {
        Some(1e6 * self.cell(pattern, workers, subject)?.figure()?.median)
    }

    /// Returns the factor by which two workers take longer than one with half the work; 1 if neither waits.
    pub(crate) fn two_workers(&self, pattern: &str, subject: &Subject) -> Option<f64> {
        Some(2.0 * self.cost(pattern, 2, subject)? / self.cost(pattern, 1, subject)?)
    }

    /// Takes one more sample of every cell.
    pub(crate) fn round(&mut self, bench: &Bench) -> Result<(), Error> {
        for index in 0..self.cells.len() {
            self.sample(bench, index)?;
        }
        Ok(())
    }

    fn sample(&mut self, bench: &Bench, index: usize) -> Result<(), Error> {
        let cell = &mut self.cells[index];
        if cell.out.is_none() {
            cell.out = bench.refused(&cell.subject);
        }
        if cell.out.is_some() {
            return Ok(());
        }
        let (pattern, size, passes) = (cell.pattern, cell.mebibytes.to_string(), passes(cell.pattern));
        let words =
            ["sweep", "B", "--pattern", pattern, "--megabytes", &size, "--passes", &passes.to_string()];
        let half = cell.mebibytes << 19;
        let outcome = bench.run(&Asked {
            subject: &cell.subject,
            words: &words.map(str::to_owned),
            threads: cell.workers,
            waiting: Waiting::Bound,
            limit: half,
            near: half,
            timeout: bench.timeout,
        })?;
        if matches!(cell.subject, Subject::Swap(_)) && outcome.was_killed() {
            cell.out = Some(KILLED.to_owned());
            return Ok(());
        }
        let name = format!("sweep {pattern}, {} workers: {}", cell.workers, cell.subject);
        let visitors = if SHARED.contains(&pattern) { cell.workers as u64 } else { 1 };
        let pages = cell.mebibytes * PAGES_A_MEBIBYTE * passes * visitors;
        let printed = outcome.output.line("Microseconds a page:").and_then(|text| text.parse::<f64>().ok());
        let seconds = match (outcome.output.failure(), outcome.output.timed_out, printed) {
            (None, true, _) => outcome.output.seconds / pages as f64,
            (None, false, Some(microseconds)) => 1e-6 * microseconds,
            (failure, ..) => {
                let why = failure.unwrap_or_else(|| "it did not print its time".to_owned());
                bench.say(&format!("{name}: {why}"));
                self.wrong.push(format!("{name}: {why}"));
                cell.out = Some(why);
                return Ok(());
            }
        };
        bench.say(&format!("{name} {:.2} us a page", 1e6 * seconds));
        let figures = outcome.output.figures().unwrap_or_default();
        if outcome.output.timed_out {
            cell.out = Some("cut at the time limit, not run again".to_owned());
        }
        cell.samples.push(Sample {
            seconds,
            cut: outcome.output.timed_out,
            peak: outcome.peak,
            near: cell.subject.atoll().map(|_| half),
            fetches: figures.total.major_faults + figures.total.prefetched_pages,
            waits: figures.total.waits,
            killed: outcome.killed,
        });
        Ok(())
    }
}
