//! `atoll repro barrelfish`: chapter 5 of the report, measured on this machine by `atoll bench`.
//!
//! Source: ETH Zurich 2014, tables 5.1 and 5.2 and figures 5.2 to 5.9, whose numbers `papers/barrelfish.toml` has. The benches
//! print them beside ours; here they run one after the other for the page of all papers.

use std::process::{Command, Stdio};

use super::ReproError;
use super::page::{self, tell};
use super::steps::Steps;
use crate::cli::ReproArgs;
use crate::said;

/// The benches, and what of the paper they measure.
const BENCHES: [(&str, &str); 4] = [
    ("latency", "Section 5.3, table 5.1, figure 5.2: memory access latencies"),
    ("throughput", "Section 5.4, figures 5.3 to 5.6: copies by size and engine"),
    ("channel", "Section 5.5, table 5.2, figures 5.7 to 5.9: round trips of messages"),
    ("names", "Section 6.8: names, and programs started on other nodes"),
];

/// Runs the benches and prints what they print.
pub(super) fn barrelfish(args: &ReproArgs) -> Result<(), ReproError> {
    let mut steps = Steps::new("barrelfish", BENCHES.len());
    tell!("Barrelfish on Xeon Phi (ETH Zurich, 2014), measured on this machine");
    for (bench, what) in BENCHES {
        steps.next(what);
        let folder = args.out.join(format!("barrelfish-{bench}"));
        let output = Command::new("/proc/self/exe")
            .args(["bench", bench, "--output"])
            .arg(&folder)
            .stdin(Stdio::null())
            .output()
            .map_err(ReproError::Start)?;
        tell!("\n{what}");
        if output.status.success() {
            page::tell_text(&String::from_utf8_lossy(&output.stdout));
        } else {
            let why = said::why(output.status, &String::from_utf8_lossy(&output.stderr));
            tell!("  skipped: {}", why.unwrap_or_else(|| output.status.to_string()));
        }
    }
    Ok(())
}
