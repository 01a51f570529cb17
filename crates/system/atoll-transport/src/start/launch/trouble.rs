//! The messages of a launcher about jobs that cannot be started and nodes that end them.
//!
//! `mod.rs` finds out what happened; this file has the sentences, and the exit status for each.

use std::fmt;
use std::io;
use std::time::Duration;

use crate::Node;

/// The reasons why nothing was started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// No host was given.
    #[error("no host was given to start a node on")]
    NoHosts,
    /// There are more hosts than one launcher can serve.
    #[error("{0} nodes are more than one launcher starts, {max}", max = super::MOST)]
    TooMany(usize),
    /// A host is neither a name nor an address.
    #[error("{0:?} is no host: give names or addresses, or localhost for this machine")]
    Host(String),
    /// No program was given.
    #[error("no program was given to start")]
    NoProgram,
    /// The remote shell is not a valid command line.
    #[error("the remote shell is not a command: give one such as \"ssh -p 2222\", its quotes closed")]
    Rsh,
    /// The agent's command cannot be passed on.
    #[error(
        "the command of the agent cannot be passed to another host: give one without leading - and zero bytes"
    )]
    Agent,
    /// Program, arguments and environment are too long to be sent.
    #[error("the program's arguments and environment are too long to be sent to the hosts")]
    TooLong,
    /// The operating system refuses a call; the text names it.
    #[error("{0}: {1}")]
    Os(&'static str, #[source] io::Error),
}

/// How a job ended.
#[derive(Debug)]
pub struct Outcome {
    /// The first failure, after which the rest of the job was ended.
    pub failure: Option<Failure>,
}

impl Outcome {
    /// The exit status for the launcher: the first failure's, 0 if there was none.
    pub fn status(&self) -> u8 {
        self.failure.as_ref().map_or(0, |failure| failure.why.status())
    }
}

/// A failure and its place.
#[derive(Debug)]
pub struct Failure {
    /// The node and its host's name; `None` if no node caused it.
    pub place: Option<(Node, String)>,
    /// The reason.
    pub why: FailureReason,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Some((node, host)) => write!(f, "{node} on {host}: {}", self.why),
            None => write!(f, "{}", self.why),
        }
    }
}

/// The reasons why a job failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FailureReason {
    /// The program ended with a status other than 0.
    #[error("the program ended with status {0}")]
    Status(u8),
    /// A signal ended the program.
    #[error("the program was ended by signal {0}{name}", name = signal_name(*.0))]
    Signal(u8),
    /// The program is not there, or may not be run.
    #[error("{0}")]
    NotRun(String),
    /// The agent was not reached.
    #[error("{0}")]
    NotStarted(String),
    /// Not all nodes started in time.
    #[error("did not start within {0:?}: see whether the host can be reached, or allow more time")]
    Timeout(Duration),
    /// The connection or the agent ended before the program.
    #[error("the connection to it was lost, or its agent was killed")]
    Lost,
    /// The agent is of another version of atoll.
    #[error(
        "its atoll speaks version {0} of the start protocol, this one {ours}: install the same on all hosts",
        ours = crate::start::frame::VERSION
    )]
    Version(u32),
    /// The frames are not an agent's.
    #[error(
        "what its agent says makes no sense ({0}): does a start-up file of the login shell leave something running?"
    )]
    Nonsense(String),
    /// The nodes' output could not be printed.
    #[error("standard output cannot be written: {0}")]
    Output(io::Error),
    /// The launcher got this signal and passed it on.
    #[error("ended by signal {0}{name}", name = signal_name(*.0))]
    Interrupted(u8),
}

impl FailureReason {
    fn status(&self) -> u8 {
        match self {
            FailureReason::Status(status) => *status,
            FailureReason::Signal(signal) | FailureReason::Interrupted(signal) => {
                128_u8.saturating_add(*signal)
            }
            FailureReason::NotRun(_) => 127,
            _ => 1,
        }
    }
}

fn signal_name(signal: u8) -> String {
    signal_hook::low_level::signal_name(signal.into()).map_or(String::new(), |name| format!(" ({name})"))
}

/// The reason why the process that should have started an agent ended without one: `status` is its exit status, `said` the last
/// line it wrote to standard error, `rsh` the remote shell's name where there was one.
pub(super) fn explain(
    rsh: Option<(&str, bool)>,
    host: &str,
    agent: &str,
    status: Option<i32>,
    said: &str,
) -> String {
    let quoted = if said.is_empty() { String::new() } else { format!(" ({said})") };
    match (rsh, status) {
        (Some((rsh, true)), Some(255)) => {
            format!(
                "{rsh} cannot log in{quoted}: make `ssh -o BatchMode=yes {host} true` work without a password"
            )
        }
        (_, Some(127)) => format!(
            "there is no command {agent}{quoted}: install atoll there at the same place as here, or say where it is"
        ),
        (_, Some(126)) => {
            format!("{agent} cannot be run{quoted}: is it built for that machine, and executable?")
        }
        (Some((rsh, _)), Some(status)) => {
            format!("{rsh} ended with status {status} before {agent} spoke{quoted}")
        }
        (None, Some(status)) => format!("{agent} ended with status {status} before it spoke{quoted}"),
        (_, None) => format!("{} was killed before {agent} spoke{quoted}", rsh.map_or(agent, |(rsh, _)| rsh)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failure_gives_the_status() {
        let status = |why| Outcome { failure: Some(Failure { place: None, why }) }.status();
        assert_eq!(Outcome { failure: None }.status(), 0);
        assert_eq!(status(FailureReason::Status(3)), 3);
        assert_eq!(status(FailureReason::Signal(9)), 137);
        assert_eq!(status(FailureReason::NotRun(String::new())), 127);
        assert_eq!(status(FailureReason::Lost), 1);
        let place = Some((Node(2), "b".to_owned()));
        let killed = Failure { place, why: FailureReason::Signal(9) };
        assert_eq!(killed.to_string(), "node 2 on b: the program was ended by signal 9 (SIGKILL)");
    }

    #[test]
    fn each_way_of_not_starting_says_what_to_do() {
        let ssh = Some(("ssh", true));
        let denied = explain(ssh, "b", "atoll", Some(255), "Permission denied (publickey).");
        assert!(denied.contains("Permission denied") && denied.contains("`ssh -o BatchMode=yes b true`"));
        assert!(explain(ssh, "b", "/x/atoll", Some(127), "").contains("install atoll there"));
        assert!(explain(None, "localhost", "/x/atoll", Some(126), "").contains("executable"));
        assert!(explain(None, "localhost", "/x/atoll", None, "").starts_with("/x/atoll was killed"));
    }
}
