//! What the tests of the commands share: `atoll` with a runtime that does nothing, and a program that behaves like one with
//! workers.
#![allow(dead_code, reason = "not every test uses all of it")]

use std::mem::offset_of;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use atoll_memory::control::{Control, Figures, Totals};

/// A directory of the test's own, with a runtime that does nothing in it.
pub(crate) struct Bench {
    pub(crate) dir: tempfile::TempDir,
}

/// The most time of a test's command. Everything here takes well below a second; this is for machines that are busy.
const LIMIT: Duration = Duration::from_secs(30);

impl Bench {
    pub(crate) fn new() -> Bench {
        let bench = Bench { dir: tempfile::tempdir().unwrap() };
        bench.gcc("runtime.so", "int atoll_nothing;", &["-shared", "-fPIC"]);
        bench
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn gcc(&self, name: &str, source: &str, flags: &[&str]) -> PathBuf {
        let c = self.path(&format!("{name}.c"));
        std::fs::write(&c, source).unwrap();
        let out = self.path(name);
        let status = Command::new("gcc").arg("-w").arg("-o").arg(&out).arg(&c).args(flags).status().unwrap();
        assert!(status.success(), "gcc cannot build {name}");
        out
    }

    /// Builds a program that registers itself and two workers, then does what its argument says.
    pub(crate) fn workers(&self) -> PathBuf {
        let offsets = [
            ("BYTES", Control::BYTES),
            ("PROGRAM", offset_of!(Control, program)),
            ("EXIT_STATUS", offset_of!(Control, exit_status)),
            ("ENDING", offset_of!(Control, ending)),
            ("FAILURE", offset_of!(Control, failure)),
            ("WORKERS", offset_of!(Control, workers)),
            ("FIGURES", offset_of!(Control, figures)),
            ("STEP", size_of::<Figures>()),
            ("PID", offset_of!(Figures, pid)),
            ("MAJOR", offset_of!(Figures, major_faults)),
            ("FOOTPRINT", offset_of!(Control, totals) + offset_of!(Totals, footprint_peak)),
        ];
        let flags: Vec<String> = offsets.iter().map(|(name, n)| format!("-D{name}={n}")).collect();
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        self.gcc("workers", include_str!("workers.c"), &flags)
    }

    /// Returns the command `atoll` with these arguments.
    pub(crate) fn atoll(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_atoll"));
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.env("ATOLL_LIBRARY", self.path("runtime.so")).env_remove("LD_PRELOAD");
        command.env_remove("OMP_NUM_THREADS").current_dir(self.dir.path());
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> End {
        finish(self.atoll(arguments).spawn().unwrap())
    }

    /// Returns the processes that the `workers` program wrote down, and that are still there.
    pub(crate) fn left(&self) -> Vec<i32> {
        let text = std::fs::read_to_string(self.path("pids")).unwrap_or_default();
        text.split_whitespace().map(|pid| pid.parse().unwrap()).filter(|pid| is_alive(*pid)).collect()
    }
}

pub(crate) fn is_alive(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

/// The end of a command.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) status: Option<i32>,
    pub(crate) signal: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Waits for the end of a command, for at most the limit.
pub(crate) fn finish(mut child: Child) -> End {
    let until = Instant::now() + LIMIT;
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > until {
            child.kill().unwrap();
            panic!("still running after {LIMIT:?}");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
    End {
        status: status.code(),
        signal: status.signal(),
        stdout: String::from_utf8_lossy(&stdout).into_owned(),
        stderr: String::from_utf8_lossy(&stderr).into_owned(),
    }
}

/// Waits until a file is there and has a whole line.
pub(crate) fn wait_for(path: &Path) -> String {
    let until = Instant::now() + LIMIT;
    loop {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        if text.ends_with('\n') {
            return text;
        }
        assert!(Instant::now() < until, "{} did not come", path.display());
        std::thread::sleep(Duration::from_millis(2));
    }
}

pub(crate) fn signal(pid: u32, signal: i32) {
    // SAFETY: no pointers; a process that the test started and has not waited for.
    assert_eq!(unsafe { libc::kill(pid as i32, signal) }, 0);
}
