//! Tests of bulk transfer: one suite for all engines, and mishaps that each of them must survive.
//!
//! The program forks, so it cannot use the test harness with its threads: `cargo test -p atoll-channel --test bulk [-- NAME]`.
//! A test that takes longer than a minute is ended by SIGALRM.

#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "../../../atoll-transport/tests/shared/forked.rs"]
mod forked;
mod manager;
mod mishaps;
#[path = "../../../atoll-transport/tests/shared/one_by_one.rs"]
mod one_by_one;
mod pools;
mod remote;
mod rig;
mod suite;

use crate::forked::Child;
use crate::one_by_one::OneByOne;

fn main() {
    let one_by_one = OneByOne::new(60);
    for (name, make) in rig::all() {
        for (what, test) in suite::TESTS {
            one_by_one.run(&format!("{name}::{what}"), || test(&make));
        }
    }
    for (name, test) in mishaps::TESTS.iter().chain(manager::TESTS).chain(pools::TESTS) {
        one_by_one.run(name, test);
    }
    // The rigs' nodes are threads, so each rig has a process of its own; also, UCX is not made for forks.
    for (name, make) in remote::all() {
        for (what, test) in suite::TESTS {
            one_by_one.run(&format!("{name}::{what}"), || assert!(Child::run(|| test(&make)).ended_well()));
        }
    }
    for (name, test) in remote::TESTS {
        one_by_one.run(name, || assert!(Child::run(test).ended_well()));
    }
}
