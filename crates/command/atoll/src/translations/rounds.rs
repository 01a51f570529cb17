//! Runs a workload under every translation, in turns, with the huge pages reserved that they need.
//!
//! They take turns because a machine is faster at one time than at another: so runs that are compared are close together in
//! time. What cannot run is left out with the reason.

use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use atoll_memory::segment::{PageKind, Reservation};

use super::outcome::Outcome;
use super::translation::{Translation, Workload};
use super::walks::Walks;

/// How measurements are made.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// The folder of the programs.
    pub(crate) programs: PathBuf,
    /// The number of turns of each translation.
    pub(crate) rounds: usize,
    /// The number of workers of each run.
    pub(crate) workers: u32,
    /// The longest time that a run may take.
    pub(crate) limit: Duration,
    /// No round begins that would end later than this after the first began.
    pub(crate) budget: Duration,
}

/// The result of one translation.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Measured {
    /// The translation.
    pub(crate) translation: Translation,
    /// The translation's runs, one for each round; or the reason why there are none.
    pub(crate) runs: Result<Vec<Outcome>, String>,
}

impl Measured {
    /// Returns the best speed: disturbances only make a run slower.
    pub(crate) fn rate(&self) -> Option<f64> {
        let runs = self.runs.as_ref().ok()?;
        runs.iter().map(|run| run.rate).reduce(f64::max)
    }

    /// Returns the most page faults of any run.
    pub(crate) fn faults(&self) -> Option<u64> {
        let runs = self.runs.as_ref().ok()?;
        runs.iter().map(|run| run.faults).collect::<Option<Vec<u64>>>()?.into_iter().max()
    }
}

/// Returns the speed of `translation`, if it ran.
pub(crate) fn rate(all: &[Measured], translation: Translation) -> Option<f64> {
    all.iter().find(|m| m.translation == translation)?.rate()
}

/// Runs `load` under all `translations`.
pub(crate) fn measure(translations: &[Translation], load: &Workload, plan: &Plan) -> Vec<Measured> {
    let mut all: Vec<Measured> =
        translations.iter().map(|&translation| Measured { translation, runs: Ok(Vec::new()) }).collect();
    // Both pools are reserved at once where memory has room for that: reserving again takes longer than running.
    let held: Vec<Reservation> = [PageKind::Huge1G, PageKind::Huge2M]
        .into_iter()
        .filter_map(|kind| reserve(kind, &mut all, load, plan))
        .collect();
    let begun = Instant::now();
    for round in 0..plan.rounds as u32 {
        if !another_fits(begun.elapsed(), round, plan.budget) {
            break;
        }
        for measured in &mut all {
            let Ok(runs) = &mut measured.runs else { continue };
            match run(measured.translation, load, plan) {
                Ok(outcome) => runs.push(outcome),
                Err(why) => measured.runs = Err(why),
            }
        }
    }
    drop(held);
    all
}

/// Whether one more round, as long as the `done` ones were on average, would end within the budget. The first one always
/// begins.
fn another_fits(elapsed: Duration, done: u32, budget: Duration) -> bool {
    done == 0 || elapsed.saturating_mul(done + 1) / done <= budget
}

/// Reserves the pages that the neediest translation needs whose need can be met; translations whose need cannot be met are left out.
fn reserve(kind: PageKind, all: &mut [Measured], load: &Workload, plan: &Plan) -> Option<Reservation> {
    loop {
        let needs = |m: &Measured| {
            m.translation
                .pages(load, plan.workers)
                .filter(|(k, _)| *k == kind && m.runs.is_ok())
                .map(|(_, pages)| pages)
        };
        let most = all.iter().filter_map(needs).max()?;
        match Reservation::take(kind, most) {
            Ok(pages) => return Some(pages),
            Err(error) => {
                for measured in all.iter_mut().filter(|m| needs(m) == Some(most)) {
                    measured.runs = Err(error.to_string());
                }
            }
        }
    }
}

/// Makes one run.
fn run(translation: Translation, load: &Workload, plan: &Plan) -> Result<Outcome, String> {
    let file = translation.file(&plan.programs, load);
    if !file.exists() {
        return Err(format!("{} is not there: make programs", file.display()));
    }
    let walks = Walks::begin();
    let kind =
        if let Translation::Native(kind) | Translation::Native32(kind) = translation { kind } else { None };
    let before = kind.map(PageKind::free);
    let mut taken = 0;
    let (stdout, stderr) =
        output(translation.command(&plan.programs, load, plan.workers), plan.limit, || {
            if let (Some(kind), Some(before)) = (kind, before) {
                taken = taken.max(before.saturating_sub(kind.free()));
            }
        })?;
    let mut outcome = Outcome::read(&stdout, &stderr)?;
    if let Some(kind) = kind
        && taken * (kind.bytes() as u64) < load.bytes / 2
    {
        return Err(format!("the C library did not use {}", kind.name()));
    }
    outcome.walks = walks.and_then(|walks| walks.count());
    Ok(outcome)
}

/// Returns what a program prints to standard output and standard error; `look` is called again and again while it runs.
///
/// # Errors
/// The program cannot be started, or takes longer than `limit` and is then killed.
pub(crate) fn output(
    mut command: Command,
    limit: Duration,
    look: impl FnMut(),
) -> Result<(String, String), String> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| format!("{} cannot be started: {e}", command.get_program().display()))?;
    let (stdout, stderr) = (reader(child.stdout.take()), reader(child.stderr.take()));
    let ended = wait(&mut child, limit, look);
    let text = |reader: std::thread::JoinHandle<String>| reader.join().unwrap_or_default();
    let said = (text(stdout), text(stderr));
    ended.map(|()| said)
}

fn reader(pipe: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            let _ = pipe.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Waits for the program's end.
fn wait(child: &mut Child, limit: Duration, mut look: impl FnMut()) -> Result<(), String> {
    let begin = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(_)) => return Ok(()),
            Ok(None) if begin.elapsed() > limit => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("it took longer than {} s", limit.as_secs()));
            }
            Ok(None) => std::thread::sleep(Duration::from_millis(20)),
            Err(error) => return Err(error.to_string()),
        }
        look();
    }
}

/// Returns a speed in the unit that its size suggests: updates in billions a second, edges in millions.
pub(crate) fn speed(rate: f64) -> String {
    if rate > 1e5 { format!("{:.1} MTEPS", rate / 1e6) } else { format!("{rate:.4} GUPS") }
}

/// Returns what was left out, and why.
pub(crate) fn skipped(all: &[Measured]) -> String {
    let why = all
        .iter()
        .filter_map(|m| Some(format!("  {}: skipped: {}\n", m.translation.name(), m.runs.as_ref().err()?)));
    why.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_end_with_the_budget() {
        let seconds = Duration::from_secs;
        assert!(another_fits(seconds(0), 0, seconds(0)));
        assert!(another_fits(seconds(10), 1, seconds(20)));
        assert!(!another_fits(seconds(11), 1, seconds(20)));
        assert!(another_fits(seconds(11), 10, seconds(20)));
        assert!(another_fits(Duration::MAX, 3, Duration::MAX));
    }
}
