//! What a run leaves behind: processes that carry its tag, shared memory, files.

use std::time::{Duration, Instant};

/// The environment variable that marks all processes of a run.
pub const TAG: &str = "ATOLL_E2E_TAG";

/// Processes whose environment holds this tag, with what they are.
pub fn processes(tag: &str) -> Vec<(i32, String)> {
    let wanted = format!("{TAG}={tag}");
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        let Ok(environment) = std::fs::read(entry.path().join("environ")) else { continue };
        if environment.split(|&b| b == 0).any(|pair| pair == wanted.as_bytes()) {
            let command = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let command = String::from_utf8_lossy(&command).replace('\0', " ");
            let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
            let state = stat.rsplit(')').next().unwrap_or_default().trim().chars().next().unwrap_or('?');
            found.push((pid, format!("process {pid} ({state}) {command}")));
        }
    }
    found
}

/// What is still there of a run that has ended. The kernel may take a moment to bury a killed process.
pub fn after(tag: &str, grace: Duration) -> Vec<String> {
    let began = Instant::now();
    loop {
        let left = processes(tag);
        if left.is_empty() || began.elapsed() > grace {
            return left.into_iter().map(|(_, what)| what).collect();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Ends what is left of a run.
pub fn kill(tag: &str) {
    for (pid, _) in processes(tag) {
        // SAFETY: no pointers; the process carries this run's own tag.
        unsafe { libc::kill(pid, libc::SIGKILL) };
    }
}
