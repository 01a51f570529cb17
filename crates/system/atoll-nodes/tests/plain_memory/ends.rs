//! Programs that do not end well: a node that is killed ends the run with the status that is documented, and nothing hangs.

use std::time::Duration;

use atoll_memory::control::{EXIT_NODE, EXIT_SETUP};
use atoll_nodes::ask;
use atoll_nodes::region::SinglePhases;

use crate::cases::mix;
use crate::nodes::{Setup, Status, run, seed};
use crate::program::{Loop, Node, PAGE, Part, Words};

/// All nodes have ended after this long. Two seconds would do; machines are slow.
const LIMIT: Duration = Duration::from_secs(20);

/// All of them by name.
pub(crate) const ALL: &[(&str, fn())] = &[
    ("a_node_is_killed_in_a_region", || (2..=4).for_each(|nodes| gone(nodes, in_region))),
    ("a_node_is_killed_that_has_a_lock", || gone(3, with_a_lock)),
    ("a_node_is_killed_that_has_pages_of_others", || gone(3, with_pages)),
    ("a_node_is_killed_at_any_time", killed_at_any_time),
    ("the_origin_is_killed", || {
        let ends = run(Setup::of(3), LIMIT, |node| node.region(plain(origin_dies)));
        assert_eq!(ends[0], -libc::SIGKILL);
        // Whoever started the run says how it ended.
        assert!(ends[1..].iter().all(|end| [0, EXIT_NODE].contains(end)), "{ends:?}");
    }),
    ("a_worker_of_another_node_ends_the_program", || {
        let ends = run(Setup::of(3), LIMIT, |node| node.region(plain(node_1_exits)));
        assert_eq!(ends, [5, 0, 0]);
    }),
    ("a_node_says_what_only_the_origin_may", || {
        let ends = run(Setup::of(2), LIMIT, |node| node.region(plain(says_what_only_the_origin_may)));
        assert_eq!(ends[0], EXIT_NODE);
    }),
];

fn plain(part: Part) -> Loop {
    Loop { part, seed: 0, many: false, phases: SinglePhases::NONE }
}

fn die() {
    // SAFETY: no pointers.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
}

/// Node 1 of so many is killed: the origin ends with the status for that, and the others, who may hear of the origin's end before.
fn gone(nodes: u32, main: fn(&Node)) {
    let ends: Vec<Status> = run(Setup::of(nodes), LIMIT, main);
    assert_eq!((ends[0], ends[1]), (EXIT_NODE, -libc::SIGKILL), "{ends:?}");
    assert!(ends[2..].iter().all(|end| [0, EXIT_NODE].contains(end)), "{ends:?}");
}

/// One of three nodes is killed while they do nothing but change pages.
fn killed_at_any_time() {
    for turn in 0..8 {
        let random = mix(seed() ^ turn << 32);
        let kill = ((random % 3) as u32, Duration::from_micros(random >> 8 & 0x3_ffff));
        let setup = Setup { kill: Some(kill), ..Setup::of(3) };
        let ends = run(setup, LIMIT, without_end);
        assert_eq!(ends[kill.0 as usize], -libc::SIGKILL, "{ends:?}");
        // Nodes that had not met yet cannot be set up. The origin never ends well, as its program has no end.
        assert!(kill.0 == 0 || [EXIT_NODE, EXIT_SETUP].contains(&ends[0]), "{ends:?}");
    }
}

fn without_end(node: &Node) {
    for seed in 0.. {
        node.region(Loop { seed, many: seed.is_multiple_of(2), ..plain(change_pages) });
    }
}

fn change_pages(node: &Node, seed: u64) {
    let mut array = node.array(16 * PAGE);
    for at in (0..16 * PAGE).filter(|at| mix(seed ^ *at as u64) % 97 == u64::from(node.me)) {
        array.set(at, array.get(at) + 1);
    }
}

fn in_region(node: &Node) {
    node.region(plain(|_, _| ()));
    node.region(plain(|node, _| {
        if node.me == 1 {
            die();
        }
    }));
}

fn with_a_lock(node: &Node) {
    node.region(plain(|node, _| {
        if node.me == 1 {
            ask::lock(8);
        }
        ask::barrier(1, false);
        if node.me == 1 {
            die();
        }
        ask::lock(8);
        ask::unlock(8);
    }));
}

fn with_pages(node: &Node) {
    node.region(plain(|node, _| {
        let mut array = node.array(64 * PAGE);
        if node.me == 1 {
            (0..64).for_each(|page| array.set(page * PAGE, 1));
        }
        ask::barrier(1, false);
        if node.me == 1 {
            die();
        }
        (0..64).for_each(|page| array.set(page * PAGE + 1, array.get(page * PAGE)));
    }));
}

fn origin_dies(node: &Node, _: u64) {
    if node.me == 0 {
        die();
    }
}

fn node_1_exits(node: &Node, _: u64) {
    if node.me == 1 {
        ask::exit(5, false);
    }
}

fn says_what_only_the_origin_may(node: &Node, _: u64) {
    if node.me == 1 {
        ask::publish(1);
    }
}
