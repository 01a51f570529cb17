//! The end of a run: its summary, its record, and atoll's own end, which is the program's.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, UNIX_EPOCH};

use atoll_memory::control::EXIT_SETUP;
use atoll_record::{Figures, Record, Run, run};

use super::applied;
use super::footprints::{self, Key};
use super::launch::Finished;
use super::memory_group;
use super::signals;
use super::summary;
use super::watch::Ending;
use crate::cli::{RunArgs, SummaryForm};
use crate::{figures, machine};

impl From<Ending> for run::Ending {
    fn from(ending: Ending) -> Self {
        match ending {
            Ending::Status(status) => Self { status: Some(status), signal: None },
            Ending::Signal(signal) => Self { status: None, signal: Some(signal) },
        }
    }
}

/// Prints what happened and ends as the program did.
pub(crate) fn finish(args: &RunArgs, mut finished: Finished) -> ExitCode {
    let figures = collect(&finished);
    let ending = finished.ending;
    let form = if finished.is_first { args.summary } else { SummaryForm::None };
    print(form, &figures);
    let near = finished.control.near();
    if form != SummaryForm::None
        && let Some(line) = memory_group::line(finished.kills, ending, near)
    {
        eprintln!("atoll: {line}");
    }
    let mut failed =
        finished.is_first && applied::at_end(args, finished.checked, finished.control, &figures.program);
    keep_footprint(args, &finished);
    if let Some(file) = finished.record.take() {
        let record = Record { run: describe(args, &finished), figures, others: Vec::new() };
        if let Err(error) = record.save(file) {
            let path = args.record.as_deref().unwrap_or(OsStr::new("").as_ref()).display();
            eprintln!("atoll: the record {path} could not be written: {error}");
            failed = true;
        }
    }
    match ending {
        // The program did well, but atoll did not do what it was asked for.
        Ending::Status(0) if failed => ExitCode::from(EXIT_SETUP as u8),
        Ending::Status(status) => ExitCode::from(status as u8),
        Ending::Signal(signal) => signals::die_by(signal),
    }
}

/// Returns the figures in the program's control block.
pub(crate) fn collect(finished: &Finished) -> Figures {
    let file = finished.program.as_ref().unwrap_or(&finished.path);
    // Of several names of one file, such as links to it, the user knows the one that was given.
    let is_the_given = finished.path.canonicalize().is_ok_and(|given| given == *file);
    let named = if is_the_given { &finished.path } else { file };
    let name = named.file_name().unwrap_or_default().to_string_lossy();
    let mut figures = figures::collect(finished.control, &name, finished.wall_seconds, finished.rate);
    figures.regions = figures::regions(finished.control, file, finished.rate);
    (figures.races, figures.one_writer_regions) = figures::races(finished.control, file);
    figures.ending = Some(finished.ending.into());
    figures.kernel_tlb_shootdowns = finished.tlb_shootdowns;
    figures
}

/// Keeps the footprint for the next run, if the program ended well on one node; the footprint of one that failed says nothing.
pub(crate) fn keep_footprint(args: &RunArgs, finished: &Finished) {
    let control = finished.control;
    let bytes = control.totals.footprint_peak.load(Ordering::Relaxed);
    if bytes == 0 || finished.ending != Ending::Status(0) || control.settings.several_nodes() {
        return;
    }
    let key = Key::new(&finished.path, &args.program.words, args.page.bytes() as u64);
    footprints::keep(&key, control.settings.workers, bytes);
}

/// Prints the summary.
pub(crate) fn print(form: SummaryForm, figures: &Figures) {
    match form {
        SummaryForm::None => {}
        SummaryForm::Json => match serde_json::to_string(figures) {
            Ok(text) => eprintln!("{text}"),
            Err(error) => eprintln!("atoll: the summary cannot be written as JSON: {error}"),
        },
        SummaryForm::Text if figures.managed => eprint!("{}", summary::text(figures)),
        SummaryForm::Text => {}
    }
}

/// Returns what was run, how, where and when.
pub(crate) fn describe(args: &RunArgs, finished: &Finished) -> Run {
    let text = |text: &OsStr| text.to_string_lossy().into_owned();
    let is_openmp = |name: &str| ["OMP_", "GOMP_", "KMP_"].iter().any(|begin| name.starts_with(begin));
    let environment: BTreeMap<String, String> = std::env::vars_os()
        .map(|(name, value)| (text(&name), text(&value)))
        .chain(args.memory.workers.map(|n| ("OMP_NUM_THREADS".to_owned(), n.to_string())))
        .filter(|(name, _)| is_openmp(name))
        .collect();
    Run {
        atoll_version: env!("CARGO_PKG_VERSION").to_owned(),
        path: finished.path.display().to_string(),
        arguments: args.program.words.iter().map(|word| text(word)).collect(),
        directory: std::env::current_dir().map(|d| d.display().to_string()).unwrap_or_default(),
        environment,
        settings: figures::settings(finished.control),
        machine: machine::machine(),
        started_unix_seconds: finished
            .started
            .duration_since(UNIX_EPOCH)
            .unwrap_or(Duration::ZERO)
            .as_secs_f64(),
        wall_seconds: finished.wall_seconds,
        ending: finished.ending.into(),
    }
}
