//! The part of `atoll bench segment` about segmentation cores: what a delegated call costs, and i386 programs beside Linux.
//!
//! The programs are static ones of `programs/`; a kind of core that this machine lacks is named with the reason.

use std::path::Path;
use std::process::{Command, Stdio};

use super::table::{Cell, Table};

/// Microseconds that a delegated `getppid` may take with a free CPU.
const CALL: f64 = 3.0;
/// What of Linux's speed an i386 program must have in segments.
const NATIVE: f64 = 0.97;
/// Runs of each, of which the best counts.
const ROUNDS: usize = 5;

/// Kinds of cores, and the folder of the programs they run.
const KINDS: [(&str, &str); 4] = [("ldt", "i386"), ("kvm64", "static"), ("kvm32", "i386"), ("qemu", "i386")];

/// A number that a program prints behind `label`, or why it did not.
fn number(mut command: Command, label: &str) -> Result<f64, String> {
    let output =
        command.stdin(Stdio::null()).env("OMP_NUM_THREADS", "1").output().map_err(|e| e.to_string())?;
    let said = String::from_utf8_lossy(&output.stderr).lines().last().unwrap_or_default().to_owned();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let found = text.lines().find_map(|line| line.strip_prefix(label));
    let found = found.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    found.ok_or(if said.is_empty() { format!("it ended with {}", output.status) } else { said })
}

/// The program alone, or on cores of a kind.
fn command(kind: Option<&str>, file: &Path) -> Command {
    let Some(kind) = kind else { return Command::new(file) };
    let mut command = Command::new("/proc/self/exe");
    command.args(["segment", "run", "--backend", kind, "--memory", "512M", "--"]).arg(file);
    command
}

/// The smallest number of some runs.
fn best(kind: Option<&str>, file: &Path, arguments: &[&str], label: &str) -> Result<f64, String> {
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        let mut command = command(kind, file);
        command.args(arguments);
        best = best.min(number(command, label)?);
    }
    Ok(best)
}

/// The table of calls, and the targets' lines.
pub(super) fn bench(programs: &Path) -> (Table, Vec<String>) {
    let mut table = Table::new(["getppid", "us", "alone us", "why not"]);
    let mut lines = Vec::new();
    for (kind, folder) in KINDS {
        let file = programs.join(folder).join("calls");
        let (alone, here) = (best(None, &file, &[], "Call:"), best(Some(kind), &file, &[], "Call:"));
        table.row(vec![
            format!("core {kind}").into(),
            Cell::number(here.clone().ok(), 3),
            Cell::number(alone.ok(), 3),
            here.as_ref().err().map_or(Cell::Nothing, |why| format!("skipped: {why}").into()),
        ]);
        match here {
            // It has no target: it is there for correctness.
            _ if kind == "qemu" => {}
            Ok(us) => lines.push(format!(
                "core {kind}: a delegated getppid in at most {CALL} us; {us:.3}: {}",
                if us <= CALL { "met" } else { "not met" }
            )),
            Err(why) => lines.push(format!("core {kind}: skipped: {why}")),
        }
    }
    for (program, class) in [("randomaccess", "W"), ("graph500", "W"), ("graph500", "A")] {
        let file = programs.join("i386").join(program);
        let run = |kind| best(kind, &file, &[class], "Seconds:");
        lines.push(match (run(None), run(Some("ldt"))) {
            (Ok(alone), Ok(here)) if here > 0.0 => {
                let ratio = alone / here;
                let verdict = if ratio >= NATIVE { "met" } else { "not met" };
                format!(
                    "core ldt: i386 {program} {class} at {NATIVE} of its speed under Linux; {ratio:.2}: {verdict}"
                )
            }
            (Err(why), _) | (_, Err(why)) => format!("core ldt: i386 {program} {class}: skipped: {why}"),
            _ => format!("core ldt: i386 {program} {class}: too short to measure: not met"),
        });
    }
    (table, lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_found_or_the_reason_is() {
        let shell = |line: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", line]);
            number(command, "Call:")
        };
        assert_eq!(shell("echo x; echo Call: 1.25 us"), Ok(1.25));
        assert_eq!(shell("echo why >&2; exit 3"), Err("why".to_owned()));
        assert!(shell("exit 3").unwrap_err().contains("exit status: 3"));
    }
}
