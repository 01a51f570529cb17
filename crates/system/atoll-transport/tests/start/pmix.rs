//! Tests of jobs that a starter with PMIx starts.

use std::process::{Command, Stdio};

use crate::hosts::{ADDRESSES, Hosts};
use crate::jobs::{Folder, done, sorted, this};
use crate::ssh::EXCHANGED;

/// `mpirun` with four nodes; `None`, after marking the test as skipped, if it is not installed.
fn mpirun(does: &[&str]) -> Option<Command> {
    let mut command = Command::new("mpirun");
    if command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
        atoll_skips::whole(format_args!("mpirun is not installed: apt-get install openmpi-bin"));
        return None;
    }
    let mut command = Command::new("mpirun");
    command.args(["--allow-run-as-root", "--oversubscribe", "-n", "4", &this(), "node"]).args(does);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Some(command)
}

pub(crate) fn mpirun_starts_four_nodes() {
    let Some(command) = mpirun(&["exchange", "20"]) else { return };
    let job = done(command);
    let expected = [0, 1, 2, 3].map(|node| format!("node {node} of 4, neighbours [0, 1, 2, 3]"));
    assert_eq!(
        (job.status, sorted(&job.output)),
        (Some(0), expected.iter().map(String::as_str).collect()),
        "{job:?}"
    );
}

pub(crate) fn mpirun_starts_nodes_on_two_hosts() {
    if mpirun(&[]).is_none() {
        return;
    }
    let Some(mut hosts) = Hosts::new("mpirun") else { return };
    let Some(rsh) = hosts.ssh() else { return };
    let [first, second] = ADDRESSES;
    let mut command = hosts.on(0, "mpirun");
    command.args(["--allow-run-as-root", "--host", &format!("{first}:1,{second}:2"), "-n", "3"]);
    command.args(["--mca", "plm_rsh_agent", &rsh, "--mca", "oob_tcp_if_include", "link0"]);
    command.args([&this(), "node", "exchange", "5"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let job = done(command);
    assert_eq!((job.status, sorted(&job.output)), (Some(0), EXCHANGED.to_vec()), "{job:?}");
}

pub(crate) fn a_node_that_does_not_come_is_a_timeout() {
    let Some(command) = mpirun(&["late"]) else { return };
    let job = done(command);
    let expected = ["node 0 waited", "node 2 waited", "node 3 waited"];
    assert_eq!((job.status, sorted(&job.output)), (Some(0), expected.to_vec()), "{job:?}");
}

pub(crate) fn a_starter_that_is_gone_is_an_error() {
    let mut command = Command::new(this());
    command.args(["node", "exchange", "1"]).env("PMIX_NAMESPACE", "nobody").env("PMIX_RANK", "0");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let job = done(command);
    assert_ne!(job.status, Some(0), "{job:?}");
    assert!(job.error.contains("Pmix("), "{job:?}");
}

/// The output of a node that finds `folder`'s library first.
fn with_library(folder: &Folder) -> String {
    let mut command = Command::new(this());
    command.args(["node", "exchange", "1"]).env("PMIX_NAMESPACE", "nobody").env("PMIX_RANK", "0");
    command.env("LD_LIBRARY_PATH", &folder.0);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let job = done(command);
    assert_ne!(job.status, Some(0), "{job:?}");
    job.error
}

pub(crate) fn a_library_that_is_missing_or_too_old_is_told() {
    let folder = Folder::new("library");
    let library = folder.0.join("libpmix.so.2");
    std::fs::write(&library, "").unwrap();
    let said = with_library(&folder);
    assert!(said.contains("NoLibrary("), "{said}");

    let source = folder.0.join("old.c");
    std::fs::write(&source, "const char *PMIx_Get_version(void) { return \"OpenPMIx 3.2.3\"; }\n").unwrap();
    let built = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status();
    if !built.is_ok_and(|status| status.success()) {
        atoll_skips::skip_part!("no C compiler to make an old library with: apt-get install gcc");
        return;
    }
    let said = with_library(&folder);
    assert!(said.contains(r#"Version("OpenPMIx 3.2.3")"#), "{said}");
}
