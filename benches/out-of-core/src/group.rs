//! A memory cgroup for one run, of version 1 or 2: limits the memory in it and reports the most that was in it.
//!
//! Everything that the kernel charges counts: pages of the program and of shared memory files that it made, and page tables.
//! Pages on a swap device do not count, nor do huge pages (`huge` counts those).

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::error::Error;

/// The place where memory cgroups are made.
pub(crate) struct Groups {
    parent: PathBuf,
    version: Version,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// The swappiness of a limited group: anonymous pages are as good victims as file pages.
const SWAPPINESS: &str = "100";

static NEXT: AtomicU32 = AtomicU32::new(0);

impl Groups {
    /// Finds where groups can be made, and tries it.
    ///
    /// # Errors
    /// A sentence that says why not.
    pub(crate) fn find() -> Result<Groups, Error> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let groups = from_mounts(&mounts).ok_or_else(|| {
            Error::said("no memory cgroup is mounted (neither version 1 with memory, nor version 2)")
        })?;
        if groups.version == Version::Two {
            let control = groups.parent.join("cgroup.subtree_control");
            let on = fs::read_to_string(&control).unwrap_or_default();
            if !on.split_whitespace().any(|c| c == "memory") {
                fs::write(&control, "+memory").map_err(|e| Error::at("enable memory in", &control, e))?;
            }
        }
        groups.group(None)?;
        Ok(groups)
    }

    /// Makes a new group; with a limit, what does not fit is swapped out.
    pub(crate) fn group(&self, limit: Option<u64>) -> Result<Group, Error> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = self.parent.join(format!("atoll-bench-{}-{number}", std::process::id()));
        fs::create_dir(&path).map_err(|e| Error::at("make the memory cgroup", &path, e))?;
        let group = Group { path, version: self.version };
        if let Some(limit) = limit {
            let file = if self.version == Version::One { "memory.limit_in_bytes" } else { "memory.max" };
            group.set(file, &limit.to_string())?;
            if self.version == Version::One {
                group.set("memory.swappiness", SWAPPINESS)?;
            }
        }
        Ok(group)
    }
}

/// Reads the text of /proc/self/mountinfo: version 1 if it has the memory controller, else version 2.
fn from_mounts(mounts: &str) -> Option<Groups> {
    let find = |kind: &str, option: Option<&str>| {
        mounts.lines().find_map(|line| {
            let (mount, file_system) = line.split_once(" - ")?;
            let mut fields = file_system.split(' ');
            let named = fields.next()? == kind;
            let options = fields.nth(1).unwrap_or("");
            let fits = option.is_none_or(|o| options.split(',').any(|p| p == o));
            (named && fits).then(|| mount.split(' ').nth(4).map(PathBuf::from)).flatten()
        })
    };
    let one = find("cgroup", Some("memory")).map(|parent| Groups { parent, version: Version::One });
    one.or_else(|| find("cgroup2", None).map(|parent| Groups { parent, version: Version::Two }))
}

/// A group, which is removed when dropped, with the processes that still run in it.
pub(crate) struct Group {
    path: PathBuf,
    version: Version,
}

impl Group {
    fn set(&self, file: &str, value: &str) -> Result<(), Error> {
        let path = self.path.join(file);
        fs::write(&path, value).map_err(|e| Error::at("write", &path, e))
    }

    /// Returns the file to which a process writes `0` to join.
    pub(crate) fn processes(&self) -> PathBuf {
        self.path.join("cgroup.procs")
    }

    /// Returns the most bytes charged at any time.
    pub(crate) fn peak(&self) -> Option<u64> {
        let file = if self.version == Version::One { "memory.max_usage_in_bytes" } else { "memory.peak" };
        fs::read_to_string(self.path.join(file)).ok()?.trim().parse().ok()
    }

    /// Kills the processes in the group, again and again until it is empty or nothing more can be done.
    pub(crate) fn empty(&self) {
        let end = Instant::now() + Duration::from_secs(10);
        while Instant::now() < end {
            let text = fs::read_to_string(self.processes()).unwrap_or_default();
            let mut any = false;
            for pid in text.lines().filter_map(|line| line.parse::<i32>().ok()).filter(|&pid| pid > 0) {
                any = true;
                // SAFETY: no pointers; the process is in a group that only our runs join.
                unsafe { libc::kill(pid, libc::SIGKILL) };
            }
            if !any {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.empty();
        for _ in 0..100 {
            if remove(&self.path) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        eprintln!("out-of-core: the memory cgroup {} could not be removed", self.path.display());
    }
}

fn remove(path: &Path) -> bool {
    fs::remove_dir(path).is_ok() || !path.exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "30 23 0:26 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
                       31 23 0:27 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
    const TWO: &str = "31 23 0:27 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";

    #[test]
    fn version_one_counts_where_it_has_the_memory_controller() {
        let groups = from_mounts(ONE).unwrap();
        assert!(groups.version == Version::One);
        assert_eq!(groups.parent, Path::new("/sys/fs/cgroup/memory"));
        let groups = from_mounts(TWO).unwrap();
        assert!(groups.version == Version::Two);
        assert_eq!(groups.parent, Path::new("/sys/fs/cgroup"));
        assert!(from_mounts("22 1 8:1 / / rw - ext4 /dev/vda rw\n").is_none());
        assert!(from_mounts("22 1 8:1 / /c rw - cgroup cgroup rw,cpu\n").is_none());
    }
}
