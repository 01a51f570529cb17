//! Builds the conformance programs and the workloads by every compiler that is installed, and runs each under atoll.
//!
//! The tests of `llvm.rs` and `semantics.rs` run a part of this; `scripts/other-compilers` runs this in Debian systems that
//! have other compilers than this machine.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use atoll_e2e::build::{by, sources, variables, versions_of};
use atoll_e2e::workloads::{LEAST_PAGES, Native, PROGRAMS, checksum};
use atoll_e2e::{Atoll, native};

const USAGE: &str = "usage: compilers [COMPILER...]
Builds the programs of tests/openmp and the workloads of programs/ by each gcc-N and clang-N that is installed (or those named), and by
its C++ and Fortran. Runs each with 1, 2, 4 and 7 workers, private and shared page tables, near memory at 100 % and at 50 % of
its footprint. A conformance program checks itself; a workload must print its native checksum. Prints a line for each
compiler, and the command line of each run that fails; status 1 if any failed.";

const WORKERS: [u64; 4] = [1, 2, 4, 7];
const TABLES: [&str; 2] = ["private", "shared"];
const PERCENT: [u64; 2] = [100, 50];
/// The most seconds of a run.
const LIMIT: u64 = 300;

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

fn main() -> ExitCode {
    let mut compilers: Vec<String> = std::env::args().skip(1).collect();
    if compilers.iter().any(|word| word.starts_with('-')) {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    }
    if compilers.is_empty() {
        compilers = [versions_of("gcc"), versions_of("clang")].concat();
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
