//! Runs programs of `tests/openmp` that synchronise by instructions of their own, or call the system from all workers, under
//! `atoll run`: with all the memory they ask for, and with less than their arrays need.

use atoll_e2e::build::openmp;
use atoll_e2e::{Atoll, native};

/// The settings with enough memory, at a program's own size.
const ROOMY: [&str; 5] = [
    "--workers 1 --page-tables private",
    "--workers 2 --page-tables private",
    "--workers 3 --page-tables private",
    "--workers 5 --page 64K --page-tables private",
    "--workers 2 --page-tables shared --faults thread",
];

/// The settings with little memory, at a larger size.
const TIGHT: [&str; 5] = [
    "--workers 2 --page-tables private",
    "--workers 3 --policy fifo --far ram --page-tables private",
    "--workers 4 --policy lru --far lz4 --page 64K --page-tables private",
    "--workers 2 --faults thread --far ram --page-tables private",
    "--workers 3 --page-tables shared --far ram",
];

/// Runs a program at its own size with the roomy settings, and at `size` with `near` and the tight settings.
#[track_caller]
fn everywhere(source: &str, size: &str, near: &str) {
    let program = openmp(source);
    for arguments in ["", size] {
        native(&program).args(arguments).run().exits(0);
    }
    let roomy = ROOMY.map(|way| ("", way.to_owned()));
    let tight = TIGHT.map(|way| (size, format!("--near {near} {way}")));
    let mut failed = Vec::new();
    for (arguments, way) in roomy.into_iter().chain(tight) {
        let run = Atoll::new(&program).args(arguments).with(&way).run();
        if run.timed_out || run.status != Some(0) || !run.left.is_empty() {
            failed.push(format!("left {:?} {}", run.left, run.told()));
        }
    }
    let ways = ROOMY.len() + TIGHT.len();
    assert!(failed.is_empty(), "{} of {ways} ways failed\n{}", failed.len(), failed.join("\n\n"));
}

macro_rules! as_natively {
    ($($test:ident $source:literal $size:literal $near:literal;)*) => {$(
        #[test]
        fn $test() {
            everywhere($source, $size, $near);
        }
    )*};
}

as_natively! {
    no_atomic_update_is_lost "atomic_histogram.c" "300000" "4M";
    graphs_by_compare_and_swap "graph_cas.c" "45000" "5M";
    flags_in_a_pipeline "flag_pipeline.c" "160" "6M";
    locks_written_by_hand "hand_locks.c" "4000" "4M";
    objects_made_once "once.c" "12000" "6M";
    extrema_by_compare_and_swap "atomic_extrema.c" "800000" "4M";
    exit_by_the_last_worker "leaving.c" "500000" "4M";
    exceptions_inside_regions "exceptions.cc" "2000" "4M";
    printing_by_all_workers "printing.c" "1000" "4M";
    reading_by_all_workers "reading.c" "12000" "4M";
    // In a worker of its own process, `getppid` named the program itself.
    one_process_with_one_clock "identity.c" "2000" "4M";
}

/// Scratch memory counts against near memory once it was used. Each worker used all of its own when near memory shrank, by which near memory shrank
/// further: "near is less than what must stay near", in one run of five.
#[test]
fn scratch_memory_took_a_third_of_a_small_near_memory() {
    let way = "--near 6M --workers 4 --policy lru --far lz4 --page 64K --page-tables private";
    for _ in 0..3 {
        let run = Atoll::new(openmp("reading.c")).args("12000").with(way).run();
        let tables = run.exits(0).figure("memory/table_bytes");
        // 544K is used whatever the limit is, and two pages of 64K by each worker at most.
        assert!(tables < 1_060 << 10, "{tables}");
    }
}
