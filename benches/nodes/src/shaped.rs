//! Nodes over a network whose link is shaped, beside UCX's own round trip: why it is left out.

use std::process::Command;

use crate::places::Places;

/// What is missing for it.
pub(crate) fn refused(places: &Places) -> String {
    let help = Command::new(&places.atoll).args(["run", "--help"]).output();
    if help.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("--hosts")) {
        "this bench starts local nodes only, not yet nodes in network namespaces".to_owned()
    } else {
        "this atoll runs local nodes only: it has no --hosts".to_owned()
    }
}
