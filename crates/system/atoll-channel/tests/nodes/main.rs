//! Tests of two nodes as two processes of one machine, with their name and spawning services, and the processes that use them.
//!
//! Services have threads, so the program cannot fork: it runs itself again in other roles (`role.rs`), and so has no test
//! harness: `cargo test -p atoll-channel --test nodes [-- NAME]`. A test that takes longer than a minute is ended by SIGALRM.

#![allow(clippy::unwrap_used, reason = "tests")]

mod across;
mod hosts;
mod names;
#[path = "../../../atoll-transport/tests/shared/one_by_one.rs"]
mod one_by_one;
mod role;
mod spawning;

use crate::one_by_one::OneByOne;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    // SAFETY: sets a timer, whose signal ends the process. Every role has one, too.
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
        ("an_event_rouses_two_hundred_waiters", names::an_event_rouses_two_hundred_waiters),
        ("entries_of_a_killed_owner_disappear", names::entries_of_a_killed_owner_disappear),
        ("entries_of_a_killed_node_disappear", names::entries_of_a_killed_node_disappear),
        ("without_node_0_local_names_go_on", names::without_node_0_local_names_go_on),
        ("a_node_0_that_hangs_holds_up_no_local_names", names::a_node_0_that_hangs_holds_up_no_local_names),
        ("clients_killed_at_random_leave_nothing", names::clients_killed_at_random_leave_nothing),
        ("a_watch_misses_nothing_or_says_so", names::a_watch_misses_nothing_or_says_so),
        ("pages_of_entries_are_whole", names::pages_of_entries_are_whole),
        ("strangers_do_no_harm", names::strangers_do_no_harm),
        ("a_program_runs_on_either_node", spawning::a_program_runs_on_either_node),
        ("what_cannot_start_is_one_clear_error", spawning::what_cannot_start_is_one_clear_error),
        ("a_worker_on_node_1_gets_a_capability", spawning::a_worker_on_node_1_gets_a_capability),
        ("a_capability_can_come_later", spawning::a_capability_can_come_later),
        ("a_worker_reaches_memory_that_it_was_given", spawning::a_worker_reaches_memory_that_it_was_given),
        ("a_grandchild_is_not_taken_for_a_child", spawning::a_grandchild_is_not_taken_for_a_child),
        ("a_killed_process_takes_its_group_along", spawning::a_killed_process_takes_its_group_along),
        ("what_somebody_ordered_ends_with_him", spawning::what_somebody_ordered_ends_with_him),
        ("no_child_survives_its_service", spawning::no_child_survives_its_service),
        ("only_what_was_started_can_be_killed", spawning::only_what_was_started_can_be_killed),
        ("both_nodes_order_from_each_other_at_once", spawning::both_nodes_order_from_each_other_at_once),
        ("names_and_programs_reach_the_other_node", across::names_and_programs_reach_the_other_node),
        ("a_killed_node_1_is_told_at_node_0", across::a_killed_node_1_is_told_at_node_0),
        ("a_killed_node_0_is_told_at_node_1", across::a_killed_node_0_is_told_at_node_1),
    ];
    let one_by_one = OneByOne::new(60);
    for (name, test) in tests {
        one_by_one.run(name, test);
    }
}
