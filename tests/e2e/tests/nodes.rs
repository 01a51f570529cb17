//! Tests programs on several nodes that share no memory: the right answer under every protocol, or one clear sentence; and the
//! end of every node when one of them ends.
//!
//! Tests that take long are ignored here, and `make stress-nodes` runs them.

use std::time::{Duration, Instant};

use atoll_e2e::build::{helper, helper_with, openmp, root};
use atoll_e2e::random::Random;
use atoll_e2e::workloads::{PROGRAMS, checksum};
use atoll_e2e::{Atoll, Outcome, built, native, skip, skip_part, soak};

/// The protocols, mostly with regions that stay spread: on the origin alone nothing has to be kept coherent.
const PROTOCOLS: [&str; 7] = [
    "--consistency smart --prefetch on --home-alone off",
    "--consistency sc --prefetch off --home-alone off",
    "--consistency mw --prefetch on --home-alone off",
    "--consistency smart --prefetch off --home-alone off",
    "--consistency mw --prefetch off --home-alone off",
    "--consistency sc --prefetch on --home-alone off",
    "--consistency smart --prefetch on",
];
/// The sentence of a node that meets a construct which it cannot spread.
const REFUSED: &str = "cannot be spread over several nodes";
/// The time after which no further workload is begun: what is left out is written down as not run, and `make stress-nodes` runs
/// all.
const WORKLOADS: Duration = Duration::from_secs(40);
/// The most seconds that the other nodes may outlive one, with room for a busy machine.
const SOON: f64 = 5.0;

/// Runs a workload's class S; returns what is wrong, if anything is.
fn workload(program: &str, way: &str) -> Option<String> {
    workload_of("S", program, way)
}

/// Runs a workload of another class; returns what is wrong, if anything is.
fn workload_of(class: &str, program: &str, way: &str) -> Option<String> {
    let right = checksum(&native(built(program)).arg(class).run().exits(0).text());
    let run = Atoll::new(built(program)).arg(class).with(way).limit(100).run();
    let well = run.status == Some(0) && run.text().contains("Verification: successful");
    (!well || checksum(&run.text()) != right || !run.left.is_empty())
        .then(|| format!("left {:?}, expected {right:?}: {}", run.left, run.told()))
}

#[track_caller]
fn none(failed: &[String]) {
    assert!(failed.is_empty(), "{} failed\n{}", failed.len(), failed.join("\n\n"));
}

/// The numbers of so many sockets did not fit where the runtime looks for them, and 16 nodes were the most.
#[test]
fn a_run_on_more_than_sixteen_nodes_was_refused() {
    let ways = ["--nodes 40 --workers 40 --home-alone off", "--nodes 64 --workers 64"];
    let wrong: Vec<String> = ways.iter().filter_map(|way| workload("cg", way)).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// What the examination of the regions' code allocated stayed in pinned memory, 4.5M of it: most of a small near memory.
#[test]
fn the_examination_of_code_took_near_memory_for_ever() {
    let run = Atoll::new(built("cg")).arg("S").with("--near 16M --nodes 2 --workers 2").run();
    let pinned = run.exits(0).figure("memory/pinned_bytes");
    assert!(pinned < 4 << 20, "{pinned}");
}

/// Who locked a mutex whose owner had ended waited for ever.
#[test]
fn robust_mutexes_whose_owner_ended_were_never_free() {
    let program = helper("robust.c");
    let alone = native(&program).run().exits(0);
    for way in ["--nodes 2 --workers 2 --home-alone off", "--nodes 2 --workers 2", "--near 16M"] {
        let run = Atoll::new(&program).with(way).limit(60).run().exits(0);
        assert_eq!(run.text(), alone.text(), "{}", run.told());
    }
}

/// Blocks of at most eight bytes were aligned to eight, and what an allocator's pool has room for is known on one node.
#[test]
fn small_blocks_were_not_aligned_and_pools_had_no_room_for_growth() {
    for source in ["alignments.cc", "omp_details.c"] {
        let program = helper(source);
        let alone = native(&program).run().exits(0);
        let run = Atoll::new(&program).with("--nodes 2 --workers 2 --home-alone off").run().exits(0);
        assert_eq!(run.text(), alone.text(), "{}", run.told());
    }
}

#[test]
fn workloads_of_class_s() {
    let began = Instant::now();
    let mut failed = Vec::new();
    for (i, program) in PROGRAMS.iter().enumerate() {
        let nodes = 2 + i % 3;
        let way = format!("--nodes {nodes} --workers {nodes} {}", PROTOCOLS[i % PROTOCOLS.len()]);
        if began.elapsed() > WORKLOADS {
            skip_part!("{program} {way}: the programs before it took {} s", WORKLOADS.as_secs());
            continue;
        }
        failed.extend(workload(program, &way));
    }
    none(&failed);
}

/// A page that a node had lost before was freed as it was taken, and zeros were sent: only behind some 65,000 pages that changed
/// hands, which of all programs only sp has, with one writer a page, and not in class S.
#[test]
fn pages_that_change_hands_very_often() {
    let one = "--nodes 2 --workers 2 --consistency sc --home-alone off";
    none(&workload_of("W", "sp", one).into_iter().collect::<Vec<_>>());
}

#[test]
#[ignore = "many minutes"]
fn workloads_of_class_w() {
    let mut failed = Vec::new();
    // Workloads that go at random through memory that all nodes share take many minutes.
    for program in ["ep", "cg", "bt", "sp", "blackscholes", "lavamd", "lud", "hotspot", "kmeans"] {
        for protocol in PROTOCOLS {
            failed.extend(workload_of("W", program, &format!("--nodes 2 --workers 2 {protocol}")));
        }
    }
    none(&failed);
}

#[test]
#[ignore = "many minutes"]
fn workloads_of_class_s_in_all_ways() {
    let mut failed = Vec::new();
    for program in PROGRAMS {
        for nodes in 1..=4 {
            for protocol in PROTOCOLS {
                for workers in [nodes, 2 * nodes + 1] {
                    failed.extend(workload(
                        program,
                        &format!("--nodes {nodes} --workers {workers} {protocol}"),
                    ));
                }
            }
        }
    }
    none(&failed);
}

/// Each node has less near memory than its part of the program's pages takes.
#[test]
fn little_near_memory_on_each_node() {
    let mut failed = Vec::new();
    for (program, far) in [("cg", "ram"), ("sp", "lz4"), ("hotspot", "file"), ("kmeans", "zstd")] {
        let alone = Atoll::new(built(program)).arg("S").with("--nodes 2 --workers 2").run().exits(0);
        let footprint = alone.figure("memory/footprint_peak_bytes");
        let pinned = alone.figure("memory/pinned_peak_bytes");
        let near = pinned + (footprint / 2).max(512 << 10) + (512 << 10);
        failed.extend(workload(program, &format!("--nodes 2 --workers 2 --near {near} --far {far}")));
    }
    none(&failed);
}

/// The edges of variables that do not fill a large page belonged to each node alone: programs went on with wrong values.
#[test]
fn large_pages_are_refused() {
    for page in ["64K", "2M"] {
        let run =
            Atoll::new(built("ep")).arg("S").with(&format!("--nodes 2 --workers 2 --page {page}")).run();
        if run.stderr.contains("huge pages") {
            skip!("no pages of 2M to be had");
        }
        assert_eq!(run.exits(70).says("pages are 4K").stderr.matches("pages are 4K").count(), 1);
    }
}

/// Returns the environment of a program of `tests/openmp`: its `// env:` line.
fn variables(source: &str) -> Vec<(String, String)> {
    let text =
        std::fs::read_to_string(root().join("tests/openmp").join(source)).expect("the source is there");
    let line = text.lines().find_map(|line| line.strip_prefix("// env: ")).unwrap_or_default().to_owned();
    let pair = |word: &str| word.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
    line.split_whitespace().filter_map(pair).collect()
}

/// Runs a program of `tests/openmp`: it is right, or refused with the one sentence.
fn construct(source: &str, way: &str) -> Option<String> {
    // Every turn of a lock moves its page, so there are fewer turns than where memory is shared.
    let size = if source == "hand_locks.c" { "300" } else { "" };
    let run = Atoll::new(openmp(source)).args(size).with(way).limit(90);
    let run = variables(source).iter().fold(run, |run, (name, value)| run.env(name, value)).run();
    let refused = run.status == Some(70) && run.stderr.contains(REFUSED);
    ((run.status != Some(0) && !refused) || run.timed_out || !run.left.is_empty())
        .then(|| format!("left {:?} {}", run.left, run.told()))
}

#[test]
fn every_construct() {
    let mut failed = Vec::new();
    let sources = std::fs::read_dir(root().join("tests/openmp")).expect("the folder is there");
    let names = sources.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<_> = names.filter(|name| !name.ends_with(".h")).collect();
    names.sort();
    // Threads of other nodes than the first have no place yet where a node has several: see `programs_that_run_over_the_nodes`.
    let compiled = |name: &&String| !name.ends_with(".f90") || atoll_e2e::build::installed("gfortran");
    for source in names.iter().filter(compiled).filter(|name| *name != "routines.c") {
        for workers in [2, 4] {
            failed.extend(construct(source, &format!("--nodes 2 --workers {workers}")));
        }
    }
    none(&failed);
}

/// Values that threads set by keys in one region were lost in the next one in some runs: that one ran on the origin alone, to measure it, where
/// the team's threads are others.
#[test]
fn values_of_keys_were_lost_between_regions() {
    none(&(0..10).filter_map(|_| construct("keys.c", "--nodes 2 --workers 2")).collect::<Vec<_>>());
}

/// Idle nodes execute other nodes' tasks. As this was made, nodes waited for each other's tasks, a node did not come back to a barrier
/// that it had left for a task, workers began their heaps on stacks that nodes share, and a node with one worker had no reductions.
#[test]
fn tasks_travel() {
    let mut failed = Vec::new();
    for way in
        ["--nodes 2 --workers 2", "--nodes 2 --workers 4", "--nodes 3 --workers 3", "--nodes 3 --workers 6"]
    {
        for source in ["travel.c", "tasks.c"] {
            failed.extend(construct(source, &format!("{way} --home-alone off")));
        }
    }
    none(&failed);
    let run = Atoll::new(openmp("travel.c")).with("--nodes 2 --workers 2 --home-alone off").run().exits(0);
    assert!(run.figure("nodes/1/tasks") > 0, "{}", run.told());
}

#[test]
#[ignore = "minutes"]
fn tasks_travel_again_and_again() {
    let (mut failed, mut random) = (Vec::new(), Random(17));
    for _ in 0..100 {
        let nodes = 2 + random.below(3);
        let workers = nodes * (1 + random.below(3));
        let alone = random.pick(&["", "--home-alone off"]);
        let source = random.pick(&["travel.c", "tasks.c"]);
        failed.extend(construct(source, &format!("--nodes {nodes} --workers {workers} {alone}")));
    }
    none(&failed);
}

/// Programs that synchronise by instructions and not by calls, which must be right under every protocol.
const INLINE: [&str; 7] = [
    "atomic_histogram.c",
    "graph_cas.c",
    "flag_pipeline.c",
    "hand_locks.c",
    "once.c",
    "atomic_extrema.c",
    "phases.c",
];

/// Each node ran the script, and what it did was done several times.
#[test]
fn a_script_was_run_by_every_node() {
    let right = checksum(&native(built("cg")).arg("S").run().exits(0).text());
    let folder = tempfile::tempdir().expect("a folder");
    let script = folder.path().join("script.sh");
    let text = format!(
        "echo begins >> log; mkdir made && cd made; X=1 {} S; status=$?; echo ends >> ../log; exit $status\n",
        built("cg").display()
    );
    std::fs::write(&script, text).expect("written");
    for way in ["--nodes 2 --workers 2", "--nodes 3 --workers 6 --home-alone off"] {
        let _ = std::fs::remove_dir(folder.path().join("made"));
        let _ = std::fs::remove_file(folder.path().join("log"));
        let run = Atoll::new("sh").arg("-c").arg(format!("cd {}; . ./script.sh", folder.path().display()));
        let run = run.with(way).limit(100).run();
        assert_eq!((run.status, checksum(&run.text())), (Some(0), right.clone()), "{}", run.told());
        assert!(run.left.is_empty(), "{:?}", run.left);
        let log = std::fs::read_to_string(folder.path().join("log")).expect("written");
        assert_eq!(log, "begins\nends\n", "{way}: {}", run.told());
    }
    // Nobody is managed, and nobody waits for other nodes.
    let run = Atoll::new("sh").arg("-c").arg("echo once").with("--nodes 2").run();
    assert_eq!((run.status, run.text().as_str()), (Some(0), "once\n"), "{}", run.told());
}

#[test]
fn keys_made_in_regions_were_unknown_elsewhere() {
    let way = |nodes: u32| format!("--nodes {nodes} --workers {} --home-alone off", 2 * nodes);
    none(&[2, 3].into_iter().filter_map(|nodes| construct("keys.c", &way(nodes))).collect::<Vec<_>>());
}

fn inline_synchronisation(runs: u64) {
    let (mut failed, mut random) = (Vec::new(), Random(runs));
    for source in INLINE {
        for _ in 0..runs {
            let nodes = 2 + random.below(3);
            let workers = nodes + random.below(3);
            let protocol = random.pick(&PROTOCOLS);
            failed.extend(construct(source, &format!("--nodes {nodes} --workers {workers} {protocol}")));
        }
    }
    none(&failed);
}

#[test]
fn synchronisation_by_instructions() {
    inline_synchronisation(1);
}

#[test]
#[ignore = "minutes"]
fn synchronisation_by_instructions_again_and_again() {
    inline_synchronisation(20);
}

/// Programs that test no single construct: each runs over the nodes, and is not refused.
#[test]
fn programs_that_run_over_the_nodes() {
    let fortran = if atoll_e2e::build::installed("gfortran") { "fortran.f90" } else { "routines.c" };
    let mut failed = Vec::new();
    for source in ["routines.c", "printing.c", "identity.c", "exceptions.cc", "racing.c", fortran] {
        let run = Atoll::new(openmp(source)).with("--nodes 2 --workers 2").limit(60);
        let run = variables(source).iter().fold(run, |run, (name, value)| run.env(name, value)).run();
        if run.status != Some(0) || !run.left.is_empty() {
            failed.push(run.told());
        }
    }
    none(&failed);
}

/// A race leaves one of the values stored, whole, and its neighbours alone.
#[test]
fn a_race_leaves_one_value() {
    let mut failed = Vec::new();
    for nodes in 2..=3 {
        for protocol in PROTOCOLS {
            failed.extend(construct("racing.c", &format!("--nodes {nodes} --workers {nodes} {protocol}")));
        }
    }
    none(&failed);
}

/// Returns a list of the summary's.
fn list(run: &Outcome, path: &str) -> Vec<serde_json::Value> {
    let list =
        run.summary.as_ref().and_then(|summary| summary.pointer(path)).and_then(|list| list.as_array());
    list.cloned().unwrap_or_default()
}

/// `--check races` names the words that two nodes wrote, and only them.
#[test]
fn races_are_found() {
    let program = openmp("racing.c");
    for nodes in [2, 3] {
        let way = format!("--check races --nodes {nodes} --workers {nodes}");
        let clean = Atoll::new(&program).arg("clean").with(&way).run().exits(0);
        assert!(list(&clean, "/races/words").is_empty(), "{}", clean.told());
        assert!(clean.figure("races/checked_regions") >= 20);
        let racing = Atoll::new(&program).with(&way).run().exits(0);
        let words = list(&racing, "/races/words");
        assert!(!words.is_empty(), "{}", racing.told());
        for race in &words {
            assert_eq!(race["variable"], "raced", "{race}");
            assert!(race["region"].as_str().is_some_and(|name| name.starts_with("main._omp_fn")), "{race}");
        }
        let found: u64 = words.iter().filter_map(|race| race["words"].as_u64()).sum();
        assert!(found >= 512, "{found} of 512: {}", racing.told());
    }
    Atoll::new(&program).with("--check races").run().exits(2).says("--nodes 2");
}

/// A region's twins take too much of near memory: the region goes back to one writer, and the summary says so.
#[test]
fn near_memory_too_small_for_twins() {
    let program = helper("twins.c");
    let wide =
        Atoll::new(&program).with("--nodes 2 --workers 2 --home-alone off --consistency mw").run().exits(0);
    assert!(list(&wide, "/one_writer_regions").is_empty(), "{}", wide.told());
    let tight = Atoll::new(&program)
        .with("--nodes 2 --workers 2 --home-alone off --consistency mw --near 12M")
        .run()
        .exits(0);
    let regions = list(&tight, "/one_writer_regions");
    assert!(!regions.is_empty(), "{}", tight.told());
    let twins = |run: &Outcome| run.figure("nodes/1/twins");
    assert!(twins(&tight) < twins(&wide) / 2, "{} {}", twins(&tight), twins(&wide));
}

/// The main stack left near memory as clean, though it had been written since it was fetched: what was written was lost.
#[test]
fn a_page_that_came_back_writable_and_that_another_node_read_is_not_lost() {
    for protocol in ["sc", "mw", "smart"] {
        let options = format!("--nodes 2 --workers 2 --near 9M --consistency {protocol}");
        Atoll::new(helper("twins.c")).with(&options).run().exits(0);
    }
}

/// A node that merged a page had fetched it while another one wrote it: bytes that were put back leave no difference, and what they had
/// been for a while stayed.
#[test]
fn what_is_put_back_in_a_region_is_not_seen_after_it() {
    for protocol in ["sc", "mw", "smart"] {
        let options =
            format!("--nodes 3 --workers 3 --consistency {protocol} --home-alone off --prefetch off");
        Atoll::new(helper("put_back.c")).with(&options).run().exits(0);
    }
}

/// The program asks for more than a thousand regions a second; the benches measure how many there are.
#[test]
fn many_short_regions() {
    for protocol in ["--consistency sc", "--consistency mw", "--consistency smart"] {
        Atoll::new(helper("short_regions.c"))
            .with(&format!("--nodes 2 --workers 2 {protocol}"))
            .limit(60)
            .run()
            .exits(0);
    }
}

#[test]
fn what_went_wrong_once() {
    let mut failed = Vec::new();
    for way in ["--nodes 2 --workers 2", "--nodes 2 --workers 4", "--nodes 3 --workers 4 --consistency sc"] {
        let run = Atoll::new(helper("nodes.c")).with(way).run();
        if run.status != Some(0) || !run.left.is_empty() {
            failed.push(format!("left {:?} {}", run.left, run.told()));
        }
    }
    none(&failed);
}

/// The arguments of a task outside of all regions were its node's alone, and a region in it is spread.
#[test]
fn a_region_in_a_task_missed_the_tasks_arguments() {
    let program = helper("region_in_task.c");
    let natively = native(&program).run().exits(0);
    Atoll::new(&program).with("--nodes 2 --workers 4 --home-alone off").run().exits(0).like(&natively);
}

/// Workers of other nodes copied what lay at the address of another thread's own array on their node. Where atoll does not see that before
/// the region begins, the run ends with a sentence.
#[test]
fn copies_of_threads_own_arrays_were_those_of_another_thread() {
    let program = helper("copies_of_threads_own.c");
    let natively = native(&program).run().exits(0);
    let spread = "--nodes 2 --workers 4 --home-alone off";
    Atoll::new(&program).with(spread).run().exits(0).like(&natively);
    let unseen = Atoll::new(&program).arg("unseen").with(spread).run().exits(70);
    assert!(unseen.stderr.contains("private to threads cannot be spread"), "{}", unseen.told());
}

/// Files mapped shared, regions in target constructs, leagues, limits, flags beside singles, allocators, and what libc made.
#[test]
fn what_strangers_programs_did() {
    let (mut failed, program) = (Vec::new(), helper("over_nodes.c"));
    for way in [
        "--workers 4",
        "--nodes 2 --workers 4",
        "--nodes 2 --workers 8",
        "--nodes 2 --workers 4 --home-alone off",
        "--nodes 3 --workers 5 --consistency sc",
        "--nodes 3 --workers 3 --home-alone off --near 32M",
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let run = Atoll::new(&program).with(way).folder(folder.path()).limit(60).run();
        if run.status != Some(0) || !run.left.is_empty() {
            failed.push(format!("{way}: left {:?} {}", run.left, run.told()));
        }
    }
    none(&failed);
}

/// Two nodes of two hundred threads ended by signal 7.
#[test]
fn many_threads_on_each_node() {
    let run = Atoll::new(helper("large_team.c")).arg("200").with("--nodes 2").limit(90).run();
    assert_eq!(run.text(), "200 of 200, wrong 0\n", "{}", run.told());
}

/// There are more nodes than a team has threads: the region runs on the origin.
#[test]
fn more_nodes_than_threads() {
    Atoll::new(helper("nodes.c")).with("--nodes 4 --workers 1").run().exits(0);
}

/// Tests the ways to end a program in a region: they end as natively.
fn endings(who: &str, ways: &[&str]) {
    let program = helper("endings.c");
    let mut failed = Vec::new();
    for how in ways {
        let alone = native(&program).arg(how).arg(who).run().clean();
        let run = Atoll::new(&program).arg(how).arg(who).with("--nodes 2 --workers 2").limit(20).run();
        let ends = (run.status, run.signal) == (alone.status, alone.signal);
        // Before a region the printed text goes out; natively it may wait in a buffer that is lost.
        let printed = run.stdout == alone.stdout || (alone.stdout.is_empty() && run.text() == "before\n");
        if !ends || !printed || !run.left.is_empty() || run.timed_out {
            failed.push(format!(
                "{how} by the {who}: natively status {:?} signal {:?} output {:?}, left {:?}, {}",
                alone.status,
                alone.signal,
                alone.text(),
                run.left,
                run.told()
            ));
        }
    }
    none(&failed);
}

#[test]
fn ends_in_a_region_on_the_origin() {
    endings("master", &["return", "exit", "_exit", "quick_exit", "abort", "segv", "raise", "kill"]);
}

#[test]
fn ends_in_a_region_on_another_node() {
    endings("worker", &["exit", "_exit", "_Exit", "quick_exit", "abort", "segv", "fpe", "raise", "kill"]);
}

/// A thread of an inner team that ended left the run waiting for ever.
#[test]
fn ends_in_a_region_within_a_region_on_another_node() {
    endings("inner", &["exit", "_exit", "abort", "segv", "assert"]);
}

/// SIGTERM for one process of a run, whatever its threads wait for: it was pending and blocked, and nobody ended the others.
#[test]
fn a_signal_for_any_process_of_the_run() {
    let mut which = 0;
    loop {
        let run = Atoll::new(helper("signals.c")).args("default 20");
        let mut run = run.with("--nodes 2 --workers 4").limit(30).start();
        assert!(run.wait_for("ready"), "{}", run.end().told());
        let others = run.others();
        let Some(&victim) = others.get(which) else {
            run.signal(libc::SIGTERM);
            run.end();
            return;
        };
        let what = std::fs::read_to_string(format!("/proc/{victim}/comm")).unwrap_or_default();
        // SAFETY: no pointers; the process is this run's own.
        unsafe { libc::kill(victim, libc::SIGTERM) };
        let began = Instant::now();
        let run = run.end();
        assert!(
            run.signal == Some(libc::SIGTERM) && began.elapsed().as_secs_f64() < SOON && run.left.is_empty(),
            "SIGTERM to {} ({which} of {}): left {:?} {}",
            what.trim(),
            others.len(),
            run.left,
            run.told()
        );
        which += 1;
    }
}

#[test]
fn a_signal_for_all() {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        for alone in [false, true] {
            let run = Atoll::new(helper("signals.c")).args("default 20");
            let mut run = run.with("--nodes 3 --workers 3").limit(30).start();
            assert!(run.wait_for("ready"), "{}", run.end().told());
            if alone {
                run.signal(signal);
            } else {
                run.signal_group(signal);
            }
            let began = Instant::now();
            run.end().dies_by(signal);
            assert!(began.elapsed().as_secs_f64() < SOON);
        }
    }
}

/// Returns the kernel's count of free huge pages.
fn huge_pages_free() -> String {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    text.lines().filter(|line| line.starts_with("HugePages_Free")).collect()
}

/// Each page that had come to be read and was then written cost a fault of its own, though its node had the right to write it.
#[test]
fn pages_that_came_in_a_row_were_written_by_a_fault_each() {
    const PAGES: f64 = 4096.0;
    const ROUNDS: f64 = 6.0;
    let program = helper("taken_back.c");
    let run = Atoll::new(&program).with("--nodes 2 --workers 2 --home-alone off").run().exits(0);
    let run = run.like(&native(&program).run());
    let faults = run.figure("total/write_faults") as f64;
    assert!(faults < ROUNDS * PAGES / 4.0, "{faults} faults to write: {}", run.told());
}

/// Any process of any node is killed at some moment: the run ends soon with a message, and nothing is left.
fn killed_at_random(seed: u64, runs: u64) {
    let mut random = Random(seed);
    let (mut failed, before) = (Vec::new(), huge_pages_free());
    for _ in 0..runs {
        let nodes = 2 + random.below(2);
        let program = Atoll::new(helper("signals.c")).args("default 20");
        let run = program.with(&format!("--nodes {nodes} --workers {}", nodes * 2)).limit(40).start();
        std::thread::sleep(Duration::from_millis(random.below(2000)));
        // On a busy machine the run may not have begun yet.
        let mut others = run.others();
        for _ in 0..100 {
            if !others.is_empty() {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
            others = run.others();
        }
        if others.is_empty() {
            failed.push(format!("it had ended: {}", run.end().told()));
            continue;
        }
        let victim = *random.pick(&others);
        let what = std::fs::read(format!("/proc/{victim}/cmdline")).unwrap_or_default();
        // SAFETY: no pointers; the process is this run's own.
        unsafe { libc::kill(victim, libc::SIGKILL) };
        let began = Instant::now();
        let run = run.end();
        let took = began.elapsed().as_secs_f64();
        let spoken = run.stderr.contains("node");
        if took > SOON || run.status == Some(0) || !run.left.is_empty() || run.timed_out || !spoken {
            let what = String::from_utf8_lossy(&what).replace('\0', " ");
            failed.push(format!(
                "{what} killed, all over after {took:.1} s, left {:?}: {}",
                run.left,
                run.told()
            ));
        }
    }
    none(&failed);
    assert_eq!(huge_pages_free(), before);
}

#[test]
fn a_process_killed_at_some_moment() {
    killed_at_random(1, 6);
}

#[test]
#[ignore = "minutes"]
fn processes_killed_at_many_moments() {
    killed_at_random(2, 60);
}

#[test]
fn random_programs() {
    if !atoll_e2e::build::installed("gcc") {
        skip!("gcc is not installed: apt-get install gcc");
    }
    let seed = std::env::var("ATOLL_E2E_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(1);
    let tally = soak::soak(seed, Duration::from_secs(8), false, |line| println!("{line}"));
    none(&tally.failed);
}

/// Messages between nodes are late, refused and sent twice.
#[test]
fn random_programs_over_a_bad_way() {
    if !atoll_e2e::build::installed("gcc") {
        skip!("gcc is not installed: apt-get install gcc");
    }
    let tally = soak::soak(7, Duration::from_secs(8), true, |line| println!("{line}"));
    none(&tally.failed);
}

/// The other nodes read `environ`, a variable of the program's by a copy relocation, before its memory was kept coherent.
#[test]
fn a_program_with_a_copy_of_environ_ended() {
    let program = helper_with("copied_environment.c", &["-no-pie", "-fno-pie"]);
    let alone = native(&program).run().exits(0);
    for way in ["--nodes 2 --workers 2 --home-alone off", "--nodes 3 --workers 3 --near 24M"] {
        let run = Atoll::new(&program).with(way).run().exits(0);
        assert_eq!(run.text(), alone.text(), "{}", run.told());
    }
}
