//! Traces for the reproductions: captured by `atoll trace` unless they are there already.

use std::collections::HashSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use super::ReproError;
use crate::cli::ReproArgs;
use crate::sim::replay::Trace;

/// Runs of touched memory from this size on are the computation area, which alone is paged (`papers/cmcp.txt`, section
/// 5.1). Stacks and libraries are smaller.
const PAGED: u64 = 512 << 10;

/// A program that is traced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    /// The workload.
    pub(super) program: &'static str,
    /// The class of the workload.
    pub(super) class: &'static str,
    /// The value of its own `--iterations`.
    pub(super) iterations: u32,
    /// Its other arguments.
    pub(super) options: &'static [&'static str],
    /// The number of times that the counting regions come: the programs first do an iteration that they do not count.
    pub(super) steps: u32,
    /// The regions of an iteration; empty: the whole program counts.
    pub(super) regions: &'static [&'static str],
    /// The number of places of the filter.
    pub(super) filter: u32,
}

impl Run {
    fn file(&self, workers: u32) -> String {
        let Self { program, class, iterations, filter, .. } = self;
        let options: String = self.options.iter().map(|option| format!("{option}.")).collect();
        format!("{program}.{class}.{options}{iterations}it.{workers}w.{filter}f.trace")
    }

    /// Returns the trace of a run with `workers` workers, captured if it is not there, and the addresses of the regions that
    /// count.
    pub(super) fn trace(
        &self,
        args: &ReproArgs,
        workers: u32,
    ) -> Result<(Trace, Option<HashSet<u64>>), ReproError> {
        let trace = Trace::open(&self.file_of(args, workers)?, PAGED)?;
        let regions = if self.regions.is_empty() { None } else { Some(trace.regions(self.regions)?) };
        Ok((trace, regions))
    }

    fn file_of(&self, args: &ReproArgs, workers: u32) -> Result<PathBuf, ReproError> {
        let path = args.traces.join(self.file(workers));
        if path.exists() {
            return Ok(path);
        }
        std::fs::create_dir_all(&args.traces)
            .map_err(|e| ReproError::Write(args.traces.display().to_string(), e))?;
        let program = args.programs.join(self.program);
        if !program.exists() {
            return Err(ReproError::NoProgram(program.display().to_string()));
        }
        let begin = Instant::now();
        eprintln!("atoll: capturing {} with {workers} workers", self.words(&program).join(" "));
        let status = Command::new("/proc/self/exe")
            .args(self.arguments(&path, workers))
            .arg("--")
            .args(self.words(&program))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .map_err(ReproError::Start)?;
        if !status.success() || !path.exists() {
            return Err(ReproError::Capture(self.words(&program).join(" "), status.to_string()));
        }
        eprintln!("atoll: captured in {:.0} s", begin.elapsed().as_secs_f64());
        Ok(path)
    }

    fn words(&self, program: &Path) -> Vec<String> {
        let program = if program.is_absolute() || program.components().count() > 1 {
            program.display().to_string()
        } else {
            format!("./{}", program.display())
        };
        let mut words = vec![program, self.class.into(), "--iterations".into(), self.iterations.to_string()];
        words.extend(self.options.iter().map(|&option| option.to_owned()));
        words
    }

    fn arguments(&self, path: &Path, workers: u32) -> Vec<OsString> {
        let mut words: Vec<OsString> = vec!["trace".into(), "-o".into(), path.into(), "--workers".into()];
        words.push(workers.to_string().into());
        words.extend(["--filter".into(), self.filter.to_string().into()]);
        words
    }
}
