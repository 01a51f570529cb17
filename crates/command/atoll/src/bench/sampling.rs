//! `atoll bench sampling`: measures how well every sampler tells what a program touches, and what it costs.
//!
//! `report::truth` makes the truth of exact traces, and `report::agreement` compares. Programs run with their blocks on the
//! heap that `brk` makes, where they have the same addresses in every run.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use atoll_record::profile::Profile;
use tempfile::{NamedTempFile, TempPath};

use super::BenchError;
use crate::cli::SamplingBenchArgs;
use crate::profile::children_seconds;
use crate::report::agreement::Agreement;
use crate::report::open;
use crate::report::truth::Truth;
use crate::run::summary::write_aligned;
use crate::said;

/// A program that is measured.
#[derive(Debug, Clone, Copy)]
struct Load {
    program: &'static str,
    class: &'static str,
    /// The numbers of iterations of the two traces.
    traced: [u32; 2],
    /// The number of iterations of a run, for some five seconds.
    iterations: u32,
}

const LOADS: [Load; 7] = [
    Load { program: "cg", class: "S", traced: [2, 4], iterations: 2500 },
    Load { program: "bt", class: "W", traced: [1, 2], iterations: 1500 },
    Load { program: "sp", class: "W", traced: [1, 2], iterations: 1500 },
    Load { program: "lu", class: "W", traced: [1, 2], iterations: 700 },
    Load { program: "stencil", class: "S", traced: [2, 4], iterations: 3000 },
    Load { program: "minife", class: "W", traced: [5, 10], iterations: 16_000 },
    Load { program: "lulesh", class: "W", traced: [1, 2], iterations: 300 },
];

/// The samplers, and how `atoll profile` runs the program for each.
const SAMPLERS: [(&str, &str); 8] = [
    ("pebs", "off"),
    ("ibs", "off"),
    ("spe", "off"),
    ("timer", "off"),
    ("faults", "off"),
    ("writes", "off"),
    ("damon", "off"),
    ("touches", "on"),
];

/// The target for the default sampler: percent of overhead.
const TARGET: f64 = 1.0;
const WORKERS: &str = "2";

/// The result of a run.
struct Ran {
    /// The processor time of the program, in seconds; with samples, of harvesting, too.
    seconds: f64,
    /// The samples; `None`: the program ran alone.
    profile: Option<Profile>,
    /// The file of the profile.
    _file: Option<TempPath>,
}

/// Measures and prints.
///
/// # Errors
/// No program can be run or traced.
pub(super) fn bench(args: &SamplingBenchArgs) -> Result<(), BenchError> {
    let folder = tempfile::tempdir().map_err(|e| BenchError::Write("a temporary directory".into(), e))?;
    let rounds = if args.quick { 1 } else { args.rounds };
    let mut refused: BTreeMap<&str, String> = BTreeMap::new();
    let mut rows = vec![
        [
            "program",
            "sampler",
            "hold",
            "by cost",
            "by time",
            "samples",
            "pages seen",
            "by page",
            "by var.",
            "10 hottest",
        ]
        .map(str::to_owned)
        .to_vec(),
    ];
    let (mut ordered, mut default_runs, mut logs) = (0, 0, Vec::new());
    let mut best = None;
    for load in LOADS {
        let path = args.programs.join(load.program);
        if !path.is_file() || !(args.only.is_empty() || args.only.iter().any(|name| name == load.program)) {
            continue;
        }
        let iterations = if args.quick { load.iterations / 5 } else { load.iterations };
        let truth = truth(&load, &path, folder.path(), iterations)?;
        let alone = least((0..rounds).map(|_| run(&load, &path, iterations, &[], folder.path())))?;
        println!(
            "{} {}, {iterations} iterations: {:.2} s of processor time alone",
            load.program, load.class, alone.seconds
        );
        for (sampler, runtime) in SAMPLERS {
            let wanted = args.samplers.is_empty() || args.samplers.iter().any(|name| name == sampler);
            if !wanted || refused.contains_key(sampler) {
                continue;
            }
            for &percent in &args.overheads {
                let overhead = format!("{percent}%");
                let options = ["--sampler", sampler, "--runtime", runtime, "--overhead", &overhead];
                let ran = match least(
                    (0..rounds).map(|_| run(&load, &path, iterations, &options, folder.path())),
                ) {
                    Ok(ran) => ran,
                    Err(error) => {
                        refused.insert(sampler, error.to_string());
                        break;
                    }
                };
                let Some(profile) = &ran.profile else { continue };
                let agreement =
                    Agreement::of(profile, &truth).map_err(|e| BenchError::Other(e.to_string()))?;
                let by_cost = profile.trailer.as_ref().map_or(f64::NAN, |t| 100.0 * t.overhead());
                let by_time = 100.0 * (ran.seconds / alone.seconds - 1.0);
                let mut row: Vec<String> = [load.program, sampler, &overhead].map(str::to_owned).to_vec();
                row.extend([format!("{by_cost:.2}%"), format!("{by_time:.1}%"), profile.samples.to_string()]);
                row.extend(match &agreement {
                    Some(a) => [
                        format!("{:.1}%", 100.0 * a.coverage()),
                        format!("{:.3}", a.by_page),
                        format!("{:.3}", a.by_variable),
                        order(a),
                    ],
                    None => ["-", "-", "-", "no region in common"].map(str::to_owned),
                });
                rows.push(row);
                if args.variables
                    && let Some(agreement) = &agreement
                {
                    println!(
                        "\n{} {}, {sampler} at {overhead}\n{}",
                        load.program,
                        load.class,
                        agreement.text()
                    );
                }
                // The first sampler that works is the one that `atoll profile` takes by itself.
                if percent == 1 && *best.get_or_insert(sampler) == sampler {
                    default_runs += 1;
                    ordered += usize::from(agreement.is_some_and(|a| a.in_order()));
                    logs.push(((1.0 + by_cost / 100.0).ln(), (1.0 + by_time.max(-99.0) / 100.0).ln()));
                }
            }
        }
    }
    println!();
    for (sampler, why) in &refused {
        println!("skipped: {sampler}: {why}");
    }
    print_rows(&rows);
    if let Some(best) = best {
        let n = logs.len() as f64;
        let mean = |sum: f64| 100.0 * ((sum / n).exp() - 1.0);
        let by_cost = mean(logs.iter().map(|l| l.0).sum());
        let by_time = mean(logs.iter().map(|l| l.1).sum());
        let word = |met| if met { "met" } else { "not met" };
        println!(
            "\n{best} at 1%: the ten hottest in their order: all programs, measured {ordered} of {default_runs}: {}",
            word(ordered == default_runs)
        );
        println!(
            "{best} at 1%: overhead, geometric mean: at most {TARGET}%, measured {by_cost:.2}% by cost: {} ({by_time:.1}% by time)",
            word(by_cost <= TARGET)
        );
    }
    Ok(())
}

fn order(agreement: &Agreement) -> String {
    match agreement.pairs() {
        _ if agreement.variables.is_empty() => "nothing to compare".into(),
        (_, 0) => "in order".into(),
        (pairs, wrong) => format!("{wrong} of {pairs} pairs wrong"),
    }
}

fn print_rows(rows: &[Vec<String>]) {
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = write_aligned(&mut out, rows);
    print!("{out}");
}

fn least(runs: impl Iterator<Item = Result<Ran, BenchError>>) -> Result<Ran, BenchError> {
    let mut best: Option<Ran> = None;
    for ran in runs {
        let ran = ran?;
        if best.as_ref().is_none_or(|best| ran.seconds < best.seconds) {
            best = Some(ran);
        }
    }
    best.ok_or_else(|| BenchError::Other("nothing was run".into()))
}

fn command(of: &Path) -> Command {
    let mut command = Command::new(of);
    command.env("OMP_NUM_THREADS", WORKERS).env("OMP_WAIT_POLICY", "passive").stdin(Stdio::null());
    // All blocks lie on one heap, however large they are.
    command.env("GLIBC_TUNABLES", "glibc.malloc.mmap_max=0").stdout(Stdio::null());
    command
}

fn own() -> Result<PathBuf, BenchError> {
    std::env::current_exe().map_err(|e| BenchError::Other(format!("atoll itself cannot be found: {e}")))
}

fn finished(mut command: Command, what: &str) -> Result<(), BenchError> {
    let failed = |e: io::Error| BenchError::Other(format!("{what}: {e}"));
    let output = command.stderr(Stdio::piped()).output().map_err(failed)?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    let why = said::why(output.status, &stderr).unwrap_or_else(|| format!("{what}: {}", output.status));
    Err(BenchError::Other(why))
}

/// Returns what `iterations` iterations of a program touch.
fn truth(load: &Load, path: &Path, folder: &Path, iterations: u32) -> Result<Truth, BenchError> {
    let trace = |count: u32| -> Result<Truth, BenchError> {
        let file = folder.join("trace");
        let mut command = command(&own()?);
        command.args(["trace", "--exact", "--workers", WORKERS, "-o"]).arg(&file).arg("--").arg(path);
        command.args([load.class, "--iterations", &count.to_string()]);
        finished(command, "atoll trace")?;
        Truth::read(&file).map_err(|e| BenchError::Other(e.to_string()))
    };
    let few = trace(load.traced[0])?;
    Ok(Truth::of_iterations(&few, trace(load.traced[1])?, load.traced, iterations))
}

/// Runs a program to its end: alone, or under `atoll profile` with `options`.
fn run(
    load: &Load,
    path: &Path,
    iterations: u32,
    options: &[&str],
    folder: &Path,
) -> Result<Ran, BenchError> {
    let iterations = iterations.to_string();
    let words = [load.class, "--iterations", &iterations];
    if options.is_empty() {
        let before = children_seconds();
        let mut command = command(path);
        command.args(words);
        finished(command, load.program)?;
        return Ok(Ran { seconds: children_seconds() - before, profile: None, _file: None });
    }
    let file = NamedTempFile::new_in(folder).map_err(|e| BenchError::Write("a temporary file".into(), e))?;
    let file = file.into_temp_path();
    let mut command = command(&own()?);
    command
        .arg("profile")
        .args(options)
        .args(["--summary", "none", "-o"])
        .arg(&file)
        .arg("--")
        .arg(path)
        .args(words);
    finished(command, "atoll profile")?;
    let profile = open(&file).map_err(|e| BenchError::Other(e.to_string()))?;
    let seconds = profile.trailer.as_ref().map_or(f64::NAN, |t| t.cpu_seconds + t.harvest_seconds);
    Ok(Ran { seconds, profile: Some(profile), _file: Some(file) })
}
