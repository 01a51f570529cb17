//! Compares the live system with the simulator: what `atoll run` fetched, mapped and invalidated, beside what `atoll sim
//! --pager atoll` says of a trace of the same program with as much near memory, the same pages and the same policy.
//!
//! `make live` prints the whole table; `docs/simulation.md` has one, and says what the differences are made of.
#![allow(clippy::unwrap_used, reason = "a test ends where something is missing")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use atoll_e2e::build::{atoll, built, installed};
use atoll_e2e::skip;
use serde_json::Value;

/// The number of runs of the live system; the median counts.
const RUNS: usize = 5;

/// A program at a near limit.
struct Subject {
    program: &'static str,
    class: &'static str,
    near: &'static str,
}

/// The counts that are compared, in the order of the table's columns.
const COUNTS: [&str; 4] = ["pages brought near", "faults that bring", "write faults", "remote invalidations"];

/// Runs `atoll` and returns its standard error.
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

impl Subject {
    fn words(&self) -> Vec<String> {
        let path = built(self.program);
        ["--", path.to_str().unwrap(), self.class, "--iterations", "2"].map(str::to_owned).into()
    }

    fn capture(&self, folder: &Path, workers: &str) -> PathBuf {
        let trace = folder.join(format!("{}.{workers}", self.program));
        let words = self.words();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        run(&["trace", "--workers", workers, "-o", trace.to_str().unwrap()], &words);
        trace
    }

    /// Returns the counts of one live run under a near limit, and the most bytes that were resident.
    fn live(&self, near: &str, workers: &str, policy: &str) -> ([f64; 4], u64) {
        let flags =
            ["run", "--workers", workers, "--near", near, "--policy", policy, "--page-tables", "private"];
        let flags = [&flags[..], &["--far", "ram", "--summary", "json"]].concat();
        let words = self.words();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let said = run(&flags, &words);
        let said: Value = serde_json::from_str(said.get(said.find('{').unwrap()..).unwrap()).unwrap();
        let count = |name: &str| said["total"][name].as_f64().unwrap();
        let brought = count("major_faults") + count("first_faults");
        let counts = [
            brought + count("prefetched_pages"),
            brought,
            count("write_faults"),
            count("remote_tlb_invalidations"),
        ];
        (counts, said["memory"]["resident_peak_bytes"].as_u64().unwrap())
    }
}

fn simulated(trace: &Path, near: u64, policy: &str) -> [f64; 4] {
    let (csv, near) = (trace.with_extension("csv"), near.to_string());
    let flags = ["sim", "--pager", "atoll", "--near", &near, "--policy", policy, "--paged", "64K", "--csv"];
    run(&[&flags[..], &[csv.to_str().unwrap()]].concat(), &[trace.to_str().unwrap()]);
    let csv = std::fs::read_to_string(csv).unwrap();
    let mut lines = csv.lines();
    let heads = lines.next().unwrap().split(',');
    let line = lines.find(|line| !line.contains(",all,")).unwrap();
    let cells: BTreeMap<&str, &str> = heads.zip(line.split(',')).collect();
    let count = |name: &str| cells[name].parse::<f64>().unwrap();
    let brought = count("major_faults") + count("first_faults");
    [brought + count("prefetched"), brought, count("write_faults"), count("remote_invalidations")]
}

/// Returns the simulator's error in each count, in percent of the live median, beside the live system's own spread.
fn compare(subject: &Subject, workers: &str, trace: &Path, policy: &str) -> [(f64, f64); 4] {
    let runs: Vec<_> = (0..RUNS).map(|_| subject.live(subject.near, workers, policy)).collect();
    let sim = simulated(trace, runs[0].1, policy);
    std::array::from_fn(|index| {
        let mut live: Vec<f64> = runs.iter().map(|(counts, _)| counts[index]).collect();
        live.sort_unstable_by(f64::total_cmp);
        let median = live[RUNS / 2].max(1.0);
        let percent = |value: f64| 100.0 * (value / median - 1.0);
        let (least, most) = (percent(live[0]), percent(live[RUNS - 1]));
        println!(
            "| {}, {workers}, {policy} | {} | {median:.0} | {least:+.1} to {most:+.1} % | {:.0} | {:+.1} % |",
            subject.program,
            COUNTS[index],
            sim[index],
            percent(sim[index])
        );
        (percent(sim[index]), most - least)
    })
}

/// With one worker only the time is left to chance, and first in, first out does not depend on time. One page more or less of
/// near memory, though, changes what a run brings by up to 3 %, live and simulated, up or down, so several near limits are
/// added up.
#[test]
fn one_worker_under_fifo_fetches_what_the_simulator_says() {
    if !installed("qemu-x86_64") {
        skip!("qemu-user is not installed, by which traces are captured: apt-get install qemu-user");
    }
    let folder = tempfile::tempdir().unwrap();
    for (program, limits) in [
        ("stencil", ["16M", "16500K", "17M", "17500K", "18M", "18500K"]),
        ("sp", ["5M", "5180K", "5240K", "5300K", "5360K", "5420K"]),
    ] {
        let subject = Subject { program, class: "W", near: limits[0] };
        let trace = subject.capture(folder.path(), "1");
        let (mut live, mut sim) = (0.0, 0.0);
        for near in limits {
            let (counts, peak) = subject.live(near, "1", "fifo");
            let said = simulated(&trace, peak, "fifo");
            println!("{program} under {near}: {} pages brought near live, {} simulated", counts[0], said[0]);
            live += counts[0];
            sim += said[0];
        }
        let apart = 100.0 * (sim / live - 1.0);
        println!("{program}: {apart:+.1} %");
        assert!(apart.abs() < 5.0, "{program}: {apart:+.1} %");
    }
}

#[test]
#[ignore = "several minutes"]
fn the_simulator_beside_the_live_system() {
    let folder = tempfile::tempdir().unwrap();
    println!("| program, workers, policy | count | live | its runs | simulated | apart |");
    println!("| --- | --- | --- | --- | --- | --- |");
    for subject in [
        Subject { program: "cg", class: "A", near: "18M" },
        Subject { program: "lu", class: "A", near: "24M" },
        Subject { program: "bt", class: "A", near: "28M" },
        Subject { program: "stencil", class: "A", near: "64M" },
    ] {
        for workers in ["1", "2"] {
            let trace = subject.capture(folder.path(), workers);
            for policy in ["fifo", "cmcp:p=0.5", "lru", "adaptive"] {
                compare(&subject, workers, &trace, policy);
            }
        }
    }
}
