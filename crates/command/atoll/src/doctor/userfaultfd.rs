//! userfaultfd: whether this process may use it, and whether it has what atoll needs.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::Finding;

const USER_MODE_ONLY: i32 = 1;
const IOC_NEW: libc::c_ulong = 0xAA00;
const IOC_API: libc::c_ulong = 0xC018_AA3F;
const API: u64 = 0xAA;

/// The features by bit, and the purpose of each.
const FEATURES: [(u32, &str); 6] = [
    (0, "write protection"),
    (5, "faults in shared memory"),
    (7, "SIGBUS"),
    (9, "minor faults in huge pages"),
    (10, "minor faults in shared memory"),
    (12, "write protection of shared memory"),
];

const ALLOW: &str = "chmod 666 /dev/userfaultfd (or: sysctl -w vm.unprivileged_userfaultfd=1); in docker: \
                     --security-opt seccomp=unconfined, or --device /dev/userfaultfd";

pub(crate) fn look() -> Vec<Finding> {
    let (own, thread) = (open(USER_MODE_ONLY), open(0));
    let mut findings = vec![match &own {
        Ok((fd, how)) => match missing_features(fd) {
            Ok(missing) if missing.is_empty() => {
                Finding::ok("userfaultfd", format!("by {how}, with every feature needed"))
            }
            Ok(missing) => Finding::missing(
                "userfaultfd",
                format!("this kernel lacks: {}", missing.join(", ")),
                "apt-get install linux-image-amd64 (then boot it: 5.19 or later)",
            ),
            Err(error) => Finding::missing("userfaultfd", format!("no handshake: {error}"), ALLOW),
        },
        Err(error) => Finding::missing("userfaultfd", format!("refused: {error}"), ALLOW),
    }];
    findings.push(match thread {
        Ok(_) => Finding::ok("userfaultfd in system calls", "allowed (--faults thread)"),
        Err(error) => Finding::slow(
            "userfaultfd in system calls",
            format!("{error}: --faults thread cannot be used"),
            "sysctl -w vm.unprivileged_userfaultfd=1",
        ),
    });
    findings
}

/// Opens a descriptor; returns it and the way in which it was opened.
fn open(flags: i32) -> io::Result<(OwnedFd, &'static str)> {
    // SAFETY: no pointers.
    let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | flags) };
    if fd >= 0 {
        // SAFETY: a fresh descriptor.
        return Ok((unsafe { OwnedFd::from_raw_fd(fd as i32) }, "the system call"));
    }
    let refused = io::Error::last_os_error();
    let Ok(device) = OpenOptions::new().read(true).write(true).open("/dev/userfaultfd") else {
        return Err(refused);
    };
    // SAFETY: the flags are passed by value.
    let fd = unsafe { libc::ioctl(device.as_raw_fd(), IOC_NEW, libc::O_CLOEXEC | flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a fresh descriptor.
    Ok((unsafe { OwnedFd::from_raw_fd(fd) }, "/dev/userfaultfd"))
}

fn missing_features(fd: &OwnedFd) -> io::Result<Vec<&'static str>> {
    let mut argument = [API, 0, 0];
    // SAFETY: the structure has three words: version, features, ioctls. No features asked for tells all there are.
    if unsafe { libc::ioctl(fd.as_raw_fd(), IOC_API, argument.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(FEATURES.iter().filter(|(bit, _)| argument[1] >> bit & 1 == 0).map(|(_, what)| *what).collect())
}
