//! Memory: huge pages, swap, control groups, overcommit.

use std::path::{Path, PathBuf};

use super::Finding;
use crate::machine::{line, meminfo};
use crate::run::summary::bytes;

const HUGE: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB";

pub(crate) fn look() -> Vec<Finding> {
    vec![huge_pages(), swap(), overcommit(), group()]
}

fn number(path: impl AsRef<Path>) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn huge_pages() -> Finding {
    let read = |name: &str| number(format!("{HUGE}/{name}")).unwrap_or(0);
    let (all, free, over) = (read("nr_hugepages"), read("free_hugepages"), read("nr_overcommit_hugepages"));
    let found = format!("{all} of 2M reserved, {free} free, {over} more on demand");
    if free + over > 0 {
        Finding::ok("huge pages", found)
    } else {
        let found = format!("{found}: --page 2M cannot be used");
        Finding::slow("huge pages", found, "sysctl -w vm.nr_overcommit_hugepages=4096 (or vm.nr_hugepages=N)")
    }
}

fn swap() -> Finding {
    let (total, free) = (meminfo("SwapTotal").unwrap_or(0), meminfo("SwapFree").unwrap_or(0));
    let zswap = match line("/sys/module/zswap/parameters/enabled").as_str() {
        "Y" => ", zswap on",
        _ => "",
    };
    if total == 0 {
        return Finding::ok("swap", format!("none{zswap}; atoll needs none"));
    }
    Finding::ok("swap", format!("{} of {} in use{zswap}", bytes(total - free.min(total)), bytes(total)))
}

fn overcommit() -> Finding {
    let mode = line("/proc/sys/vm/overcommit_memory");
    if mode == "2" {
        return Finding::missing(
            "overcommit",
            "vm.overcommit_memory is 2, which refuses the arena's address space",
            "sysctl -w vm.overcommit_memory=0",
        );
    }
    Finding::ok("overcommit", format!("vm.overcommit_memory is {mode}"))
}

/// The directories of this process's memory group, inner first.
pub(crate) fn groups() -> Vec<PathBuf> {
    let text = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let Some(path) = text.lines().find_map(|l| l.strip_prefix("0::")) else { return Vec::new() };
    let root = Path::new("/sys/fs/cgroup");
    let inner = root.join(path.trim_start_matches('/'));
    inner.ancestors().take_while(|dir| dir.starts_with(root)).map(Path::to_owned).collect()
}

fn group() -> Finding {
    let limits = groups().into_iter().filter_map(|dir| Some((number(dir.join("memory.max"))?, dir)));
    match limits.min() {
        None => Finding::ok("memory group", "no limit"),
        Some((limit, dir)) => {
            let used = number(dir.join("memory.current")).unwrap_or(0);
            let found = format!("limit {} in {}, {} in use", bytes(limit), dir.display(), bytes(used));
            if limit.saturating_sub(used) < 256 << 20 {
                let mend = format!("echo max > {}/memory.max", dir.display());
                Finding::slow(
                    "memory group",
                    format!("{found}: keep --near and far memory below what is left"),
                    mend,
                )
            } else {
                Finding::ok("memory group", format!("{found}; --near and far memory in RAM count against it"))
            }
        }
    }
}
