//! Finds what a run leaves behind: processes that carry its tag, shared memory, files.

use std::time::{Duration, Instant};

/// The environment variable that marks all processes of a run.
pub const TAG: &str = "ATOLL_E2E_TAG";

/// The facts about a process beside its number.
pub(crate) struct Known {
    state: char,
    pub(crate) parent: i32,
    pub(crate) group: i32,
    /// The process runs no more of its program: the kernel takes it apart.
    exiting: bool,
    command: String,
}

/// The bit of a process's flags that says that it is exiting (Linux's `PF_EXITING`; `/proc/PID/stat` shows the flags).
const EXITING: u64 = 0x4;

/// How long the kernel may take over a process that is exiting. A process that holds the last descriptor of a deleted file
/// gives the file's blocks back as it exits, and a file system that is mounted with `discard` tells the disk so and waits
/// for the answer: five seconds were seen on a busy disk.
const EXIT: Duration = Duration::from_secs(30);

/// Returns what the kernel says about a process; `None` if there is no such process.
pub(crate) fn known(pid: i32) -> Option<Known> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit(')').next()?.split_whitespace();
    let state = fields.next()?.chars().next()?;
    let parent = fields.next()?.parse().ok()?;
    let group = fields.next()?.parse().ok()?;
    let flags: u64 = fields.nth(3)?.parse().ok()?;
    let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    // A zombie of which nobody took the status is left behind by whoever started it.
    let exiting = flags & EXITING != 0 && state != 'Z';
    Some(Known {
        state,
        parent,
        group,
        exiting,
        command: String::from_utf8_lossy(&command).replace('\0', " "),
    })
}

/// A process of a run that is still there.
pub struct Process {
    /// The number of the process.
    pub pid: i32,
    /// The kernel takes the process apart; its program runs no more.
    pub exiting: bool,
    /// One line that says which process this is.
    pub what: String,
}

/// Returns the processes whose environment holds this tag or whose group is the run's, with their descriptions. (The
/// environment of a program whose stack atoll moved may not be readable; a process that made a group of its own has another
/// group.)
pub fn processes(tag: &str, group: i32) -> Vec<Process> {
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
            let what = format!("process {pid} ({}) {}", known.state, known.command);
            found.push(Process { pid, exiting: known.exiting, what });
        }
    }
    found
}

/// Returns what is still there of a run that has ended. Processes may take `grace` to end, and the kernel may take `EXIT`
/// to remove those that have ended.
pub fn after(tag: &str, group: i32, grace: Duration) -> Vec<String> {
    let began = Instant::now();
    loop {
        let left = processes(tag, group);
        let patience = if left.iter().all(|process| process.exiting) { EXIT } else { grace };
        if left.is_empty() || began.elapsed() > patience {
            return left.into_iter().map(|process| process.what).collect();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Kills what is left of a run.
pub fn kill(tag: &str, group: i32) {
    for process in processes(tag, group) {
        // SAFETY: no pointers; the process carries this run's own tag.
        unsafe { libc::kill(process.pid, libc::SIGKILL) };
    }
}
