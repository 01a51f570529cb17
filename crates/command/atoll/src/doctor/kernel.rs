//! The kernel and the filters between it and this process.

use super::Finding;
use crate::machine::line;

pub(crate) fn look() -> Vec<Finding> {
    vec![version(&line("/proc/sys/kernel/osrelease")), seccomp(), io_uring()]
}

fn version(release: &str) -> Finding {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version >= (5, 19) {
        Finding::ok("kernel", format!("Linux {release}"))
    } else {
        let found = format!("Linux {release} is older than 5.19, which first write-protects shared memory");
        Finding::missing("kernel", found, "apt-get install linux-image-amd64 (then boot it)")
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
    fn kernels_are_old_before_5_19() {
        for (release, state) in [
            ("6.1.0-13-amd64", State::Ok),
            ("5.19.0", State::Ok),
            ("5.18.19", State::Missing),
            ("", State::Missing),
        ] {
            assert_eq!(version(release).state, state, "{release}");
        }
    }
}
