//! The needs of `atoll run --translation segment`: reserved huge pages, transparent ones in their place, locked memory.

use atoll_memory::segment::PageKind;

use super::Finding;
use crate::machine::{line, meminfo};
use crate::run::summary::bytes;

pub(crate) fn look() -> Vec<Finding> {
    vec![pages(), transparent(), locked()]
}

/// Returns the part of the available memory that could be reserved in pages of 1G, with something left for the rest.
fn worth_reserving() -> u64 {
    (meminfo("MemAvailable").unwrap_or(0) >> 30).saturating_sub(1).max(1)
}

fn pages() -> Finding {
    let (gigantic, huge) = (PageKind::Huge1G.free(), PageKind::Huge2M.free());
    let found = format!("{gigantic} pages of 1G and {huge} of 2M are reserved and free");
    if gigantic > 0 {
        return Finding::ok("segment", found);
    }
    let pool = |kind: PageKind| kind.pool().filter(|pool| pool.exists());
    let n = worth_reserving();
    let mend = match pool(PageKind::Huge1G) {
        Some(pool) => format!(
            "echo {n} > {}/nr_hugepages (up to {n}; soon after boot, or hugepagesz=1G hugepages={n} on the kernel's command line)",
            pool.display()
        ),
        None => format!("sysctl -w vm.nr_hugepages={}", n * 512),
    };
    let found = if huge > 0 {
        format!("{found}: --translation segment uses pages of 2M")
    } else {
        format!("{found}: --translation segment falls back to transparent huge pages")
    };
    Finding::slow("segment", found, mend)
}

fn transparent() -> Finding {
    let mode = line("/sys/kernel/mm/transparent_hugepage/enabled");
    if mode.contains("[never]") {
        return Finding::slow(
            "transparent pages",
            "never: a segment without reserved pages may lie on 4K pages",
            "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
        );
    }
    let chosen = mode.split(['[', ']']).nth(1).unwrap_or("not there").to_owned();
    Finding::ok("transparent pages", chosen)
}

fn locked() -> Finding {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: 0 };
    // SAFETY: valid for writes.
    unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) };
    // SAFETY: no arguments.
    if limit.rlim_cur == libc::RLIM_INFINITY || unsafe { libc::geteuid() } == 0 {
        return Finding::ok("locked memory", "not limited");
    }
    let found = format!("at most {}: not all of a segment's program can be locked", bytes(limit.rlim_cur));
    Finding::slow("locked memory", found, "ulimit -l unlimited")
}
