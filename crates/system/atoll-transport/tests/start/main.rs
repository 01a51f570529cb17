//! Tests of jobs of real processes: started from a list of hosts on this machine, over a real sshd, in network namespaces and
//! under `mpirun`; with each process killed at any point.
//!
//! This program is also launcher, agent and node, by its first argument, and a test's processes are copies of it: `cargo test
//! -p atoll-transport --test start [-- NAME]`. A test that takes longer than two minutes is ended by SIGALRM.

#![allow(clippy::unwrap_used, reason = "tests")]

mod hosts;
mod jobs;
mod kills;
mod launcher;
mod local;
mod node;
mod nonsense;
#[path = "../shared/one_by_one.rs"]
mod one_by_one;
mod pmix;
mod ssh;

use crate::one_by_one::OneByOne;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.first().map(String::as_str) {
        Some("agent") => atoll_transport::start::agent_main(),
        Some("launch") => return launcher::main(&words[1..]),
        Some("node") => return node::main(&words[1..]),
        _ => {}
    }
    let tests: &[(&str, fn())] = &[
        ("three_nodes_exchange_in_many_rounds", local::three_nodes_exchange_in_many_rounds),
        ("arguments_and_environment_arrive_as_they_are", local::arguments_and_environment_arrive_as_they_are),
        (
            "a_program_that_speaks_at_once_was_started_before",
            local::a_program_that_speaks_at_once_was_started_before,
        ),
        ("what_nodes_print_arrives_whole_by_lines", local::what_nodes_print_arrives_whole_by_lines),
        ("a_closed_output_ends_the_job", local::a_closed_output_ends_the_job),
        ("standard_input_goes_to_node_0", local::standard_input_goes_to_node_0),
        ("a_node_that_fails_ends_the_job", local::a_node_that_fails_ends_the_job),
        ("a_node_that_ends_early_is_not_waited_for", local::a_node_that_ends_early_is_not_waited_for),
        ("what_cannot_start_says_why", local::what_cannot_start_says_why),
        ("a_login_shell_may_print", local::a_login_shell_may_print),
        ("no_secret_in_arguments_or_environment", local::no_secret_in_arguments_or_environment),
        ("what_an_agent_should_not_say_is_told", nonsense::what_an_agent_should_not_say_is_told),
        ("what_no_launcher_says_ends_an_agent", nonsense::what_no_launcher_says_ends_an_agent),
        ("a_child_of_a_node_is_no_node", local::a_child_of_a_node_is_no_node),
        ("what_is_left_of_a_login_holds_up_nothing", local::what_is_left_of_a_login_holds_up_nothing),
        ("a_killed_launcher_leaves_nothing", kills::a_killed_launcher_leaves_nothing),
        ("a_killed_agent_leaves_nothing", kills::a_killed_agent_leaves_nothing),
        ("a_killed_keeper_leaves_nothing", kills::a_killed_keeper_leaves_nothing),
        ("a_killed_program_leaves_nothing", kills::a_killed_program_leaves_nothing),
        ("a_signal_is_passed_on", kills::a_signal_is_passed_on),
        ("who_ignores_a_signal_is_killed", kills::who_ignores_a_signal_is_killed),
        ("namespaces_are_hosts_of_their_own", ssh::namespaces_are_hosts_of_their_own),
        ("ssh_starts_jobs_on_two_hosts", ssh::ssh_starts_jobs_on_two_hosts),
        ("ssh_that_fails_says_why", ssh::ssh_that_fails_says_why),
        ("killed_over_ssh_leaves_nothing", ssh::killed_over_ssh_leaves_nothing),
        ("mpirun_starts_four_nodes", pmix::mpirun_starts_four_nodes),
        ("mpirun_starts_nodes_on_two_hosts", pmix::mpirun_starts_nodes_on_two_hosts),
        ("a_node_that_does_not_come_is_a_timeout", pmix::a_node_that_does_not_come_is_a_timeout),
        ("a_starter_that_is_gone_is_an_error", pmix::a_starter_that_is_gone_is_an_error),
        ("a_library_that_is_missing_or_too_old_is_told", pmix::a_library_that_is_missing_or_too_old_is_told),
    ];
    let one_by_one = OneByOne::new(120);
    for (name, test) in tests {
        one_by_one.run(name, test);
    }
}
