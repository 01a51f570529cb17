//! Describes this machine, for records.

use std::mem::MaybeUninit;

use atoll_pages::Size;
use atoll_record::run::Machine;

/// Returns the description of this machine as it is now.
pub(crate) fn machine() -> Machine {
    Machine {
        host: line("/proc/sys/kernel/hostname"),
        kernel: line("/proc/sys/kernel/osrelease"),
        cpu: cpu_model(),
        cpus_online: cpus_online(),
        cpus_usable: usable_cpus(),
        memory_bytes: meminfo("MemTotal").unwrap_or(0),
    }
}

/// Returns this machine's name.
pub(crate) fn host() -> String {
    line("/proc/sys/kernel/hostname")
}

/// Returns the first line of a file; empty if it cannot be read.
pub(crate) fn line(path: &str) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().next().unwrap_or_default().trim().to_owned()
}

/// Returns a value of /proc/meminfo; in bytes where it has a unit.
pub(crate) fn meminfo(name: &str) -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':'))?;
    let mut words = line.split_ascii_whitespace();
    let n: u64 = words.next()?.parse().ok()?;
    Some(if words.next() == Some("kB") { n << 10 } else { n })
}

fn cpu_model() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let value = |key| {
        let line = text.lines().find_map(|l| l.strip_prefix(key)?.split_once(':'));
        line.map(|(_, value)| value.trim().to_owned())
    };
    // Arm's kernel has no names, but the numbers of the implementer and of the part.
    let numbers = || Some(format!("implementer {}, part {}", value("CPU implementer")?, value("CPU part")?));
    value("model name").or_else(numbers).unwrap_or_default()
}

/// Returns the size of the kernel's pages where atoll cannot manage them: it is not 4K, as with some kernels for Arm.
pub(crate) fn unmanaged_pages() -> Option<Size> {
    // SAFETY: no pointers.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    (bytes != 4096).then_some(Size(bytes.max(0) as u64))
}

/// Returns the number of CPUs that are online.
pub(crate) fn cpus_online() -> u32 {
    // SAFETY: no pointers.
    unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) }.max(1) as u32
}

/// Returns the number of CPUs that this process may use.
pub(crate) fn usable_cpus() -> u32 {
    usable_cpu_numbers().map_or_else(cpus_online, |cpus| cpus.len().max(1) as u32)
}

/// Returns the CPUs that this process may use, ascending; where the kernel does not say, as many as are online.
pub(crate) fn usable_cpu_list() -> Vec<u32> {
    usable_cpu_numbers()
        .filter(|cpus| !cpus.is_empty())
        .map_or_else(|| (0..cpus_online()).collect(), |cpus| cpus.into_iter().map(|cpu| cpu as u32).collect())
}

/// Returns the CPUs that this process may use, ascending; `None` where the kernel does not say.
pub(crate) fn usable_cpu_numbers() -> Option<Vec<usize>> {
    // SAFETY: the set is valid for writes, and read only if it was filled.
    unsafe {
        let mut set = MaybeUninit::<libc::cpu_set_t>::zeroed();
        if libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), set.as_mut_ptr()) != 0 {
            return None;
        }
        let set = set.assume_init();
        Some((0..libc::CPU_SETSIZE as usize).filter(|&cpu| libc::CPU_ISSET(cpu, &set)).collect())
    }
}
