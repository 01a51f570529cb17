//! Makes one run of a sweep: `atoll run` as a process of its own, whose figures are read from its record.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

use atoll_pages::{PageSize, PolicySpec, Size};
use atoll_record::{Figures, Record, RecordError};

use crate::cli::{PageTablesChoice, Policies, SweepArgs};

/// The settings that are varied.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Point {
    pub(super) near: Option<Size>,
    pub(super) policy: PolicySpec,
    pub(super) page: PageSize,
}

/// The reason why a run of a sweep could not be made.
#[derive(thiserror::Error, Debug)]
pub(super) enum MeasureError {
    #[error("`atoll run` cannot be started: {0}")]
    Start(std::io::Error),
    #[error("there is no temporary file for the record ({0}): set TMPDIR to a directory that can be written")]
    Temporary(std::io::Error),
    #[error("the record of a run that succeeded cannot be read: {0}")]
    Record(RecordError),
}

/// The outcome of a run.
#[derive(Debug, Clone)]
pub(super) enum Outcome {
    /// The run succeeded.
    Done(Box<Figures>),
    /// The run failed, in these words.
    Failed(String),
}

/// All runs of a sweep have the same page tables: private ones where it is left to atoll and one of the policies needs them.
fn page_tables(args: &SweepArgs) -> &'static str {
    let is_left = args.memory.page_tables == PageTablesChoice::Auto;
    if is_left && Policies::all(&args.policy).iter().any(PageTablesChoice::is_private_for) {
        return PageTablesChoice::Private.word();
    }
    args.memory.page_tables.word()
}

fn arguments(args: &SweepArgs, point: &Point, record: &Path) -> Vec<OsString> {
    let memory = &args.memory;
    let mut words: Vec<OsString> = vec!["run".into(), "--summary".into(), "none".into()];
    let mut flag = |name: &str, value: OsString| words.extend([OsString::from(name), value]);
    flag("--record", record.into());
    flag("--policy", point.policy.to_string().into());
    flag("--page", point.page.to_string().into());
    flag("--far", memory.far.to_string().into());
    flag("--page-tables", page_tables(args).into());
    flag("--faults", memory.faults.word().into());
    if let Some(near) = point.near {
        flag("--near", near.0.to_string().into());
    }
    if let Some(workers) = memory.workers {
        flag("--workers", workers.to_string().into());
    }
    if let Some(limit) = memory.far_limit {
        flag("--far-limit", limit.0.to_string().into());
    }
    words.push("--".into());
    words
}

/// Makes one run.
///
/// # Errors
/// The run could not be made at all; a program that failed is an [`Outcome`].
pub(super) fn measure(args: &SweepArgs, point: &Point) -> Result<Outcome, MeasureError> {
    let record = tempfile::NamedTempFile::new().map_err(MeasureError::Temporary)?;
    let mut command = Command::new("/proc/self/exe");
    // This is the name by which `atoll top` and messages know it.
    std::os::unix::process::CommandExt::arg0(&mut command, "atoll");
    command.args(arguments(args, point, record.path())).args(&args.program.words);
    if !args.show {
        command.stdout(Stdio::null());
    }
    let status = command.status().map_err(MeasureError::Start)?;
    if !status.success() {
        return Ok(Outcome::Failed(failure(status)));
    }
    let record = Record::open(record.path()).map_err(MeasureError::Record)?;
    if !record.figures.managed {
        return Ok(Outcome::Failed("not managed".to_owned()));
    }
    Ok(Outcome::Done(Box::new(record.figures)))
}

fn failure(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "no status".to_owned(),
    }
}
