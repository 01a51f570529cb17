//! Makes one run of one program, bounded in time, and keeps its output.

use std::ffi::OsString;
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use atoll_record::figures::Figures;

use crate::error::Error;

/// The outcome of a run.
pub(crate) struct Outcome {
    /// The seconds from before the start to after the end.
    pub(crate) seconds: f64,
    timed_out: bool,
    status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Outcome {
    /// Returns the rest of the output's line that begins with `head`.
    pub(crate) fn line(&self, head: &str) -> Option<&str> {
        self.stdout.lines().find_map(|line| Some(line.strip_prefix(head)?.trim()))
    }

    /// Returns the number in that line.
    pub(crate) fn number(&self, head: &str) -> Option<f64> {
        self.line(head)?.parse().ok()
    }

    /// Returns atoll's figures, where the program ran with `--summary json`.
    pub(crate) fn figures(&self) -> Option<Figures> {
        let json = self.stderr.lines().rev().find(|line| line.starts_with('{'))?;
        serde_json::from_str(json).ok()
    }

    /// Returns in one line why the run counts for nothing, if it does.
    pub(crate) fn failure(&self) -> Option<String> {
        if self.timed_out {
            return Some(format!("cut after {:.0} s", self.seconds));
        }
        if self.status.success() {
            return None;
        }
        let how = match (self.status.code(), self.status.signal()) {
            (Some(code), _) => format!("exit status {code}"),
            (None, Some(signal)) => format!("signal {signal}"),
            (None, None) => "no status".to_owned(),
        };
        let said =
            self.line("Verification:").or_else(|| self.stderr.lines().find(|line| !line.starts_with('{')));
        Some(said.map_or(how.clone(), |said| format!("{how}: {said}")))
    }
}

/// The time between two looks at a run: short enough for short runs, long enough not to disturb.
const LOOK: Duration = Duration::from_millis(5);

/// Runs `words` to its end or to the end of its time.
///
/// # Errors
/// If the program cannot be started.
pub(crate) fn run(
    words: &[OsString],
    environment: &[(&str, String)],
    timeout: Duration,
) -> Result<Outcome, Error> {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("OMP_") || name.starts_with("GOMP_")) {
            command.env_remove(name);
        }
    }
    command.envs(environment.iter().map(|(name, value)| (name, value))).process_group(0);
    let parent = std::process::id() as i32;
    // SAFETY: between fork and exec only system calls are made.
    unsafe {
        command.pre_exec(move || {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            if libc::getppid() != parent {
                libc::_exit(1);
            }
            Ok(())
        });
    }
    let start = Instant::now();
    let mut child = command.spawn().map_err(|e| Error::at("start", Path::new(&words[0]), e))?;
    let (stdout, stderr) = (child.stdout.take().map(reader), child.stderr.take().map(reader));
    let mut timed_out = false;
    let status = loop {
        let ended =
            child.try_wait().map_err(|e| Error::said(format!("the program's end is not known: {e}")))?;
        if let Some(status) = ended {
            break status;
        }
        if start.elapsed() > timeout && !timed_out {
            timed_out = true;
            // SAFETY: no pointers; the process group is the child's own.
            unsafe { libc::kill(-(child.id() as i32), libc::SIGKILL) };
        }
        std::thread::sleep(LOOK);
    };
    let seconds = start.elapsed().as_secs_f64();
    let text = |reader: Option<JoinHandle<String>>| reader.and_then(|r| r.join().ok()).unwrap_or_default();
    Ok(Outcome { seconds, timed_out, status, stdout: text(stdout), stderr: text(stderr) })
}

/// Reads the whole pipe in a thread of its own, so that the pipe is never full.
fn reader(mut from: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = from.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(text: &str, seconds: u64) -> Outcome {
        let command = ["/bin/sh", "-c", text].map(OsString::from);
        run(&command, &[], Duration::from_secs(seconds)).unwrap()
    }

    #[test]
    fn what_a_program_says_is_found() {
        let outcome = shell("echo 'Seconds: 0.25'; echo '{\"wall_seconds\":2.5}' >&2", 60);
        assert_eq!(outcome.number("Seconds:"), Some(0.25));
        assert_eq!(outcome.figures().map(|f| f.wall_seconds), Some(2.5));
        assert_eq!(outcome.failure(), None);
    }

    #[test]
    fn a_failure_is_one_line() {
        let outcome = shell("echo no luck >&2; exit 3", 60);
        assert_eq!(outcome.failure().as_deref(), Some("exit status 3: no luck"));
    }

    #[test]
    fn time_is_bounded_also_for_children() {
        let outcome = shell("sleep 50 & sleep 50", 1);
        assert!(outcome.failure().is_some() && outcome.seconds < 20.0);
    }
}
