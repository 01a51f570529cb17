//! Programs on several nodes without OpenMP, libc's wrappers or a launcher: forked processes, each with an arena, a pager and an agent,
//! that write the same plain memory. What they leave is compared with one process's computation.
//!
//! It forks, so it has no test harness with its threads: `cargo test -p atoll-nodes --test plain_memory [-- WORD]` runs the tests whose
//! names have the word. `ATOLL_TEST_SEED` gives other random accesses. `cases` are the programs, `ends` those that do not end well.

#![allow(clippy::unwrap_used, reason = "tests")]

mod cases;
mod ends;
mod nodes;
mod program;

use std::time::Instant;

use atoll_memory::uffd::{Delivery, Uffd};

fn main() {
    let filter = std::env::args().skip(1).find(|word| !word.starts_with('-'));
    let missing = Uffd::open(Delivery::Signal).err();
    for (name, test) in cases::ALL.iter().chain(ends::ALL) {
        if filter.as_ref().is_some_and(|word| !name.contains(word.as_str())) {
            continue;
        }
        let begin = Instant::now();
        atoll_skips::begin(name);
        match missing {
            Some(e) => atoll_skips::whole(format_args!("no userfaultfd here: {e}")),
            None => test(),
        }
        println!("test {name} ... {} ({:.2} s)", atoll_skips::outcome(), begin.elapsed().as_secs_f64());
    }
}
