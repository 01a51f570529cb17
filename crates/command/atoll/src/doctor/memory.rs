//! Memory: huge pages, swap, control groups, overcommit.

use std::path::Path;

use super::Finding;
use crate::cgroup;
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

fn group() -> Finding {
    let Some(limit) = cgroup::memory() else { return Finding::ok("memory group", "no limit") };
    let left = limit.left();
    let found = format!(
        "limit {} in {}, {} in use",
        bytes(limit.limit),
        limit.file.parent().unwrap_or(&limit.file).display(),
        bytes(limit.used)
    );
    if left < 256 << 20 {
        let mend = format!("echo {} > {}", limit.none, limit.file.display());
        Finding::slow("memory group", format!("{found}: keep --near and far memory below what is left"), mend)
    } else {
        Finding::ok("memory group", format!("{found}; --near and far memory in RAM count against it"))
    }
}
