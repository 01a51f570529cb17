//! Memory groups of version 1 with a limit and without swap, which tests make below the group that they run in.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// A memory group, which is removed at the end if nothing is left in it.
#[derive(Debug)]
pub struct MemoryGroup {
    folder: PathBuf,
}

impl MemoryGroup {
    /// Makes a group with a limit such as `100M`.
    ///
    /// # Errors
    /// Says why there is none here.
    pub fn new(name: &str, limit: &str) -> Result<Self, &'static str> {
        let of_us = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let path =
            of_us.lines().find_map(|line| line.split_once(":memory:").map(|(_, path)| path.to_owned()));
        let path = path.ok_or("no memory groups of version 1 here")?;
        let folder = Path::new("/sys/fs/cgroup/memory").join(path.trim_start_matches('/')).join(name);
        std::fs::create_dir_all(&folder).map_err(|_| "no group can be made here")?;
        let group = Self { folder };
        std::fs::write(group.folder.join("memory.limit_in_bytes"), limit)
            .map_err(|_| "no limit can be set here")?;
        // A group that swaps stays below its limit on a machine that has swap, and its processes are not killed.
        std::fs::write(group.folder.join("memory.swappiness"), "0")
            .map_err(|_| "a group's swapping cannot be forbidden here")?;
        Ok(group)
    }

    /// Runs the shell's `words` in the group.
    pub fn run(&self, words: &str) -> Output {
        self.command(words).output().expect("it runs")
    }

    /// Starts the shell's `words` in the group, with their output caught.
    pub fn start(&self, words: &str) -> Child {
        self.command(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts")
    }

    fn command(&self, words: &str) -> Command {
        let script = format!("echo $$ > {}/cgroup.procs && {words}", self.folder.display());
        let mut command = Command::new("sh");
        command.args(["-c", &script]);
        command
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // The last processes of a run that was killed leave the group a moment after the launcher.
        for _ in 0..50 {
            if std::fs::remove_dir(&self.folder).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}
