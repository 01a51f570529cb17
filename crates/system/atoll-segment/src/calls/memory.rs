//! Memory calls: the break and mappings, which all lie inside the segment.
//!
//! `space.rs` keeps account of them. A segment has no access control, so protections are accepted and have no effect.

use super::{Caller, Delegate, lock};
use crate::errno::{EFAULT, Errno, syscall};
use crate::space::PAGE;

type Served = Result<u64, Errno>;

const EINVAL: Errno = Errno(libc::EINVAL);
const ENOMEM: Errno = Errno(libc::ENOMEM);

pub(super) fn brk(d: &Delegate, _: &mut Caller, a: [u64; 6]) -> Served {
    let mut space = lock(&d.space);
    let (now, before) = space.set_break(a[0]);
    if now < before {
        d.discard.zero(&d.window, now, before - now);
    }
    Ok(now)
}

pub(super) fn old_mmap(d: &Delegate, c: &mut Caller, a: [u64; 6]) -> Served {
    mmap(d, c, d.window.read::<[u32; 6]>(a[0])?.map(u64::from))
}

pub(super) fn mmap2(d: &Delegate, c: &mut Caller, mut a: [u64; 6]) -> Served {
    a[5] *= PAGE;
    mmap(d, c, a)
}

pub(super) fn mmap(d: &Delegate, _: &mut Caller, a: [u64; 6]) -> Served {
    let [at, len, _, flags, fd, offset] = a;
    let flags = flags as i32;
    let file = flags & libc::MAP_ANONYMOUS == 0;
    if len == 0 || (file && !offset.is_multiple_of(PAGE)) {
        return Err(EINVAL);
    }
    if file && flags & libc::MAP_TYPE != libc::MAP_PRIVATE {
        eprintln!(
            "atoll: segment: a shared mapping of a file cannot be made in a segment, the program gets ENODEV"
        );
        return Err(Errno(libc::ENODEV));
    }
    let mut space = lock(&d.space);
    let at = if flags & libc::MAP_FIXED_NOREPLACE != 0 {
        if !space.is_free(at, len.checked_next_multiple_of(PAGE).ok_or(ENOMEM)?) {
            return Err(Errno(libc::EEXIST));
        }
        space.map_at(at, len).map(|()| at)?
    } else if flags & libc::MAP_FIXED != 0 {
        let freed = space.unmap(at, len)?;
        let mapped = space.map_at(at, len);
        for (start, end) in freed {
            d.discard.zero(&d.window, start, end - start);
        }
        mapped.map(|()| at)?
    } else {
        space.map(len)?
    };
    if file && let Err(errno) = fill(d, fd, at, len, offset) {
        let _ = space.unmap(at, len);
        d.discard.zero(&d.window, at, len);
        return Err(errno);
    }
    Ok(at)
}

/// Copies a file into a mapping; bytes behind the file's end stay zeros.
fn fill(d: &Delegate, fd: u64, at: u64, len: u64, offset: u64) -> Result<(), Errno> {
    let fd = d.fd(fd)?;
    let mut done = 0;
    while done < len {
        let to = d.window.address(at + done, len - done)? as u64;
        // SAFETY: the range was checked.
        match unsafe { syscall(libc::SYS_pread64, [fd, to, len - done, offset + done, 0, 0]) } {
            Ok(0) => break,
            Ok(now) => done += now,
            Err(Errno(libc::EINTR)) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

pub(super) fn munmap(d: &Delegate, _: &mut Caller, a: [u64; 6]) -> Served {
    let mut space = lock(&d.space);
    for (start, end) in space.unmap(a[0], a[1])? {
        d.discard.zero(&d.window, start, end - start);
    }
    Ok(0)
}

pub(super) fn mremap(d: &Delegate, _: &mut Caller, a: [u64; 6]) -> Served {
    let [at, old, new, flags, ..] = a;
    let (old, new) = (old.checked_next_multiple_of(PAGE), new.checked_next_multiple_of(PAGE));
    let (Some(old), Some(new)) = (old, new) else { return Err(EINVAL) };
    let flags = flags as i32;
    // Only programs that manage their own address space ask to move a mapping to a place of their choice.
    if !at.is_multiple_of(PAGE) || new == 0 || old == 0 || flags & !libc::MREMAP_MAYMOVE != 0 {
        return Err(EINVAL);
    }
    let mut space = lock(&d.space);
    if !space.is_mapped(at, old) {
        return Err(EFAULT);
    }
    if new <= old {
        if new < old {
            for (start, end) in space.unmap(at + new, old - new)? {
                d.discard.zero(&d.window, start, end - start);
            }
        }
        return Ok(at);
    }
    if space.is_free(at + old, new - old) {
        return space.map_at(at + old, new - old).map(|()| at);
    }
    if flags & libc::MREMAP_MAYMOVE == 0 {
        return Err(ENOMEM);
    }
    let to = space.map(new)?;
    d.window.copy_within(at, to, old)?;
    for (start, end) in space.unmap(at, old)? {
        d.discard.zero(&d.window, start, end - start);
    }
    Ok(to)
}

pub(super) fn mprotect(d: &Delegate, _: &mut Caller, a: [u64; 6]) -> Served {
    if !a[0].is_multiple_of(PAGE) {
        return Err(EINVAL);
    }
    d.window.address(a[0], a[1]).map_err(|_| ENOMEM)?;
    Ok(0)
}

pub(super) fn madvise(d: &Delegate, _: &mut Caller, a: [u64; 6]) -> Served {
    let [at, len, advice, ..] = a;
    if !at.is_multiple_of(PAGE) {
        return Err(EINVAL);
    }
    let len = len.checked_next_multiple_of(PAGE).ok_or(EINVAL)?;
    d.window.address(at, len).map_err(|_| ENOMEM)?;
    // This is the one advice that programs rely on, for zeros afterwards. The others are hints.
    if advice as i32 == libc::MADV_DONTNEED {
        let space = lock(&d.space);
        if !space.is_mapped(at, len) {
            return Err(ENOMEM);
        }
        d.discard.zero(&d.window, at, len);
    }
    Ok(0)
}

/// Does nothing, as a segment's memory always stays resident.
pub(super) fn mlock(d: &Delegate, _: &mut Caller, a: [u64; 6]) -> Served {
    d.window.address(a[0], a[1]).map_err(|_| ENOMEM)?;
    Ok(0)
}
