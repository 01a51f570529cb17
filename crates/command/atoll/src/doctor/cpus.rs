//! CPUs and their counters.

use super::Finding;
use crate::cgroup;
use crate::machine::{cpus_online, line, usable_cpus};

pub(crate) fn look() -> Vec<Finding> {
    vec![cpus(), quota(), clock(), pmu()]
}

fn cpus() -> Finding {
    let (usable, online) = (usable_cpus(), cpus_online());
    let found =
        format!("{usable} of {online} usable, so {usable} workers where OMP_NUM_THREADS does not say");
    if usable < online {
        let mend = format!("taskset -c 0-{} atoll run …", online - 1);
        Finding::slow("CPUs", found, mend)
    } else {
        Finding::ok("CPUs", found)
    }
}

fn quota() -> Finding {
    match cgroup::cpus() {
        Some(quota) if quota.limit < f64::from(usable_cpus()) => Finding::slow(
            "CPU group",
            format!(
                "only {:.2} CPUs' time: workers that wait for each other are stopped in turn",
                quota.limit
            ),
            format!("echo {} > {}", quota.none, quota.file.display()),
        ),
        _ => Finding::ok("CPU group", "no quota below the CPUs"),
    }
}

fn clock() -> Finding {
    let source = line("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let has = |flag: &str| info.lines().any(|l| l.starts_with("flags") && l.split(' ').any(|f| f == flag));
    if has("constant_tsc") || source == "tsc" {
        Finding::ok("time stamp counter", format!("constant; the clock source is {source}"))
    } else {
        Finding::slow(
            "time stamp counter",
            "not said to be constant: times in faults may be wrong",
            "echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource",
        )
    }
}

fn pmu() -> Finding {
    // struct perf_event_attr, its first version (64 bytes): type hardware, event cycles, user only.
    let mut attributes = [0_u64; 8];
    attributes[0] = 64 << 32;
    // Flags: disabled, exclude_kernel, exclude_hv.
    attributes[5] = 1 | 1 << 5 | 1 << 6;
    // SAFETY: the structure is valid and has the size it says.
    let fd = unsafe { libc::syscall(libc::SYS_perf_event_open, attributes.as_ptr(), 0, -1, -1, 0) };
    if fd >= 0 {
        // SAFETY: ours.
        unsafe { libc::close(fd as i32) };
        return Finding::ok("PMU", "cycles can be counted");
    }
    let error = std::io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => Finding::slow(
            "PMU",
            format!("counting is refused ({error})"),
            "sysctl -w kernel.perf_event_paranoid=1",
        ),
        _ => Finding::slow(
            "PMU",
            format!("no hardware counters ({error}): usual in virtual machines; only sampling needs them"),
            "give the virtual machine a PMU (qemu: -cpu host,pmu=on)",
        ),
    }
}
