//! `sendmmsg` and `recvmmsg`: several messages in a call, any of which may lie in paged memory.
//!
//! Stands on `io`, by which they are then sent and received one by one.

use std::ffi::c_int;
use std::time::{Duration, Instant};

use super::io;
use super::lend::{self, Argument as _};
use super::paged;

/// Whether any of `count` messages, or what they point to, is paged.
///
/// # Safety
/// The messages are valid, or as libc wants them.
unsafe fn any_paged(messages: usize, count: u32) -> bool {
    let at = |i: u32| messages + i as usize * size_of::<libc::mmsghdr>();
    // SAFETY: the caller's promise.
    paged::active().is_some() && (0..count).any(|i| unsafe { io::paged_message(at(i)) }.is_some())
}

/// Moves up to `count` messages, each by `move_one`, until one fails or `is_enough`. Returns what the calls return: how many were moved, -1 if
/// none was.
///
/// # Safety
/// The messages are valid.
unsafe fn one_by_one(
    messages: usize,
    count: u32,
    mut move_one: impl FnMut(usize) -> isize,
    mut is_enough: impl FnMut() -> bool,
) -> c_int {
    let first = messages as *mut libc::mmsghdr;
    for i in 0..count as usize {
        // SAFETY: the caller's promise.
        let message = unsafe { first.add(i) };
        let moved = move_one(message as usize);
        if moved < 0 {
            return if i > 0 { i as c_int } else { -1 };
        }
        // SAFETY: as above.
        unsafe { (*message).msg_len = moved as u32 };
        if is_enough() {
            return i as c_int + 1;
        }
    }
    count as c_int
}

/// `sendmmsg`: paged messages are sent one by one.
///
/// # Safety
/// The same as for libc's function.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn sendmmsg(fd: usize, messages: usize, count: u32, flags: usize) -> c_int {
    let call = real!("sendmmsg", unsafe extern "C" fn(usize, usize, u32, usize) -> c_int);
    // SAFETY: the caller's messages and arguments.
    unsafe {
        if !any_paged(messages, count) {
            return call(fd, messages, count, flags);
        }
        one_by_one(messages, count, |message| io::sendmsg(fd, message, flags), || false)
    }
}

/// `recvmmsg`: paged messages are received one by one.
///
/// # Safety
/// The same as for libc's function.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn recvmmsg(
    fd: usize,
    messages: usize,
    count: u32,
    flags: usize,
    timeout: usize,
) -> c_int {
    let call = real!("recvmmsg", unsafe extern "C" fn(usize, usize, u32, usize, usize) -> c_int);
    // SAFETY: the caller's messages.
    if !unsafe { any_paged(messages, count) } {
        let timeout = lend::memory(timeout, size_of::<libc::timespec>(), true);
        // SAFETY: the caller's arguments.
        return unsafe { call(fd, messages, count, flags, timeout.at()) };
    }
    let begin = Instant::now();
    // SAFETY: the caller's time, if there is one.
    let limit = unsafe { (timeout as *const libc::timespec).as_ref() }
        .map(|t| Duration::new(t.tv_sec.max(0) as u64, t.tv_nsec.clamp(0, 999_999_999) as u32));
    let waits_for_one = flags & libc::MSG_WAITFORONE as usize != 0;
    let mut each = flags & !(libc::MSG_WAITFORONE as usize);
    let receive = |message| {
        // SAFETY: one of the caller's messages.
        let got = unsafe { io::recvmsg(fd, message, each) };
        if waits_for_one {
            each |= libc::MSG_DONTWAIT as usize;
        }
        got
    };
    // The kernel, too, looks at the time after each message only.
    let is_late = || limit.is_some_and(|limit| begin.elapsed() >= limit);
    // SAFETY: the caller's messages.
    unsafe { one_by_one(messages, count, receive, is_late) }
}
