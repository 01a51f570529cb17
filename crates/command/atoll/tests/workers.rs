//! Tests what the launcher does when workers and programs end in each other's way, with a program that only pretends.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::time::{Duration, Instant};

use common::{Bench, End, finish, signal, wait_for};

fn run(bench: &Bench, words: &[&str]) -> End {
    bench.workers();
    let end = bench.run(&[&["run", "--summary", "none", "--", "./workers"], words].concat());
    assert_eq!(bench.left(), Vec::<i32>::new());
    assert_eq!(std::fs::read_to_string(bench.path("pids")).unwrap().split_whitespace().count(), 3);
    end
}

#[test]
fn a_worker_killed_by_a_signal_ends_the_program_by_it() {
    let end = run(&Bench::new(), &["worker-signal", "11"]);
    assert_eq!(end.signal, Some(libc::SIGSEGV), "{end:?}");
    assert_eq!(
        end.stderr,
        "atoll: worker 2 was killed by signal 11 (Segmentation fault), and the program cannot go on without it\n"
    );
}

#[test]
fn a_worker_that_is_sigkilled_ends_the_program_with_a_status() {
    let end = run(&Bench::new(), &["worker-signal", "9"]);
    assert_eq!(end.status, Some(76), "{end:?}");
    assert!(end.stderr.contains("worker 2 was killed by signal 9 (Killed)"), "{}", end.stderr);
}

#[test]
fn a_worker_that_ends_by_itself_is_said() {
    let end = run(&Bench::new(), &["worker-exit", "3"]);
    assert_eq!(end.status, Some(76), "{end:?}");
    assert!(end.stderr.contains("worker 2 ended by itself with status 3"), "{}", end.stderr);
}

#[test]
fn exit_in_a_worker_is_the_programs_exit() {
    let end = run(&Bench::new(), &["worker-requests", "5"]);
    assert_eq!((end.status, end.stderr.as_str()), (Some(5), ""));
}

#[test]
fn a_failure_of_the_runtime_has_its_own_status() {
    let end = run(&Bench::new(), &["worker-fails", "74"]);
    assert_eq!((end.status, end.stderr.as_str()), (Some(74), ""));
}

#[test]
fn workers_that_outlive_their_program_are_killed() {
    let end = run(&Bench::new(), &["exit", "4"]);
    assert_eq!((end.status, end.stderr.as_str()), (Some(4), ""));
    let end = run(&Bench::new(), &["signal", "6"]);
    assert_eq!((end.signal, end.stderr.as_str()), (Some(libc::SIGABRT), ""));
}

#[test]
fn workers_that_the_program_itself_ends_are_no_news() {
    let end = run(&Bench::new(), &["orderly", "9"]);
    assert_eq!((end.status, end.stderr.as_str()), (Some(9), ""));
}

#[test]
fn a_killed_program_leaves_nothing_and_takes_no_time() {
    let bench = Bench::new();
    bench.workers();
    for number in [libc::SIGTERM, libc::SIGINT] {
        let child = bench.atoll(&["run", "--summary", "none", "--", "./workers", "wait"]).spawn().unwrap();
        wait_for(&bench.path("pids"));
        std::thread::sleep(Duration::from_millis(100));
        let start = Instant::now();
        signal(child.id(), number);
        assert_eq!(finish(child).signal, Some(number));
        assert!(start.elapsed() < Duration::from_secs(5));
        assert_eq!(bench.left(), Vec::<i32>::new());
        std::fs::remove_file(bench.path("pids")).unwrap();
    }
}

#[test]
fn a_launcher_in_front_is_as_good() {
    let bench = Bench::new();
    bench.workers();
    let run = ["run", "--summary", "json", "--", "timeout", "0.5", "./workers", "wait"];
    let end = bench.run(&run);
    assert_eq!(end.status, Some(124), "{end:?}");
    assert_eq!(bench.left(), Vec::<i32>::new());
    assert!(end.stderr.contains("\"program\":\"workers\""), "{}", end.stderr);
}

#[test]
fn figures_are_printed_recorded_and_shown() {
    let bench = Bench::new();
    bench.workers();
    let end = bench.run(&["run", "--near", "64M", "--record", "record", "--", "./workers", "exit", "0"]);
    assert!(
        end.stderr.starts_with("atoll: workers ") && end.stderr.contains("near limit 64M"),
        "{}",
        end.stderr
    );
    let show = bench.run(&["show", "record"]);
    assert!(show.stdout.contains(&end.stderr), "{}\n{}", show.stdout, end.stderr);
    let json = bench.run(&["show", "--json", "record"]);
    let json: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(json["figures"]["total"]["major_faults"], 42);
    assert_eq!(json["run"]["arguments"], serde_json::json!(["./workers", "exit", "0"]));
    assert_eq!(json["run"]["settings"]["near_bytes"], 64 << 20);

    let damaged = std::fs::read(bench.path("record")).unwrap();
    std::fs::write(bench.path("record"), &damaged[..40]).unwrap();
    let show = bench.run(&["show", "record"]);
    assert_eq!(show.status, Some(70));
    assert!(show.stderr.contains("cut off at byte 40"), "{}", show.stderr);
}

#[test]
fn top_sees_a_running_program() {
    let bench = Bench::new();
    bench.workers();
    let child = bench.atoll(&["run", "--summary", "none", "--", "./workers", "wait"]).spawn().unwrap();
    wait_for(&bench.path("pids"));
    let id = child.id().to_string();
    let text = bench.run(&["top", &id]);
    let json = bench.run(&["top", "--json", &id]);
    signal(child.id(), libc::SIGTERM);
    finish(child);
    assert!(text.stdout.starts_with("atoll: workers ") && text.stdout.contains(" 42 "), "{text:?}");
    let json: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!((&json[0]["total"]["major_faults"], json.as_array().unwrap().len()), (&42.into(), 1));
    let none = bench.run(&["top", &id]);
    assert_eq!(none.status, Some(1));
    assert!(none.stderr.contains(&id), "{}", none.stderr);
}

/// The process that starts the program may go on long after it: the program's figures were shown as those of a running one.
#[test]
fn top_showed_an_ended_program_as_live() {
    let bench = Bench::new();
    bench.workers();
    let script = "./workers exit 0; echo > ended; exec sleep 30";
    let child = bench.atoll(&["run", "--summary", "none", "--", "sh", "-c", script]).spawn().unwrap();
    wait_for(&bench.path("ended"));
    let id = child.id().to_string();
    let text = bench.run(&["top", &id]);
    let json = bench.run(&["top", "--json", &id]);
    signal(child.id(), libc::SIGTERM);
    finish(child);
    assert_eq!((text.status, text.stdout.as_str()), (Some(1), ""), "{text:?}");
    assert!(text.stderr.contains("has ended"), "{text:?}");
    assert_eq!(json.stdout.trim(), "[]", "{json:?}");
}

/// A launcher that has ended and that nobody has waited for keeps its name.
#[test]
fn top_showed_a_dead_launcher_as_live() {
    let bench = Bench::new();
    bench.workers();
    let mut child = bench.atoll(&["run", "--summary", "none", "--", "./workers", "wait"]).spawn().unwrap();
    wait_for(&bench.path("pids"));
    let id = child.id().to_string();
    signal(child.id(), libc::SIGKILL);
    wait_for_zombie(child.id());
    let top = bench.run(&["top", &id]);
    child.wait().unwrap();
    assert_eq!((top.status, top.stdout.as_str()), (Some(1), ""), "{top:?}");
}

fn wait_for_zombie(pid: u32) {
    let until = Instant::now() + Duration::from_secs(10);
    let stat = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    while !stat().contains(") Z ") {
        assert!(Instant::now() < until, "{}", stat());
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_sweep_shows_what_failed_and_goes_on() {
    let bench = Bench::new();
    bench.workers();
    let script = "case \" $(tr '\\0' ' ' < /proc/$PPID/cmdline)\" in *--nea[r]*) exit 75;; esac; exec ./workers exit 0";
    let arguments =
        ["sweep", "--near", "50%", "--policy", "fifo,cmcp", "--csv", "out.csv", "--", "sh", "-c", script];
    let end = bench.run(&arguments);
    assert_eq!(end.status, Some(0), "{end:?}");
    assert_eq!(end.stdout.matches("failed: exit 75").count(), 2, "{}", end.stdout);
    let csv = std::fs::read_to_string(bench.path("out.csv")).unwrap();
    assert_eq!(csv.lines().count(), 4, "{csv}");
}

#[test]
fn a_killed_launcher_takes_the_program_with_it() {
    let bench = Bench::new();
    bench.workers();
    let child = bench.atoll(&["run", "--summary", "none", "--", "./workers", "real"]).spawn().unwrap();
    wait_for(&bench.path("pids"));
    signal(child.id(), libc::SIGKILL);
    assert_eq!(finish(child).signal, Some(libc::SIGKILL));
    let until = Instant::now() + Duration::from_secs(5);
    while !bench.left().is_empty() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(bench.left(), Vec::<i32>::new());
}
