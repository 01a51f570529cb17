//! Measures how long capturing a trace takes: programs natively, under QEMU alone, and under both engines of `atoll trace`.
//!
//! `make bench-trace` runs it. It prints the targets, the measurements, and met or not met. Nothing else should run meanwhile.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use atoll_e2e::build::{atoll, built, installed, root};

/// The number of native runs, of which the median counts; the other runs take long and are made once.
const NATIVE_RUNS: usize = 5;
/// The most times native: under QEMU, and recompiled.
const TARGETS: [f64; 2] = [30.0, 10.0];
const QEMU: &str = "qemu-x86_64";

/// The programs and their arguments: some tenths of a second each, so that starting up does not count.
const PROGRAMS: [(&str, &[&str]); 4] = [
    ("cg", &["W"]),
    ("lu", &["W", "--iterations", "50"]),
    ("bt", &["W", "--iterations", "50"]),
    ("stencil", &["W"]),
];

/// Returns the seconds of a run with two workers.
fn seconds(command: &mut Command) -> Result<f64, String> {
    let begin = Instant::now();
    let quiet = command.env("OMP_NUM_THREADS", "2").env("OMP_WAIT_POLICY", "passive");
    let status = quiet.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    match status {
        Ok(status) if status.success() => Ok(begin.elapsed().as_secs_f64()),
        Ok(status) => Err(format!("{command:?}: {status}")),
        Err(error) => Err(format!("{command:?}: {error}")),
    }
}

fn traced(engine: &str, folder: &Path, program: &Path, arguments: &[&str]) -> Result<f64, String> {
    let mut command = Command::new(atoll());
    command.args(["trace", "--workers", "2", "--engine", engine, "-o"]).arg(folder.join("trace"));
    seconds(command.arg("--").arg(program).args(arguments))
}

/// Returns the program compiled for the other engine.
fn recompiled(name: &str, folder: &Path) -> Result<PathBuf, String> {
    let source = root().join("programs").join(name).with_extension("c");
    let (object, program) = (folder.join("object.o"), folder.join(name));
    let gcc = |words: &[&Path], more: &[&str]| {
        let flags = ["-O3", "-march=x86-64-v2", "-fopenmp", "-std=gnu11", "-mcmodel=medium"];
        let status = Command::new("gcc").args(flags).args(words).args(more).status();
        if status.is_ok_and(|status| status.success()) {
            Ok(())
        } else {
            Err(format!("gcc cannot build {name}"))
        }
    };
    gcc(&[&source], &["-fsanitize=thread", "-c", "-o", &object.display().to_string()])?;
    let hooks = atoll().with_file_name("libatoll_hooks.so");
    gcc(&[&object, &hooks], &["-lm", "-o", &program.display().to_string()])?;
    Ok(program)
}

fn measure(name: &str, arguments: &[&str]) -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let program = built(name);
    let mut native = (0..NATIVE_RUNS)
        .map(|_| seconds(Command::new(&program).args(arguments)))
        .collect::<Result<Vec<_>, _>>()?;
    native.sort_unstable_by(f64::total_cmp);
    let native = native[NATIVE_RUNS / 2];
    let title = format!("{name} {}", arguments.join(" "));
    let line = |engine: &str, time: f64, target: Option<f64>| {
        let times = time / native;
        let verdict = target.map_or(String::new(), |target| {
            format!("  at most {target} times: {}", if times <= target { "met" } else { "not met" })
        });
        println!("{title:<22}{engine:<12}{time:>8.2} s {times:>6.1} times native{verdict}");
    };
    println!("{title:<22}{:<12}{native:>8.2} s", "native");
    if installed(QEMU) {
        line("qemu alone", seconds(Command::new(QEMU).arg(&program).args(arguments))?, None);
        line("qemu", traced("qemu", folder.path(), &program, arguments)?, Some(TARGETS[0]));
    } else {
        println!("{title:<22}left out: {QEMU} is not installed (apt-get install qemu-user)");
    }
    let program = recompiled(name, folder.path())?;
    line("tsan", traced("tsan", folder.path(), &program, arguments)?, Some(TARGETS[1]));
    Ok(())
}

fn main() -> ExitCode {
    for (name, arguments) in PROGRAMS {
        if let Err(why) = measure(name, arguments) {
            eprintln!("capture: {why}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
