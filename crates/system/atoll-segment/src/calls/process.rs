//! Calls about the process and the machine.
//!
//! Structures are narrower for 32-bit programs. Limits that the segment sets are reported as such.

use super::{Caller, Delegate};
use crate::errno::{Errno, syscall};

type Served = Result<u64, Errno>;

/// The value reported for numbers that do not fit into 16 bits.
const OVERFLOW: u64 = 65534;

fn narrow(host: libc::c_long) -> Served {
    // SAFETY: these calls take no arguments.
    let id = unsafe { syscall(host, [0; 6]) }?;
    Ok(if id > 0xffff { OVERFLOW } else { id })
}

pub(super) fn getuid16(_: &Delegate, _: &mut Caller, _: [u64; 6]) -> Served {
    narrow(libc::SYS_getuid)
}

pub(super) fn getgid16(_: &Delegate, _: &mut Caller, _: [u64; 6]) -> Served {
    narrow(libc::SYS_getgid)
}

pub(super) fn geteuid16(_: &Delegate, _: &mut Caller, _: [u64; 6]) -> Served {
    narrow(libc::SYS_geteuid)
}

pub(super) fn getegid16(_: &Delegate, _: &mut Caller, _: [u64; 6]) -> Served {
    narrow(libc::SYS_getegid)
}

/// Serves `uname`; a 32-bit program's machine is an i686.
pub(super) fn uname(d: &Delegate, _: &mut Caller, a: [u64; 6]) -> Served {
    let to = d.window.address(a[0], 6 * 65)?;
    // SAFETY: the structure was checked.
    unsafe { syscall(libc::SYS_uname, [to as u64, 0, 0, 0, 0, 0]) }?;
    if d.is_32() {
        d.window.write_bytes(a[0] + 4 * 65, b"i686\0\0\0")?;
    }
    Ok(0)
}

pub(super) fn sysinfo(d: &Delegate, _: &mut Caller, a: [u64; 6]) -> Served {
    d.window.address(a[0], if d.is_32() { 64 } else { 112 })?;
    // SAFETY: all zeros is a sysinfo.
    let mut info: libc::sysinfo = unsafe { std::mem::zeroed() };
    // SAFETY: the structure is ours.
    unsafe { syscall(libc::SYS_sysinfo, [&raw mut info as u64, 0, 0, 0, 0, 0]) }?;
    if !d.is_32() {
        // SAFETY: the range was checked, and no reference is made into it.
        unsafe { d.window.address(a[0], 112)?.cast::<libc::sysinfo>().write_unaligned(info) };
        return Ok(0);
    }
    // The sizes are in a unit that makes them fit into 32 bits.
    let unit = 4096_u64;
    let size = |bytes: u64| (bytes * u64::from(info.mem_unit) / unit) as u32;
    let words = [
        info.uptime as u32,
        info.loads[0] as u32,
        info.loads[1] as u32,
        info.loads[2] as u32,
        size(info.totalram),
        size(info.freeram),
        size(info.sharedram),
        size(info.bufferram),
        size(info.totalswap),
        size(info.freeswap),
        u32::from(info.procs),
        size(info.totalhigh),
        size(info.freehigh),
        unit as u32,
        0,
        0,
    ];
    for (i, word) in words.into_iter().enumerate() {
        d.window.write(a[0] + 4 * i as u64, word)?;
    }
    Ok(0)
}

/// Returns a resource's limits, as the kernel reports them.
fn limits(resource: u64) -> Result<[u64; 2], Errno> {
    let mut limits = [0_u64; 2];
    // SAFETY: the structure is ours.
    unsafe { syscall(libc::SYS_prlimit64, [0, resource, 0, limits.as_mut_ptr() as u64, 0, 0]) }?;
    Ok(limits)
}

pub(super) fn getrlimit(d: &Delegate, _: &mut Caller, a: [u64; 6]) -> Served {
    let limits = limits(a[0])?;
    if d.is_32() {
        d.window.write(a[1], limits.map(|n| n.min(0xffff_ffff) as u32))?;
    } else {
        d.window.write(a[1], limits)?;
    }
    Ok(0)
}

/// Reports limits; they are atoll's, and so cannot be changed.
pub(super) fn prlimit64(d: &Delegate, _: &mut Caller, a: [u64; 6]) -> Served {
    if a[2] != 0 || (a[0] != 0 && a[0] != u64::from(std::process::id())) {
        return Err(Errno(libc::EPERM));
    }
    let limits = limits(a[1])?;
    if a[3] != 0 {
        d.window.write(a[3], limits)?;
    }
    Ok(0)
}

pub(super) fn getrusage(d: &Delegate, _: &mut Caller, a: [u64; 6]) -> Served {
    d.window.address(a[1], if d.is_32() { 72 } else { 144 })?;
    let mut usage = [0_i64; 18];
    // SAFETY: the structure is 18 words and ours.
    unsafe { syscall(libc::SYS_getrusage, [a[0], usage.as_mut_ptr() as u64, 0, 0, 0, 0]) }?;
    for (i, &number) in usage.iter().enumerate() {
        if d.is_32() {
            d.window.write(a[1] + 4 * i as u64, number as i32)?;
        } else {
            d.window.write(a[1] + 8 * i as u64, number)?;
        }
    }
    Ok(0)
}

/// Lets a thread have a name. The other operations would change atoll.
pub(super) fn prctl(d: &Delegate, _: &mut Caller, a: [u64; 6]) -> Served {
    match a[0] as i32 {
        libc::PR_SET_NAME => d.window.text(a[1], 64).map(|_| 0),
        _ => Err(Errno(libc::EINVAL)),
    }
}

/// Returns the CPUs that a core may run on; one CPU where the program cannot have a second core.
pub(super) fn sched_getaffinity(d: &Delegate, _: &mut Caller, a: [u64; 6]) -> Served {
    let to = d.window.address(a[2], a[1])? as u64;
    // SAFETY: the buffer was checked.
    let bytes = unsafe { syscall(libc::SYS_sched_getaffinity, [a[0], a[1], to, 0, 0, 0]) }?;
    if !d.threads {
        let mut seen = false;
        for i in 0..bytes {
            let byte: u8 = d.window.read(a[2] + i)?;
            d.window.write(a[2] + i, if seen { 0 } else { byte & byte.wrapping_neg() })?;
            seen |= byte != 0;
        }
    }
    Ok(bytes)
}

pub(super) fn sched_setaffinity(d: &Delegate, _: &mut Caller, a: [u64; 6]) -> Served {
    let from = d.window.address(a[2], a[1])? as u64;
    // SAFETY: the buffer was checked.
    unsafe { syscall(libc::SYS_sched_setaffinity, [a[0], a[1], from, 0, 0, 0]) }
}
