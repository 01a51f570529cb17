//! Control groups of this process, of version 1 and 2: the memory and processor time that they allow it.
//!
//! `doctor` prints them, `run::near` takes a share of the memory that a process may have, and `run::memory_group` tells
//! of kills. Source: cgroups(7), proc(5).

use std::path::{Path, PathBuf};

use crate::machine::meminfo;

/// A limit that a group sets.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Limit<T> {
    /// The value of the limit.
    pub(crate) limit: T,
    /// The file that holds it.
    pub(crate) file: PathBuf,
    /// The text that takes the limit away when it is written to the file.
    pub(crate) none: &'static str,
    /// The part of the limit that is used now, without cached files, which the kernel drops when memory is needed.
    pub(crate) used: T,
    /// The part that holds cached files in frequent use, such as the code of programs; 0 where the limit is not of memory.
    pub(crate) files_in_use: T,
}

impl Limit<u64> {
    /// Returns what may be taken beside what is in use.
    pub(crate) fn left(&self) -> u64 {
        self.limit.saturating_sub(self.used)
    }
}

/// Returns the memory limit that leaves least, if any group sets one.
pub(crate) fn memory() -> Option<Limit<u64>> {
    let limits = groups("memory").into_iter().filter_map(|group| memory_of(&group));
    limits.min_by_key(Limit::left)
}

/// Returns how many processes of this memory group the kernel has killed for want of memory; `None` where the group does not count them.
pub(crate) fn kills() -> Option<u64> {
    groups("memory").iter().find_map(kills_of)
}

/// Returns the least quota of processor time, in CPUs, if any group sets one.
pub(crate) fn cpus() -> Option<Limit<f64>> {
    let quotas = groups("cpu").into_iter().filter_map(|group| quota_of(&group));
    quotas.min_by(|a, b| a.limit.total_cmp(&b.limit))
}

/// Returns the bytes of memory that this process may take now beside what is in use.
pub(crate) fn memory_available() -> u64 {
    within(memory().as_ref(), meminfo("MemAvailable").unwrap_or(0))
}

/// The same in `group`, where other programs' memory that lies idle may leave for swap.
pub(crate) fn memory_available_with_swap(group: Option<&Limit<u64>>) -> u64 {
    let get = |name| meminfo(name).unwrap_or(0);
    let idle = get("Inactive(anon)").saturating_sub(get("Shmem"));
    within(group, get("MemAvailable") + idle.min(get("SwapFree")))
}

/// Returns the part of `machine` bytes that the group allows beside what is in use.
fn within(group: Option<&Limit<u64>>, machine: u64) -> u64 {
    group.map_or(machine, |group| group.left().min(machine))
}

/// Returns the most memory that this process may have, in bytes: the machine's, or less where a group says so.
pub(crate) fn memory_allowed() -> u64 {
    let all = meminfo("MemTotal").unwrap_or(0);
    memory().map_or(all, |limit| limit.limit.min(all))
}

/// A directory of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Group {
    directory: PathBuf,
    version: u8,
}

/// Returns the groups of this process that a controller may limit, inner ones first.
fn groups(controller: &str) -> Vec<Group> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    parse(&read("/proc/self/cgroup"), &read("/proc/self/mountinfo"), controller)
}

/// Finds the groups in the texts of /proc/self/cgroup and /proc/self/mountinfo.
fn parse(of_process: &str, mounts: &str, controller: &str) -> Vec<Group> {
    let mut found = Vec::new();
    for line in of_process.lines() {
        // Number of the hierarchy, its controllers, the group's path.
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next()) else {
            continue;
        };
        let version = if controllers.is_empty() { 2 } else { 1 };
        if version == 1 && !controllers.split(',').any(|name| name == controller) {
            continue;
        }
        let Some((root, at)) = mounts.lines().find_map(|line| mounted(line, version, controller)) else {
            continue;
        };
        // The mounted directory may be a group of the hierarchy, as in containers. Without a namespace the path still begins at
        // its root.
        let inside = Path::new(path).strip_prefix(&root).unwrap_or(Path::new(""));
        let inner: PathBuf = at.components().chain(inside.components()).collect();
        let up = inner.ancestors().take_while(|directory| directory.starts_with(&at));
        found.extend(up.map(|directory| Group { directory: directory.to_owned(), version }));
    }
    found
}

/// Returns the root and the place of a mount of the hierarchy.
fn mounted(line: &str, version: u8, controller: &str) -> Option<(PathBuf, PathBuf)> {
    let (before, behind) = line.split_once(" - ")?;
    let mut fields = before.split(' ').skip(3);
    let (root, at) = (fields.next()?, fields.next()?);
    let mut fields = behind.split(' ');
    let (kind, options) = (fields.next()?, fields.nth(1)?);
    let right = match version {
        2 => kind == "cgroup2",
        _ => kind == "cgroup" && options.split(',').any(|option| option == controller),
    };
    right.then(|| (root.into(), at.into()))
}

fn text(file: &Path) -> Option<String> {
    Some(std::fs::read_to_string(file).ok()?.trim().to_owned())
}

fn number(file: &Path) -> Option<u64> {
    text(file)?.parse().ok()
}

fn memory_of(group: &Group) -> Option<Limit<u64>> {
    let file = |name: &str| group.directory.join(name);
    let (limit, used, none, cached) = match group.version {
        2 => ("memory.max", "memory.current", "max", ["active_file ", "inactive_file "]),
        _ => (
            "memory.limit_in_bytes",
            "memory.usage_in_bytes",
            "-1",
            ["total_active_file ", "total_inactive_file "],
        ),
    };
    // Version 1 shows "no limit" as the largest multiple of a page that it can hold.
    let bytes = number(&file(limit)).filter(|&bytes| bytes < i64::MAX as u64 - (1 << 20))?;
    let counts = text(&file("memory.stat")).unwrap_or_default();
    let count = |name: &str| counts.lines().find_map(|line| line.strip_prefix(name)?.parse::<u64>().ok());
    let [files_in_use, idle_files] = cached.map(|name| count(name).unwrap_or(0));
    let used = number(&file(used)).unwrap_or(0).saturating_sub(files_in_use + idle_files);
    Some(Limit { limit: bytes, file: file(limit), none, used, files_in_use })
}

fn kills_of(group: &Group) -> Option<u64> {
    let file = if group.version == 2 { "memory.events" } else { "memory.oom_control" };
    let counts = text(&group.directory.join(file))?;
    counts.lines().find_map(|line| line.strip_prefix("oom_kill ")?.parse().ok())
}

fn quota_of(group: &Group) -> Option<Limit<f64>> {
    let file = |name: &str| group.directory.join(name);
    let (limit, file, none) = match group.version {
        2 => (quota(&text(&file("cpu.max"))?)?, file("cpu.max"), "max"),
        _ => {
            let period = number(&file("cpu.cfs_period_us")).filter(|&period| period > 0)?;
            let quota = number(&file("cpu.cfs_quota_us"))?;
            (quota as f64 / period as f64, file("cpu.cfs_quota_us"), "-1")
        }
    };
    Some(Limit { limit, file, none, used: 0.0, files_in_use: 0.0 })
}

/// Reads `cpu.max`, quota and period, as a number of CPUs; `None` where there is no quota.
fn quota(text: &str) -> Option<f64> {
    let (quota, period) = text.split_once(' ')?;
    Some(quota.parse::<f64>().ok()? / period.parse::<f64>().ok().filter(|&p| p > 0.0)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directories(of_process: &str, mounts: &str, controller: &str) -> Vec<String> {
        let groups = parse(of_process, mounts, controller);
        groups.iter().map(|g| format!("{} {}", g.version, g.directory.display())).collect()
    }

    /// Limits of memory groups of version 1 were not seen: only the line of version 2 was looked at.
    #[test]
    fn groups_of_both_versions_are_found() {
        let of_process = "4:memory:/work/a\n3:cpu,cpuacct:/\n1:name=systemd:/x\n0::/user\n";
        let mounts = "30 24 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
            31 30 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
            32 30 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
            33 30 0:29 / /sys/fs/cgroup/unified rw shared:9 - cgroup2 cgroup2 rw\n";
        assert_eq!(
            directories(of_process, mounts, "memory"),
            [
                "1 /sys/fs/cgroup/memory/work/a",
                "1 /sys/fs/cgroup/memory/work",
                "1 /sys/fs/cgroup/memory",
                "2 /sys/fs/cgroup/unified/user",
                "2 /sys/fs/cgroup/unified"
            ]
        );
        assert_eq!(directories(of_process, mounts, "cpu")[0], "1 /sys/fs/cgroup/cpu,cpuacct");
    }

    #[test]
    fn a_container_sees_its_own_group_as_the_root() {
        let mounts = "31 30 0:27 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n\
            40 30 0:29 / /sys/fs/cgroup rw - cgroup2 cgroup rw\n";
        assert_eq!(directories("4:memory:/docker/abc\n", mounts, "memory"), ["1 /sys/fs/cgroup/memory"]);
        assert_eq!(directories("0::/\n", mounts, "memory"), ["2 /sys/fs/cgroup"]);
        assert!(directories("", mounts, "memory").is_empty() && directories("0::/", "", "memory").is_empty());
    }

    #[test]
    fn limits_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let group = |version| Group { directory: folder.path().to_owned(), version };
        let put = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        assert_eq!(memory_of(&group(1)), None);
        put("memory.limit_in_bytes", "9223372036854771712\n");
        put("memory.max", "max\n");
        put("cpu.max", "max 100000\n");
        put("cpu.cfs_period_us", "100000\n");
        put("cpu.cfs_quota_us", "-1\n");
        assert_eq!((memory_of(&group(1)), memory_of(&group(2))), (None, None));
        assert_eq!((quota_of(&group(1)), quota_of(&group(2))), (None, None));
        put("memory.limit_in_bytes", "268435456\n");
        put("memory.usage_in_bytes", "4096\n");
        assert_eq!((kills_of(&group(1)), kills_of(&group(2))), (None, None));
        put("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n");
        put("memory.events", "low 0\nhigh 0\nmax 9\noom 2\noom_kill 2\noom_group_kill 0\n");
        assert_eq!((kills_of(&group(1)), kills_of(&group(2))), (Some(3), Some(2)));
        put("cpu.max", "150000 100000\n");
        put("cpu.cfs_quota_us", "50000\n");
        let limit = memory_of(&group(1)).unwrap();
        assert_eq!((limit.limit, limit.used, limit.none), (256 << 20, 4096, "-1"));
        assert_eq!(quota_of(&group(1)).unwrap().limit, 0.5);
        assert_eq!(quota_of(&group(2)).unwrap().limit, 1.5);
    }
}
