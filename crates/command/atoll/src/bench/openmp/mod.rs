//! `atoll bench openmp`: measures what OpenMP's constructs cost under atoll, beside libgomp and libomp.
//!
//! `programs/overheads.c` measures in one process; this runs it, built by gcc and by clang, natively and under `atoll run`, in
//! interleaved rounds. `targets.rs` judges.

mod targets;

use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::BenchError;
use super::output::Output;
use super::pair::Cpus;
use super::statistics::middle;
use super::table::{Cell, Table};
use crate::cli::OpenmpBenchArgs;
use crate::said;

/// The program, as `make programs` builds it.
const PROGRAM: &str = "overheads";
/// The seconds that one run of it may take.
const LIMIT: &str = "600";

/// A runtime that is measured: the program's own, or atoll's in its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Runtime {
    /// libgomp, of gcc's program.
    Gomp,
    AtollForGcc,
    /// libomp, of clang's program.
    Omp,
    AtollForClang,
}

impl Runtime {
    const ALL: [Runtime; 4] = [Runtime::Gomp, Runtime::AtollForGcc, Runtime::Omp, Runtime::AtollForClang];

    fn name(self) -> &'static str {
        match self {
            Runtime::Gomp => "libgomp",
            Runtime::AtollForGcc => "atoll, gcc",
            Runtime::Omp => "libomp",
            Runtime::AtollForClang => "atoll, clang",
        }
    }

    /// The runtime beside which atoll's is judged.
    fn native(self) -> Option<Runtime> {
        match self {
            Runtime::AtollForGcc => Some(Runtime::Gomp),
            Runtime::AtollForClang => Some(Runtime::Omp),
            Runtime::Gomp | Runtime::Omp => None,
        }
    }

    /// The program that is run.
    fn program(self, folder: &Path) -> PathBuf {
        match self {
            Runtime::Gomp | Runtime::AtollForGcc => folder.join(PROGRAM),
            Runtime::Omp | Runtime::AtollForClang => folder.join("clang").join(PROGRAM),
        }
    }
}

/// Everything measured: nanoseconds of each round, by construct, number of workers and runtime.
#[derive(Debug, Default)]
struct Measured {
    /// The constructs, in the program's order.
    constructs: Vec<String>,
    rounds: BTreeMap<(String, u32, Runtime), Vec<f64>>,
}

impl Measured {
    fn of(&self, construct: &str, workers: u32, runtime: Runtime) -> Option<&[f64]> {
        self.rounds.get(&(construct.to_owned(), workers, runtime)).map(Vec::as_slice)
    }

    /// The median of the rounds.
    fn median(&self, construct: &str, workers: u32, runtime: Runtime) -> Option<f64> {
        self.of(construct, workers, runtime).map(|rounds| middle(rounds.to_vec()))
    }

    fn add(&mut self, workers: u32, runtime: Runtime, text: &str) -> Result<(), BenchError> {
        let mut found = false;
        for (construct, nanoseconds) in text.lines().filter_map(overhead) {
            if !self.constructs.iter().any(|known| known == construct) {
                self.constructs.push(construct.to_owned());
            }
            self.rounds.entry((construct.to_owned(), workers, runtime)).or_default().push(nanoseconds);
            found = true;
        }
        if found { Ok(()) } else { Err(BenchError::Other(format!("{PROGRAM} printed no overhead: {text}"))) }
    }

    /// The table of a team size, in nanoseconds.
    fn table(&self, workers: u32, runtimes: &[Runtime]) -> Table {
        let team = format!("ns, {workers} {}", if workers == 1 { "worker" } else { "workers" });
        let mut columns = vec![team];
        for runtime in runtimes {
            columns.push(runtime.name().to_owned());
            if runtime.native().is_some() {
                columns.push("times".to_owned());
            }
        }
        let mut table = Table::new(columns);
        for construct in &self.constructs {
            let mut row = vec![Cell::from(construct.as_str())];
            for &runtime in runtimes {
                row.push(Cell::number(self.median(construct, workers, runtime), 1));
                if let Some(native) = runtime.native() {
                    let ours = self.median(construct, workers, runtime);
                    let theirs = self.median(construct, workers, native);
                    row.push(Cell::number(ours.zip(theirs).map(|(o, t)| targets::times(o, t)), 2));
                }
            }
            table.row(row);
        }
        table
    }
}

/// Reads a line of the program: a construct and the median of its repetitions.
fn overhead(line: &str) -> Option<(&str, f64)> {
    let mut words = line.strip_prefix("Overhead: ")?.split(' ');
    let (construct, _workers, nanoseconds) = (words.next()?, words.next()?, words.next()?);
    Some((construct, nanoseconds.parse().ok()?))
}

/// Measures, prints the tables and judges the targets.
///
/// # Errors
/// The program is not built, or a run failed.
pub(super) fn bench(args: &OpenmpBenchArgs) -> Result<(), BenchError> {
    let output = Output::new(args.output.as_deref())?;
    let runtimes: Vec<Runtime> =
        Runtime::ALL.into_iter().filter(|runtime| runtime.program(&args.programs).is_file()).collect();
    if !runtimes.contains(&Runtime::Gomp) {
        return Err(BenchError::Other(format!(
            "{} is not there: make programs builds it",
            Runtime::Gomp.program(&args.programs).display()
        )));
    }
    let cpus = Cpus::choose(args.cpus.as_deref())?;
    keep_to(cpus);
    println!("CPUs {} and {}; load before the measurement: {}", cpus.here, cpus.there, load());
    if !runtimes.contains(&Runtime::Omp) {
        println!("skipped: libomp: make programs found no clang with an OpenMP runtime");
    }
    let mut measured = Measured::default();
    for _ in 0..if args.quick { 1 } else { args.rounds } {
        for &workers in &args.workers {
            for &runtime in &runtimes {
                measured.add(workers, runtime, &run(args, runtime, workers)?)?;
            }
        }
    }
    println!();
    for &workers in &args.workers {
        output.table(&format!("openmp-{workers}"), &measured.table(workers, &runtimes))?;
    }
    for &workers in &args.workers {
        for line in targets::judge(&measured, workers) {
            println!("{line}");
        }
    }
    println!("load after the measurement: {}", load());
    output.end();
    Ok(())
}

/// The number of processes that run or want to, averaged over a minute.
fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or("unknown").to_owned()
}

/// Keeps this process and those that it starts on two CPUs; where that is refused they stay as they were.
fn keep_to(cpus: Cpus) {
    // SAFETY: a set on the stack, of the calling thread.
    unsafe {
        let mut set = MaybeUninit::<libc::cpu_set_t>::zeroed().assume_init();
        libc::CPU_SET(cpus.here, &mut set);
        libc::CPU_SET(cpus.there, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
    }
}

/// Runs the program once; returns what it printed.
fn run(args: &OpenmpBenchArgs, runtime: Runtime, workers: u32) -> Result<String, BenchError> {
    let failed = |why: String| BenchError::Other(format!("{PROGRAM} with {}: {why}", runtime.name()));
    let workers = workers.to_string();
    let mut command = Command::new("timeout");
    command.args(["--kill-after", "5", LIMIT]);
    if runtime.native().is_some() {
        let atoll =
            std::env::current_exe().map_err(|e| failed(format!("atoll itself cannot be found: {e}")))?;
        command.arg(atoll).args(["run", "--summary", "none", "--workers", &workers, "--"]);
    }
    let (repetitions, microseconds) =
        if args.quick { (3, 100) } else { (args.repetitions, args.microseconds) };
    command.arg(runtime.program(&args.programs)).args(["--workers", &workers]);
    command.args(["--repetitions", &repetitions.to_string(), "--microseconds", &microseconds.to_string()]);
    command.args(args.only.iter().flat_map(|construct| ["--only", construct]));
    // The runtimes wait as they do where nobody set anything.
    for (name, _) in std::env::vars_os() {
        if ["OMP_", "GOMP_", "KMP_"].iter().any(|head| name.to_string_lossy().starts_with(head)) {
            command.env_remove(name);
        }
    }
    command.env("OMP_NUM_THREADS", &workers).stdin(Stdio::null());
    let output = command.output().map_err(|e| failed(e.to_string()))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(failed(said::last(&stderr).map_or_else(|| output.status.to_string(), str::to_owned)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overheads_are_read() {
        assert_eq!(overhead("Overhead: static,1 2 10.50 9.00"), Some(("static,1", 10.5)));
        assert_eq!(overhead("Overhead: barrier 2 -1.25 -3.00"), Some(("barrier", -1.25)));
        assert_eq!(overhead("barrier 2 1.25"), None);
        assert_eq!(overhead("Overhead: barrier 2"), None);
    }

    #[test]
    fn a_table_has_a_column_for_each_runtime_and_the_times_of_atolls() {
        let mut measured = Measured::default();
        assert!(measured.add(2, Runtime::Gomp, "nothing\n").is_err());
        measured.add(2, Runtime::Gomp, "Overhead: barrier 2 200 190\nOverhead: lock 2 4 3\n").unwrap();
        measured.add(2, Runtime::AtollForGcc, "Overhead: barrier 2 100 90\n").unwrap();
        let table = measured.table(2, &[Runtime::Gomp, Runtime::AtollForGcc]);
        assert_eq!(
            table.csv(),
            "\"ns, 2 workers\",libgomp,\"atoll, gcc\",times\nbarrier,200.0,100.0,0.50\nlock,4.0,,\n"
        );
    }
}
