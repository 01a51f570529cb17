//! The programs in `tests/openmp`, built as a user would and run with the library preloaded.
//!
//! The programs are built by gcc's compilers, and by the newest installed ones of LLVM. Each program checks itself and exits
//! with 0; a line `// env: NAME=value …` in it sets variables for its run.

mod library;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const LEVELS: [&str; 2] = ["-O0", "-O2"];
const THREADS: [u32; 4] = [1, 2, 3, 8];
const LIMIT: Duration = Duration::from_secs(120);

fn exists(compiler: &str) -> bool {
    let asked = Command::new(compiler).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    asked.is_ok_and(|status| status.success())
}

/// Runs the program; the error tells what went wrong.
fn run(binary: &Path, threads: u32, variables: &[(String, String)]) -> Result<(), String> {
    let mut child = Command::new(binary)
        .env("LD_PRELOAD", library::path())
        .env("OMP_NUM_THREADS", threads.to_string())
        .envs(variables.iter().cloned())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| error.to_string())?;
    let began = Instant::now();
    while child.try_wait().map_err(|error| error.to_string())?.is_none() {
        if began.elapsed() > LIMIT {
            child.kill().map_err(|error| error.to_string())?;
            child.wait().map_err(|error| error.to_string())?;
            return Err(format!("did not end within {LIMIT:?}"));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output().map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr)))
}

/// Builds one program at each level and runs it with each number of threads.
fn check(source: &str, compiler: &str) {
    if !exists(compiler) {
        atoll_skips::skip!("{compiler} is not installed: apt-get install {compiler}");
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/openmp");
    let text = std::fs::read_to_string(folder.join(source)).expect("the program is there");
    let variables = text
        .lines()
        .find_map(|line| line.strip_prefix("// env:"))
        .unwrap_or_default()
        .split_whitespace()
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect::<Vec<_>>();
    let out = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("openmp");
    let mut failures = Vec::new();
    let by_gcc = compiler.starts_with('g');
    for level in LEVELS {
        let binary = out.join(format!("{source}{level}-{compiler}"));
        std::fs::create_dir_all(&out).expect("a folder for programs");
        let status = Command::new(compiler)
            .current_dir(&out)
            .args([level, "-fopenmp", "-w"])
            .args(if by_gcc { &["-foffload=disable"][..] } else { &[] })
            .arg("-o")
            .arg(&binary)
            .arg(folder.join(source))
            .args(if by_gcc { &[][..] } else { &["-lm", "-latomic"] })
            .status()
            .expect("the compiler runs");
        if !status.success() && !by_gcc {
            atoll_skips::skip!("{compiler} lacks constructs of {source}: install a newer one");
        }
        assert!(status.success(), "{compiler} {level} {source}");
        for threads in THREADS {
            if let Err(why) = run(&binary, threads, &variables) {
                failures.push(format!("{source} {level} with {threads} threads: {why}"));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// The newest of LLVM's compilers whose names begin with `name`, if one is installed.
fn newest(name: &str) -> Option<String> {
    let versions = (11..40).rev().map(|version| format!("{name}-{version}"));
    versions.chain([name.to_owned()]).find(|name| exists(name))
}

/// Checks one program with LLVM's compiler of its language, where one is installed.
fn check_by_llvm(source: &str, compiler: &str) {
    let found = match compiler {
        "gcc" => newest("clang"),
        "g++" => newest("clang++"),
        _ => newest("flang").or_else(|| newest("flang-new")),
    };
    match found {
        Some(found) => check(source, &found),
        None => atoll_skips::skip!(
            "LLVM's counterpart of {compiler} is not installed: apt-get install clang libomp-dev, and flang-19 for Fortran"
        ),
    }
}

macro_rules! programs {
    ($($test:ident $source:literal $compiler:literal;)*) => {
        $(
            #[test]
            fn $test() {
                check($source, $compiler);
            }
        )*

        mod by_llvm {
            $(
                #[test]
                fn $test() {
                    super::check_by_llvm($source, $compiler);
                }
            )*
        }
    };
}

programs! {
    regions "regions.c" "gcc";
    loops "loops.c" "gcc";
    doacross "doacross.c" "gcc";
    sync "sync.c" "gcc";
    tasks "tasks.c" "gcc";
    travel "travel.c" "gcc";
    cancel "cancel.c" "gcc";
    routines "routines.c" "gcc";
    classes "classes.cc" "g++";
    fortran "fortran.f90" "gfortran";
    atomic_histogram "atomic_histogram.c" "gcc";
    graph_cas "graph_cas.c" "gcc";
    graph_build "graph_build.c" "gcc";
    flag_pipeline "flag_pipeline.c" "gcc";
    hand_locks "hand_locks.c" "gcc";
    once "once.c" "gcc";
    keys "keys.c" "gcc";
    memory_protected_behind_atolls_back_was_given_to_others "protected_behind.c" "gcc";
    phases "phases.c" "gcc";
    atomic_extrema "atomic_extrema.c" "gcc";
    leaving "leaving.c" "gcc";
    exceptions "exceptions.cc" "g++";
    printing "printing.c" "gcc";
    reading "reading.c" "gcc";
    identity "identity.c" "gcc";
    racing "racing.c" "gcc";
}

#[test]
fn every_program_is_tested() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/openmp");
    let here = include_str!("programs.rs");
    for entry in std::fs::read_dir(folder).expect("the programs are there").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        assert!(name.ends_with(".h") || here.contains(&format!("\"{name}\"")), "{name} is not tested");
    }
}
