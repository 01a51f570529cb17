//! Tests the counts of regions on several nodes, and the decisions from them: where a region runs and with which threads. The
//! answer is right in every case.

use std::path::Path;
use std::time::{Duration, Instant};

use atoll_e2e::build::{atoll, helper_with, openmp};
use atoll_e2e::run::PLACING;
use atoll_e2e::{Atoll, Outcome, built, helper, native, skip};
use serde_json::Value;

/// Returns the regions of a run's summary.
fn regions(run: &Outcome) -> Vec<Value> {
    let list = run.summary.as_ref().and_then(|s| s.get("regions")?.as_array().cloned());
    list.unwrap_or_else(|| panic!("no regions: {}", run.told()))
}

fn number(region: &Value, name: &str) -> u64 {
    region["spread"][name].as_u64().unwrap_or_else(|| panic!("no {name}: {region}"))
}

fn text<'a>(region: &'a Value, name: &str) -> &'a str {
    region["spread"][name].as_str().unwrap_or_else(|| panic!("no {name}: {region}"))
}

fn named<'a>(regions: &'a [Value], name: &str) -> Vec<&'a Value> {
    regions.iter().filter(|r| r["name"].as_str().is_some_and(|n| n.contains(name))).collect()
}

#[test]
fn every_region_has_its_figures() {
    let run = Atoll::new(built("lu")).arg("S").with("--nodes 2 --workers 2 --home-alone off").run().exits(0);
    let all = regions(&run);
    let relax = named(&all, "relax")[0];
    assert!(text(relax, "why").starts_with("code not safe: an atomic update at relax"), "{relax}");
    assert_eq!((text(relax, "writers"), number(relax, "runs"), number(relax, "alone_runs")), ("one", 50, 0));
    assert!(number(relax, "read_faults") + number(relax, "ahead_used") > 0, "{relax}");
    assert_eq!(relax["spread"]["barrier_seconds"].as_array().map(Vec::len), Some(2));
    assert_eq!(relax["spread"]["threads"], serde_json::json!([1, 1]));
    let many: Vec<_> = all.iter().filter(|region| text(region, "writers") == "many").collect();
    let sum = |name| many.iter().map(|region| number(region, name)).sum::<u64>();
    assert!(sum("batched_invalidations") > sum("saved_invalidations") && sum("saved_invalidations") > 0);
    assert!(sum("diffs") > 0 && sum("diff_bytes") > 0 && sum("pages_sent") > 0);
    let run = Atoll::new(built("ep")).arg("S").with("--nodes 2 --workers 2 --consistency sc").run().exits(0);
    assert!(regions(&run).iter().all(|region| text(region, "why") == "--consistency"), "{}", run.told());
    let run = Atoll::new(built("ep")).arg("S").with("--nodes 3 --workers 2").run().exits(0);
    for region in regions(&run) {
        assert_eq!((text(&region, "writers"), text(&region, "why")), ("alone", "fewer threads than nodes"));
        assert_eq!(number(&region, "runs"), number(&region, "alone_runs"));
    }
}

#[test]
fn one_node_has_no_such_figures() {
    let run = Atoll::new(built("ep")).arg("S").with("--workers 2").run().exits(0);
    assert!(regions(&run).is_empty());
}

#[test]
fn a_region_is_a_function_a_call_site_and_a_loop() {
    let way = "--nodes 2 --workers 4 --home-alone off";
    let run = Atoll::new(helper("regions.c")).args("rounds 5").with(way).run().exits(0);
    let all = regions(&run);
    let sweeps = named(&all, "sweep");
    assert_eq!(sweeps.len(), 2, "{all:?}");
    assert_ne!(sweeps[0]["call_site"], sweeps[1]["call_site"]);
    assert!(sweeps.iter().all(|region| number(region, "runs") == 5));
    assert_eq!(named(&all, "dealt")[0]["loop"], "2048 iterations or more, dynamic");
    assert_eq!(number(named(&all, "who")[0], "runs"), 5);
}

/// The place of a region changes during the run: all threads are there, and all data is right.
#[test]
fn regions_that_move_between_nodes_and_home() {
    for way in [
        "--nodes 2 --workers 2",
        "--nodes 2 --workers 5",
        "--nodes 3 --workers 4 --consistency sc",
        "--nodes 2 --workers 3 --consistency mw --prefetch off",
    ] {
        for schedule in ["static", "dynamic,7", "guided"] {
            let run = Atoll::new(helper("regions.c")).args("rounds 150").with(way);
            run.env("OMP_SCHEDULE", schedule).run().exits(0);
        }
    }
}

/// A thread that keeps variables of its own must be the same worker in every region.
#[test]
fn what_threads_keep_stays_theirs() {
    let run = Atoll::new(helper("regions_kept.c")).with("--nodes 2 --workers 4").run().exits(0);
    let all = regions(&run);
    assert!(all.iter().all(|region| number(region, "alone_runs") == 0), "{all:?}");
}

/// Runs the building of a graph of that many `vertices` by atomic counters on two nodes with a worker each, where regions begin as `placing`
/// says; returns its regions.
fn build_graph(placing: &str, vertices: u32, times: u32) -> Vec<Value> {
    let run = Atoll::new(openmp("graph_build.c")).args(&format!("{vertices} {times}"));
    let run = run.with("--nodes 2 --workers 2").env(PLACING, placing).limit(60);
    regions(&run.run().exits(0))
}

fn sum(regions: &[Value], name: &str) -> u64 {
    regions.iter().map(|region| number(region, name)).sum()
}

/// On one machine other nodes bring no CPUs, so a program whose regions were spread could only become slower.
#[test]
fn nodes_that_share_the_origins_cpus_took_part_in_regions() {
    let all = build_graph("", 100_000, 2);
    assert!(all.iter().all(|region| text(region, "why") == "other nodes bring no CPUs for it"), "{all:?}");
    assert_eq!((sum(&all, "runs"), sum(&all, "messages")), (sum(&all, "alone_runs"), 0), "{all:?}");
}

/// Building a graph by atomics took hundreds of times as long as on one node, in regions that ran once.
#[test]
fn regions_of_atomics_that_run_once_were_spread() {
    let all = build_graph("apart", 100_000, 1);
    let atomic: Vec<_> = all.iter().filter(|r| text(r, "why").contains("synchronises")).cloned().collect();
    assert!(atomic.len() >= 2, "{all:?}");
    assert_eq!(sum(&atomic, "runs"), sum(&atomic, "alone_runs"), "{atomic:?}");
    // Pages that another region had left on the other node.
    assert!(sum(&atomic, "messages") < 1000, "{atomic:?}");
}

/// Such regions, begun on all nodes: 833,000 invalidations in regions that ran once.
#[test]
fn thrashing_was_not_noticed_in_a_regions_first_run() {
    // It takes 20 ms to notice, so each run of a region must be longer.
    let all = build_graph("spread", 400_000, 4);
    let atomic: Vec<_> = all.iter().filter(|r| text(r, "why") == "its pages went to and fro").collect();
    for region in &atomic {
        assert_eq!(number(region, "runs") - number(region, "alone_runs"), 1, "{region}");
    }
    assert!(sum(&all, "single_invalidations") < 40_000, "{all:?}");
    if atomic.is_empty() {
        skip!("the nodes took turns on a machine that is busy, so no page went to and fro");
    }
}

/// A program that is not managed ran once on every node.
#[test]
fn a_program_without_openmp_ran_on_every_node() {
    let program = helper_with("plain.c", &["-fno-openmp"]);
    let alone = native(&program).args("word 5").run();
    Atoll::new(&program)
        .args("word 5")
        .with("--nodes 2")
        .run()
        .like(&alone)
        .exits(5)
        .says("nothing was managed");
}

#[test]
fn top_shows_the_nodes_of_a_run_once() {
    let run = Atoll::new(helper("signals.c")).args("default 20").with("--nodes 3 --workers 3").limit(60);
    let mut run = run.start();
    assert!(run.wait_for("ready"), "{}", run.end().told());
    let began = Instant::now();
    let (mut shown, mut live) = (Vec::new(), false);
    // Nodes report their counts about once a second.
    while !live && began.elapsed() < Duration::from_secs(10) {
        let output = std::process::Command::new(atoll()).args(["top", "--json"]).output().unwrap();
        let list: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let ours = |v: &Value| v["nodes"].as_array().is_some_and(|nodes| nodes.len() == 3);
        shown = list.into_iter().filter(ours).filter(|v| is_of(v, &run.others())).collect();
        let counted = |v: &Value| {
            let nodes = v["nodes"].as_array().cloned().unwrap_or_default();
            nodes.iter().all(|node| node["messages"].as_u64() > Some(0))
        };
        live = shown.iter().any(counted);
        std::thread::sleep(Duration::from_millis(100));
    }
    run.signal(libc::SIGTERM);
    run.end().dies_by(libc::SIGTERM);
    assert_eq!((shown.len(), live), (1, true), "{shown:?}");
}

/// Whether a look is at one of these processes.
fn is_of(look: &Value, processes: &[i32]) -> bool {
    look["pid"].as_i64().is_some_and(|pid| processes.contains(&(pid as i32)))
}

/// A folder of the kernel's CPU controller, which is removed when this value is dropped.
struct Group(std::path::PathBuf);

impl Group {
    /// Makes a folder whose processes have `percent` percent of a CPU.
    fn new(percent: u32) -> Option<Group> {
        let path = Path::new("/sys/fs/cgroup/cpu").join(format!("atoll-e2e-{}", std::process::id()));
        std::fs::create_dir(&path).ok()?;
        let group = Group(path);
        std::fs::write(group.0.join("cpu.cfs_period_us"), "20000").ok()?;
        std::fs::write(group.0.join("cpu.cfs_quota_us"), (percent * 200).to_string()).ok()?;
        Some(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let began = Instant::now();
        while std::fs::remove_dir(&self.0).is_err() && began.elapsed() < Duration::from_secs(2) {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
#[ignore = "needs a machine that does nothing else"]
fn a_node_that_is_slowed_down_has_fewer_threads() {
    let Some(group) = Group::new(20) else { skip!("no CPU controller that can be written") };
    let program = Atoll::new(helper("regions.c")).args("heavy 60");
    let mut run = program.with("--nodes 2 --workers 8 --home-alone off").limit(100).start();
    assert!(run.wait_for("ready"));
    // SAFETY: no pointers.
    let elsewhere = |pid: &i32| unsafe { libc::getpgid(*pid) } != run.pid();
    for pid in run.others().into_iter().filter(elsewhere) {
        // Threads of a process join with it.
        let _ = std::fs::write(group.0.join("cgroup.procs"), pid.to_string());
    }
    let run = run.end().exits(0);
    let all = regions(&run);
    let threads = &named(&all, "heavy")[0]["spread"]["threads"];
    assert!(threads[0].as_u64() > threads[1].as_u64(), "{all:?}");
}
