//! Two nodes as two processes of one machine, with their name and spawning services, and the processes that use them.
//!
//! Services have threads, so it forks nothing: it runs itself again in other roles (`role.rs`), and so has no test harness:
//! `cargo test -p atoll-channel --test nodes [-- NAME]`. A test that takes longer than a minute is ended by SIGALRM.

#![allow(clippy::unwrap_used, reason = "tests")]

mod names;
mod role;

use std::time::Instant;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    // SAFETY: sets a timer; its signal ends the process. Every role has it too.
    unsafe { libc::alarm(60) };
    if role::play(&words) {
        return;
    }
    let tests: &[(&str, fn())] = &[
        ("a_name_is_found_across_nodes", names::a_name_is_found_across_nodes),
        ("levels_are_apart", names::levels_are_apart),
        ("a_name_registered_twice_says_by_whom", names::a_name_registered_twice_says_by_whom),
        ("a_look_up_that_nobody_answers_times_out", names::a_look_up_that_nobody_answers_times_out),
        ("a_look_up_waits_across_nodes", names::a_look_up_waits_across_nodes),
        ("entries_of_a_killed_owner_disappear", names::entries_of_a_killed_owner_disappear),
        ("entries_of_a_killed_node_disappear", names::entries_of_a_killed_node_disappear),
        ("without_node_0_local_names_go_on", names::without_node_0_local_names_go_on),
        ("a_watch_misses_nothing_or_says_so", names::a_watch_misses_nothing_or_says_so),
        ("pages_of_entries_are_whole", names::pages_of_entries_are_whole),
        ("strangers_do_no_harm", names::strangers_do_no_harm),
    ];
    let filter = words.iter().find(|word| !word.starts_with('-'));
    for (name, test) in tests {
        if filter.is_some_and(|filter| !name.contains(filter.as_str())) {
            continue;
        }
        // SAFETY: sets a timer; its signal ends the process.
        unsafe { libc::alarm(60) };
        let begin = Instant::now();
        test();
        println!("test {name} ... ok ({:.2} s)", begin.elapsed().as_secs_f64());
    }
}
