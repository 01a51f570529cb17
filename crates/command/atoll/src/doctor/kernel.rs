//! The kernel and the filters between it and this process.

use atoll_pages::Size;

use super::Finding;
use crate::arch::OLDEST_KERNEL;
use crate::machine::{line, unmanaged_pages};

pub(crate) fn look() -> Vec<Finding> {
    vec![version(&line("/proc/sys/kernel/osrelease")), pages(unmanaged_pages()), seccomp(), io_uring()]
}

fn version(release: &str) -> Finding {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let (major, minor) = OLDEST_KERNEL.version;
    if version >= OLDEST_KERNEL.version {
        Finding::ok("kernel", format!("Linux {release}"))
    } else {
        let found = format!(
            "Linux {release} is older than {major}.{minor}, which first write-protects shared memory"
        );
        Finding::missing("kernel", found, format!("apt-get install {} (then boot it)", OLDEST_KERNEL.package))
    }
}

fn pages(unmanaged: Option<Size>) -> Finding {
    match unmanaged {
        None => Finding::ok("pages", "of 4K"),
        Some(size) => Finding::missing(
            "pages",
            format!("of {size}, and atoll manages pages of 4K"),
            format!("apt-get install {} (then boot it)", OLDEST_KERNEL.package),
        ),
    }
}

fn container() -> Option<&'static str> {
    let exists = |path: &str| std::path::Path::new(path).exists();
    if exists("/.dockerenv") {
        return Some("docker");
    }
    if exists("/run/.containerenv") {
        return Some("podman");
    }
    std::env::var_os("container").map(|_| "a container")
}

fn seccomp() -> Finding {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mode = status.lines().find_map(|l| l.strip_prefix("Seccomp:")).map_or("0", str::trim);
    let inside = container().map_or(String::new(), |c| format!(", in {c}"));
    if mode == "0" {
        return Finding::ok("seccomp", format!("no filter{inside}"));
    }
    // A filter harms only if it forbids one of these.
    // SAFETY: invalid arguments; allowed or not, the call does nothing.
    let forbidden = [("pidfd_open", libc::SYS_pidfd_open), ("memfd_create", libc::SYS_memfd_create)]
        .into_iter()
        .filter(|(_, number)| unsafe { libc::syscall(*number, 0, !0) } < 0 && errno_is_permission())
        .map(|(name, _)| name)
        .collect::<Vec<_>>();
    if forbidden.is_empty() {
        return Finding::ok("seccomp", format!("a filter{inside}, which allows what atoll needs"));
    }
    Finding::missing(
        "seccomp",
        format!("a filter{inside} forbids {}", forbidden.join(", ")),
        "docker run --security-opt seccomp=unconfined …",
    )
}

fn errno_is_permission() -> bool {
    matches!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EPERM | libc::ENOSYS))
}

fn io_uring() -> Finding {
    let mut parameters = [0_u8; 120];
    // SAFETY: the structure has 120 bytes, zeros ask for nothing.
    let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, 1, parameters.as_mut_ptr()) };
    if fd >= 0 {
        // SAFETY: ours.
        unsafe { libc::close(fd as i32) };
        return Finding::ok("io_uring", "allowed (--far file)");
    }
    let error = std::io::Error::last_os_error();
    Finding::slow(
        "io_uring",
        format!("refused ({error}), so --far file cannot be used or is slow"),
        "sysctl -w kernel.io_uring_disabled=0",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::State;

    #[test]
    fn kernels_are_old_before_the_first_that_write_protects_shared_memory() {
        let (major, minor) = OLDEST_KERNEL.version;
        for (release, state) in [
            (format!("{}.1.0-13-generic", major + 1), State::Ok),
            (format!("{major}.{minor}.0"), State::Ok),
            (format!("{major}.{}.19", minor - 1), State::Missing),
            (String::new(), State::Missing),
        ] {
            assert_eq!(version(&release).state, state, "{release}");
        }
    }

    #[test]
    fn pages_of_other_sizes_are_refused() {
        assert_eq!(pages(None).state, State::Ok);
        let finding = pages(Some(Size(64 << 10)));
        assert_eq!(finding.state, State::Missing);
        assert_eq!(finding.found, "of 64K, and atoll manages pages of 4K");
    }
}
