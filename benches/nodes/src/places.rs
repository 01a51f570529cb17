//! Finds files, and makes one run of one program in one setting.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use atoll_bench_common::Output;

use crate::Options;
use crate::error::Error;
use crate::process;
use crate::setting::Setting;

/// What all measurements share.
pub(crate) struct Places {
    pub(crate) atoll: PathBuf,
    programs: PathBuf,
    /// The number of local nodes.
    pub(crate) nodes: u32,
    /// The number of workers in every setting.
    pub(crate) workers: u32,
    pub(crate) timeout: Duration,
    start: Instant,
}

impl Places {
    /// Finds the files beside this executable, as cargo and the Makefile build them.
    ///
    /// # Errors
    /// If a file is not there.
    pub(crate) fn new(options: &Options) -> Result<Places, Error> {
        let executable = std::env::current_exe().unwrap_or_default();
        let folder = executable.parent().unwrap_or(Path::new("."));
        let cpus = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
        let workers = options.workers.unwrap_or(cpus);
        let places = Places {
            atoll: options.atoll.clone().unwrap_or_else(|| folder.join("atoll")),
            programs: options.programs_dir.clone().unwrap_or_else(|| folder.join("../programs")),
            nodes: options.nodes,
            workers: workers.max(options.nodes),
            timeout: Duration::from_secs(options.timeout),
            start: Instant::now(),
        };
        for (what, path) in [("atoll", &places.atoll), ("the workloads", &places.program("cg"))] {
            if !path.exists() {
                return Err(Error::said(format!(
                    "{what} should be at {}: make build builds it",
                    path.display()
                )));
            }
        }
        Ok(places)
    }

    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.programs.join(name)
    }

    /// Prints a line on standard error, behind the time since the start.
    pub(crate) fn say(&self, what: &str) {
        let seconds = self.start.elapsed().as_secs();
        eprintln!("[{:2}:{:02}] {what}", seconds / 60, seconds % 60);
    }

    /// Runs a program.
    ///
    /// # Errors
    /// If the program cannot be started.
    pub(crate) fn run(
        &self,
        setting: Setting,
        program: &Path,
        arguments: &[String],
    ) -> Result<Output, Error> {
        let nodes = ["--nodes".into(), self.nodes.to_string().into()];
        self.run_over(&nodes, setting, program, arguments)
    }

    /// Does the same on the nodes that these flags name.
    ///
    /// # Errors
    /// If the program cannot be started.
    pub(crate) fn run_over(
        &self,
        nodes: &[OsString],
        setting: Setting,
        program: &Path,
        arguments: &[String],
    ) -> Result<Output, Error> {
        let words = match setting.flags(nodes) {
            Some(flags) => self.under_atoll(self.workers, flags, program, arguments),
            None => std::iter::once(program.into()).chain(arguments.iter().map(OsString::from)).collect(),
        };
        process::run(&words, &[("OMP_NUM_THREADS", self.workers.to_string())], self.timeout)
    }

    /// Returns the words that run a program under atoll, with these flags.
    pub(crate) fn under_atoll(
        &self,
        workers: u32,
        flags: Vec<OsString>,
        program: &Path,
        arguments: &[impl AsRef<OsStr>],
    ) -> Vec<OsString> {
        let run = ["run", "--summary", "json", "--workers", &workers.to_string()].map(OsString::from);
        let mut words: Vec<OsString> = vec![self.atoll.clone().into()];
        words.extend(run);
        words.extend(flags);
        words.extend(["--".into(), program.into()]);
        words.extend(arguments.iter().map(|word| word.as_ref().to_owned()));
        words
    }
}
