//! The outcome of one run of a program: how it ended, and what it printed.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use atoll_record::figures::Figures;

/// The outcome of a run.
#[derive(Debug)]
pub struct Output {
    /// The seconds from before the start to after the end.
    pub seconds: f64,
    /// Whether it was cut at the end of its time.
    pub timed_out: bool,
    /// How it ended.
    pub status: ExitStatus,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

impl Output {
    /// Returns the rest of the standard output's line that begins with `head`.
    pub fn line(&self, head: &str) -> Option<&str> {
        self.stdout.lines().find_map(|line| Some(line.strip_prefix(head)?.trim()))
    }

    /// Returns the number in that line.
    pub fn number(&self, head: &str) -> Option<f64> {
        self.line(head)?.parse().ok()
    }

    /// Returns atoll's figures, where the program ran with `--summary json`.
    pub fn figures(&self) -> Option<Figures> {
        let json = self.stderr.lines().rev().find(|line| line.starts_with('{'))?;
        serde_json::from_str(json).ok()
    }

    /// Returns in one line why a run that was not cut counts for nothing, if it does.
    pub fn failure(&self) -> Option<String> {
        if self.timed_out || self.status.success() {
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

    /// Returns the same where a run that was cut counts for nothing, too.
    pub fn failure_or_cut(&self) -> Option<String> {
        if self.timed_out { Some(format!("cut after {:.0} s", self.seconds)) } else { self.failure() }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::time::Instant;

    use super::*;
    use crate::{Pipes, command};

    fn shell(text: &str) -> Output {
        let words = ["/bin/sh", "-c", text].map(OsString::from);
        let start = Instant::now();
        let mut child = command(&words, &[]).spawn().unwrap();
        let pipes = Pipes::of(&mut child);
        let status = child.wait().unwrap();
        let (stdout, stderr) = pipes.texts();
        Output { seconds: start.elapsed().as_secs_f64(), timed_out: false, status, stdout, stderr }
    }

    #[test]
    fn what_a_program_says_is_found() {
        let output = shell("echo 'Checksum: 00ff'; echo 'Seconds: 0.25'; echo '{\"wall_seconds\":2.5}' >&2");
        assert_eq!(output.line("Checksum:"), Some("00ff"));
        assert_eq!(output.number("Seconds:"), Some(0.25));
        assert_eq!(output.figures().map(|f| f.wall_seconds), Some(2.5));
        assert_eq!(output.failure(), None);
    }

    #[test]
    fn a_failure_is_one_line() {
        assert_eq!(shell("echo no luck >&2; exit 3").failure().as_deref(), Some("exit status 3: no luck"));
    }

    #[test]
    fn a_run_that_was_cut_failed_only_where_that_counts() {
        let cut = Output { timed_out: true, seconds: 2.0, ..shell("exit 3") };
        assert_eq!(cut.failure(), None);
        assert_eq!(cut.failure_or_cut().as_deref(), Some("cut after 2 s"));
    }
}
