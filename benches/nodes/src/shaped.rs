//! Nodes over a network whose link is shaped: namespaces of this machine, UCX over TCP between them.

use crate::places::Places;

/// Why it is left out; none if it can be measured.
pub(crate) fn refused(places: &Places) -> Option<String> {
    let help = std::process::Command::new(&places.atoll).args(["run", "--help"]).output();
    let known = help.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("--hosts"));
    (!known).then(|| "this atoll runs local nodes only: it has no --hosts".to_owned())
}
