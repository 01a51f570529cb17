//! Finds what the processes of a run that does not end are doing, for the message of the test that waited for it.
//!
//! `run` calls it before it ends such a run. The kernel reports each thread's state and system call; gdb, where it is
//! installed, reports each thread's calls.

use std::fmt::Write;
use std::process::{Command, Stdio};

use crate::left;

/// Returns each process of the run with its threads and, if gdb is there, their stacks.
pub(crate) fn told(tag: &str, group: i32) -> String {
    let mut text = String::new();
    for left::Process { pid, what, .. } in left::processes(tag, group) {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{what}");
        for (thread, state) in threads(pid) {
            let _ = writeln!(text, "  thread {thread}: {state}");
        }
        text += &stacks(pid);
    }
    text
}

/// Returns a process's threads with what the kernel reports of each: its name, state, system call, and signals that are pending
/// or blocked.
fn threads(pid: i32) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
        let read = |name: &str| std::fs::read_to_string(entry.path().join(name)).unwrap_or_default();
        let wanted = ["Name:", "State:", "SigPnd:", "ShdPnd:", "SigBlk:"];
        let status = read("status");
        let lines = status.lines().filter(|line| wanted.iter().any(|name| line.starts_with(name)));
        let lines: Vec<&str> = lines.flat_map(str::split_whitespace).collect();
        let state = format!("{}  system call {}", lines.join(" "), read("syscall").trim());
        found.push((entry.file_name().to_string_lossy().into_owned(), state));
    }
    found
}

fn stacks(pid: i32) -> String {
    let mut command = Command::new("timeout");
    command.args([
        "20",
        "gdb",
        "-batch",
        "-nx",
        "-p",
        &pid.to_string(),
        "-ex",
        "thread apply all backtrace 16",
    ]);
    let Ok(output) = command.stdin(Stdio::null()).stderr(Stdio::null()).output() else {
        return String::new();
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let calls = text.lines().filter(|line| line.starts_with('#') || line.starts_with("Thread"));
    calls.map(|line| format!("    {line}\n")).collect()
}
