//! Calls on time, whose structures are narrower for 32-bit programs.
//!
//! A core waits in here as long as the program asked it to; each core has its own thread.

use super::{Caller, Delegate};
use crate::errno::{Errno, syscall};

type Served = Result<u64, Errno>;

/// Calls `host` with a structure of 64-bit numbers that the call writes, in argument `place`, and writes it to the program in
/// its own width.
fn tell<const N: usize>(d: &Delegate, host: libc::c_long, mut a: [u64; 6], place: usize) -> Served
where
    [i64; N]: Sized,
{
    let to = a[place];
    let bytes = if d.is_32() { 4 } else { 8 } * N as u64;
    d.window.address(to, bytes)?;
    let mut numbers = [0_i64; N];
    a[place] = numbers.as_mut_ptr() as u64;
    // SAFETY: the structure is ours; the callers pass no other pointers.
    let value = unsafe { syscall(host, a) }?;
    for (i, &number) in numbers.iter().enumerate() {
        if d.is_32() {
            d.window.write(to + 4 * i as u64, number as i32)?;
        } else {
            d.window.write(to + 8 * i as u64, number)?;
        }
    }
    Ok(value)
}

/// Reads a time that the program passes in its own width.
pub(super) fn duration(d: &Delegate, at: u64) -> Result<[i64; 2], Errno> {
    if d.is_32() { Ok(d.window.read::<[i32; 2]>(at)?.map(i64::from)) } else { d.window.read::<[i64; 2]>(at) }
}

pub(super) fn time(d: &Delegate, _: &mut Caller, a: [u64; 6]) -> Served {
    let mut out = [0_i64; 1];
    // SAFETY: the buffer is ours.
    let now = unsafe { syscall(libc::SYS_time, [out.as_mut_ptr() as u64, 0, 0, 0, 0, 0]) }?;
    if a[0] != 0 {
        if d.is_32() { d.window.write(a[0], now as u32)? } else { d.window.write(a[0], now)? }
    }
    Ok(now)
}

pub(super) fn gettimeofday(d: &Delegate, _: &mut Caller, a: [u64; 6]) -> Served {
    if a[1] != 0 {
        d.window.write(a[1], [0_u32; 2])?;
    }
    if a[0] == 0 { Ok(0) } else { tell::<2>(d, libc::SYS_gettimeofday, [a[0], 0, 0, 0, 0, 0], 0) }
}

pub(super) fn clock_gettime(d: &Delegate, _: &mut Caller, a: [u64; 6]) -> Served {
    tell::<2>(d, libc::SYS_clock_gettime, [a[0], a[1], 0, 0, 0, 0], 1)
}

pub(super) fn clock_getres(d: &Delegate, _: &mut Caller, a: [u64; 6]) -> Served {
    if a[1] == 0 {
        // SAFETY: a null pointer is allowed.
        return unsafe { syscall(libc::SYS_clock_getres, [a[0], 0, 0, 0, 0, 0]) };
    }
    tell::<2>(d, libc::SYS_clock_getres, [a[0], a[1], 0, 0, 0, 0], 1)
}

/// Sleeps; if a signal comes, the remaining time is written where the program wants it.
fn sleep(d: &Delegate, clock: u64, flags: u64, request: u64, rest: u64) -> Served {
    let wanted = duration(d, request)?;
    let mut left = [0_i64; 2];
    let a = [clock, flags, wanted.as_ptr() as u64, left.as_mut_ptr() as u64, 0, 0];
    // SAFETY: both structures are ours.
    let done = unsafe { syscall(libc::SYS_clock_nanosleep, a) };
    if done == Err(Errno(libc::EINTR)) && rest != 0 && flags & libc::TIMER_ABSTIME as u64 == 0 {
        if d.is_32() { d.window.write(rest, left.map(|n| n as i32))? } else { d.window.write(rest, left)? }
    }
    done
}

pub(super) fn nanosleep(d: &Delegate, _: &mut Caller, a: [u64; 6]) -> Served {
    sleep(d, libc::CLOCK_MONOTONIC as u64, 0, a[0], a[1])
}

pub(super) fn clock_nanosleep(d: &Delegate, _: &mut Caller, a: [u64; 6]) -> Served {
    sleep(d, a[0], a[1], a[2], a[3])
}

pub(super) fn times(d: &Delegate, _: &mut Caller, a: [u64; 6]) -> Served {
    if a[0] == 0 {
        // SAFETY: a null pointer is allowed.
        return unsafe { syscall(libc::SYS_times, [0; 6]) };
    }
    tell::<4>(d, libc::SYS_times, [a[0], 0, 0, 0, 0, 0], 0)
}

pub(super) fn setitimer(d: &Delegate, _: &mut Caller, a: [u64; 6]) -> Served {
    let wanted: [i64; 4] =
        if d.is_32() { d.window.read::<[i32; 4]>(a[1])?.map(i64::from) } else { d.window.read(a[1])? };
    if a[2] != 0 {
        return tell::<4>(d, libc::SYS_setitimer, [a[0], wanted.as_ptr() as u64, a[2], 0, 0, 0], 2);
    }
    // SAFETY: the structure is ours, and a null pointer is allowed.
    unsafe { syscall(libc::SYS_setitimer, [a[0], wanted.as_ptr() as u64, 0, 0, 0, 0]) }
}
