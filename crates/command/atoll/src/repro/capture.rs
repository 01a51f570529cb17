//! Traces for the reproductions: captured by `atoll trace` unless they are there already.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use super::{ReproError, kept};
use crate::cli::ReproArgs;
use crate::sim::replay::Trace;
use crate::sim::select::Counted;

/// Runs of touched memory from this size on are the computation area, which alone is paged (`papers/cmcp.txt`, section
/// 5.1). Stacks and libraries are smaller.
const PAGED: u64 = 512 << 10;

/// A program that is traced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run<'p> {
    /// The workload.
    pub(super) program: &'p str,
    /// The class of the workload.
    pub(super) class: &'static str,
    /// The value of its own `--iterations`.
    pub(super) iterations: u32,
    /// Its other arguments.
    pub(super) options: &'static [&'static str],
    /// The regions of an iteration, that with which it begins in front; empty: the whole program counts.
    pub(super) regions: &'static [&'static str],
    /// The number of places of the filter.
    pub(super) filter: u32,
    /// The parts of an iteration that the run does, and those that an iteration has, where its parts are alike.
    pub(super) parts: (u32, u32),
}

impl Run<'_> {
    /// Returns the number of iterations that the trace has.
    pub(super) fn share(&self) -> f64 {
        let (done, all) = self.parts;
        f64::from(self.iterations) * f64::from(done) / f64::from(all)
    }

    /// Returns the name of the trace. The program's bytes are a part of it, so that a trace of another build is not taken.
    fn file(&self, workers: u32, binary: &[u8]) -> String {
        let Self { program, class, iterations, filter, .. } = self;
        let options: String = self.options.iter().map(|option| format!("{option}.")).collect();
        let build = kept::hash(binary);
        format!("{program}.{class}.{options}{iterations}it.{workers}w.{filter}f.{build:08x}.trace")
    }

    /// Returns the trace of a run with `workers` workers, captured if it is not there, and what of it counts.
    pub(super) fn trace(
        &self,
        args: &ReproArgs,
        workers: u32,
    ) -> Result<(Trace, Option<Counted>), ReproError> {
        self.trace_of(args, workers, PAGED)
    }

    /// Returns the same where runs of touched memory from `least` bytes on count.
    pub(super) fn trace_of(
        &self,
        args: &ReproArgs,
        workers: u32,
        least: u64,
    ) -> Result<(Trace, Option<Counted>), ReproError> {
        let trace = Trace::open(&self.captured(args, workers)?, least)?;
        let Some(first) = self.regions.first() else { return Ok((trace, None)) };
        let (regions, begin) = (trace.regions(self.regions)?, trace.regions(&[first])?);
        let counted = Counted { regions, begin, iterations: self.iterations };
        Ok((trace, Some(counted)))
    }

    /// Returns the path of the trace of a run with `workers` workers, captured if it is not there.
    pub(super) fn captured(&self, args: &ReproArgs, workers: u32) -> Result<PathBuf, ReproError> {
        let program = args.programs.join(self.program);
        let binary =
            std::fs::read(&program).map_err(|_| ReproError::NoProgram(program.display().to_string()))?;
        let path = args.traces.join(self.file(workers, &binary));
        if path.exists() {
            return Ok(path);
        }
        std::fs::create_dir_all(&args.traces)
            .map_err(|e| ReproError::Write(args.traces.display().to_string(), e))?;
        // Whoever ends the capture leaves no trace that looks whole.
        let part = path.with_extension("part");
        let begin = Instant::now();
        eprintln!("atoll: capturing {} with {workers} workers", self.words(&program).join(" "));
        let status = Command::new("/proc/self/exe")
            .args(self.arguments(&part, workers))
            .arg("--")
            .args(self.words(&program))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .map_err(ReproError::Start)?;
        if !status.success() || !part.exists() {
            return Err(ReproError::Capture(self.words(&program).join(" "), status.to_string()));
        }
        std::fs::rename(&part, &path).map_err(|e| ReproError::Write(path.display().to_string(), e))?;
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
