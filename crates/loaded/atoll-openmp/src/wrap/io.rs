//! Reading and writing with buffers of any size that may lie in paged memory.
//!
//! Stands on `paged`. A paged buffer is transferred in pinned pieces, with the results of a single call: a short transfer ends
//! the loop, an error after progress becomes a short transfer, and a datagram stays whole.

use std::ffi::{c_int, c_void};

use super::elsewhere;
use super::lend::{self, Argument as _};
use super::paged::{self, Bounce, Cut, Kind};

type Fd = c_int;

/// Defines a wrapper for each name of a call on a single buffer: the position of the buffer, and the argument that advances
/// with the pieces (`offset`).
macro_rules! transfer {
    ($($cut:ident $name:ident ( $fd:ident, $buffer:ident, $len:ident $(, offset $offset:ident)? $(; $more:ident)* );)*) => {$(
        /// The function of this name in libc.
        ///
        /// # Safety
        /// The same as for libc's function.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name($fd: usize, $buffer: usize, $len: usize $(, $offset: usize)? $(, $more: usize)*) -> isize {
            let call = real!(
                stringify!($name),
                unsafe extern "C" fn(usize, usize, usize $(, transfer!(@usize $offset))? $(, transfer!(@usize $more))*) -> isize
            );
            elsewhere::have($fd);
            paged::with($buffer, $len, Cut::$cut($fd as Fd), |at, n, _done| {
                // SAFETY: a part of the caller's buffer.
                unsafe { call($fd, at, n $(, $offset.wrapping_add(_done))? $(, $more)*) }
            })
        }
    )*};
    (@usize $x:ident) => { usize };
}

transfer! {
    Read read(fd, buffer, len);
    Read __read(fd, buffer, len);
    Read __read_chk(fd, buffer, len; size);
    Read pread(fd, buffer, len, offset at);
    Read pread64(fd, buffer, len, offset at);
    Read __pread_chk(fd, buffer, len, offset at; size);
    Read __pread64_chk(fd, buffer, len, offset at; size);
    Write write(fd, buffer, len);
    Write __write(fd, buffer, len);
    Write pwrite(fd, buffer, len, offset at);
    Write pwrite64(fd, buffer, len, offset at);
    Write send(fd, buffer, len; flags);
}

pub(super) fn set_errno(value: c_int) {
    // SAFETY: errno is this thread's.
    unsafe { *libc::__errno_location() = value };
}

const MSG_WAITALL: usize = libc::MSG_WAITALL as usize;

/// `recv`: waits for every piece only if the flags ask for all bytes.
///
/// # Safety
/// The same as for libc's function.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn recv(fd: usize, buffer: usize, len: usize, flags: usize) -> isize {
    let call = real!("recv", unsafe extern "C" fn(usize, usize, usize, usize) -> isize);
    let all = flags & MSG_WAITALL != 0 && flags & libc::MSG_PEEK as usize == 0;
    let cut = match paged::active() {
        Some(_) if all && paged::kind(fd as Fd) == Kind::Stream => Cut::Fill,
        _ => Cut::Read(fd as Fd),
    };
    // SAFETY: parts of the caller's buffer.
    paged::with(buffer, len, cut, |at, n, _| unsafe { call(fd, at, n, flags) })
}

/// glibc's `recv` under `_FORTIFY_SOURCE`.
///
/// # Safety
/// The same as for libc's function.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn __recv_chk(
    fd: usize,
    buffer: usize,
    len: usize,
    _: usize,
    flags: usize,
) -> isize {
    // SAFETY: the caller's promise.
    unsafe { recv(fd, buffer, len, flags) }
}

/// `recvfrom`, which handles pieces as `recv` does.
///
/// # Safety
/// The same as for libc's function.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn recvfrom(
    fd: usize,
    buffer: usize,
    len: usize,
    flags: usize,
    from: usize,
    from_len: usize,
) -> isize {
    type F = unsafe extern "C" fn(usize, usize, usize, usize, usize, usize) -> isize;
    let call = real!("recvfrom", F);
    let (from, from_len) = (lend::memory(from, 128, true), lend::memory(from_len, 4, true));
    paged::with(buffer, len, Cut::Read(fd as Fd), |at, n, _| {
        // SAFETY: parts of the caller's buffer.
        unsafe { call(fd, at, n, flags, from.at(), from_len.at()) }
    })
}

/// glibc's `recvfrom` under `_FORTIFY_SOURCE`.
///
/// # Safety
/// The same as for libc's function.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn __recvfrom_chk(
    fd: usize,
    buffer: usize,
    len: usize,
    _: usize,
    flags: usize,
    from: usize,
    from_len: usize,
) -> isize {
    // SAFETY: the caller's promise.
    unsafe { recvfrom(fd, buffer, len, flags, from, from_len) }
}

/// `sendto`.
///
/// # Safety
/// The same as for libc's function.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn sendto(
    fd: usize,
    buffer: usize,
    len: usize,
    flags: usize,
    to: usize,
    to_len: usize,
) -> isize {
    type F = unsafe extern "C" fn(usize, usize, usize, usize, usize, usize) -> isize;
    let call = real!("sendto", F);
    let to = lend::memory(to, 128, false);
    paged::with(buffer, len, Cut::Write(fd as Fd), |at, n, _| {
        // SAFETY: parts of the caller's buffer.
        unsafe { call(fd, at, n, flags, to.at(), to_len) }
    })
}

/// `getrandom`: every piece is filled.
///
/// # Safety
/// The same as for libc's function.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn getrandom(buffer: usize, len: usize, flags: usize) -> isize {
    let call = real!("getrandom", unsafe extern "C" fn(usize, usize, usize) -> isize);
    // SAFETY: parts of the caller's buffer.
    paged::with(buffer, len, Cut::Fill, |at, n, _| unsafe { call(at, n, flags) })
}

/// `arc4random_buf`: every piece is filled.
///
/// # Safety
/// The same as for libc's function.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn arc4random_buf(buffer: usize, len: usize) {
    let call = real!("arc4random_buf", unsafe extern "C" fn(usize, usize));
    paged::with(buffer, len, Cut::Fill, |at, n, _| {
        // SAFETY: parts of the caller's buffer.
        unsafe { call(at, n) };
        n as isize
    });
}

pub(super) type Vectors<'a> = &'a [libc::iovec];

/// The caller's vectors, if they must be handled one by one because some of their memory, or the list itself, is paged.
///
/// # Safety
/// If `vectors` is paged memory it is valid for `count` reads; otherwise it is as libc wants it.
unsafe fn paged_vectors<'a>(vectors: usize, count: usize) -> Option<Vectors<'a>> {
    let pager = paged::active()?;
    if vectors == 0 || count == 0 || count > libc::UIO_MAXIOV as usize {
        return None;
    }
    // SAFETY: the caller's promise (libc's function would read them, too; a wrong pointer ends in SIGSEGV, not EFAULT).
    let list = unsafe { std::slice::from_raw_parts(vectors as *const libc::iovec, count) };
    let any = paged::is_paged(pager, vectors)
        || list.iter().any(|v| v.iov_len > 0 && pager.first_paged(v.iov_base as usize, v.iov_len).is_some());
    any.then_some(list)
}

fn total(list: Vectors) -> Option<usize> {
    list.iter().try_fold(0usize, |sum, v| sum.checked_add(v.iov_len)).filter(|&n| n <= isize::MAX as usize)
}

/// Copies bytes of the vectors, from byte `skip` on, as far as they fit in `to`.
///
/// # Safety
/// The vectors must be valid for reads.
unsafe fn gather(list: Vectors, mut skip: usize, to: &mut [u8]) {
    let mut at = 0;
    for v in list {
        if skip >= v.iov_len {
            skip -= v.iov_len;
            continue;
        }
        let n = (v.iov_len - skip).min(to.len() - at);
        // SAFETY: inside the vector and the slice.
        unsafe {
            std::ptr::copy_nonoverlapping(v.iov_base.cast::<u8>().add(skip), to.as_mut_ptr().add(at), n);
        }
        at += n;
        skip = 0;
    }
}

/// Copies `from` into the vectors, from byte `skip` on.
///
/// # Safety
/// The vectors must be valid for writes.
unsafe fn scatter(list: Vectors, mut skip: usize, from: &[u8]) {
    let mut at = 0;
    for v in list {
        if skip >= v.iov_len {
            skip -= v.iov_len;
            continue;
        }
        let n = (v.iov_len - skip).min(from.len() - at);
        // SAFETY: inside the vector and the slice.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr().add(at), v.iov_base.cast::<u8>().add(skip), n) };
        at += n;
        skip = 0;
    }
}

/// The most bytes of vectors that must stay together, of which a copy is made.
const TOGETHER: usize = 1 << 20;

/// Vectors of fewer bytes are moved together with others.
const SMALL: usize = 64 << 10;

/// Transfers vectors that are paged: small ones together by way of a copy, so that they stay one message; large ones one after
/// the other. `call(start, len, done)` transfers one buffer.
fn vectored(list: Vectors, fd: Fd, write: bool, mut call: impl FnMut(usize, usize, usize) -> isize) -> isize {
    let Some(sum) = total(list) else {
        set_errno(libc::EINVAL);
        return -1;
    };
    let kind = paged::kind(fd);
    if kind == Kind::Datagram || sum <= TOGETHER {
        return by_copy(list, sum, write, |at, n| call(at, n, 0));
    }
    let cut = if write { Cut::Read(fd) } else { Cut::Write(fd) };
    let mut done = 0usize;
    let mut rest = list;
    while let Some(first) = rest.first() {
        let (n, of);
        (of, rest) = rest.split_at(together(rest));
        let len = of.iter().map(|v| v.iov_len).sum::<usize>();
        if of.len() > 1 {
            n = by_copy(of, len, write, |at, n| call(at, n, done));
        } else {
            n = paged::with(first.iov_base as usize, len, cut, |at, n, within| call(at, n, done + within));
        }
        if n < 0 {
            return if done > 0 { done as isize } else { n };
        }
        done += n as usize;
        if (n as usize) < len || (write && kind == Kind::Stream && len > 0) {
            break;
        }
    }
    done as isize
}

/// How many of the vectors, at least one, are so small that they are moved together by way of a copy.
fn together(list: Vectors) -> usize {
    let mut sum = 0;
    let small = |v: &&libc::iovec| {
        sum += v.iov_len;
        v.iov_len < SMALL && sum <= TOGETHER
    };
    list.iter().take_while(small).count().max(1)
}

/// Transfers vectors of `len` bytes together, by way of a copy.
fn by_copy(list: Vectors, len: usize, write: bool, call: impl FnOnce(usize, usize) -> isize) -> isize {
    let mut copy = Bounce::new(if write { len.min(TOGETHER) } else { len });
    if !write {
        // SAFETY: the caller's vectors.
        unsafe { gather(list, 0, &mut copy.0) };
    }
    let n = call(copy.0.as_mut_ptr() as usize, copy.0.len());
    if write && n > 0 {
        // SAFETY: the caller's vectors.
        unsafe { scatter(list, 0, &copy.0[..(n as usize).min(len)]) };
    }
    n
}

/// Defines vectored calls: the name, whether memory is written, and the call that does the same on one buffer.
macro_rules! vectored {
    ($($name:ident ( $fd:ident, $list:ident, $count:ident $(, $more:ident)* ) $write:literal => |$at:ident, $n:ident, $done:ident| $single:expr;)*) => {$(
        /// The function of this name in libc.
        ///
        /// # Safety
        /// The same as for libc's function.
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C" fn $name($fd: usize, $list: usize, $count: usize $(, $more: usize)*) -> isize {
            elsewhere::have($fd);
            // SAFETY: the caller's vectors.
            if let Some(list) = unsafe { paged_vectors($list, $count as c_int as usize) } {
                // SAFETY: memory of the caller's vectors, pinned, or a copy of it.
                return vectored(list, $fd as Fd, $write, |$at, $n, $done| unsafe { $single });
            }
            let call = real!(stringify!($name), unsafe extern "C" fn(usize, usize, usize $(, vectored!(@usize $more))*) -> isize);
            // SAFETY: the caller's arguments.
            unsafe { call($fd, $list, $count $(, $more)*) }
        }
    )*};
    (@usize $x:ident) => { usize };
}

/// `preadv2` and `pwritev2` with one vector.
///
/// # Safety
/// `at` must be valid for the transfer of `n` bytes.
unsafe fn single2(write: bool, fd: usize, at: usize, n: usize, offset: usize, flags: usize) -> isize {
    type F = unsafe extern "C" fn(usize, usize, usize, usize, usize) -> isize;
    let one = libc::iovec { iov_base: at as *mut c_void, iov_len: n };
    let call = if write { real!("preadv2", F) } else { real!("pwritev2", F) };
    // SAFETY: the caller's promise.
    unsafe { call(fd, (&raw const one) as usize, 1, offset, flags) }
}

type Plain = unsafe extern "C" fn(usize, usize, usize) -> isize;
type At = unsafe extern "C" fn(usize, usize, usize, usize) -> isize;

fn advance(offset: usize, done: usize) -> usize {
    if offset as isize == -1 { offset } else { offset + done }
}

vectored! {
    readv(fd, list, count) true => |at, n, _done| real!("read", Plain)(fd, at, n);
    writev(fd, list, count) false => |at, n, _done| real!("write", Plain)(fd, at, n);
    preadv(fd, list, count, offset) true => |at, n, done| real!("pread64", At)(fd, at, n, offset + done);
    preadv64(fd, list, count, offset) true => |at, n, done| real!("pread64", At)(fd, at, n, offset + done);
    pwritev(fd, list, count, offset) false => |at, n, done| real!("pwrite64", At)(fd, at, n, offset + done);
    pwritev64(fd, list, count, offset) false => |at, n, done| real!("pwrite64", At)(fd, at, n, offset + done);
    preadv2(fd, list, count, offset, flags) true => |at, n, done| single2(true, fd, at, n, advance(offset, done), flags);
    preadv64v2(fd, list, count, offset, flags) true => |at, n, done| single2(true, fd, at, n, advance(offset, done), flags);
    pwritev2(fd, list, count, offset, flags) false => |at, n, done| single2(false, fd, at, n, advance(offset, done), flags);
    pwritev64v2(fd, list, count, offset, flags) false => |at, n, done| single2(false, fd, at, n, advance(offset, done), flags);
}

/// `vmsplice`: paged memory is copied into the pipe, or out of it, as its pages may leave while they are in the pipe.
///
/// # Safety
/// The same as for libc's function.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn vmsplice(fd: usize, list: usize, count: usize, flags: usize) -> isize {
    // SAFETY: the caller's vectors.
    let Some(vectors) = (unsafe { paged_vectors(list, count) }) else {
        let call = real!("vmsplice", unsafe extern "C" fn(usize, usize, usize, usize) -> isize);
        // SAFETY: the caller's arguments.
        return unsafe { call(fd, list, count, flags) };
    };
    // SAFETY: no memory is passed but what is this function's own; the rest is the caller's.
    unsafe {
        let reads = libc::fcntl(fd as Fd, libc::F_GETFL) & libc::O_ACCMODE == libc::O_RDONLY;
        let list = vectors.as_ptr() as usize;
        if flags & libc::SPLICE_F_NONBLOCK as usize == 0 {
            return if reads { readv(fd, list, count) } else { writev(fd, list, count) };
        }
        // A pipe that is ready moves so many bytes without waiting.
        let events = if reads { libc::POLLIN } else { libc::POLLOUT };
        let mut ready = libc::pollfd { fd: fd as Fd, events, revents: 0 };
        if libc::poll(&raw mut ready, 1, 0) == 0 {
            set_errno(libc::EAGAIN);
            return -1;
        }
        let Some(first) = vectors.iter().find(|v| v.iov_len > 0) else { return 0 };
        let (at, len) = (first.iov_base as usize, first.iov_len.min(libc::PIPE_BUF));
        if reads { read(fd, at, len) } else { write(fd, at, len) }
    }
}

type Message = unsafe extern "C" fn(usize, *const libc::msghdr, usize) -> isize;

/// The message's vectors, if anything of the message is paged.
///
/// # Safety
/// `message` is valid, or as libc wants it.
pub(super) unsafe fn paged_message<'a>(message: usize) -> Option<(libc::msghdr, Vectors<'a>)> {
    let pager = paged::active()?;
    if message == 0 {
        return None;
    }
    // SAFETY: the caller's promise.
    unsafe {
        let m = *(message as *const libc::msghdr);
        let itself = [message, m.msg_name as usize, m.msg_control as usize];
        let some = itself.iter().any(|&a| paged::is_paged(pager, a));
        match paged_vectors(m.msg_iov as usize, m.msg_iovlen) {
            Some(list) => Some((m, list)),
            None if some && (m.msg_iov.is_null() || m.msg_iovlen == 0) => Some((m, &[])),
            None if some => Some((m, std::slice::from_raw_parts(m.msg_iov, m.msg_iovlen))),
            None => None,
        }
    }
}

/// `sendmsg`: a paged message is sent from a copy; that of a stream in pieces, with the control data in the first.
///
/// # Safety
/// The same as for libc's function.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn sendmsg(fd: usize, message: usize, flags: usize) -> isize {
    let call = real!("sendmsg", Message);
    // SAFETY: the caller's message.
    let Some((original, list)) = (unsafe { paged_message(message) }) else {
        // SAFETY: the caller's arguments.
        return unsafe { call(fd, message as *const libc::msghdr, flags) };
    };
    let Some(sum) = total(list) else {
        set_errno(libc::EMSGSIZE);
        return -1;
    };
    let whole = paged::kind(fd as Fd) != Kind::Stream;
    let name = lend::memory(original.msg_name as usize, original.msg_namelen as usize, false);
    let control = lend::memory(original.msg_control as usize, original.msg_controllen, false);
    let mut copy = Bounce::new(if whole { sum } else { sum.min(TOGETHER) });
    let mut done = 0;
    loop {
        let n = (sum - done).min(copy.0.len());
        // SAFETY: the caller's vectors; the message describes our copy.
        let sent = unsafe {
            gather(list, done, &mut copy.0[..n]);
            let mut one = libc::iovec { iov_base: copy.0.as_mut_ptr().cast(), iov_len: n };
            let mut m = original;
            (m.msg_iov, m.msg_iovlen) = (&raw mut one, 1);
            (m.msg_name, m.msg_control) = (name.at() as *mut c_void, control.at() as *mut c_void);
            if done > 0 {
                (m.msg_control, m.msg_controllen) = (std::ptr::null_mut(), 0);
            }
            call(fd, &raw const m, flags)
        };
        if sent < 0 {
            return if done > 0 { done as isize } else { sent };
        }
        done += sent as usize;
        if done >= sum || (sent as usize) < n {
            return done as isize;
        }
    }
}

/// `recvmsg`: a paged message is received in a copy.
///
/// # Safety
/// The same as for libc's function.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn recvmsg(fd: usize, message: usize, flags: usize) -> isize {
    let call = real!("recvmsg", Message);
    // SAFETY: the caller's message.
    let Some((original, list)) = (unsafe { paged_message(message) }) else {
        // SAFETY: the caller's arguments.
        return unsafe { call(fd, message as *const libc::msghdr, flags) };
    };
    let Some(sum) = total(list) else {
        set_errno(libc::EMSGSIZE);
        return -1;
    };
    let all = flags & MSG_WAITALL != 0 && flags & libc::MSG_PEEK as usize == 0;
    let all = all && paged::kind(fd as Fd) == Kind::Stream;
    let name = lend::memory(original.msg_name as usize, original.msg_namelen as usize, true);
    let control = lend::memory(original.msg_control as usize, original.msg_controllen, true);
    let mut copy = Bounce::new(sum.min(TOGETHER));
    let mut done = 0;
    loop {
        let n = (sum - done).min(copy.0.len());
        let mut one = libc::iovec { iov_base: copy.0.as_mut_ptr().cast(), iov_len: n };
        let mut m = original;
        (m.msg_iov, m.msg_iovlen) = (&raw mut one, 1);
        (m.msg_name, m.msg_control) = (name.at() as *mut c_void, control.at() as *mut c_void);
        if done > 0 {
            (m.msg_control, m.msg_controllen) = (std::ptr::null_mut(), 0);
        }
        // SAFETY: the message describes our copy and the caller's pinned name and control memory.
        let got = unsafe { call(fd, &raw const m, flags) };
        if got < 0 {
            return if done > 0 { done as isize } else { got };
        }
        // SAFETY: the caller's vectors and message.
        unsafe {
            scatter(list, done, &copy.0[..(got as usize).min(n)]);
            if done == 0 {
                let to = message as *mut libc::msghdr;
                (*to).msg_namelen = m.msg_namelen;
                (*to).msg_controllen = m.msg_controllen;
                (*to).msg_flags = m.msg_flags;
            }
        }
        done += got as usize;
        if !all || got == 0 || (got as usize) < n || done >= sum {
            return done as isize;
        }
    }
}
