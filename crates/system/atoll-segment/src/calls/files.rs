//! Calls on files whose arguments or structures differ between the widths.
//!
//! The other calls on files are passed on unchanged, see `pass.rs`.

use super::pass::PATH_MAX;
use super::{Caller, Delegate};
use crate::errno::{EFAULT, Errno, syscall};

type Served = Result<u64, Errno>;

const EINVAL: Errno = Errno(libc::EINVAL);

/// Joins the two registers in which a 32-bit program passes a 64-bit number.
fn wide(low: u64, high: u64) -> u64 {
    low & 0xffff_ffff | high << 32
}

pub(super) fn llseek(d: &Delegate, _: &mut Caller, a: [u64; 6]) -> Served {
    let fd = d.fd(a[0])?;
    d.window.address(a[3], 8)?;
    // SAFETY: no pointers.
    let at = unsafe { syscall(libc::SYS_lseek, [fd, wide(a[2], a[1]), a[4], 0, 0, 0]) }?;
    d.window.write(a[3], at)?;
    Ok(0)
}

fn at_offset(d: &Delegate, host: libc::c_long, a: [u64; 6]) -> Served {
    let (fd, buffer) = (d.fd(a[0])?, d.window.address(a[1], a[2])? as u64);
    let offset = if d.is_32() { wide(a[3], a[4]) } else { a[3] };
    // SAFETY: the buffer was checked.
    unsafe { syscall(host, [fd, buffer, a[2], offset, 0, 0]) }
}

pub(super) fn pread(d: &Delegate, _: &mut Caller, a: [u64; 6]) -> Served {
    at_offset(d, libc::SYS_pread64, a)
}

pub(super) fn pwrite(d: &Delegate, _: &mut Caller, a: [u64; 6]) -> Served {
    at_offset(d, libc::SYS_pwrite64, a)
}

/// The most buffers of one call (UIO_MAXIOV).
const MOST_BUFFERS: u64 = 1024;

fn vectored(d: &Delegate, host: libc::c_long, a: [u64; 6]) -> Served {
    let (fd, count) = (d.fd(a[0])?, u64::from(a[2] as u32));
    if count > MOST_BUFFERS {
        return Err(EINVAL);
    }
    let mut buffers: Vec<[u64; 2]> = Vec::with_capacity(count as usize);
    for i in 0..count {
        let [at, len] = if d.is_32() {
            d.window.read::<[u32; 2]>(a[1].checked_add(8 * i).ok_or(EFAULT)?)?.map(u64::from)
        } else {
            d.window.read::<[u64; 2]>(a[1].checked_add(16 * i).ok_or(EFAULT)?)?
        };
        buffers.push([d.window.address(at, len)? as u64, len]);
    }
    // SAFETY: the buffers were checked, and their list is ours.
    unsafe { syscall(host, [fd, buffers.as_ptr() as u64, count, 0, 0, 0]) }
}

pub(super) fn readv(d: &Delegate, _: &mut Caller, a: [u64; 6]) -> Served {
    vectored(d, libc::SYS_readv, a)
}

pub(super) fn writev(d: &Delegate, _: &mut Caller, a: [u64; 6]) -> Served {
    vectored(d, libc::SYS_writev, a)
}

/// Writes i386's `struct stat64`.
fn write_stat64(d: &Delegate, to: u64, s: &libc::stat) -> Served {
    let mut out = [0_u8; 96];
    let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
    let seconds = |t: i64| (t as i32).to_le_bytes();
    put(0, &s.st_dev.to_le_bytes());
    put(12, &(s.st_ino as u32).to_le_bytes());
    put(16, &s.st_mode.to_le_bytes());
    put(20, &(s.st_nlink as u32).to_le_bytes());
    put(24, &s.st_uid.to_le_bytes());
    put(28, &s.st_gid.to_le_bytes());
    put(32, &s.st_rdev.to_le_bytes());
    put(44, &s.st_size.to_le_bytes());
    put(52, &(s.st_blksize as u32).to_le_bytes());
    put(56, &s.st_blocks.to_le_bytes());
    put(64, &seconds(s.st_atime));
    put(68, &seconds(s.st_atime_nsec));
    put(72, &seconds(s.st_mtime));
    put(76, &seconds(s.st_mtime_nsec));
    put(80, &seconds(s.st_ctime));
    put(84, &seconds(s.st_ctime_nsec));
    put(88, &s.st_ino.to_le_bytes());
    d.window.write_bytes(to, &out)?;
    Ok(0)
}

fn stat_by(d: &Delegate, to: u64, host: libc::c_long, mut a: [u64; 6], place: usize) -> Served {
    d.window.address(to, 96)?;
    // SAFETY: all zeros is a stat.
    let mut s: libc::stat = unsafe { std::mem::zeroed() };
    a[place] = &raw mut s as u64;
    // SAFETY: the structure is ours, and the caller's path is a copy.
    unsafe { syscall(host, a) }?;
    write_stat64(d, to, &s)
}

pub(super) fn stat64(d: &Delegate, _: &mut Caller, a: [u64; 6]) -> Served {
    let path = d.window.text(a[0], PATH_MAX)?;
    stat_by(d, a[1], libc::SYS_stat, [path.as_ptr() as u64, 0, 0, 0, 0, 0], 1)
}

pub(super) fn lstat64(d: &Delegate, _: &mut Caller, a: [u64; 6]) -> Served {
    let path = d.window.text(a[0], PATH_MAX)?;
    stat_by(d, a[1], libc::SYS_lstat, [path.as_ptr() as u64, 0, 0, 0, 0, 0], 1)
}

pub(super) fn fstat64(d: &Delegate, _: &mut Caller, a: [u64; 6]) -> Served {
    stat_by(d, a[1], libc::SYS_fstat, [d.fd(a[0])?, 0, 0, 0, 0, 0], 1)
}

pub(super) fn fstatat64(d: &Delegate, _: &mut Caller, a: [u64; 6]) -> Served {
    let path = d.window.text(a[1], PATH_MAX)?;
    stat_by(d, a[2], libc::SYS_newfstatat, [d.fd(a[0])?, path.as_ptr() as u64, 0, a[3], 0, 0], 2)
}

/// Returns a link's target; the program's own file is the one that runs in the segment, not atoll.
fn link(d: &Delegate, at: u64, path: u64, to: u64, len: u64) -> Served {
    let path = d.window.text(path, PATH_MAX)?;
    let buffer = d.window.address(to, len)? as u64;
    if path.as_bytes() == b"/proc/self/exe" {
        use std::os::unix::ffi::OsStrExt;
        let own = d.program.as_os_str().as_bytes();
        let own = &own[..own.len().min(len as usize)];
        d.window.write_bytes(to, own)?;
        return Ok(own.len() as u64);
    }
    // SAFETY: the path is a copy and the buffer was checked.
    unsafe { syscall(libc::SYS_readlinkat, [at, path.as_ptr() as u64, buffer, len, 0, 0]) }
}

pub(super) fn readlink(d: &Delegate, _: &mut Caller, a: [u64; 6]) -> Served {
    link(d, i64::from(libc::AT_FDCWD) as u64, a[0], a[1], a[2])
}

pub(super) fn readlinkat(d: &Delegate, _: &mut Caller, a: [u64; 6]) -> Served {
    link(d, d.fd(a[0])?, a[1], a[2], a[3])
}

pub(super) fn truncate64(d: &Delegate, _: &mut Caller, a: [u64; 6]) -> Served {
    let path = d.window.text(a[0], PATH_MAX)?;
    // SAFETY: the path is a copy.
    unsafe { syscall(libc::SYS_truncate, [path.as_ptr() as u64, wide(a[1], a[2]), 0, 0, 0, 0]) }
}

pub(super) fn ftruncate64(d: &Delegate, _: &mut Caller, a: [u64; 6]) -> Served {
    // SAFETY: no pointers.
    unsafe { syscall(libc::SYS_ftruncate, [d.fd(a[0])?, wide(a[1], a[2]), 0, 0, 0, 0]) }
}

/// Serves the commands that take a number or nothing; refuses locks and owners.
pub(super) fn fcntl(d: &Delegate, _: &mut Caller, a: [u64; 6]) -> Served {
    match a[1] as i32 {
        libc::F_DUPFD
        | libc::F_DUPFD_CLOEXEC
        | libc::F_GETFD
        | libc::F_SETFD
        | libc::F_GETFL
        | libc::F_SETFL => {
            // SAFETY: none of these takes a pointer.
            unsafe { syscall(libc::SYS_fcntl, [d.fd(a[0])?, a[1], a[2], 0, 0, 0]) }
        }
        _ => Err(EINVAL),
    }
}

/// Serves what programs ask of a terminal or a pipe; answers other requests as for a file that is no terminal.
pub(super) fn ioctl(d: &Delegate, _: &mut Caller, a: [u64; 6]) -> Served {
    let bytes = match u64::from(a[1] as u32) {
        libc::TCGETS | libc::TCSETS | libc::TCSETSW | libc::TCSETSF => 36,
        libc::TIOCGWINSZ => 8,
        libc::FIONREAD | libc::TIOCGPGRP => 4,
        _ => return Err(Errno(libc::ENOTTY)),
    };
    let argument = d.window.address(a[2], bytes)? as u64;
    // SAFETY: the argument has the size this request reads or writes.
    unsafe { syscall(libc::SYS_ioctl, [d.fd(a[0])?, a[1], argument, 0, 0, 0]) }
}

pub(super) fn poll(d: &Delegate, _: &mut Caller, a: [u64; 6]) -> Served {
    let count = u64::from(a[1] as u32);
    let list = d.window.address(a[0], count * 8)?;
    for i in 0..count {
        d.fd(u64::from(d.window.read::<u32>(a[0] + 8 * i)?))?;
    }
    // SAFETY: the list was checked.
    unsafe { syscall(libc::SYS_poll, [list as u64, count, a[2], 0, 0, 0]) }
}
