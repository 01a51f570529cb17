//! `atoll doctor`: says what on this machine is missing or slow, and the command that fixes it.

mod cpus;
mod files;
mod kernel;
mod limits;
mod memory;
mod segment;
mod userfaultfd;

use std::process::ExitCode;

use serde::Serialize;

/// The states of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    /// It is as it should be.
    Ok,
    /// Programs run, but slower, or without one of atoll's flags.
    Slow,
    /// No program runs.
    Missing,
}

/// A finding about this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    /// The state.
    pub(crate) state: State,
    /// The subject.
    pub(crate) subject: &'static str,
    /// What was found.
    pub(crate) found: String,
    /// The command that fixes it.
    pub(crate) mend: Option<String>,
}

impl Finding {
    pub(crate) fn ok(subject: &'static str, found: impl Into<String>) -> Finding {
        Finding { state: State::Ok, subject, found: found.into(), mend: None }
    }

    pub(crate) fn slow(subject: &'static str, found: impl Into<String>, mend: impl Into<String>) -> Finding {
        Finding { state: State::Slow, subject, found: found.into(), mend: Some(mend.into()) }
    }

    pub(crate) fn missing(
        subject: &'static str,
        found: impl Into<String>,
        mend: impl Into<String>,
    ) -> Finding {
        Finding { state: State::Missing, subject, found: found.into(), mend: Some(mend.into()) }
    }
}

/// Makes all findings.
fn findings() -> Vec<Finding> {
    let groups = [
        kernel::look(),
        userfaultfd::look(),
        files::look(),
        memory::look(),
        segment::look(),
        limits::look(),
        cpus::look(),
    ];
    groups.into_iter().flatten().collect()
}

/// Prints the findings; fails if something that every run needs is missing.
pub(crate) fn doctor(json: bool) -> ExitCode {
    let findings = findings();
    if json {
        match serde_json::to_string_pretty(&findings) {
            Ok(text) => println!("{text}"),
            Err(error) => eprintln!("atoll: the findings cannot be written as JSON: {error}"),
        }
    } else {
        print!("{}", text(&findings));
    }
    let missing = findings.iter().any(|f| f.state == State::Missing);
    if missing { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn text(findings: &[Finding]) -> String {
    let width = findings.iter().map(|f| f.subject.len()).max().unwrap_or(0);
    let mut out = String::new();
    for f in findings {
        let state = match f.state {
            State::Ok => "ok",
            State::Slow => "slow",
            State::Missing => "missing",
        };
        out += &format!("{state:<8} {:<width$}  {}\n", f.subject, f.found);
        if let Some(mend) = &f.mend {
            out += &format!("{:<8} {:<width$}  fix: {mend}\n", "", "");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_not_ok_has_a_command() {
        let findings = findings();
        assert!(findings.len() > 10);
        for f in &findings {
            assert_eq!(f.state == State::Ok, f.mend.is_none(), "{f:?}");
            assert!(!f.found.is_empty() && !f.found.contains('\n'), "{f:?}");
        }
        assert!(text(&findings).lines().count() >= findings.len());
    }
}
