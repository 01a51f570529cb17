//! Runs programs that check themselves, in every way of running them: their output and ending are as natively. Each is about
//! one of the design's traps, which its first comment names.

use std::path::Path;

use atoll_e2e::build::{atoll, built, helper, helper_with, installed};
use atoll_e2e::{Atoll, native, skip};

/// The settings in which programs run.
const WAYS: [&str; 8] = [
    "--workers 2 --page-tables private",
    "--workers 2 --page 64K --page-tables private",
    "--workers 3 --policy lru --far lz4 --page-tables private",
    "--workers 1 --policy fifo --page-tables private",
    "--workers 2 --page-tables shared",
    "--workers 2 --faults thread --page-tables private",
    "--workers 2 --page-tables shared --faults thread --page 64K",
    "--workers 4 --policy adaptive --far zstd --page-tables private",
];

/// Runs a helper with each of the settings and this much near memory, and compares; collects what differs.
#[track_caller]
fn everywhere(source: &str, arguments: &str, near: &str) {
    everywhere_with(source, arguments, near, &[]);
}

#[track_caller]
fn everywhere_with(source: &str, arguments: &str, near: &str, variables: &[(&str, &str)]) {
    everywhere_in(&std::env::temp_dir(), source, arguments, near, variables);
}

#[track_caller]
fn everywhere_in(parent: &Path, source: &str, arguments: &str, near: &str, variables: &[(&str, &str)]) {
    if source.ends_with("f90") && !installed("gfortran") {
        skip!("gfortran is not installed: apt-get install gfortran");
    }
    let program = helper(source);
    let set = |run: Atoll| variables.iter().fold(run, |run, (name, value)| run.env(name, value));
    let folder = || tempfile::tempdir_in(parent).expect("a folder");
    let alone = set(native(&program)).args(arguments).folder(folder().path()).run().clean();
    assert_eq!(alone.status, Some(0), "natively: {}", alone.told());
    let mut failed = Vec::new();
    for way in WAYS {
        let folder = folder();
        let run = set(Atoll::new(&program)).args(arguments).folder(folder.path());
        let run = run.with(&format!("--near {near} {way}")).run();
        let files: Vec<_> = std::fs::read_dir(folder.path()).expect("it is there").flatten().collect();
        let well = !run.timed_out && run.status == Some(0) && run.stdout == alone.stdout;
        if !well || !run.left.is_empty() || !files.is_empty() {
            failed.push(format!("left {:?} {files:?} {}", run.left, run.told()));
        }
    }
    assert!(failed.is_empty(), "{} of {} ways failed\n{}", failed.len(), WAYS.len(), failed.join("\n\n"));
}

macro_rules! as_natively {
    ($($test:ident $source:literal $arguments:literal $near:literal;)*) => {$(
        #[test]
        fn $test() {
            everywhere($source, $arguments, $near);
        }
    )*};
}

as_natively! {
    threadprivate "threadprivate.c" "" "16M";
    stacks "stacks.c" "" "12M";
    stacks_deep_on_every_worker "stacks.c" "6000" "64M";
    nested_regions "nested.c" "" "12M";
    tasks "tasks.c" "" "16M";
    heap "heap.c" "" "20M";
    mapping "mapping.c" "" "11M";
    blocks_where_freed_ones_lay "temporaries.c" "" "12M";
    blocks_where_freed_ones_lay_and_near_memory_has_room "temporaries.c" "" "1G";
    // Blocks of at most eight bytes were aligned to eight.
    small_blocks_were_not_aligned "alignments.cc" "" "24M";
    breaks "breaks.c" "" "24M";
    teams_larger_than_workers "teams.c" "" "16M";
    libc_state "settings.c" "" "12M";
    small_globals "small_globals.c" "" "16M";
    files_and_arrays_larger_than_near "files.c" "." "16M";
    children "children.c" "" "12M";
    // Two workers' mappings lay at one address, and one replaced the other.
    files_mapped_by_several_workers "file_maps.c" "" "16M";
    cpp_objects "objects.cc" "" "32M";
    fortran_commons "common.f90" "" "16M";
    // Regions begun by such threads lost what lay on their stacks, and workers died with the thread that had started them.
    threads_of_the_programs_own "threads_of_its_own.c" "" "48M";
    // Pages of 64K that a mapping's end divides could not be mapped, code could not be executed, and stacks belonged to one
    // worker.
    mappings_that_are_not_plain_memory "divided_mappings.c" "" "16M";
    // MAP_FIXED_NOREPLACE failed where the program had unmapped memory, and blocks came to lie where it had mapped with MAP_FIXED.
    memory_could_not_be_mapped_where_it_was_unmapped "mapped_where_unmapped.c" "" "16M";
    // `mprotect` did nothing, so that nobody learned of a write, and no guard stopped anybody.
    protections_did_nothing "dirty_tracking.c" "" "30M";
    protections_of_guards_and_lazy_arrays_did_nothing "lazy_arrays.c" "" "36M";
    // A target region read through an argument that was not there.
    absent_optional_arguments "absent_optional.f90" "" "12M";
    // Stacks were not executable.
    code_on_stacks "code_on_stacks.c" "" "16M";
    internal_procedures "internal_procedures.f90" "" "16M";
}

/// Large arrays on stacks stay near, beside near memory that is smaller than they are.
#[test]
fn large_arrays_on_stacks() {
    let program = helper("arrays_on_stacks.c");
    let alone = native(&program).env("OMP_STACKSIZE", "64M").run().exits(0);
    for way in ["--page-tables shared", "--page-tables private"] {
        let run =
            Atoll::new(&program).with(way).with("--near 32M").env("OMP_STACKSIZE", "64M").run().exits(0);
        assert_eq!(run.text(), alone.text(), "{}", run.told());
    }
}

#[test]
fn teams_of_more_than_256() {
    let program = helper("large_team.c");
    for (team, way) in [
        ("300", "--near 48M --policy cmcp --page 64K --page-tables private"),
        ("300", "--near 48M --page-tables shared"),
        ("1000", "--near 1G --far lz4 --page-tables private"),
    ] {
        let run = Atoll::new(&program).arg(team).with(way).run().clean();
        assert_eq!(run.text(), format!("{team} of {team}, wrong 0\n"), "{}", run.told());
    }
    let run = Atoll::new(&program).arg("1100").no_summary().run().clean();
    assert!(run.status != Some(0) && run.stderr.contains("1024"), "{}", run.told());
}

/// A clause without elements asked for petabytes, a pool never had its memory back from `omp_null_allocator`, and a block that grew needed
/// room in the pool for both the old one and the new.
#[test]
fn details_of_the_standard() {
    everywhere_with("omp_details.c", "", "16M", &[("OMP_ALLOCATOR", "omp_high_bw_mem_alloc")]);
}

#[test]
fn stack_size_of_workers() {
    everywhere_with("stacks.c", "20000", "128M", &[("OMP_STACKSIZE", "64M")]);
}

#[test]
fn libraries_loaded_before_the_first_region() {
    let library = helper_with("library.c", &["-shared", "-fPIC"]);
    everywhere("loading.c", &format!("{} early", library.display()), "48M");
}

/// Workers that existed crashed in such a library's thread-local variables, and in exceptions through it.
#[test]
fn libraries_loaded_closed_and_loaded_again_while_workers_exist() {
    let library = helper_with("late_library.cc", &["-shared", "-fPIC"]);
    let folder = tempfile::tempdir().expect("a folder");
    let other = folder.path().join("other.so");
    std::fs::copy(&library, &other).expect("a copy of the library");
    let arguments = format!("{} {}", library.display(), other.display());
    everywhere("late_loading.c", &arguments, "32M");
    let run = Atoll::new(helper("late_loading.c")).args(&arguments).with("--nodes 2 --workers 4").run();
    assert_eq!(run.exits(0).text(), "all well\n");
}

/// The dynamic linker's list of libraries with thread-local variables lay, in one run of forty, in another mapping than its
/// descriptions of libraries: workers did not get it, and crashed in a late library's variables.
#[test]
fn the_linkers_list_of_thread_local_variables_lay_elsewhere() {
    let library = helper_with("late_library.cc", &["-shared", "-fPIC"]);
    let folder = tempfile::tempdir().expect("a folder");
    let other = folder.path().join("other.so");
    std::fs::copy(&library, &other).expect("a copy of the library");
    let arguments = format!("{} {}", library.display(), other.display());
    for length in 0..30 {
        // What the dynamic linker keeps of the search path moves what it makes behind it.
        let path = format!("/nothing/{}:/nothing/here", "a".repeat(length * 30));
        let run = Atoll::new(helper("late_loading.c")).args(&arguments).env("LD_LIBRARY_PATH", path);
        run.with("--workers 3").run().exits(0);
    }
}

/// Checks that every line is there, whole; their order is a race.
fn lines_are_all_there(source: &str, arguments: &str) {
    let program = helper(source);
    let sorted = |text: String| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let folder = tempfile::tempdir().expect("a folder");
    let expected = sorted(native(&program).args(arguments).folder(folder.path()).run().exits(0).text());
    for way in WAYS {
        let run = Atoll::new(&program).args(arguments).folder(folder.path()).with("--near 16M").with(way);
        let run = run.run().exits(0);
        let got = sorted(run.text());
        let missing: Vec<_> = expected.iter().filter(|line| !got.contains(line)).take(5).collect();
        let torn: Vec<_> = got.iter().filter(|line| !expected.contains(line)).take(5).collect();
        assert!(got == expected, "missing {missing:?}, torn {torn:?}\n{}", run.told());
    }
}

#[test]
fn every_worker_prints() {
    lines_are_all_there("print.c", "20 50");
}

/// The kernel maps files in memory at other addresses than those on a disk: there a program's file took the place of a
/// worker's io_uring.
#[test]
fn files_in_memory_and_arrays_larger_than_near() {
    let parent = Path::new("/dev/shm");
    if !parent.is_dir() {
        skip!("there is no /dev/shm");
    }
    everywhere_in(parent, "files.c", ".", "16M", &[]);
}

/// The end of a line came behind another worker's line where workers are threads.
#[test]
fn puts_is_not_torn() {
    lines_are_all_there("puts.c", "8000");
}

#[test]
fn every_worker_prints_in_fortran() {
    if !installed("gfortran") {
        skip!("gfortran is not installed: apt-get install gfortran");
    }
    lines_are_all_there("writes.f90", ".");
}

#[test]
fn far_more_memory_than_there_is() {
    let program = helper("overcommit.c");
    for way in WAYS {
        let run = Atoll::new(&program).with("--near 16M").with(way).run().exits(0);
        assert!(run.text().contains("all well"), "{}", run.told());
    }
}

/// Small blocks were pinned, whatever their number, so that most of such a program's data stayed near.
#[test]
fn small_blocks_are_paged_when_they_are_many() {
    let program = helper("rows.c");
    for way in [
        "--workers 2 --page-tables private",
        "--workers 3 --page 64K --page-tables private",
        "--workers 2 --page-tables shared",
        "--faults thread --page-tables private",
    ] {
        let run = Atoll::new(&program).with("--near 16M").with(way).run().exits(0);
        assert!(run.text().contains("all well"), "{}", run.told());
        let pinned = run.figure("memory/pinned_peak_bytes");
        let near = run.figure("memory/resident_peak_bytes") + pinned + run.figure("memory/table_bytes");
        assert!(run.figure("memory/footprint_peak_bytes") > 40 << 20, "{}", run.told());
        assert!(pinned < 6 << 20 && near < 19 << 20, "{pinned} {near}: {}", run.told());
    }
}

/// Blocks of fewer than 16 bytes stayed near, whatever their number: a program that had more of them than the limit ended in its midst.
#[test]
fn tiny_blocks_were_never_paged() {
    let program = helper("tiny_blocks.c");
    for way in ["--workers 2 --page-tables private", "--workers 2 --page-tables shared"] {
        let run = Atoll::new(&program).with("--near 9M").with(way).run().exits(0);
        assert!(run.text().contains("all well"), "{}", run.told());
    }
}

/// The arena's many mappings were read as one text, which pinned a megabyte.
#[test]
fn a_small_program_pins_little() {
    let run = Atoll::new(helper("plain.c")).with("--workers 2").run().exits(0);
    assert!(run.figure("memory/pinned_peak_bytes") < 800 << 10, "{}", run.told());
}

/// Each step's arrays were new memory: a hydrodynamics program took twice its native time with all data near.
#[test]
fn temporary_arrays_were_made_anew_in_every_step() {
    let program = helper("temporaries.c");
    let brought = |steps: &str| {
        let run = Atoll::new(&program).args(&format!("{steps} reuse")).with("--workers 2").run().exits(0);
        run.figure("total/first_faults")
    };
    let (few, many) = (brought("5"), brought("50"));
    assert!(few > 100 && many < 2 * few, "{few} faults on new pages in 5 steps, {many} in 50");
}

#[test]
fn allocating_and_freeing_does_not_grow() {
    let program = helper("churn.c");
    for way in [
        "--workers 2 --page-tables private",
        "--workers 2 --page 64K --page-tables private",
        "--workers 2 --page-tables shared",
    ] {
        let peaks = |seconds: &str| {
            let run = Atoll::new(&program).arg(seconds).with("--near 24M").with(way).run().exits(0);
            (run.figure("memory/footprint_peak_bytes"), run.figure("memory/pinned_peak_bytes"), run)
        };
        let (touched, pinned, _) = peaks("1");
        let (touched_later, pinned_later, run) = peaks("4");
        let mib = 1 << 20;
        assert!(
            pinned_later < pinned * 3 / 2 + 4 * mib,
            "pinned grew from {pinned} to {pinned_later}: {}",
            run.told()
        );
        assert!(
            touched_later < touched * 3 / 2 + 8 * mib,
            "from {touched} to {touched_later}: {}",
            run.told()
        );
    }
}

/// `fork` failed in programs with OpenMP; `forks.rs` has more.
#[test]
fn fork_is_refused_or_right() {
    let program = helper("forks.c");
    for way in WAYS {
        Atoll::new(&program).with("--near 12M").with(way).run().exits(0);
    }
}

#[test]
fn a_record_tells_which_regions_fault() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("record");
    let options = format!("--near 5M --workers 2 --record {}", file.display());
    let run = Atoll::new(built("stencil")).args("S --iterations 2").with(&options).run().exits(0);
    let shown =
        std::process::Command::new(atoll()).args(["show", "--json"]).arg(&file).output().expect("it runs");
    let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).expect("JSON");
    let regions = shown["figures"]["regions"].as_array().expect("a list");
    let sum = |name: &str| regions.iter().filter_map(|region| region[name].as_u64()).sum::<u64>();
    assert!(
        regions.iter().any(|region| region["name"].as_str().is_some_and(|name| name.contains("_omp_fn"))),
        "{shown}"
    );
    assert!(sum("entered") > 0 && sum("major_faults") > 0, "{shown}");
    assert!(sum("major_faults") <= run.figure("total/major_faults"), "{shown}");
}

/// Each of these calls made four system calls to keep the object's page near and let it go: HNSW's index with a mutex for each vector took four times
/// its native time, all data near.
#[test]
fn locks_that_nobody_waits_for_made_system_calls() {
    let program = helper("free_locks.c");
    for (tables, argument) in [("shared", "threads"), ("private", "processes")] {
        for near in ["200M", "2M"] {
            let way = format!("--workers 2 --near {near} --page-tables {tables}");
            let run = Atoll::new(&program).arg(argument).with(&way).run().exits(0);
            assert_eq!(run.text().trim(), "0 wrong", "{}", run.told());
        }
    }
}

/// Programs that change their user were ended by glibc's signal for it, or waited for ever for workers that they may no longer end.
#[test]
fn a_change_of_user_ended_the_program() {
    everywhere("changes_user.c", "", "12M");
}
