//! Bulk transfer: one suite for all engines, and what each of them must survive besides.
//!
//! It forks, so it has no test harness with its threads: `cargo test -p atoll-channel --test bulk [-- NAME]`.
//! A test that takes longer than a minute is ended by SIGALRM.

#![allow(clippy::unwrap_used, reason = "tests")]

mod child;
mod manager;
mod mishaps;
mod pools;
mod rig;
mod suite;

use std::time::Instant;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let filter = words.iter().find(|word| !word.starts_with('-'));
    let run = |name: &str, test: &mut dyn FnMut()| {
        if filter.is_some_and(|filter| !name.contains(filter.as_str())) {
            return;
        }
        // SAFETY: sets a timer; its signal ends the process.
        unsafe { libc::alarm(60) };
        let begin = Instant::now();
        test();
        println!("test {name} ... ok ({:.2} s)", begin.elapsed().as_secs_f64());
    };
    for (name, make) in rig::all() {
        for (what, test) in suite::TESTS {
            run(&format!("{name}::{what}"), &mut || test(&make));
        }
    }
    for (name, test) in mishaps::TESTS.iter().chain(manager::TESTS).chain(pools::TESTS) {
        run(name, &mut || test());
    }
}
