//! Opens files by the same calls of this machine, except files that are memory, which would lead out of the segment.
//!
//! These are `/proc/PID/mem` of any process, above all atoll's own, and `/dev/mem`. A file is checked once it is open, so that
//! no other name or link leads to it. For a moment another core of the program could use it, if it guessed its number. A
//! program may open every other file that its user may open.

use std::os::unix::ffi::OsStrExt;

use super::pass::Kind::{Fd, Path, Value};
use super::{Caller, Delegate, pass};
use crate::errno::{Errno, syscall};

type Served = Result<u64, Errno>;

pub(super) fn open(d: &Delegate, _: &mut Caller, a: [u64; 6]) -> Served {
    checked(d, pass::pass(d, libc::SYS_open, &[Path, Value, Value], a)?)
}

pub(super) fn openat(d: &Delegate, _: &mut Caller, a: [u64; 6]) -> Served {
    checked(d, pass::pass(d, libc::SYS_openat, &[Fd, Path, Value, Value], a)?)
}

pub(super) fn creat(d: &Delegate, _: &mut Caller, a: [u64; 6]) -> Served {
    checked(d, pass::pass(d, libc::SYS_creat, &[Path, Value], a)?)
}

/// Returns the descriptor, or closes it and refuses.
fn checked(d: &Delegate, fd: u64) -> Served {
    if !is_memory(fd as i32) {
        return Ok(fd);
    }
    d.tell_memory();
    // SAFETY: the descriptor that was just opened.
    unsafe { syscall(libc::SYS_close, [fd, 0, 0, 0, 0, 0]) }?;
    Err(Errno(libc::EACCES))
}

/// Whether the file is some process's memory, or the machine's.
fn is_memory(fd: i32) -> bool {
    // SAFETY: plain data, for which zeros are valid.
    let (mut system, mut file): (libc::statfs, libc::stat) = unsafe { std::mem::zeroed() };
    // SAFETY: valid for writes.
    if unsafe { libc::syscall(libc::SYS_fstat, fd, &raw mut file) } == 0
        && file.st_mode & libc::S_IFMT == libc::S_IFCHR
    {
        // 1 and 2 are the memory devices of physical and of the kernel's memory.
        return libc::major(file.st_rdev) == 1 && [1, 2].contains(&libc::minor(file.st_rdev));
    }
    // SAFETY: valid for writes.
    if unsafe { libc::fstatfs(fd, &raw mut system) } != 0 || system.f_type != libc::PROC_SUPER_MAGIC {
        return false;
    }
    // A file whose name cannot be found out counts as memory.
    let name = std::fs::read_link(format!("/proc/self/fd/{fd}"));
    name.map_or(true, |path| path.as_os_str().as_bytes().ends_with(b"/mem"))
}
