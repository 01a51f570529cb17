//! The live system against the simulator: what `atoll run` fetched, evicted and invalidated, beside what `atoll sim` says of a
//! trace of the same program with the same near memory, pages and policy.
//!
//! `cargo test --release -p atoll-e2e --test live -- --ignored --nocapture` prints the table; `docs/simulation.md` has one, and says
//! what the difference is made of.
#![allow(clippy::unwrap_used, reason = "a test ends where something is missing")]

use std::path::Path;
use std::process::{Command, Stdio};

use atoll_e2e::build::{atoll, built};
use serde_json::Value;

const POLICIES: [&str; 2] = ["fifo", "cmcp:p=0.5"];

/// Runs `atoll` and hands out what it says on standard error.
fn run(words: &[&str], program: &[&str]) -> String {
    let output = Command::new(atoll())
        .args(words)
        .args(program)
        .env("OMP_WAIT_POLICY", "passive")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{words:?}: {said}");
    said
}

/// A column of the line of the only limit in what `atoll sim --csv` wrote.
fn column(csv: &str, name: &str) -> f64 {
    let mut lines = csv.lines();
    let at = lines.next().unwrap().split(',').position(|head| head == name).unwrap();
    let line = lines.find(|line| !line.contains(",all,")).unwrap();
    line.split(',').nth(at).unwrap().parse().unwrap()
}

fn compare(folder: &Path, program: &str, near: &str) {
    let path = built(program);
    let program_words = ["--", path.to_str().unwrap(), "A", "--iterations", "2"];
    let (trace, csv) = (folder.join(program), folder.join("csv"));
    let (trace, csv) = (trace.to_str().unwrap(), csv.to_str().unwrap());
    run(&["trace", "--workers", "2", "-o", trace], &program_words);
    for policy in POLICIES {
        let live = run(
            &[
                "run",
                "--workers",
                "2",
                "--near",
                near,
                "--policy",
                policy,
                "--far",
                "ram",
                "--summary",
                "json",
            ],
            &program_words,
        );
        let live: Value = serde_json::from_str(live.get(live.find('{').unwrap()..).unwrap()).unwrap();
        let count = |name: &str| live["total"][name].as_f64().unwrap();
        let resident = live["memory"]["resident_peak_bytes"].as_u64().unwrap().to_string();
        run(
            &[
                "sim", "--near", &resident, "--policy", policy, "--paged", "64K", "--batch", "16", "--csv",
                csv,
            ],
            &[trace],
        );
        let simulated = std::fs::read_to_string(csv).unwrap();
        let sim = |name: &str| column(&simulated, name);
        let rows = [
            (
                "pages brought near",
                count("major_faults") + count("first_faults") + count("prefetched_pages"),
                sim("major_faults") + sim("first_faults"),
            ),
            ("remote invalidations", count("remote_tlb_invalidations"), sim("remote_invalidations")),
        ];
        for (what, live, sim) in rows {
            let apart = 100.0 * (sim / live - 1.0);
            println!("{program:8} {policy:11} {what:21} live {live:9} simulated {sim:9} {apart:+6.1}%");
            // A simulator of something else would be off by more.
            assert!((0.4..2.5).contains(&(sim / live)), "{program}, {policy}: {what}");
        }
    }
}

#[test]
#[ignore = "several minutes"]
fn the_simulator_and_the_live_system_agree_roughly() {
    let folder = tempfile::tempdir().unwrap();
    for (program, near) in [("cg", "18M"), ("lu", "24M"), ("bt", "28M"), ("stencil", "64M")] {
        compare(folder.path(), program, near);
    }
}
