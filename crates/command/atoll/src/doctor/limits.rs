//! Limits of this process.

use super::Finding;
use crate::machine::line;
use crate::run::summary::bytes;

/// The number of mappings that the arena, the workers' stacks and a large program take together, with room.
const MAPPINGS: u64 = 65_530;
/// The bytes of address space that the arena takes.
const ADDRESS_SPACE: u64 = 1 << 45;
/// The greatest stack in bytes that is worth moving: a larger one is moved page by page for nothing.
const STACK: u64 = 1 << 30;

pub(crate) fn look() -> Vec<Finding> {
    vec![address_space(), stack(), open_files(), mappings()]
}

/// Returns the soft limit; `None`: unlimited.
fn limit(resource: libc::__rlimit_resource_t) -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: 0 };
    // SAFETY: valid for writes.
    unsafe { libc::getrlimit(resource, &raw mut limit) };
    (limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

fn address_space() -> Finding {
    match limit(libc::RLIMIT_AS) {
        Some(most) if most < ADDRESS_SPACE => Finding::missing(
            "address space",
            format!("limited to {}, and the arena takes terabytes of it", bytes(most)),
            "ulimit -v unlimited",
        ),
        _ => Finding::ok("address space", "not limited"),
    }
}

fn stack() -> Finding {
    match limit(libc::RLIMIT_STACK) {
        Some(most) if most <= STACK => Finding::ok("stack", bytes(most)),
        most => Finding::slow(
            "stack",
            format!("{}: the main stack gets 1G of it", most.map_or("unlimited".to_owned(), bytes)),
            "ulimit -s 65536",
        ),
    }
}

fn open_files() -> Finding {
    match limit(libc::RLIMIT_NOFILE) {
        Some(most) if most < 256 => Finding::slow(
            "open files",
            format!("at most {most}, and every worker takes some of the program's"),
            "ulimit -n 1024",
        ),
        most => Finding::ok("open files", most.map_or("not limited".to_owned(), |n| format!("at most {n}"))),
    }
}

fn mappings() -> Finding {
    let text = line("/proc/sys/vm/max_map_count");
    match text.parse::<u64>() {
        Ok(most) if most < MAPPINGS => Finding::slow(
            "mappings",
            format!("vm.max_map_count is {most}, less than the usual {MAPPINGS}"),
            format!("sysctl -w vm.max_map_count={MAPPINGS}"),
        ),
        _ => Finding::ok("mappings", format!("vm.max_map_count is {text}")),
    }
}
