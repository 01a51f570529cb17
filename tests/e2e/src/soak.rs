//! Random programs (`generated`) on several nodes, against what they print with one thread.
//!
//! `bin/soak` runs them for a time; `tests/nodes.rs` a few seconds of them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::random::Random;
use crate::{Atoll, Outcome, generated, native};

/// How long one run may take.
const LIMIT: u64 = 30;

/// What a soak came to.
#[derive(Debug, Default)]
pub struct Tally {
    /// Runs that printed what they should.
    pub passed: u64,
    /// What went wrong, with all that is needed to repeat it.
    pub failed: Vec<String>,
}

/// Runs programs of `seed` and on for `time`, each at some random settings; tells `each` of every run. `faults`: messages
/// between nodes are late, refused and sent twice.
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

/// Builds and runs the program of this seed.
fn one((seed, faults): (u64, bool), folder: &Path, tally: &mut Tally, each: &mut impl FnMut(&str)) {
    let source = generated::source(seed);
    // Not those that the program is made of.
    let mut random = Random(seed ^ 0x5eed);
    let level = *random.pick(&["-O0", "-O1", "-O2", "-O3"]);
    let program = build(&source, level, folder);
    let schedule = *random.pick(&["static", "dynamic,3", "guided"]);
    let said = |threads: &str| {
        let run = native(&program).env("OMP_NUM_THREADS", threads).env("OMP_SCHEDULE", schedule);
        run.limit(LIMIT).run().exits(0).text()
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
                each(&format!("seed {seed:<8}{:>6.2} s  {options}  passed", run.seconds));
            }
            Some(what) => {
                let kept = std::env::temp_dir().join(format!("atoll-soak-{seed}.c"));
                let kept = std::fs::write(&kept, &source).map_or(PathBuf::new(), |()| kept);
                let text = format!(
                    "seed {seed} {options}: {what}\nwith one thread:\n{right}{}\nsource, also in {}:\n{source}",
                    run.told(),
                    kept.display()
                );
                each(&format!("seed {seed:<8}{:>6.2} s  {options}  FAILED: {what}", run.seconds));
                tally.failed.push(text);
            }
        }
    }
}

fn fault(run: &Outcome, right: &str) -> Option<String> {
    if run.timed_out {
        Some("time over".into())
    } else if run.status != Some(0) {
        Some(format!("status {:?}, signal {:?}: {}", run.status, run.signal, run.stderr.trim()))
    } else if run.text() != right {
        Some("another answer".into())
    } else if !run.left.is_empty() {
        Some(format!("left behind {:?}", run.left))
    } else {
        None
    }
}

/// Some settings of `atoll run`.
pub fn settings(random: &mut Random) -> String {
    let nodes = 1 + random.below(4);
    let workers = 1 + random.below(3);
    let mut options = format!(
        "--nodes {nodes} --workers {workers} --consistency {} --prefetch {}",
        random.pick(&["sc", "mw", "smart"]),
        random.pick(&["on", "off"])
    );
    if random.below(4) == 0 {
        options += &format!(" --near {}", random.pick(&["8M", "12M", "16M"]));
        options += &format!(" --far {}", random.pick(&["ram", "lz4", "zstd", "file"]));
    }
    options
}

fn build(source: &str, level: &str, folder: &Path) -> PathBuf {
    let (file, program) = (folder.join("program.c"), folder.join("program"));
    std::fs::write(&file, source).expect("the source is written");
    let mut command = Command::new("gcc");
    command.args([level, "-g", "-w", "-fopenmp", "-foffload=disable", "-o"]).arg(&program).arg(&file);
    let output = command.output().expect("gcc is installed");
    assert!(output.status.success(), "{}\n{source}", String::from_utf8_lossy(&output.stderr));
    program
}
