//! One program's measurement: its footprint, its limits, and a cell for each subject.

use std::time::Duration;

use crate::bench::{Asked, Bench};
use crate::error::Error;
use crate::part::{Cell, Part};
use crate::plan::{DEFAULTS, Program};
use crate::process::Outcome;
use crate::stats::Sample;
use crate::subject::{Atoll, Subject, Waiting};

/// The measurements of one program.
pub(crate) struct Sheet {
    pub(crate) program: Program,
    /// The most memory that the native run had, in bytes.
    pub(crate) footprint: u64,
    /// The most that a limited run may have near, all in all, in bytes.
    pub(crate) limit: u64,
    pub(crate) waiting: Waiting,
    /// The `--near` with which an atoll run has the limit near, all in all; by page size.
    pub(crate) near: Vec<(&'static str, u64)>,
    /// The measurements at part of the memory.
    pub(crate) limited: Part,
    /// The measurements with all of the memory.
    pub(crate) all: Part,
    /// The times that a run under swap may take as long as one by atoll's defaults before it is cut, where that is bounded.
    pub(crate) patience: Option<f64>,
    /// The runs whose checksum was not the native one, and runs that failed.
    pub(crate) wrong: Vec<String>,
}

/// The share of the limit within which calibration ends: near memory left over up to this share counts as used.
const CALIBRATED_WITHIN: f64 = 0.01;
const CALIBRATIONS: usize = 5;
/// A first guess of the bytes that atoll and the program's private memory take besides.
const FIRST_GUESS: u64 = 8 << 20;
/// The most repetitions of a run that had more near than the limit.
const REPETITIONS: usize = 3;

/// The time that a run under swap gets at least, however short atoll's is.
const SWAP_AT_LEAST: Duration = Duration::from_secs(5);

/// The reason of runs that Linux swap fails, which is no mistake of atoll's.
pub(crate) const KILLED: &str = "the kernel killed every run for lack of memory, though swap space was free";

fn words(program: &Program, iterations: u32) -> Vec<String> {
    [program.name, program.class, "--iterations", &iterations.to_string()].map(str::to_owned).to_vec()
}

impl Sheet {
    /// Runs the program natively to learn its footprint, its checksums and the best way for its threads to wait.
    ///
    /// # Errors
    /// The program cannot be run, or the user interrupts.
    pub(crate) fn new(bench: &Bench, program: Program, percent: u32) -> Result<Sheet, Error> {
        let mut sheet = Sheet {
            program,
            footprint: 0,
            limit: 0,
            waiting: Waiting::Passive,
            near: Vec::new(),
            limited: Part {
                words: words(&program, program.iterations),
                checksum: String::new(),
                cells: Vec::new(),
            },
            all: Part {
                words: words(&program, program.iterations_all),
                checksum: String::new(),
                cells: Vec::new(),
            },
            patience: None,
            wrong: Vec::new(),
        };
        let native = |sheet: &Sheet, all: bool, waiting| {
            let words = if all { &sheet.all.words } else { &sheet.limited.words };
            let timeout = bench.timeout;
            let asked =
                Asked { subject: &Subject::Native, words, threads: 2, waiting, limit: 0, near: 0, timeout };
            let outcome = bench.run(&asked)?;
            let name = program.name;
            match outcome.output.failure() {
                Some(why) => Err(Error::said(format!("{name} failed natively: {why}"))),
                None if outcome.output.timed_out => {
                    Err(Error::said(format!("{name} took too long natively")))
                }
                None => Ok(outcome),
            }
        };
        // The first run also brings the program's file into memory.
        let first = native(&sheet, false, Waiting::Passive)?;
        sheet.limited.checksum = first.checksum().unwrap_or_default().to_owned();
        sheet.footprint = first.peak.unwrap_or(first.resident);
        sheet.limit = (sheet.footprint * u64::from(percent) / 100) & !0xfff;
        let passive = native(&sheet, true, Waiting::Passive)?;
        let bound = native(&sheet, true, Waiting::Bound)?;
        sheet.all.checksum = bound.checksum().unwrap_or_default().to_owned();
        if bound.output.seconds < passive.output.seconds {
            sheet.waiting = Waiting::Bound;
        }
        bench.say(&format!(
            "{} {}: footprint {}, limit {}, native with {}",
            program.name,
            program.class,
            mebibytes(sheet.footprint),
            mebibytes(sheet.limit),
            sheet.waiting
        ));
        Ok(sheet)
    }

    /// Finds the `--near` with which everything that is near in an atoll run is just below the limit. Far memory is in a file,
    /// which the count leaves out. So the cgroup's peak is what is near, with tables, runtime, launcher and the program's
    /// private memory.
    pub(crate) fn calibrate(&mut self, bench: &Bench, page: &'static str) -> Result<(), Error> {
        let subject =
            Subject::Atoll(Atoll { limited: true, far: Some("file"), page: Some(page), ..Atoll::default() });
        let mut near = self.limit.saturating_sub(FIRST_GUESS).max(self.limit / 2);
        let mut best = None;
        let mut before: Option<(u64, u64)> = None;
        for _ in 0..CALIBRATIONS {
            let outcome = bench.run(&self.asked(bench, &subject, near, bench.timeout))?;
            if let Some(why) = outcome.output.failure() {
                return Err(Error::said(format!("{page} pages: {why}")));
            }
            if outcome.output.timed_out {
                return Err(Error::said(format!(
                    "{page} pages: cut at the time limit with --near {}",
                    mebibytes(near)
                )));
            }
            let Some(peak) = outcome.peak else {
                // Nothing can be measured, so atoll gets what the limit says.
                best = Some(self.limit);
                break;
            };
            let useless = |(b, p): (u64, u64)| b > near && p.saturating_sub(peak) < (b - near) / 2;
            if peak > self.limit && before.is_some_and(useless) {
                let needed = mebibytes(peak);
                return Err(Error::said(format!(
                    "{page} pages: atoll needs {needed} at its start, whatever --near says"
                )));
            }
            before = Some((near, peak));
            if peak <= self.limit && best.is_none_or(|b| b < near) {
                best = Some(near);
            }
            let over = peak as f64 - self.limit as f64;
            if over <= 0.0 && -over < self.limit as f64 * CALIBRATED_WITHIN {
                break;
            }
            // The value is a little below, as runs differ.
            let next = near as f64 - over - self.limit as f64 * CALIBRATED_WITHIN / 2.0;
            if next < 1e6 {
                return Err(Error::said(format!(
                    "{page} pages: atoll alone needs {}",
                    mebibytes(peak.saturating_sub(near))
                )));
            }
            near = next as u64 & !0xfff;
        }
        let Some(near) = best else {
            return Err(Error::said(format!(
                "{page} pages: no near limit keeps within {}",
                mebibytes(self.limit)
            )));
        };
        bench.say(&format!(
            "{} {}: {page} pages, --near {} and {} for tables, runtime and private memory",
            self.program.name,
            self.program.class,
            mebibytes(near),
            mebibytes(self.limit.saturating_sub(near))
        ));
        self.near.push((page, near));
        Ok(())
    }

    fn asked<'a>(&'a self, bench: &Bench, subject: &'a Subject, near: u64, timeout: Duration) -> Asked<'a> {
        debug_assert!(timeout <= bench.timeout);
        let (words, waiting) = (&self.limited.words, self.waiting);
        Asked { subject, words, threads: 2, waiting, limit: self.limit, near, timeout }
    }

    /// Takes one more sample of cell `index`, with all memory near (`all`) or part of it.
    pub(crate) fn sample(&mut self, bench: &Bench, all: bool, index: usize) -> Result<(), Error> {
        let part = if all { &self.all } else { &self.limited };
        let cell = &part.cells[index];
        if cell.out.is_some() || part.is_behind(index) {
            return Ok(());
        }
        let subject = cell.subject.clone();
        let name = format!("{} {}: {subject}", self.program.name, self.program.class);
        let settings: &[Waiting] = match (&subject, cell.waiting) {
            // Which way of waiting is better under swap shows there, not natively.
            (Subject::Swap(_), None) => &Waiting::ALL,
            (Subject::Swap(_), Some(chosen)) => &[chosen],
            _ => &[self.waiting],
        };
        let mut best: Option<(Sample, Waiting)> = None;
        for &waiting in settings {
            let timeout = match &best {
                // A way that takes longer than the other is not the better one.
                Some((sample, _)) => Duration::from_secs_f64(sample.seconds).min(bench.timeout),
                None => self.timeout(bench, &subject),
            };
            match self.once(bench, all, &subject, waiting, timeout)? {
                Ok(sample) => {
                    if best.as_ref().is_none_or(|(b, _)| b.cut || sample.seconds < b.seconds && !sample.cut) {
                        best = Some((sample, waiting));
                    }
                }
                Err(why) => {
                    bench.say(&format!("{name}: {why}"));
                    if why != KILLED {
                        self.wrong.push(format!("{name}: {why}"));
                    }
                    self.cell_mut(all, index).out = Some(why);
                    return Ok(());
                }
            }
        }
        let Some((sample, waiting)) = best else { return Ok(()) };
        let at_least = if sample.cut { ">= " } else { "" };
        bench.say(&format!("{name} {at_least}{:.3} s", sample.seconds));
        let cell = self.cell_mut(all, index);
        if sample.cut {
            cell.out = Some("cut at the time limit, not run again".to_owned());
        }
        cell.waiting = Some(waiting);
        cell.samples.push(sample);
        Ok(())
    }

    /// Returns the longest time of a run.
    fn timeout(&self, bench: &Bench, subject: &Subject) -> Duration {
        let defaults = self.limited.median(&Subject::Atoll(DEFAULTS));
        match (subject, self.patience, defaults) {
            (Subject::Swap(_), Some(patience), Some(defaults)) => {
                Duration::from_secs_f64(patience * defaults.median).max(SWAP_AT_LEAST).min(bench.timeout)
            }
            _ => bench.timeout,
        }
    }

    fn cell_mut(&mut self, all: bool, index: usize) -> &mut Cell {
        let part = if all { &mut self.all } else { &mut self.limited };
        &mut part.cells[index]
    }

    /// Makes one run, and repeats it with a smaller near limit if more was near than the limit allows. `Ok(Err)` says what was
    /// wrong.
    fn once(
        &mut self,
        bench: &Bench,
        all: bool,
        subject: &Subject,
        waiting: Waiting,
        timeout: Duration,
    ) -> Result<Result<Sample, String>, Error> {
        let page = subject.atoll().filter(|a| a.limited).and_then(|a| a.page);
        let strict = subject.atoll().is_some_and(|a| a.limited && a.far == Some("file"));
        for repetition in 0.. {
            let part = if all { &self.all } else { &self.limited };
            let near = self.near.iter().find(|(p, _)| Some(*p) == page).map(|&(_, near)| near);
            let percent = subject.atoll().and_then(|atoll| atoll.percent);
            let near = near.or(percent.map(|percent| self.footprint * u64::from(percent) / 100));
            let asked = Asked {
                subject,
                words: &part.words,
                threads: 2,
                waiting,
                limit: self.limit,
                near: near.unwrap_or(self.limit),
                timeout,
            };
            let outcome = bench.run(&asked)?;
            if matches!(subject, Subject::Swap(_)) && outcome.was_killed() {
                return Ok(Err(KILLED.to_owned()));
            }
            if let Some(why) = wrong(&outcome, &part.checksum) {
                return Ok(Err(why));
            }
            let over = outcome.peak.unwrap_or(0).saturating_sub(self.limit);
            if strict && over > 0 && repetition < REPETITIONS {
                if let Some(entry) = self.near.iter_mut().find(|(p, _)| Some(*p) == page) {
                    entry.1 -= (over + (64 << 10)).min(entry.1 / 2) & !0xfff;
                }
                continue;
            }
            let figures = outcome.output.figures().unwrap_or_default();
            return Ok(Ok(Sample {
                seconds: outcome.output.seconds,
                cut: outcome.output.timed_out,
                peak: outcome.peak,
                near: subject.atoll().filter(|a| a.limited).map(|_| asked.near),
                fetches: figures.total.major_faults + figures.total.prefetched_pages,
                waits: figures.total.waits,
                killed: outcome.killed,
            }));
        }
        Ok(Err("it always had more near than the limit".to_owned()))
    }
}

/// Returns why a run counts for nothing, if it does: it failed, or its result is another.
fn wrong(outcome: &Outcome, checksum: &str) -> Option<String> {
    if outcome.output.timed_out {
        return None;
    }
    outcome.output.failure().or_else(|| {
        let got = outcome.checksum().unwrap_or("none");
        (got != checksum).then(|| format!("checksum {got} instead of {checksum}"))
    })
}

pub(crate) fn mebibytes(bytes: u64) -> String {
    format!("{:.1}M", bytes as f64 / 1048576.0)
}
