//! Tests nodes that something else than `--nodes` starts: lists of hosts, `mpirun`, and nodes that talk through UCX. They begin
//! and end as one program does, and print errors where they cannot.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use atoll_e2e::build::{atoll, compiled, helper, installed};
use atoll_e2e::{built, skip, skip_part};

/// The most seconds of an ordinary run.
const LIMIT: &str = "100";

fn has_ucx() -> bool {
    let output = Command::new("ldconfig").arg("-p").output();
    output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("libucp.so.0"))
}

/// Runs `atoll run` with these options, bounded in time.
fn run(options: &str, program: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command.args([LIMIT]).arg(atoll()).arg("run").args(options.split_whitespace());
    command.args(["--summary", "none", "--"]).arg(program).args(arguments);
    command.stdin(Stdio::null());
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[track_caller]
fn succeeds(command: &mut Command) -> Output {
    let output = command.output().expect("started");
    let said = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success() && said.0.contains("Verification: successful"), "{said:?}");
    output
}

#[track_caller]
fn fails(command: &mut Command, status: i32, says: &[&str]) {
    let output = command.output().expect("started");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{said}");
    assert!(says.iter().all(|says| said.contains(says)), "{says:?}: {said}");
}

#[test]
fn a_list_of_hosts_runs_one_program() {
    for program in ["ep", "cg", "bt"] {
        for options in ["--consistency sc", "--consistency mw"] {
            let options = format!("--hosts localhost,localhost --workers 2 {options}");
            succeeds(&mut run(&options, &built(program), &["S"]));
        }
    }
}

#[test]
fn nodes_that_talk_through_ucx_run_one_program() {
    if !has_ucx() {
        skip!("UCX is not installed: apt-get install libucx0");
    }
    for program in ["ep", "cg", "bt"] {
        for options in ["--consistency sc", "--consistency mw"] {
            let options = format!("--nodes 2 --transport ucx --workers 2 {options}");
            succeeds(run(&options, &built(program), &["S"]).env("UCX_TLS", "tcp,self"));
        }
    }
    succeeds(&mut run("--nodes 3 --transport ucx --workers 3", &built("ep"), &["S"]));
}

#[test]
fn mpirun_starts_nodes() {
    if !installed("mpirun") {
        skip!("mpirun is not installed: apt-get install openmpi-bin");
    }
    let mpirun = |options: &str| {
        let mut command = Command::new("timeout");
        command.args([LIMIT, "mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2"]).arg(atoll());
        command.arg("run").args(options.split_whitespace()).args(["--workers", "2", "--"]);
        command.arg(built("bt")).arg("S").stdin(Stdio::null());
        command
    };
    let output = succeeds(&mut mpirun("--summary none"));
    assert_eq!(text(&output.stdout).matches("Verification").count(), 1);
    // With that option each process runs the program by itself.
    let output = succeeds(&mut mpirun("--summary none --nodes 1"));
    assert_eq!(text(&output.stdout).matches("Verification").count(), 2);
    if has_ucx() {
        succeeds(mpirun("--summary none --transport ucx").env("UCX_TLS", "tcp,self"));
    }
}

#[test]
fn status_and_standard_streams_are_those_of_one_program() {
    let mut ways = vec!["--hosts localhost,localhost --workers 2"];
    if has_ucx() {
        ways.push("--nodes 2 --transport ucx --workers 2");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let source = "#include <stdio.h>\n#include <stdlib.h>\n\
         int main(int count, char **words) {\n  int team = 0; char line[64] = \"\";\n\
         #pragma omp parallel reduction(+:team)\n  team++;\n\
         fgets(line, sizeof line, stdin);\n  printf(\"%d %s\", team, line);\n\
         return count > 1 ? atoi(words[1]) : 0;\n}\n";
    let program = compiled(folder.path(), "asks", source, &["-fopenmp"]);
    let input = folder.path().join("input");
    std::fs::write(&input, "one line\n").expect("written");
    for way in ways {
        for status in [0, 3] {
            let mut command = run(way, &program, &[&status.to_string()]);
            let output =
                command.stdin(std::fs::File::open(&input).expect("opened")).output().expect("started");
            assert_eq!(output.status.code(), Some(status), "{way}: {}", text(&output.stderr));
            assert_eq!((text(&output.stdout), text(&output.stderr)), ("2 one line\n".into(), String::new()));
        }
    }
}

#[test]
fn what_cannot_start_says_why() {
    let program = helper("plain.c");
    fails(
        &mut run("--hosts localhost,localhost", Path::new("./nope"), &[]),
        127,
        &["there is no program ./nope"],
    );
    let nowhere = "--hosts localhost,localhost --remote /nowhere/atoll";
    fails(&mut run(nowhere, &program, &[]), 1, &["there is no command /nowhere/atoll"]);
    fails(&mut run("--hosts localhost,-x", &program, &[]), 70, &["\"-x\" is no host"]);
    if !installed("ssh") {
        skip_part!("ssh is not installed: apt-get install openssh-client");
        return;
    }
    let unknown = "--hosts localhost,no-such-host.invalid";
    fails(&mut run(unknown, &program, &[]), 1, &["node 1 on no-such-host.invalid: ssh cannot log in"]);
}

/// Returns all descendants of a process.
fn descendants(pid: u32) -> Vec<u32> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let children = threads
        .filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok())
        .flat_map(|text| text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<u32>>());
    children.flat_map(|pid| [vec![pid], descendants(pid)].concat()).collect()
}

fn command_line(pid: u32) -> String {
    text(&std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default()).replace('\0', " ")
}

/// Whether a process has ended. One that nobody has waited for has ended.
fn is_over(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_none_or(|rest| rest.is_empty() || rest.starts_with('Z'))
}

/// Kills a process of a run of `bt`, in a class that takes much longer than until then; returns what the run printed. Within
/// five seconds nothing of the run is left.
fn kill_in(options: &str, victim: fn(&[u32]) -> Option<u32>) -> String {
    let mut child = run(options, &built("bt"), &["A"])
        .env("UCX_TLS", "tcp,self")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("started");
    let until = Instant::now() + Duration::from_secs(60);
    let (all, victim) = loop {
        let all = descendants(child.id());
        if let Some(victim) = victim(&all) {
            break (all, victim);
        }
        assert!(Instant::now() < until && matches!(child.try_wait(), Ok(None)), "{all:?}");
        std::thread::sleep(Duration::from_millis(20));
    };
    // The kill comes anywhere in the program, its start included.
    std::thread::sleep(Duration::from_millis(300 + u64::from(victim) % 700));
    // SAFETY: a process of this test's.
    unsafe { libc::kill(victim as i32, libc::SIGKILL) };
    let killed = Instant::now();
    let output = child.wait_with_output().expect("waited for");
    while !all.iter().all(|pid| is_over(*pid)) {
        assert!(killed.elapsed() < Duration::from_secs(5), "left: {all:?} {}", text(&output.stderr));
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(!output.status.success(), "{victim} of {all:?}: {}", text(&output.stderr));
    text(&output.stderr)
}

/// Whether a process executes atoll, or is over.
fn executes_atoll(pid: u32) -> bool {
    let file = std::fs::read_link(format!("/proc/{pid}/exe"));
    file.map_or(true, |file| file.file_name() == atoll().file_name())
}

/// Returns the programs of the nodes: the only children of their launchers that execute another file than atoll. A child that has just
/// been forked still executes atoll, be it the program to come or the witness of signals.
fn programs(all: &[u32]) -> Vec<u32> {
    let launchers = all.iter().filter(|pid| command_line(**pid).contains("atoll run")).skip(1);
    let program = |launcher: &u32| descendants(*launcher).into_iter().find(|pid| !executes_atoll(*pid));
    let mut found: Vec<u32> = launchers.filter_map(program).collect();
    found.sort_unstable();
    found.dedup();
    found
}

#[test]
fn a_node_that_dies_ends_all_and_is_named() {
    let mut ways = vec!["--hosts localhost,localhost --workers 2"];
    if has_ucx() {
        ways.push("--nodes 2 --transport ucx --workers 2");
    }
    for way in ways {
        let second: fn(&[u32]) -> Option<u32> = |all| {
            let programs = programs(all);
            (programs.len() == 2).then(|| programs[1])
        };
        let said = kill_in(way, second);
        assert!(said.contains("node 1 ") || said.contains("node 0 "), "{way}: {said}");
        let agent: fn(&[u32]) -> Option<u32> = |all| {
            (programs(all).len() == 2)
                .then(|| all.iter().rev().copied().find(|pid| command_line(*pid).contains("atoll agent")))?
        };
        let said = kill_in(way, agent);
        assert!(said.contains("node 1 ") || said.contains("node 0 "), "{way}: {said}");
    }
}

/// Three hosts on one wire, each with a network of its own; they are removed when this value is dropped.
struct Wire {
    hosts: [String; 3],
    bridge: String,
}

fn ip(words: &str) -> bool {
    let output = Command::new("ip").args(words.split(' ')).output();
    output.is_ok_and(|output| output.status.success())
}

impl Wire {
    /// Makes the wire; `None` where networks cannot be made. Host `i` has the address 192.0.2.`i + 1`.
    fn new() -> Option<Wire> {
        let id = std::process::id();
        let wire =
            Wire { hosts: ["a", "b", "c"].map(|host| format!("atoll{id}{host}")), bridge: format!("br{id}") };
        let bridge = &wire.bridge;
        let mut made = ip(&format!("link add {bridge} type bridge")) && ip(&format!("link set {bridge} up"));
        for (host, number) in wire.hosts.iter().zip(1..) {
            let port = format!("v{id}n{number}");
            made = made
                && ip(&format!("netns add {host}"))
                && ip(&format!("link add {port} type veth peer name eth0 netns {host}"))
                && ip(&format!("link set {port} master {bridge} up"))
                && ip(&format!("-n {host} address add 192.0.2.{number}/24 dev eth0"))
                && ip(&format!("-n {host} link set eth0 up"))
                && ip(&format!("-n {host} link set lo up"));
        }
        // A wire takes a second until it carries anything.
        let until = Instant::now() + Duration::from_secs(20);
        let reaches = |from: &String, to: usize| {
            let knock = format!("echo > /dev/tcp/192.0.2.{to}/9");
            let mut command = Command::new("ip");
            command.args(["netns", "exec", from, "timeout", "1", "bash", "-c", &knock]);
            command.output().is_ok_and(|output| text(&output.stderr).contains("refused"))
        };
        // All hosts send each time: the bridge learns from their packets where they are.
        let pairs = || wire.hosts.iter().flat_map(|from| (1..=3).map(move |to| (from, to)));
        let all_reach = || pairs().filter(|(from, to)| reaches(from, *to)).count() == 9;
        while made && !all_reach() {
            made = Instant::now() < until;
        }
        made.then_some(wire)
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        for host in &self.hosts {
            ip(&format!("netns delete {host}"));
        }
        ip(&format!("link delete {}", self.bridge));
    }
}

#[test]
fn a_node_that_hears_last_that_the_program_ended_does_not_miss_another() {
    if !has_ucx() {
        skip!("UCX is not installed: apt-get install libucx0");
    }
    if !installed("ip") {
        skip!("the command ip is not installed: apt-get install iproute2");
    }
    let Some(wire) = Wire::new() else {
        skip!("no networks that reach each other: making them needs root");
    };
    let mut child = Command::new("timeout")
        .arg(LIMIT)
        .arg(atoll())
        .args(["run", "--rsh", "ip netns exec", "--network", "eth0", "--workers", "3", "--summary", "none"])
        .args(["--hosts", &wire.hosts.join(","), "--"])
        .arg(helper("lingers.c"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("started");
    let mut line = String::new();
    let mut stdout = BufReader::new(child.stdout.take().expect("asked for"));
    stdout.read_line(&mut line).expect("readable");
    // From the first host to the last nothing comes through while the program ends.
    let route = |what| ip(&format!("-n {} route {what} blackhole 192.0.2.3/32", wire.hosts[0]));
    let cut = route("add");
    std::thread::sleep(Duration::from_millis(1150));
    let mended = route("delete");
    let output = child.wait_with_output().expect("waited for");
    assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
    assert_eq!((&*line, cut, mended), ("3\n", true, true));
}

#[test]
fn a_node_with_another_build_of_the_program_is_told() {
    // The nodes find different files by one name: the second to look has a folder of its own.
    let folder = tempfile::tempdir().expect("a folder");
    let build = |number: u32| -> PathBuf {
        let text = format!("int main(void) {{\n#pragma omp parallel\n{{}}\nreturn {number}; }}\n");
        compiled(folder.path(), &format!("a{number}"), &text, &["-fopenmp"])
    };
    let (one, two) = (build(1), build(2));
    let chooser = folder.path().join("program");
    // The run is made first: making it also makes the first build.
    let script = format!(
        "#!/bin/sh\nif mkdir {0}/first 2>/dev/null; then exec {1}; else exec {2}; fi\n",
        folder.path().display(),
        one.display(),
        two.display()
    );
    std::fs::write(&chooser, script).expect("written");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&chooser, mode).expect("executable");
    fails(
        &mut run("--hosts localhost,localhost --workers 2", &chooser, &[]),
        70,
        &["the program is another build"],
    );
}
