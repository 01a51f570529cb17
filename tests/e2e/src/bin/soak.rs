//! Runs random OpenMP programs on several nodes at random settings, and compares output and ending with those of one thread.

use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use atoll_e2e::{generated, soak};

const USAGE: &str = "usage: soak [--seconds N] [--seed S] [--faults] [--print]
Makes random OpenMP programs, from seed S on (the time), builds them with gcc and, every second one, with clang where it is installed, and
runs them for N seconds (60) on 1 to 4 nodes under all protocols, page sizes and near sizes. Two programs of three have threads of their own, signals, or a thread that
ends the program. What a program prints and how it ends must be as with one thread. --print:
only prints the program of that seed. --faults: messages between nodes are late, refused and sent twice. Ends with `N passed, N failed`; status 1 if any failed.";

fn main() -> ExitCode {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |d| d.as_secs() * 1000);
    let (mut seconds, mut seed, mut faults, mut print) = (60, now, false, false);
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut number = || words.next().and_then(|word| word.parse().ok());
        let known = match word.as_str() {
            "--seconds" => number().map(|n| seconds = n),
            "--seed" => number().map(|n| seed = n),
            "--faults" => {
                faults = true;
                Some(())
            }
            "--print" => {
                print = true;
                Some(())
            }
            _ => None,
        };
        if known.is_none() {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    }
    if print {
        print!("{}", generated::source(seed));
        return ExitCode::SUCCESS;
    }
    println!("seed {seed}");
    let tally = soak::soak(seed, Duration::from_secs(seconds), faults, |line| println!("{line}"));
    for what in &tally.failed {
        println!("\n{what}");
    }
    println!("{} passed, {} failed", tally.passed, tally.failed.len());
    if tally.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
