//! Starts launchers, and checks what they and their jobs leave behind.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A small random generator, with which the tests' sizes repeat.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        self.0 >> 33 ^ self.0 >> 11
    }
}

pub(crate) fn this() -> String {
    std::env::current_exe().unwrap().to_str().unwrap().to_owned()
}

/// A launcher with these options and hosts, whose nodes are this program and execute `does`.
pub(crate) fn launch(options: &[&str], hosts: &str, does: &[&str]) -> Command {
    let this = this();
    let mut command = Command::new(&this);
    command.arg("launch").args(options).args([hosts, &this, "node"]).args(does);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// The output of a job, and its status.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) status: Option<i32>,
    pub(crate) output: String,
    pub(crate) error: String,
}

/// Runs a job to its end.
pub(crate) fn done(mut command: Command) -> Done {
    finish(command.spawn().unwrap(), Vec::new())
}

/// Runs a job to its end with `input`.
pub(crate) fn finish(mut child: Child, input: Vec<u8>) -> Done {
    let stdin = child.stdin.take();
    let feeder = std::thread::spawn(move || stdin.map(|mut stdin| stdin.write_all(&input)));
    let output = child.wait_with_output().unwrap();
    drop(feeder.join().unwrap());
    Done {
        status: output.status.code(),
        output: String::from_utf8(output.stdout).unwrap(),
        error: String::from_utf8(output.stderr).unwrap(),
    }
}

/// The lines, sorted.
pub(crate) fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

/// Waits until the condition holds; the test's timer limits the wait.
pub(crate) fn wait_until(mut so: impl FnMut() -> bool) {
    while !so() {
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A folder for the test, removed when dropped.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("atoll-start-{name}-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Folder(path)
    }

    pub(crate) fn str(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The number that a node left in `folder`, once it is there.
pub(crate) fn pid(folder: &Path, name: &str) -> i32 {
    let path = folder.join(name);
    wait_until(|| path.exists());
    std::fs::read_to_string(path).unwrap().parse().unwrap()
}

/// All numbers that the first `nodes` nodes left, once they are there.
pub(crate) fn pids(folder: &Path, nodes: u32) -> Vec<i32> {
    let names = |node| ["child", "session", "program", "keeper"].map(move |name| format!("{node}.{name}"));
    (0..nodes).flat_map(names).map(|name| pid(folder, &name)).collect()
}

/// Whether the process exists and is not a zombie.
pub(crate) fn lives(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

pub(crate) fn parent(pid: i32) -> i32 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(')').unwrap().1.split_whitespace().nth(1).unwrap().parse().unwrap()
}

pub(crate) fn kill(pid: i32, signal: i32) {
    // SAFETY: a system call on a process that a test started.
    assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
}

/// Waits until none of the processes lives.
pub(crate) fn all_end(pids: &[i32]) {
    let begin = Instant::now();
    wait_until(|| {
        let left: Vec<_> = pids.iter().filter(|&&pid| lives(pid)).collect();
        assert!(left.is_empty() || begin.elapsed() < Duration::from_secs(60), "left behind: {left:?}");
        left.is_empty()
    });
}
