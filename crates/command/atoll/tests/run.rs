//! Runs `atoll run` on programs without OpenMP: nothing about them may change.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::io::{Read, Write};
use std::process::{Command, Stdio};

use common::{Bench, finish, signal, wait_for};

fn run(bench: &Bench, words: &[&str]) -> common::End {
    bench.run(&[&["run", "--summary", "none", "--"], words].concat())
}

#[test]
fn exit_statuses_are_the_programs() {
    let bench = Bench::new();
    for status in [0, 1, 7, 70, 255] {
        let end = run(&bench, &["sh", "-c", &format!("exit {status}")]);
        assert_eq!((end.status, end.stderr.as_str()), (Some(status), ""));
    }
}

#[test]
fn signals_are_the_programs() {
    let bench = Bench::new();
    for number in [libc::SIGSEGV, libc::SIGABRT, libc::SIGTERM, libc::SIGKILL, libc::SIGINT, libc::SIGPIPE] {
        let end = run(&bench, &["sh", "-c", &format!("kill -{number} $$")]);
        assert_eq!((end.signal, end.status), (Some(number), None));
    }
}

#[test]
fn arguments_input_and_output_pass_through() {
    let bench = Bench::new();
    let mut command = bench.atoll(&[
        "run",
        "--summary",
        "none",
        "--",
        "sh",
        "-c",
        "cat; printf '%s|' \"$@\"; echo to 2 >&2",
    ]);
    let mut child = command.args(["zero", "", "a b", "--near", "*"]).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"input\n").unwrap();
    let end = finish(child);
    assert_eq!(end.stdout, "input\n|a b|--near|*|");
    assert_eq!(end.stderr, "to 2\n");
}

#[test]
fn the_environment_has_what_the_runtime_needs() {
    let bench = Bench::new();
    let script = "echo $OMP_NUM_THREADS $LD_PRELOAD $ATOLL_SAVED_LD_PRELOAD; readlink /proc/self/fd/${ATOLL_CONTROL_FD%:*}";
    let mut command = bench.atoll(&["run", "--summary", "none", "--workers", "3", "--", "sh", "-c", script]);
    let own = bench.path("runtime.so");
    let end = finish(command.env("LD_PRELOAD", &own).spawn().unwrap());
    let own = own.canonicalize().unwrap().display().to_string();
    assert_eq!(
        end.stdout,
        format!("3 {own}:{own} {own}\n/memfd:atoll-control (deleted)\n"),
        "{}",
        end.stderr
    );
}

#[test]
fn the_lowest_descriptors_stay_free() {
    let bench = Bench::new();
    let numbers = |text: &str| -> Vec<u32> { text.split_whitespace().map(|n| n.parse().unwrap()).collect() };
    let script = "ls /proc/self/fd | sort -n";
    let without = Command::new("sh").args(["-c", script]).stdin(Stdio::null()).output().unwrap();
    let without = numbers(&String::from_utf8(without.stdout).unwrap());
    let with = numbers(&run(&bench, &["sh", "-c", script]).stdout);
    let added: Vec<&u32> = with.iter().filter(|n| !without.contains(n)).collect();
    assert!(added.len() == 1 && *added[0] >= 60, "{without:?} {with:?}");
}

#[test]
fn a_pipe_that_closes_ends_the_program_as_without_us() {
    let bench = Bench::new();
    let mut child = bench.atoll(&["run", "--summary", "none", "--", "yes"]).spawn().unwrap();
    let mut out = child.stdout.take().unwrap();
    let mut some = [0; 10];
    out.read_exact(&mut some).unwrap();
    drop(out);
    assert_eq!(finish(child).signal, Some(libc::SIGPIPE));
}

#[test]
fn signals_sent_to_the_launcher_reach_the_program() {
    let bench = Bench::new();
    let script =
        "trap 'echo hup' HUP; trap 'echo usr1; exit 5' USR1; echo > ready; while :; do sleep 0.02; done";
    let child = bench.atoll(&["run", "--summary", "none", "--", "sh", "-c", script]).spawn().unwrap();
    wait_for(&bench.path("ready"));
    signal(child.id(), libc::SIGHUP);
    std::thread::sleep(std::time::Duration::from_millis(200));
    signal(child.id(), libc::SIGUSR1);
    let end = finish(child);
    assert_eq!((end.status, end.stdout.as_str()), (Some(5), "hup\nusr1\n"));
}

#[test]
fn a_program_that_was_not_managed_is_said_once() {
    let bench = Bench::new();
    let end = bench.run(&["run", "--", "true"]);
    assert_eq!(
        (end.status, end.stderr.as_str()),
        (
            Some(0),
            "atoll: nothing was managed: neither true nor what it started uses OpenMP, and none of them asked libc for an eighth of the memory \
             that the machine can give\n"
        )
    );
}

#[test]
fn what_cannot_be_run_is_said_in_a_sentence() {
    let bench = Bench::new();
    std::fs::write(bench.path("text"), "no program\n").unwrap();
    let says = |words: &[&str], status: i32, text: &str| {
        let end = run(&bench, words);
        assert_eq!(end.status, Some(status), "{}", end.stderr);
        assert!(end.stderr.starts_with("atoll: ") && end.stderr.contains(text), "{}", end.stderr);
        assert_eq!(end.stderr.lines().count(), 1, "{}", end.stderr);
    };
    says(&["no-such-program"], 127, "there is no program no-such-program");
    says(&["./no-such-program"], 127, "there is no program ./no-such-program");
    says(&["./text"], 126, "has no execute permission");
    says(&["/"], 126, "is a directory");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(bench.path("text"), mode).unwrap();
    says(&["./text"], 126, "neither a program nor a script");

    let end = bench.run(&["run", "--cmcp-p", "7", "--", "true"]);
    assert_eq!(end.status, Some(2));
    let end = bench.run(&["run", "--policy", "lru", "--cmcp-p", "0.5", "--", "true"]);
    assert!(end.stderr.contains("the policy is lru"), "{}", end.stderr);
    let end = bench.run(&["run", "--record", "/nowhere/file", "--", "touch", "started"]);
    assert_eq!(end.status, Some(70));
    assert!(end.stderr.contains("/nowhere/file cannot be written") && !bench.path("started").exists());
    let end = finish(bench.atoll(&["run", "true"]).env("ATOLL_LIBRARY", "/nowhere.so").spawn().unwrap());
    assert!(end.stderr.contains("ATOLL_LIBRARY=/nowhere.so is not a file"), "{}", end.stderr);
}
