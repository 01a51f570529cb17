//! Builds the conformance programs and the workloads by every compiler that is installed, and runs each under atoll.
//!
//! The tests of `llvm.rs` and `semantics.rs` run a part of this; `scripts/other-compilers` runs this in Debian systems that
//! have other compilers than this machine.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use atoll_e2e::build::{by, sources, variables, versions_of};
use atoll_e2e::workloads::{LEAST_PAGES, Native, PROGRAMS, checksum};
use atoll_e2e::{Atoll, native};

const USAGE: &str = "usage: compilers [--time] [COMPILER...]
Builds the programs of tests/openmp and the workloads of programs/ by each gcc-N and clang-N that is installed (or those named), and by
its C++ and Fortran. Runs each with 1, 2, 4 and 7 workers, private and shared page tables, near memory at 100 % and at 50 % of
its footprint. A conformance program checks itself; a workload must print its native checksum. Prints a line for each
compiler, and the command line of each run that fails; status 1 if any failed.
With --time, measures instead what programs take with all of their data near, beside what they take natively: medians of three rounds.";

const WORKERS: [u64; 4] = [1, 2, 4, 7];
const TABLES: [&str; 2] = ["private", "shared"];
const PERCENT: [u64; 2] = [100, 50];
/// The most seconds of a run.
const LIMIT: u64 = 300;

/// Workloads that are measured, and their classes: each takes one to four seconds. A run begins 30 ms later under atoll.
const MEASURED: [(&str, &str); 7] = [
    ("lu", "W"),
    ("sp", "W"),
    ("stencil", "B"),
    ("fft", "B"),
    ("multigrid", "B"),
    ("minife", "A"),
    ("ep", "A"),
];
/// Rounds of measurements, in each of which a program runs natively and under atoll.
const ROUNDS: usize = 3;
/// The most that atoll may take of native time with all data near, geometric mean.
const TARGET: f64 = 1.05;

/// What came of one compiler's programs.
#[derive(Debug, Default)]
struct Tally {
    programs: u32,
    passed: u32,
    failed: Vec<String>,
    not_compiled: Vec<String>,
}

/// A program to run, with its words and what it must print.
struct Program {
    path: PathBuf,
    arguments: &'static str,
    variables: Vec<(String, String)>,
    /// The native checksum; a conformance program has none.
    checksum: Option<String>,
}

impl Program {
    fn under_atoll(&self, with: &str) -> Atoll {
        let run = Atoll::new(&self.path).args(self.arguments).with(with).limit(LIMIT);
        self.variables.iter().fold(run, |run, (name, value)| run.env(name, value))
    }
}

impl Tally {
    /// Builds and runs one source.
    fn source(&mut self, compiler: &str, source: &Path, is_workload: bool) {
        let name = source.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let Ok(path) = by(compiler, source) else {
            self.not_compiled.push(name);
            return;
        };
        self.programs += 1;
        let arguments = if is_workload { "S" } else { "" };
        let mut program = Program { path, arguments, variables: variables(source), checksum: None };
        if is_workload {
            program.checksum = checksum(&native(&program.path).args(arguments).limit(LIMIT).run().text());
            if program.checksum.is_none() {
                self.failed.push(format!("{compiler} {name}: no checksum natively"));
                return;
            }
        }
        let measured = program.under_atoll("--workers 2").run();
        let known = Native {
            checksum: program.checksum.clone().unwrap_or_default(),
            footprint: measured.figure("memory/footprint_peak_bytes"),
            pinned: measured.figure("memory/pinned_peak_bytes"),
        };
        for workers in WORKERS {
            for tables in TABLES {
                for percent in PERCENT {
                    let near = known.near(percent, LEAST_PAGES << 12, workers);
                    self.run(&program, &format!("--workers {workers} --page-tables {tables} --near {near}"));
                }
            }
        }
    }

    fn run(&mut self, program: &Program, with: &str) {
        let run = program.under_atoll(with).run();
        let is_right = program.checksum.is_none() || checksum(&run.text()) == program.checksum;
        if run.timed_out || run.status != Some(0) || !run.left.is_empty() || !is_right {
            self.failed.push(format!("native {:?}, left {:?}: {}", program.checksum, run.left, run.told()));
        } else {
            self.passed += 1;
        }
    }
}

/// Measures the workloads built by one compiler with all of their data near. Prints each, and returns their ratios to native.
fn measure(compiler: &str) -> Vec<f64> {
    let mut ratios = Vec::new();
    let sources = sources("programs", &["c"]);
    for (name, class) in MEASURED {
        let source = sources.iter().find(|source| source.file_stem().is_some_and(|stem| stem == name));
        let Some(path) = source.and_then(|source| by(compiler, source).ok()) else {
            println!("{compiler}  {name}: not compiled");
            continue;
        };
        let [mut alone, mut managed] = [const { Vec::new() }; 2];
        for _ in 0..ROUNDS {
            let seconds = |program: Atoll| {
                program.args(class).env("OMP_NUM_THREADS", "2").limit(LIMIT).run().exits(0).seconds
            };
            alone.push(seconds(native(&path)));
            managed.push(seconds(Atoll::new(&path)));
        }
        let (alone, managed) = (median(alone), median(managed));
        println!(
            "{compiler}  {name} {class}: native {alone:.3} s, atoll {managed:.3} s, {:.3} times",
            managed / alone
        );
        ratios.push(managed / alone);
    }
    ratios
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Measures all compilers' programs and judges the target.
fn measure_all(compilers: &[String]) -> ExitCode {
    let ratios: Vec<f64> = compilers.iter().flat_map(|compiler| measure(compiler)).collect();
    if ratios.is_empty() {
        return ExitCode::FAILURE;
    }
    let mean = (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len() as f64).exp();
    println!(
        "all data near, programs of {}, geometric mean: at most {TARGET} times native, measured {mean:.3} times: {}",
        compilers.join(", "),
        if mean <= TARGET { "met" } else { "not met" }
    );
    ExitCode::SUCCESS
}

fn main() -> ExitCode {
    let mut compilers: Vec<String> = std::env::args().skip(1).collect();
    let times = compilers.first().is_some_and(|word| word == "--time");
    if times {
        compilers.remove(0);
    }
    if compilers.iter().any(|word| word.starts_with('-')) {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    }
    if compilers.is_empty() {
        compilers = [versions_of("gcc"), versions_of("clang")].concat();
    }
    if times {
        return measure_all(&compilers);
    }
    let mut failed = 0;
    for compiler in &compilers {
        let mut tally = Tally::default();
        for source in sources("tests/openmp", &["c", "cc", "f90"]) {
            tally.source(compiler, &source, false);
        }
        for source in sources("programs", &["c"]) {
            let name = source.file_stem().unwrap_or_default().to_string_lossy();
            if PROGRAMS.contains(&&*name) {
                tally.source(compiler, &source, true);
            }
        }
        for why in &tally.failed {
            println!("failed: {why}");
        }
        println!(
            "{compiler}: {} programs, {} runs passed, {} failed{}",
            tally.programs,
            tally.passed,
            tally.failed.len(),
            match tally.not_compiled.as_slice() {
                [] => String::new(),
                names => format!("; it does not compile {}", names.join(", ")),
            }
        );
        failed += tally.failed.len();
    }
    if failed == 0 && !compilers.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
