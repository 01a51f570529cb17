//! Calls about threads: making cores, thread pointers, waiting on words, and ends.
//!
//! A backend does what only it can do (`Outcome`). `Delegate`'s `threads` says whether it can add cores.

use super::{Caller, Delegate, Outcome};
use crate::calls::time;
use crate::errno::{EFAULT, Errno, syscall};

type Served = Result<u64, Errno>;
type Led = Result<Outcome, Errno>;

const EINVAL: Errno = Errno(libc::EINVAL);

/// The registers that a new core begins with; the others are copies of the caller's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CloneRequest {
    /// The new core's stack pointer.
    pub(crate) stack: u64,
    /// The new core's thread pointer, if it gets another.
    pub(crate) thread_pointer: Option<u64>,
    /// The offset in the parent where the new core's number is stored.
    pub(crate) tell_parent: Option<u64>,
    /// The offset where the new core's number is stored for itself.
    pub(crate) tell_child: Option<u64>,
    /// The offset of the word that is cleared when the core ends.
    pub(crate) clear_at_end: u64,
}

/// The words of i386's `struct user_desc`: number, base, limit, flags.
pub(super) fn set_thread_area(d: &Delegate, c: &mut Caller, a: [u64; 6]) -> Led {
    let [number, base, ..] = d.window.read::<[u32; 4]>(a[0])?;
    // libc needs one descriptor: the first number that Linux would give.
    if number != u32::MAX && number != THREAD_DESCRIPTOR {
        return Err(EINVAL);
    }
    d.window.write(a[0], THREAD_DESCRIPTOR)?;
    c.thread_pointer = u64::from(base);
    Ok(Outcome::ThreadPointer { base: u64::from(base) })
}

/// The descriptor that a 64-bit Linux gives 32-bit programs for their thread pointer.
pub(crate) const THREAD_DESCRIPTOR: u32 = 12;

const ARCH_SET_FS: i32 = 0x1002;
const ARCH_GET_FS: i32 = 0x1003;

pub(super) fn arch_prctl(d: &Delegate, c: &mut Caller, a: [u64; 6]) -> Led {
    match a[0] as i32 {
        ARCH_SET_FS if !d.is_32() => {
            d.window.address(a[1], 8).map_err(|_| Errno(libc::EPERM))?;
            c.thread_pointer = a[1];
            Ok(Outcome::ThreadPointer { base: a[1] })
        }
        ARCH_GET_FS if !d.is_32() => {
            d.window.write(a[1], c.thread_pointer)?;
            Ok(Outcome::Value(0))
        }
        _ => Err(EINVAL),
    }
}

pub(super) fn set_tid_address(_: &Delegate, c: &mut Caller, a: [u64; 6]) -> Served {
    c.clear_at_end = a[0];
    // SAFETY: no arguments.
    unsafe { syscall(libc::SYS_gettid, [0; 6]) }
}

/// Serves the operations with and without a time, and those whose fourth argument is a number.
fn futex_by(d: &Delegate, a: [u64; 6], time: impl Fn(u64) -> Result<[i64; 2], Errno>) -> Served {
    let [word, operation, value, fourth, second, third] = a;
    let word = d.window.address(word, 4)? as u64;
    let mut until;
    let (mut fourth, mut second) = (fourth, second);
    match operation as i32 & !(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME) {
        libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET => {
            if fourth != 0 {
                until = time(fourth)?;
                fourth = until.as_mut_ptr() as u64;
            }
            second = 0;
        }
        libc::FUTEX_WAKE | libc::FUTEX_WAKE_BITSET => (fourth, second) = (0, 0),
        libc::FUTEX_REQUEUE | libc::FUTEX_CMP_REQUEUE | libc::FUTEX_WAKE_OP => {
            second = d.window.address(second, 4)? as u64;
        }
        _ => return Err(Errno(libc::ENOSYS)),
    }
    // SAFETY: the words lie in the segment and the time is ours; nothing else is a pointer in these operations.
    unsafe { syscall(libc::SYS_futex, [word, operation, value, fourth, second, third]) }
}

pub(super) fn futex(d: &Delegate, _: &mut Caller, a: [u64; 6]) -> Served {
    futex_by(d, a, |at| time::duration(d, at))
}

pub(super) fn futex_time64(d: &Delegate, _: &mut Caller, a: [u64; 6]) -> Served {
    futex_by(d, a, |at| d.window.read::<[i64; 2]>(at))
}

/// The flags of what a thread of libc shares with its parent; with fewer it would be a process.
const THREAD: i32 =
    libc::CLONE_VM | libc::CLONE_FS | libc::CLONE_FILES | libc::CLONE_SIGHAND | libc::CLONE_THREAD;

pub(super) fn clone(d: &Delegate, _: &mut Caller, a: [u64; 6]) -> Led {
    let flags = a[0] as i32;
    if flags & THREAD != THREAD {
        d.tell(if d.is_32() { 120 } else { 56 }, "clone of a process");
        return Err(Errno(libc::ENOSYS));
    }
    if !d.threads {
        d.tell_no_threads();
        return Err(Errno(libc::ENOSYS));
    }
    let (pointer, child) = if d.is_32() { (a[3], a[4]) } else { (a[4], a[3]) };
    let thread_pointer = match flags & libc::CLONE_SETTLS {
        0 => None,
        _ if d.is_32() => Some(u64::from(d.window.read::<[u32; 4]>(pointer)?[1])),
        _ => Some(pointer),
    };
    let wanted = |flag: i32, at: u64| {
        if flags & flag != 0 { d.window.address(at, 4).map(|_| Some(at)) } else { Ok(None) }
    };
    d.window.address(a[1].checked_sub(16).ok_or(EFAULT)?, 16)?;
    Ok(Outcome::Clone(CloneRequest {
        stack: a[1],
        thread_pointer,
        tell_parent: wanted(libc::CLONE_PARENT_SETTID, a[2])?,
        tell_child: wanted(libc::CLONE_CHILD_SETTID, child)?,
        clear_at_end: wanted(libc::CLONE_CHILD_CLEARTID, child)?.unwrap_or(0),
    }))
}

pub(super) fn exit(_: &Delegate, _: &mut Caller, a: [u64; 6]) -> Led {
    Ok(Outcome::EndCore(a[0] as i32 & 0xff))
}

pub(super) fn exit_group(_: &Delegate, _: &mut Caller, a: [u64; 6]) -> Led {
    Ok(Outcome::End(a[0] as i32 & 0xff))
}

impl Delegate {
    /// Does what the kernel does at a thread's end: clears the word that it was told of, and wakes the threads waiting there.
    pub(crate) fn core_ended(&self, c: &Caller) {
        if c.clear_at_end != 0
            && let Ok(word) = self.window.address(c.clear_at_end, 4)
            && self.window.write(c.clear_at_end, 0_u32).is_ok()
        {
            // SAFETY: the word lies in the segment.
            let _ = unsafe { syscall(libc::SYS_futex, [word as u64, libc::FUTEX_WAKE as u64, 1, 0, 0, 0]) };
        }
    }
}
