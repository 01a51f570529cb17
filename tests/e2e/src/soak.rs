//! Runs random programs (`generated`) on several nodes, and compares their output and ending with those of one thread.
//!
//! `bin/soak` runs them for a time; `tests/nodes.rs` a few seconds of them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::random::Random;
use crate::{Atoll, Outcome, build, generated, native};

/// The most seconds of one run.
const LIMIT: u64 = 30;

/// The result of a soak.
#[derive(Debug, Default)]
pub struct Tally {
    /// The number of runs that printed and ended as they should.
    pub passed: u64,
    /// What went wrong, with everything that is needed to repeat it.
    pub failed: Vec<String>,
}

/// Runs programs of `seed` and the following seeds for `time`, each at some random settings; reports every run to `each`. With
/// `faults`, messages between nodes are late, refused and sent twice.
pub fn soak(seed: u64, time: Duration, faults: bool, mut each: impl FnMut(&str)) -> Tally {
    let folder = tempfile::tempdir().expect("a folder for programs");
    let began = Instant::now();
    let mut tally = Tally::default();
    let mut seed = seed;
    while began.elapsed() < time {
        one((seed, faults), folder.path(), &mut tally, &mut each);
        seed += 1;
    }
    tally
}

/// The number of runs of a native program of which one must end by itself.
const NATIVE_TRIES: u32 = 3;

/// Builds and runs the program of this seed.
fn one((seed, faults): (u64, bool), folder: &Path, tally: &mut Tally, each: &mut impl FnMut(&str)) {
    let source = generated::source(seed);
    // The files of the program itself do not count.
    let mut random = Random(seed ^ 0x5eed);
    let level = *random.pick(&["-O0", "-O1", "-O2", "-O3"]);
    let compiler = compiler(seed);
    let program = make(compiler, &source, level, folder);
    let schedule = *random.pick(&["static", "dynamic,3", "guided"]);
    let said = |threads: &str| {
        let once = || {
            let run = native(&program).env("OMP_NUM_THREADS", threads).env("OMP_SCHEDULE", schedule);
            let run = run.limit(LIMIT).run().clean();
            (run.status, run.signal, run.text())
        };
        // The native runtimes sometimes crash where a thread of a team calls exit while others still work.
        (0..NATIVE_TRIES).map(|_| once()).find(|(_, signal, _)| signal.is_none()).unwrap_or_else(once)
    };
    let right = said("1");
    for threads in ["2", "5"] {
        assert_eq!(
            said(threads),
            right,
            "the program of seed {seed} depends on its team: a fault of the generator"
        );
    }
    for _ in 0..2 {
        let options = settings(&mut random);
        let run = Atoll::new(&program).with(&options).env("OMP_SCHEDULE", schedule).limit(LIMIT);
        let run = if faults { run.env("ATOLL_TEST_FAULTS", seed.to_string()) } else { run }.run();
        match fault(&run, &right) {
            None => {
                tally.passed += 1;
                each(&format!("seed {seed:<8}{:>6.2} s  {compiler}  {options}  passed", run.seconds));
            }
            Some(what) => {
                let kept = std::env::temp_dir().join(format!("atoll-soak-{seed}.c"));
                let kept = std::fs::write(&kept, &source).map_or(PathBuf::new(), |()| kept);
                let text = format!(
                    "seed {seed} {compiler} {options}: {what}\nwith one thread: status {:?}, signal {:?}\n{}{}\nsource, also in {}:\n{source}",
                    right.0,
                    right.1,
                    right.2,
                    run.told(),
                    kept.display()
                );
                each(&format!("seed {seed:<8}{:>6.2} s  {compiler}  {options}  FAILED: {what}", run.seconds));
                tally.failed.push(text);
            }
        }
    }
}

/// Returns what is wrong with a run, if anything is. `right` is the status, the signal and the output of the program by itself.
fn fault(run: &Outcome, right: &(Option<i32>, Option<i32>, String)) -> Option<String> {
    let (status, signal, text) = right;
    if run.timed_out {
        Some("time over".into())
    } else if run.status == Some(75) && run.left.is_empty() && run.stderr.contains("this needs --near") {
        // The memory that must be near depends on the threads and nodes; a program of many of them learns it from this
        // sentence.
        None
    } else if (run.status, run.signal) != (*status, *signal) {
        Some(format!("status {:?}, signal {:?}: {}", run.status, run.signal, run.stderr.trim()))
    } else if run.text() != *text {
        Some("another answer".into())
    } else if !run.left.is_empty() {
        Some(format!("left behind {:?}", run.left))
    } else {
        None
    }
}

/// Returns random settings of `atoll run`.
pub fn settings(random: &mut Random) -> String {
    let nodes = 1 + random.below(4);
    let workers = 1 + random.below(3);
    let mut options = format!(
        "--nodes {nodes} --workers {workers} --consistency {} --prefetch {} --home-alone {}",
        random.pick(&["sc", "mw", "smart"]),
        random.pick(&["on", "off"]),
        random.pick(&["on", "off"])
    );
    if random.below(4) == 0 {
        options += &format!(" --near {}", random.pick(&["8M", "12M", "16M"]));
        options += &format!(" --far {}", random.pick(&["ram", "lz4", "zstd", "file"]));
    }
    options
}

/// Returns the compiler of a seed. Every second program is built by the newest clang, where one is installed, as clang calls
/// other names of the runtime.
fn compiler(seed: u64) -> &'static str {
    build::clangs().first().filter(|_| seed % 2 == 1).map_or("gcc", String::as_str)
}

fn make(compiler: &str, source: &str, level: &str, folder: &Path) -> PathBuf {
    let (file, program) = (folder.join("program.c"), folder.join("program"));
    std::fs::write(&file, source).expect("the source is written");
    let mut command = Command::new(compiler);
    command.args([level, "-g", "-w", "-fopenmp", "-o"]).arg(&program).arg(&file);
    if compiler == "gcc" {
        command.arg("-foffload=disable");
    }
    let output = command.output().expect("the compiler is installed");
    assert!(output.status.success(), "{}\n{source}", String::from_utf8_lossy(&output.stderr));
    program
}
