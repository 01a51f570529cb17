//! Hosts that are network namespaces of this machine, and the processes on them.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use atoll_e2e::build::{atoll, installed};
use atoll_e2e::built;
use serde_json::Value;

/// The hosts' addresses on their link.
pub(crate) const ADDRESSES: [&str; 2] = ["10.78.0.1", "10.78.0.2"];

/// A process, killed when dropped.
pub(crate) struct Held(pub(crate) Child);

impl Held {
    pub(crate) fn pid(&self) -> i32 {
        self.0.id() as i32
    }

    pub(crate) fn signal(&self, signal: i32) {
        // SAFETY: no pointers; our own child, which is not waited for yet.
        unsafe { libc::kill(self.pid(), signal) };
    }

    /// The processes that it started and that live: a launcher's are those of its program.
    pub(crate) fn children(&self) -> Vec<i32> {
        let found = Command::new("pgrep").args(["-P", &self.pid().to_string()]).output().expect("pgrep");
        text(&found.stdout).lines().map(|line| line.parse().expect("a number")).collect()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn dies_with_test(command: &mut Command) -> &mut Command {
    // SAFETY: one system call between fork and exec.
    unsafe {
        command.pre_exec(|| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            Ok(())
        })
    }
}

#[track_caller]
pub(crate) fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Two hosts: network namespaces with names of their own and a link between them. They see one folder of lenders.
pub(crate) struct Hosts {
    pub(crate) holders: [Held; 2],
    pub(crate) folder: tempfile::TempDir,
}

impl Hosts {
    pub(crate) fn new() -> Option<Hosts> {
        // SAFETY: the call only asks for a number.
        if unsafe { libc::geteuid() } != 0 {
            atoll_e2e::skip_part!("only root may make network namespaces");
            return None;
        }
        if !["ip", "unshare", "nsenter"].into_iter().all(installed) {
            atoll_e2e::skip_part!("the command ip is not installed: apt-get install iproute2");
            return None;
        }
        let holders = [0, 1].map(|host| {
            let mut command = Command::new("unshare");
            let script =
                format!("echo host{host} >/proc/sys/kernel/hostname && echo ready && exec sleep 3600");
            command.args(["--net", "--uts", "sh", "-c", &script]).stdout(Stdio::piped());
            let mut child = Held(dies_with_test(&mut command).spawn().expect("unshare"));
            let mut line = String::new();
            let out = child.0.stdout.as_mut().expect("a pipe");
            BufReader::new(out).read_line(&mut line).expect("read");
            (child, line == "ready\n")
        });
        if holders.iter().any(|(_, ready)| !ready) {
            atoll_e2e::skip_part!("the system allows no network namespace");
            return None;
        }
        let holders = holders.map(|(held, _)| held);
        let hosts = Hosts { holders, folder: tempfile::tempdir().expect("a folder") };
        let peer = hosts.holders[1].pid().to_string();
        hosts.ip(0, &format!("link add link0 type veth peer link0 netns {peer}"));
        for (host, address) in ADDRESSES.iter().enumerate() {
            hosts.ip(host, &format!("address add {address}/24 dev link0"));
            hosts.ip(host, "link set lo up");
            hosts.ip(host, "link set link0 up");
        }
        // The kernel takes some time until the link counts as connected.
        let is_up = |host: usize| {
            let output = hosts.on(host, "ip").args(["link", "show", "link0"]).output().expect("ip");
            text(&output.stdout).contains("state UP")
        };
        wait_until("the link does not come up", || is_up(0) && is_up(1));
        Some(hosts)
    }

    /// A command on a host.
    pub(crate) fn on(&self, host: usize, program: impl Into<PathBuf>) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--net", "--uts", "--target", &self.holders[host].pid().to_string()]);
        command.arg(program.into()).env("ATOLL_LENDERS", self.folder.path());
        dies_with_test(&mut command);
        command
    }

    #[track_caller]
    pub(crate) fn ip(&self, host: usize, words: &str) {
        let status = self.on(host, "ip").args(words.split(' ')).status();
        assert!(status.is_ok_and(|status| status.success()), "ip {words}");
    }

    /// A lender on a host, once it is at work.
    #[track_caller]
    pub(crate) fn lend(&self, host: usize, size: &str, name: &str) -> Held {
        let mut command = self.on(host, atoll());
        let mut lender =
            Held(command.args(["lend", size, "--name", name]).stderr(Stdio::piped()).spawn().expect("atoll"));
        let mut line = String::new();
        let errors = lender.0.stderr.as_mut().expect("a pipe");
        BufReader::new(errors).read_line(&mut line).expect("read");
        assert!(
            line.contains(&format!("{name} on host{host} lends {size} at {}", ADDRESSES[host])),
            "{line}"
        );
        lender
    }

    /// A run on host 0.
    pub(crate) fn run(&self, options: &str, program: &str, class: &str) -> Command {
        let mut command = self.on(0, atoll());
        command.args(["run", "--far", "hosts"]).args(options.split_whitespace());
        if !options.contains("--summary") {
            command.args(["--summary", "none"]);
        }
        command.arg("--").arg(built(program)).arg(class).stdin(Stdio::null());
        command
    }

    /// A command in the place of ssh: it goes to the second host's namespace, and has a shell there run the command.
    pub(crate) fn rsh(&self) -> PathBuf {
        let rsh = self.folder.path().join("rsh");
        let script = format!(
            "#!/bin/sh\nshift\nexec nsenter --net --uts --target {} sh -c \"$*\"\n",
            self.holders[1].pid()
        );
        fs::write(&rsh, script).expect("written");
        fs::set_permissions(&rsh, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("executable");
        rsh
    }

    /// What `atoll lenders` says of all lenders.
    pub(crate) fn lenders(&self) -> Vec<Value> {
        let output = self.on(0, atoll()).args(["lenders", "--json"]).output().expect("atoll");
        serde_json::from_slice(&output.stdout).expect("a list")
    }

    /// Bytes that runs have borrowed.
    pub(crate) fn borrowed(&self) -> u64 {
        let of = |lender: &Value| {
            let all = lender["borrowers"].as_array().cloned().unwrap_or_default();
            all.iter().filter_map(|borrower| borrower["bytes"].as_u64()).sum::<u64>()
        };
        self.lenders().iter().map(of).sum()
    }

    /// Starts a long run, and waits until it has borrowed.
    pub(crate) fn start(&self, options: &str) -> Held {
        let mut command = self.run(options, "cg", "A");
        let run = Held(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("atoll"));
        wait_until("the run borrows nothing", || self.borrowed() > 0);
        // Pages are there by now.
        std::thread::sleep(Duration::from_millis(300));
        run
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The end of a run: its status, what it said, and how long it took.
pub(crate) fn end(mut run: Held) -> (Option<i32>, String, Duration) {
    let began = Instant::now();
    let mut errors = String::new();
    let _ = run.0.stderr.take().expect("a pipe").read_to_string(&mut errors);
    let status = run.0.wait().expect("waited");
    (status.code(), errors, began.elapsed())
}

#[track_caller]
pub(crate) fn verified(output: &Output) {
    let said = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success() && said.0.contains("Verification: successful"), "{said:?}");
}

pub(crate) fn checksum(output: &Output) -> String {
    let out = text(&output.stdout);
    out.lines().find(|line| line.starts_with("Checksum")).unwrap_or_default().to_owned()
}
