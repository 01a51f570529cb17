//! Tests programs whose far memory is in other hosts, over networks between namespaces: they compute the same as natively, and
//! what happens to lenders, borrowers and the network between them is told in a sentence and leaves nothing behind.

mod lossy;
mod world;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use atoll_e2e::build::{atoll, installed};
use atoll_e2e::group::MemoryGroup;
use atoll_e2e::{built, skip};
use serde_json::Value;

use crate::world::{ADDRESSES, Held, Hosts, checksum, end, text, verified, wait_until};

#[test]
fn programs_compute_the_same_with_their_memory_in_another_host() {
    let Some(hosts) = Hosts::new() else { skip!("there are no namespaces") };
    let _lender = hosts.lend(1, "512M", "rack1");
    for (program, class, options) in [
        ("cg", "W", "--near 6M --page-tables private"),
        ("fft", "S", "--near 3M --page 64K --page-tables private"),
        ("stencil", "S", "--near 5M --page-tables shared"),
    ] {
        let native = Command::new(built(program)).arg(class).output().expect("started");
        let output = hosts.run(options, program, class).output().expect("atoll");
        verified(&output);
        assert_eq!(checksum(&output), checksum(&native), "{program} {options}");
    }
    assert_eq!(hosts.borrowed(), 0);
}

/// Two hosts that share no folder, only the secret: they find lenders by the names that one of them keeps.
#[test]
fn hosts_without_a_shared_folder() {
    let Some(hosts) = Hosts::new() else { skip!("there are no namespaces") };
    let states = [0, 1].map(|_| tempfile::tempdir().expect("a folder"));
    let keeper = format!("{}:4700", ADDRESSES[1]);
    let on = |host: usize| {
        let mut command = hosts.on(host, atoll());
        command.env("XDG_STATE_HOME", states[host].path()).env("ATOLL_LENDERS", &keeper);
        command
    };
    let lenders = || on(0).arg("lenders").output().expect("atoll");
    let output = lenders();
    let said = text(&output.stderr);
    assert!(!output.status.success() && said.contains(&keeper) && said.contains("cannot be asked"), "{said}");

    let lend = |name: &str, listen: &str| {
        let mut command = on(1);
        command.args(["lend", "256M", "--name", name, "--listen", listen]).stderr(Stdio::piped());
        let mut lender = Held(command.spawn().expect("atoll"));
        let mut line = String::new();
        let errors = lender.0.stderr.as_mut().expect("a pipe");
        BufReader::new(errors).read_line(&mut line).expect("read");
        assert!(line.contains(&format!("{name} on host1 lends 256M")), "{line}");
        lender
    };
    let first = lend("rack1", "0.0.0.0:4700");
    let said = text(&lenders().stderr);
    assert!(said.contains("copy the secret of its host"), "{said}");
    let secret = |host: usize| states[host].path().join("atoll/lenders/.secret");
    fs::copy(secret(1), secret(0)).expect("copied");
    let second = lend("rack2", "0.0.0.0:0");
    let listed = text(&lenders().stdout);
    assert!(listed.contains("rack1") && listed.contains("rack2"), "{listed}");

    let native = Command::new(built("cg")).arg("W").output().expect("started");
    let mut command = on(0);
    command.args(["run", "--far", "hosts", "--near", "6M", "--summary", "json", "--"]);
    let output = command.arg(built("cg")).arg("W").output().expect("atoll");
    verified(&output);
    assert_eq!(checksum(&output), checksum(&native));
    assert!(text(&output.stderr).contains("rack2 on host1"), "{}", text(&output.stderr));

    // A lender's name goes with it, however it ends.
    drop(second);
    wait_until("the name stays", || !text(&lenders().stdout).contains("rack2"));
    drop(first);
    assert!(!lenders().status.success());
}

/// A run that says nothing of far memory, in a memory group smaller than its data, which do not shrink: what would go to the file is with
/// a lender. Where the host itself lends, and nobody else, nothing is borrowed.
#[test]
fn a_run_without_a_flag_uses_the_lenders_that_there_are() {
    let Some(hosts) = Hosts::new() else { skip!("there are no namespaces") };
    let group = match MemoryGroup::new("atoll-e2e-lenders", "120M") {
        Ok(group) => group,
        Err(why) => skip!("{why}"),
    };
    let run = |program: &str, class: &str| {
        let native = Command::new(built(program)).arg(class).output().expect("started");
        let words = format!(
            "exec nsenter --net --uts --target {} env ATOLL_LENDERS={} {} run --workers 2 --summary json -- {} {class}",
            hosts.holders[0].pid(),
            hosts.folder.path().display(),
            atoll().display(),
            built(program).display()
        );
        let output = group.run(&words);
        verified(&output);
        assert_eq!(checksum(&output), checksum(&native));
        summary(&text(&output.stderr))["lenders"].as_array().cloned().unwrap_or_default()
    };
    let here = hosts.lend(0, "512M", "rack0");
    assert_eq!(run("cg", "S"), [] as [Value; 0]);
    let _there = hosts.lend(1, "512M", "rack1");
    // A lender that a busy machine keeps from answering at once is left alone.
    let borrowed = (0..5).map(|_| run("cg", "S")).find(|lenders| !lenders.is_empty());
    if borrowed.is_none() {
        skip!("this machine is too busy for a lender to answer at once");
    }
    let used = |lenders: &Vec<Value>| lenders.iter().any(|lender| lender["pages_in"].as_u64() > Some(1000));
    assert!((0..3).map(|_| run("fft", "A")).any(|lenders| used(&lenders)), "no run used the lender");
    drop(here);
    assert_eq!(hosts.borrowed(), 0);
}

#[test]
fn a_run_without_lenders_says_what_to_start() {
    let Some(hosts) = Hosts::new() else { skip!("there are no namespaces") };
    let output = hosts.run("--near 6M", "cg", "S").output().expect("atoll");
    assert_eq!(output.status.code(), Some(70));
    assert!(text(&output.stderr).contains("start one on another host with `atoll lend SIZE`"));
    let lender = hosts.lend(1, "64M", "rack1");
    let output = hosts.run("--near 6M --far-copies 2", "cg", "S").output().expect("atoll");
    assert!(text(&output.stderr).contains("two lenders on different hosts"), "{}", text(&output.stderr));
    // One that was killed leaves its card.
    drop(lender);
    let output = hosts.run("--near 6M", "cg", "S").output().expect("atoll");
    assert!(text(&output.stderr).contains("none of 1 answers"), "{}", text(&output.stderr));
    // And another one can have its name.
    drop(hosts.lend(0, "64M", "rack1"));
}

#[test]
fn a_name_is_taken_while_its_lender_lives() {
    let Some(hosts) = Hosts::new() else { skip!("there are no namespaces") };
    let lender = hosts.lend(1, "64M", "rack1");
    let second = hosts.on(0, atoll()).args(["lend", "64M", "--name", "rack1"]).output().expect("atoll");
    assert_eq!(second.status.code(), Some(70));
    assert!(text(&second.stderr).contains("a lender called `rack1` is at work on host1"));
    lender.signal(libc::SIGTERM);
    wait_until("the lender's card stays", || hosts.lenders().is_empty());
}

#[test]
fn a_killed_lender_ends_the_run_at_once_with_its_name() {
    let Some(hosts) = Hosts::new() else { skip!("there are no namespaces") };
    let lender = hosts.lend(1, "512M", "rack1");
    let run = hosts.start("--near 14M");
    drop(lender);
    let (status, errors, took) = end(run);
    assert_eq!(status, Some(74), "{errors}");
    assert!(errors.contains("rack1 on host1") && errors.contains("--far-copies 2"), "{errors}");
    assert_eq!(errors.matches("rack1").count(), 1, "{errors}");
    assert!(took < Duration::from_secs(3), "{took:?}");
}

#[test]
fn a_lender_that_is_cut_off_ends_the_run_within_seconds() {
    let Some(hosts) = Hosts::new() else { skip!("there are no namespaces") };
    let _lender = hosts.lend(1, "512M", "rack1");
    let run = hosts.start("--near 14M");
    hosts.ip(1, "link set link0 down");
    let (status, errors, took) = end(run);
    assert_eq!(status, Some(74), "{errors}");
    assert!(errors.contains("rack1 on host1"), "{errors}");
    assert!(took < Duration::from_secs(10), "{took:?}");
    // The lender has noticed, too: its memory is free when the link is there again.
    hosts.ip(1, "link set link0 up");
    wait_until("the lender still lends", || hosts.lenders().len() == 1 && hosts.borrowed() == 0);
}

#[test]
fn a_lender_that_is_stopped_for_a_while_is_waited_for() {
    let Some(hosts) = Hosts::new() else { skip!("there are no namespaces") };
    let lender = hosts.lend(1, "512M", "rack1");
    let mut command = hosts.run("--near 6M", "cg", "W");
    let run = Held(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("atoll"));
    wait_until("the run borrows nothing", || hosts.borrowed() > 0);
    lender.signal(libc::SIGSTOP);
    std::thread::sleep(Duration::from_secs(6));
    lender.signal(libc::SIGCONT);
    let (status, errors, _) = end(run);
    assert_eq!((status, errors.as_str()), (Some(0), ""));
}

/// Every thread of the program waits for its lender in a handler, where it hears no signal.
#[test]
fn a_run_that_waits_for_a_stopped_lender_ends_by_a_signal() {
    let Some(hosts) = Hosts::new() else { skip!("there are no namespaces") };
    let lender = hosts.lend(1, "512M", "rack1");
    let run = hosts.start("--near 14M");
    lender.signal(libc::SIGSTOP);
    std::thread::sleep(Duration::from_millis(700));
    run.signal(libc::SIGTERM);
    let (status, errors, took) = end(run);
    lender.signal(libc::SIGCONT);
    assert_eq!(status, None, "{errors}");
    assert!(took < Duration::from_secs(8), "{took:?}");
}

#[test]
fn lenders_are_started_for_a_run_and_end_with_it() {
    let Some(hosts) = Hosts::new() else { skip!("there are no namespaces") };
    let rsh = hosts.rsh();
    let run = |options: &str| {
        let mut command = hosts.on(0, atoll());
        command.args(["run", "--near", "6M"]).args(options.split_whitespace());
        command.arg("--rsh").arg(&rsh).arg("--").arg(built("cg")).arg("W").stdin(Stdio::null());
        command
    };
    let output = run("--hosts-far host1 --summary json").output().expect("atoll");
    verified(&output);
    let errors = text(&output.stderr);
    let summary = summary(&errors);
    let lender = &summary["lenders"][0];
    assert_eq!(lender["name"], "host1", "{errors}");
    assert!(
        lender["pages_in"].as_u64() > Some(100) && lender["read_median_us"].as_f64() > Some(1.0),
        "{lender}"
    );
    // With a second one on this host every page lies on both.
    let output = run("--hosts-far localhost,host1 --far-copies 2 --summary json").output().expect("atoll");
    verified(&output);
    let nobody = || {
        let output =
            Command::new("pgrep").args(["-f", "lend --for-run|lend-worker"]).output().expect("pgrep");
        output.stdout.is_empty()
    };
    wait_until("lenders outlive their run", nobody);
    let output = run("--hosts-far host1 --remote /nowhere/atoll").output().expect("atoll");
    assert_eq!(output.status.code(), Some(70), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("no lender was started"), "{}", text(&output.stderr));
}

/// As the kernel does where a lender's host runs out of memory.
#[test]
fn a_lender_of_a_run_was_gone_for_good_once_it_was_killed() {
    let Some(hosts) = Hosts::new() else { skip!("there are no namespaces") };
    let mut command = hosts.on(0, atoll());
    command.args(["run", "--near", "14M", "--hosts-far", "localhost,host1", "--far-copies", "2"]);
    command.args(["--workers", "2", "--summary", "json", "--rsh"]).arg(hosts.rsh()).arg("--");
    command.arg(built("cg")).arg("A").stdin(Stdio::null());
    let run = Held(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("atoll"));
    let live = || {
        let live = hosts.on(0, atoll()).args(["top", "--json"]).output().expect("atoll");
        let runs: Vec<Value> = serde_json::from_slice(&live.stdout).unwrap_or_default();
        let programs = run.children();
        let ours = runs.into_iter().find(|one| programs.iter().any(|pid| one["pid"] == *pid))?;
        ours["lenders"].as_array().cloned()
    };
    let stores = |index: usize| {
        live().is_some_and(|lenders| {
            lenders.get(index).is_some_and(|lender| lender["pages_out"].as_u64() > Some(0))
        })
    };
    wait_until("the run stores nothing", || stores(0) && stores(1));
    let network = |process: &str| fs::read_link(format!("/proc/{process}/ns/net")).ok();
    let host1 = network(&hosts.holders[1].pid().to_string());
    let output = Command::new("pgrep").args(["-f", "lend-worker"]).output().expect("pgrep");
    let lenders = text(&output.stdout);
    let lender = lenders.split_whitespace().find(|process| network(process) == host1).expect("a lender");
    assert!(Command::new("kill").args(["-KILL", lender]).status().expect("kill").success());
    wait_until("the run stores nothing with the lender that was started anew", || stores(2));
    let mut run = run;
    let mut out = String::new();
    let _ = run.0.stdout.take().expect("a pipe").read_to_string(&mut out);
    let (status, errors, _) = end(run);
    assert_eq!(status, Some(0), "{errors}");
    assert!(out.contains("Verification: successful"), "{out}");
    for sentence in [
        "the lender host1 was ended by signal 9, and is started anew",
        "the lender host1 is lost",
        "the lender host1 is there again, and is used",
    ] {
        assert!(errors.contains(sentence), "{errors}");
    }
}

#[test]
fn the_other_hosts_of_a_job_lend_under_mpirun() {
    if !installed("mpirun") {
        skip!("mpirun is not installed: apt-get install openmpi-bin");
    }
    let run = |count: &str, first_elsewhere: &str, program: &Path| {
        let mut command = Command::new("timeout");
        command.args(["120", "mpirun", "--allow-run-as-root", "--oversubscribe", "-n", count, "sh", "-c"]);
        // Processes of unlike IPC namespaces count as on unlike hosts.
        command.arg(format!(
            "[ $PMIX_RANK -lt {first_elsewhere} ] && exec \"$0\" \"$@\"; exec unshare --ipc \"$0\" \"$@\""
        ));
        command.arg(atoll()).args(["run", "--near", "6M", "--hosts-far", "job", "--summary", "json", "--"]);
        command.arg(program).arg("W").stdin(Stdio::null()).output().expect("mpirun")
    };
    if Command::new("unshare").args(["--ipc", "true"]).status().ok().is_none_or(|status| !status.success()) {
        skip!("there are no namespaces");
    }
    let output = run("3", "2", &built("cg"));
    let errors = text(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert_eq!(text(&output.stdout).matches("Verification: successful").count(), 1, "{errors}");
    let lenders = summary(&errors)["lenders"].as_array().expect("an array").clone();
    assert_eq!(lenders.len(), 1, "{lenders:?}");
    assert!(lenders[0]["pages_in"].as_u64() > Some(100), "{lenders:?}");
    let output = run("2", "2", &built("cg"));
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("are on one host"), "{}", text(&output.stderr));
    let output = Command::new(atoll()).args(["run", "--hosts-far", "job", "true"]).output().expect("atoll");
    assert!(text(&output.stderr).contains("needs the processes of a job"), "{}", text(&output.stderr));
}

#[test]
fn a_program_on_several_nodes_borrows_as_well() {
    let Some(hosts) = Hosts::new() else { skip!("there are no namespaces") };
    let _lender = hosts.lend(1, "512M", "rack1");
    let output = hosts.run("--near 8M --nodes 2 --workers 2", "cg", "W").output().expect("atoll");
    verified(&output);
    assert_eq!(hosts.borrowed(), 0);
}

#[test]
fn memory_is_free_within_seconds_when_the_borrower_is_killed() {
    let Some(hosts) = Hosts::new() else { skip!("there are no namespaces") };
    let lender = hosts.lend(1, "512M", "rack1");
    let run = hosts.start("--near 14M");
    let names = hosts.lenders()[0]["borrowers"][0]["name"].as_str().unwrap_or_default().to_owned();
    assert!(names.contains("cg on host0"), "{names}");
    drop(run);
    let began = Instant::now();
    wait_until("the memory is not free", || hosts.borrowed() == 0);
    // The kernel has it back: the connections of a run that is gone let go of the last pieces as they end.
    wait_until("the kernel has not got the memory back", || {
        let status = fs::read_to_string(format!("/proc/{}/status", lender.pid())).expect("a lender");
        let shared = status.lines().find_map(|line| line.strip_prefix("RssShmem:")).unwrap_or_default();
        let kilobytes: u64 = shared.trim().trim_end_matches(" kB").parse().expect("a number");
        kilobytes < 1024
    });
    assert!(began.elapsed() < Duration::from_secs(5));
}

/// The summary of a run that was started with `--summary json`.
#[track_caller]
fn summary(errors: &str) -> Value {
    let found = errors.lines().find_map(|line| serde_json::from_str::<Value>(line).ok());
    found.unwrap_or_else(|| panic!("no summary: {errors}"))
}

/// Starts a run of some seconds with a summary, and waits until it has pages on its lenders.
fn start_with_summary(hosts: &Hosts, options: &str) -> Held {
    let mut command = hosts.on(0, atoll());
    command.args(["run", "--near", "6M", "--far", "hosts", "--summary", "json"]);
    command.args(options.split_whitespace()).arg("--").arg(built("cg")).arg("W").stdin(Stdio::null());
    let run = Held(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("atoll"));
    wait_until("the run borrows nothing", || hosts.borrowed() > 0);
    std::thread::sleep(Duration::from_millis(300));
    run
}

/// The end of such a run: what it printed, and its summary.
#[track_caller]
fn end_with_summary(mut run: Held) -> Value {
    let mut out = String::new();
    let _ = run.0.stdout.take().expect("a pipe").read_to_string(&mut out);
    let (status, errors, _) = end(run);
    assert_eq!(status, Some(0), "{errors}");
    assert!(out.contains("Verification: successful"), "{out}");
    summary(&errors)
}

#[test]
fn a_lender_that_is_told_to_end_has_its_memory_back_and_the_run_goes_on() {
    let Some(hosts) = Hosts::new() else { skip!("there are no namespaces") };
    // The second one is at hand when the first leaves; then there is only the file.
    for second in [true, false] {
        let mut lender = hosts.lend(1, "512M", "rack1");
        let _second = second.then(|| hosts.lend(0, "512M", "rack0"));
        let mut run = start_with_summary(&hosts, "--workers 2");
        lender.signal(libc::SIGTERM);
        let mut rest = String::new();
        let _ = lender.0.stderr.take().expect("a pipe").read_to_string(&mut rest);
        assert!(lender.0.wait().expect("waited").success());
        assert!(rest.ends_with("rack1 on host1 has ended\n"), "{rest}");
        assert!(run.0.try_wait().expect("waited").is_none(), "the lender waited for the run's end");
        let summary = end_with_summary(run);
        let all = summary["lenders"].as_array().expect("lenders");
        let of =
            |name: &str| all.iter().find(|lender| lender["name"].as_str().unwrap_or("").starts_with(name));
        let left = of("rack1").expect("a lender");
        assert_eq!((&left["left"], &left["lost"]), (&Value::from(true), &Value::from(false)), "{left}");
        assert_eq!(left["borrowed_bytes"], 0, "{left}");
        let behind = summary["pages_behind_lenders"].as_u64();
        assert!(second || behind > Some(0), "{summary}");
    }
}

#[test]
fn a_lender_that_left_is_used_again_when_it_is_started_anew() {
    let Some(hosts) = Hosts::new() else { skip!("there are no namespaces") };
    let mut lender = hosts.lend(1, "512M", "rack1");
    let mut command = hosts.on(0, atoll());
    command.args(["run", "--near", "14M", "--far", "hosts", "--workers", "2", "--summary", "json", "--"]);
    command.arg(built("cg")).arg("A").stdin(Stdio::null());
    let run = Held(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("atoll"));
    wait_until("the run borrows nothing", || hosts.borrowed() > 0);
    lender.signal(libc::SIGTERM);
    assert!(lender.0.wait().expect("waited").success());
    let _anew = hosts.lend(1, "256M", "rack1");
    wait_until("the run does not borrow anew", || hosts.borrowed() > 0);
    let lenders = || {
        let live = hosts.on(0, atoll()).args(["top", "--json"]).output().expect("atoll");
        let runs: Vec<Value> = serde_json::from_slice(&live.stdout).expect("runs");
        // All runs of the machine are there, those of tests beside this one, too.
        let programs = run.children();
        let ours = runs.iter().find(|one| programs.iter().any(|pid| one["pid"] == *pid)).expect("this run");
        ours["lenders"].as_array().expect("lenders").clone()
    };
    wait_until("the run stores nothing anew", || {
        lenders().get(1).is_some_and(|lender| lender["pages_out"].as_u64() > Some(0))
    });
    let lenders = lenders();
    run.signal(libc::SIGTERM);
    let (_, errors, _) = end(run);
    assert!(errors.contains("the lender rack1 on host1 is there again, and is used"), "{errors}");
    if lenders[0]["lost"] == true {
        skip!("this machine was too busy for the first lender to be heard of all the time");
    }
    assert_eq!(lenders.len(), 2, "{lenders:?}");
    let left = (&lenders[0]["left"], &lenders[1]["left"]);
    assert_eq!(left, (&Value::from(true), &Value::from(false)), "{lenders:?}");
}

#[test]
fn a_lender_that_is_to_lend_less_has_the_rest_back_while_the_run_goes_on() {
    let Some(hosts) = Hosts::new() else { skip!("there are no namespaces") };
    let _lender = hosts.lend(1, "512M", "rack1");
    let resize = |size: &str, name: &str| {
        let mut command = hosts.on(1, atoll());
        command.args(["lend", size, "--name", name, "--resize"]).output().expect("atoll")
    };
    let run = start_with_summary(&hosts, "--workers 2");
    wait_until("the run borrows too little", || hosts.borrowed() >= 8 << 20);
    let said = text(&resize("4M", "rack1").stderr);
    assert!(said.contains("rack1 on host1 lends 4M from now on, and runs move"), "{said}");
    wait_until("the lender does not have its memory back", || hosts.borrowed() <= 4 << 20);
    let summary = end_with_summary(run);
    let lender = &summary["lenders"][0];
    assert!(lender["returned_bytes"].as_u64() >= Some(4 << 20), "{lender}");
    assert!(lender["left"] == false && lender["lost"] == false, "{lender}");
    let unknown = resize("8M", "rack7");
    assert_eq!(unknown.status.code(), Some(70));
    assert!(text(&unknown.stderr).contains("no lender called `rack7` is at work"));
    let small = resize("1M", "rack1");
    assert!(text(&small.stderr).contains("cannot lend 1M"), "{}", text(&small.stderr));
}

/// As a batch system does that suspends a job.
#[test]
fn a_run_that_was_stopped_while_its_lender_needed_memory_lost_its_pages() {
    let Some(hosts) = Hosts::new() else { skip!("there are no namespaces") };
    let mut command = hosts.on(1, atoll());
    command.args(["lend", "512M", "--name", "rack1", "--within", "1"]).stderr(Stdio::null());
    let _lender = Held(command.spawn().expect("atoll"));
    wait_until("nobody lends", || !hosts.lenders().is_empty());
    let mut run = start_with_summary(&hosts, "--workers 2");
    let processes: Vec<i32> = run.children().into_iter().chain([run.pid()]).collect();
    let signal = |signal: i32| {
        for process in &processes {
            // SAFETY: no pointers; the processes are this test's.
            assert_eq!(unsafe { libc::kill(*process, signal) }, 0);
        }
    };
    signal(libc::SIGSTOP);
    let resize = hosts.on(1, atoll()).args(["lend", "4M", "--name", "rack1", "--resize"]).output();
    assert!(resize.expect("atoll").status.success());
    let filed = || {
        let borrowers = hosts.lenders()[0]["borrowers"].clone();
        borrowers[0]["filed_bytes"].as_u64() > Some(0) && borrowers[0]["wanted_bytes"] == 0
    };
    wait_until("nothing moves to files", filed);
    signal(libc::SIGCONT);
    let mut out = String::new();
    let _ = run.0.stdout.take().expect("a pipe").read_to_string(&mut out);
    let (status, errors, _) = end(run);
    assert_eq!(status, Some(0), "{errors}");
    assert!(out.contains("Verification: successful"), "{out} {errors}");
}

#[test]
fn a_lender_ends_at_once_at_the_second_signal() {
    let Some(hosts) = Hosts::new() else { skip!("there are no namespaces") };
    let mut lender = hosts.lend(1, "512M", "rack1");
    let run = hosts.start("--near 14M");
    // The program cannot move its pages.
    let processes = run.children();
    assert!(!processes.is_empty());
    // SAFETY: no pointers; the run's own processes.
    let signal = |signal| processes.iter().for_each(|process| _ = unsafe { libc::kill(*process, signal) });
    signal(libc::SIGSTOP);
    lender.signal(libc::SIGINT);
    wait_until("the card stays", || hosts.lenders().is_empty());
    std::thread::sleep(Duration::from_millis(500));
    assert!(lender.0.try_wait().expect("waited").is_none(), "the lender does not wait");
    lender.signal(libc::SIGINT);
    assert!(lender.0.wait().expect("waited").success());
    signal(libc::SIGCONT);
    let (status, errors, _) = end(run);
    assert_eq!(status, Some(74), "{errors}");
}

#[test]
fn pages_that_no_lender_has_room_for_go_to_a_file() {
    let Some(hosts) = Hosts::new() else { skip!("there are no namespaces") };
    let _lender = hosts.lend(1, "4M", "rack1");
    let summary = end_with_summary(start_with_summary(&hosts, "--workers 2"));
    assert!(summary["pages_behind_lenders"].as_u64() > Some(1000), "{summary}");
    assert!(summary["lenders"][0]["pages_out"].as_u64() > Some(100), "{summary}");
}

/// A link on which a page takes longer than to pack it.
#[test]
fn pages_are_packed_where_the_link_is_slow() {
    let Some(hosts) = Hosts::new() else { skip!("there are no namespaces") };
    for host in [0, 1] {
        let shape = "qdisc add dev link0 root tbf rate 200mbit burst 256kb latency 100ms";
        let status = hosts.on(host, "tc").args(shape.split(' ')).stderr(Stdio::null()).status();
        if !status.is_ok_and(|status| status.success()) {
            skip!("the kernel limits no link here");
        }
    }
    let _lender = hosts.lend(1, "512M", "rack1");
    let native = Command::new(built("stencil")).arg("S").output().expect("started");
    let output = hosts.run("--near 5M --workers 2 --summary json", "stencil", "S").output().expect("atoll");
    verified(&output);
    assert_eq!(checksum(&output), checksum(&native));
    let summary = summary(&text(&output.stderr));
    let number = |name: &str| summary["lenders"][0][name].as_f64().unwrap_or_default();
    // Not packed they are whole pages, each of them. How many are packed depends on what the link was measured to take.
    assert!(number("bytes_in") < 0.95 * 4096.0 * number("pages_in"), "{summary}");
    assert!(number("bytes_out") < 0.95 * 4096.0 * number("pages_out"), "{summary}");
}

#[test]
fn with_two_copies_a_run_goes_on_without_a_lender() {
    let Some(hosts) = Hosts::new() else { skip!("there are no namespaces") };
    let lender = hosts.lend(1, "512M", "rack1");
    let _second = hosts.lend(0, "512M", "rack0");
    let mut command = hosts.run("--near 6M --far-copies 2", "cg", "W");
    let mut run = Held(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("atoll"));
    wait_until("the run borrows nothing", || hosts.borrowed() >= 8 << 20);
    drop(lender);
    let mut out = String::new();
    let _ = run.0.stdout.take().expect("a pipe").read_to_string(&mut out);
    let (status, errors, _) = end(run);
    assert_eq!(status, Some(0), "{errors}");
    assert!(out.contains("Verification: successful"), "{out}");
    assert!(errors.contains("rack1 on host1 is lost") && errors.contains("goes on without it"), "{errors}");
}
