//! Model checking: every interleaving of small programs on two and three nodes, with real agents and the real tables.
//!
//! A program is a list of reads, writes and barriers for each node; the network keeps only the order of messages between two
//! nodes. In every state the checker verifies that no protocol step is impossible, no read is stale, and no page has two
//! writers outside regions of many writers. At every end it verifies that all programs ended, so that nothing deadlocks and no
//! write is lost.
#![allow(clippy::unwrap_used, reason = "tests")]

mod memory;
mod programs;
mod random;
mod system;

use stateright::{Checker, Model};

use programs::{PROGRAMS, Program};
use system::System;

/// Checks a program whose nodes cannot tell which pages nobody has used yet, and one whose nodes can.
fn check(program: &'static Program) -> usize {
    let states = |knows_untouched| {
        let mut system = System::new(program);
        system.knows_untouched = knows_untouched;
        let checker = system.checker().threads(2).spawn_bfs().join();
        checker.assert_properties();
        checker.unique_state_count()
    };
    states(false) + states(true)
}

#[test]
fn every_interleaving_of_every_program_is_right() {
    let mut all = 0;
    for program in PROGRAMS {
        let states = check(program);
        println!("{:<64} {states:>9} states", program.name);
        all += states;
    }
    println!("{all} states in all");
}

/// Runs as many random programs as take some seconds.
#[test]
fn every_interleaving_of_programs_nobody_thought_of_is_right() {
    let mut all = (0, 0);
    for program in
        random::all_short().chain(random::racing(60)).chain(random::in_regions(60)).chain(random::late(40))
    {
        all = (all.0 + 1, all.1 + check(program));
    }
    println!("{} programs, {} states", all.0, all.1);
}

/// Checks the checker: without invalidations, a read must be stale.
#[test]
fn a_broken_protocol_is_found() {
    let mut system = System::new(&PROGRAMS[0]);
    system.loses_invalidations = true;
    let checker = system.checker().spawn_bfs().join();
    assert!(checker.discovery("no read is stale").is_some());
}
