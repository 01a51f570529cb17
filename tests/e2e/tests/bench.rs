//! `atoll bench` as a user runs it: that the tables are whole. How fast anything is, no test says.

use std::process::Command;

use atoll_e2e::build::{self, clangs, target};
use atoll_e2e::{built, skip_part};

/// The constructs that `programs/overheads.c` measures.
const CONSTRUCTS: [&str; 17] = [
    "parallel",
    "barrier",
    "static",
    "static,1",
    "dynamic,1",
    "guided,1",
    "single",
    "critical",
    "lock",
    "ordered",
    "reduction",
    "nested",
    "task-by-one",
    "tasks-by-all",
    "taskwait",
    "taskloop",
    "task-tree",
];

#[test]
fn overheads_of_every_construct_are_printed_for_every_runtime_and_team() {
    built("overheads");
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(build::atoll());
    command.args(["bench", "openmp", "--rounds", "1", "--repetitions", "1", "--microseconds", "1"]);
    command.arg("--programs").arg(target().join("programs")).arg("--output").arg(folder.path());
    let output = command.output().expect("atoll is there");
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{stdout}{stderr}");
    if clangs().is_empty() {
        skip_part!("no clang with an OpenMP runtime is installed");
        assert!(stdout.contains("skipped: libomp"), "{stdout}");
    }
    for workers in [1, 2, 4] {
        let table = std::fs::read_to_string(folder.path().join(format!("openmp-{workers}.csv")));
        let table = table.expect("a table");
        for construct in CONSTRUCTS {
            let row = table.lines().find(|row| row.trim_matches('"').starts_with(construct));
            let row = row.unwrap_or_else(|| panic!("no {construct} in\n{table}"));
            assert!(!row.contains(",,") && !row.ends_with(','), "{row}");
        }
    }
    for target in ["parallel, 1 worker: at most 1.00 times libgomp", "4 workers on 2 CPUs, all constructs"] {
        let line = stdout.lines().find(|line| line.starts_with(target));
        assert!(line.is_some_and(|line| line.ends_with(" met")), "{target} in\n{stdout}");
    }
}

/// Where this test may not make a link, the bench says so in a sentence and ends well.
#[test]
fn far_memory_is_measured_over_a_link_and_the_link_is_gone_afterwards() {
    let output = Command::new(build::atoll()).args(["bench", "far", "--links", "10"]).output();
    let output = output.expect("atoll is there");
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if stderr.contains("may use one") {
        skip_part!("two processes of a measurement need two CPUs");
        return;
    }
    assert!(output.status.success(), "{stdout}{stderr}");
    if stdout.contains("which are left out") {
        skip_part!("there are no links of a limited bandwidth");
        return;
    }
    for target in ["target: at most 1.3", "target: at least 0.9", "target: at most 0.5"] {
        let line = stdout.lines().find(|line| line.contains(target));
        let line = line.unwrap_or_else(|| panic!("no line with {target}:\n{stdout}"));
        assert!(line.ends_with(": met") || line.ends_with(": not met"), "{line}");
    }
    let left = std::fs::read_dir("/sys/class/net").expect("devices").flatten();
    let left: Vec<_> = left.map(|device| device.file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().starts_with("atoll")), "{left:?}");
}
