//! A run on a list of hosts: this process starts `atoll run` again on each host, as the launcher of a node there (`job`).
//!
//! `run` calls it. `atoll_transport::start` has everything else: the remote shell, agents, standard streams, signals.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use atoll_memory::control::EXIT_SETUP;
use atoll_transport::start::{FailureReason, LAUNCH_VARIABLE, Launch, LaunchError, Outcome, Rsh};

use super::{library, nodes, signals};
use crate::cli::{RunArgs, TransportArg};

/// The beginnings or names of environment variables that are passed from here to all hosts.
const CARRIED: [&[u8]; 5] = [b"OMP_", b"GOMP_", b"KMP_", b"UCX_", b"LD_LIBRARY_PATH"];

/// How long nodes may take to end after one failed, before they are killed: with what follows, less than five seconds.
const GRACE: Duration = Duration::from_secs(3);

/// Returns the hosts on which this process is to start nodes; `None` if it is itself one of the nodes, or there are no hosts.
pub(crate) fn hosts(args: &RunArgs) -> Option<Vec<String>> {
    if std::env::var_os(LAUNCH_VARIABLE).is_some() || std::env::var_os(nodes::ENVIRONMENT).is_some() {
        return None;
    }
    if !args.hosts.is_empty() {
        return Some(args.hosts.clone());
    }
    // Local nodes over a network are hosts that are all this machine.
    let count = args.nodes.filter(|nodes| *nodes > 1 && args.transport == TransportArg::Ucx)?;
    Some(vec!["localhost".to_owned(); count as usize])
}

/// Runs the job to its end.
pub(crate) fn run(args: &RunArgs, hosts: Vec<String>) -> ExitCode {
    match launch(args, hosts).and_then(|launch| launch.run()) {
        Ok(outcome) => end(&outcome),
        Err(e) => {
            eprintln!("atoll: {e}");
            ExitCode::from(EXIT_SETUP as u8)
        }
    }
}

fn launch(args: &RunArgs, hosts: Vec<String>) -> Result<Launch, LaunchError> {
    let atoll = match &args.remote {
        Some(path) => path.clone(),
        None => std::env::current_exe().map_err(|e| LaunchError::Os("where atoll is", e))?,
    };
    let mut launch = Launch::new(hosts, &atoll, vec![atoll.clone().into(), "agent".into()]);
    launch.arguments = std::env::args_os().skip(1).collect();
    launch.environment = std::env::vars_os().filter(|(name, _)| is_carried(name)).collect();
    launch.directory = std::env::current_dir().ok().or_else(|| Some(PathBuf::from("/")));
    launch.grace = GRACE;
    if let Some(line) = &args.rsh {
        launch.rsh = Rsh::parse(line)?;
    }
    Ok(launch)
}

fn is_carried(name: &OsString) -> bool {
    let name = name.as_encoded_bytes();
    name == library::ENVIRONMENT.as_bytes() || CARRIED.iter().any(|prefix| name.starts_with(prefix))
}

/// Ends as the program did, and prints what went wrong if that was not the program's own doing.
fn end(outcome: &Outcome) -> ExitCode {
    let Some(failure) = &outcome.failure else { return ExitCode::SUCCESS };
    let of_first = failure.place.as_ref().is_none_or(|(node, _)| node.0 == 0);
    match failure.why {
        // Where that is atoll's doing, the node has said so.
        FailureReason::Status(status) if of_first => ExitCode::from(status),
        FailureReason::Signal(signal) | FailureReason::Interrupted(signal) if of_first => {
            signals::die_by(signal.into())
        }
        _ => {
            eprintln!("atoll: {failure}");
            ExitCode::from(outcome.status())
        }
    }
}

/// Runs as the agent on one of the hosts, and does nothing else.
pub(crate) fn agent() -> ! {
    atoll_transport::start::agent_main()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_openmp_ucx_and_the_linker_read_goes_along_and_nothing_else() {
        let carried = |name: &str| is_carried(&OsString::from(name));
        for name in
            ["OMP_SCHEDULE", "GOMP_SPINCOUNT", "KMP_STACKSIZE", "UCX_TLS", "LD_LIBRARY_PATH", "ATOLL_LIBRARY"]
        {
            assert!(carried(name), "{name}");
        }
        for name in ["HOME", "PATH", "LD_PRELOAD", "ATOLL_NODE", "PMIX_RANK"] {
            assert!(!carried(name), "{name}");
        }
    }
}
