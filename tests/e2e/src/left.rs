//! Finds what a run leaves behind: processes that carry its tag, shared memory, files.

use std::time::{Duration, Instant};

/// The environment variable that marks all processes of a run.
pub const TAG: &str = "ATOLL_E2E_TAG";

/// The facts about a process beside its number.
struct Known {
    state: char,
    parent: i32,
    group: i32,
    command: String,
}

fn known(pid: i32) -> Option<Known> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit(')').next()?.split_whitespace();
    let state = fields.next()?.chars().next()?;
    let parent = fields.next()?.parse().ok()?;
    let group = fields.next()?.parse().ok()?;
    let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    Some(Known { state, parent, group, command: String::from_utf8_lossy(&command).replace('\0', " ") })
}

/// Returns the processes whose environment holds this tag or whose group is the run's, with their descriptions. (The
/// environment of a program whose stack atoll moved may not be readable; a process that made a group of its own has another
/// group.)
pub fn processes(tag: &str, group: i32) -> Vec<(i32, String)> {
    let wanted = format!("{TAG}={tag}");
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        let Some(known) = known(pid) else { continue };
        // These processes are dead, and init has to wait for them; in some containers init never does.
        if known.state == 'Z' && known.parent == 1 {
            continue;
        }
        let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        if known.group == group || environment.split(|&b| b == 0).any(|pair| pair == wanted.as_bytes()) {
            found.push((pid, format!("process {pid} ({}) {}", known.state, known.command)));
        }
    }
    found
}

/// Returns what is still there of a run that has ended. The kernel may take a moment to remove a killed process.
pub fn after(tag: &str, group: i32, grace: Duration) -> Vec<String> {
    let began = Instant::now();
    loop {
        let left = processes(tag, group);
        if left.is_empty() || began.elapsed() > grace {
            return left.into_iter().map(|(_, what)| what).collect();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Kills what is left of a run.
pub fn kill(tag: &str, group: i32) {
    for (pid, _) in processes(tag, group) {
        // SAFETY: no pointers; the process carries this run's own tag.
        unsafe { libc::kill(pid, libc::SIGKILL) };
    }
}
