//! `process_vm_readv` and `process_vm_writev`: copies between this process's memory and another's, as MPI libraries make them.
//!
//! Stands on `paged`, which brings this side's memory near and pins it. The other process may run under atoll, too: then the kernel
//! finds of its memory only what its page table holds at the moment, and that process is asked to copy
//! (`start::copies_for_others`). What is written there is always written by that process, as the kernel might write to a page
//! that is on its way to far memory. A process that is not managed, such as a child that the program forked, asks so, too.

use std::cell::LazyCell;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use atoll_memory::sys;
use atoll_transport::process_started;

use super::paged::{self, Cut};
use crate::start::copies_for_others::{self, Request, waiting};
use crate::start::forked;

type Vectors =
    unsafe extern "C" fn(usize, *const libc::iovec, usize, *const libc::iovec, usize, usize) -> isize;

/// Defines one of the two functions; `$cut` says what happens to this process's side.
macro_rules! copies {
    ($($(#[$about:meta])* $name:ident, $cut:expr;)*) => {$(
        $(#[$about])*
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C" fn $name(
            pid: usize,
            local: *const libc::iovec,
            locals: usize,
            remote: *const libc::iovec,
            remotes: usize,
            flags: usize,
        ) -> isize {
            let call = real!(stringify!($name), Vectors);
            // SAFETY: by the caller.
            unsafe { copy(call, $cut, pid, (local, locals), (remote, remotes), flags) }
        }
    )*};
}

copies! {
    /// `process_vm_readv`: fills this process's buffers.
    process_vm_readv, Cut::Fill;
    /// `process_vm_writev`: sends what this process's buffers hold.
    process_vm_writev, Cut::Drain;
}

/// Makes the call, one local vector after the other, each in pinned pieces.
///
/// # Safety
/// As libc's functions.
unsafe fn copy(
    call: Vectors,
    cut: Cut,
    pid: usize,
    local: (*const libc::iovec, usize),
    remote: (*const libc::iovec, usize),
    flags: usize,
) -> isize {
    let most = libc::UIO_MAXIOV as usize;
    if flags != 0 || local.1 > most || remote.1 > most || local.1 * remote.1 == 0 {
        // SAFETY: the caller's arguments.
        return unsafe { call(pid, local.0, local.1, remote.0, remote.1, flags) };
    }
    // Lists of this library's own: the caller's may lie in paged memory.
    // SAFETY: the caller's lists.
    let (local, remote) = unsafe {
        (
            std::slice::from_raw_parts(local.0, local.1),
            std::slice::from_raw_parts(remote.0, remote.1).to_vec(),
        )
    };
    // SAFETY: no arguments.
    let own = unsafe { libc::getpid() } as usize == pid;
    let managed = LazyCell::new(|| !own && is_managed(pid));
    let mut done = 0;
    for vector in local {
        let before = done;
        let n = paged::with(vector.iov_base as usize, vector.iov_len, cut, |at, len, within| {
            let theirs = part(&remote, before + within, len);
            // What lies in this process's own paged memory is held near as the caller's buffer is.
            let held: Vec<_> = theirs
                .iter()
                .filter(|_| own)
                .map(|v| paged::hold(v.iov_base as usize, v.iov_len, cut == Cut::Drain))
                .collect();
            let n = if cut == Cut::Drain && *managed {
                0
            } else {
                let ours = libc::iovec { iov_base: at as *mut _, iov_len: len };
                // SAFETY: a piece of the caller's buffer, and a part of the caller's list.
                unsafe { call(pid, &raw const ours, 1, theirs.as_ptr(), theirs.len(), 0) }
            };
            drop(held);
            let unreached = n >= 0 || errno() == libc::EFAULT;
            if unreached && (n.max(0) as usize) < length(&theirs) && *managed {
                // A process that the program forked may not have all of its memory yet, to which the other one copies.
                forked::complete();
                return ask(pid, &theirs, at, n.max(0) as usize, cut == Cut::Drain);
            }
            n
        });
        if n < 0 {
            return if done > 0 { done as isize } else { n };
        }
        done += n as usize;
        if (n as usize) < vector.iov_len {
            break;
        }
    }
    done as isize
}

/// The part of a list of vectors that begins `skip` bytes into them, of `len` bytes at most.
fn part(list: &[libc::iovec], mut skip: usize, mut len: usize) -> Vec<libc::iovec> {
    let mut of = Vec::with_capacity(list.len());
    for v in list {
        if skip >= v.iov_len {
            skip -= v.iov_len;
            continue;
        }
        let n = (v.iov_len - skip).min(len);
        if n == 0 {
            break;
        }
        of.push(libc::iovec { iov_base: v.iov_base.wrapping_byte_add(skip), iov_len: n });
        (skip, len) = (0, len - n);
    }
    of
}

fn length(list: &[libc::iovec]) -> usize {
    list.iter().map(|v| v.iov_len).sum()
}

fn errno() -> i32 {
    // SAFETY: errno is this thread's.
    unsafe { *libc::__errno_location() }
}

fn fail(errno: i32) -> isize {
    // SAFETY: errno is this thread's.
    unsafe { *libc::__errno_location() = errno };
    -1
}

/// Whether the process is managed: it may be another run's. The answer is remembered as long as the process lives.
fn is_managed(pid: usize) -> bool {
    /// Processes that were looked at last: number, start and answer in one word each, so that none is read half.
    static KNOWN: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];
    let Some(started) = u32::try_from(pid).ok().and_then(process_started) else { return false };
    let key = (pid as u64) << 42 ^ started << 1;
    let known = &KNOWN[pid % KNOWN.len()];
    let seen = known.load(Ordering::Relaxed);
    if seen & !1 == key & !1 {
        return seen & 1 != 0;
    }
    let is = has_tables(pid);
    known.store(key & !1 | u64::from(is), Ordering::Relaxed);
    is
}

/// Whether the process has atoll's tables mapped at this moment. One that has ended, or runs another program by now, has none.
fn has_tables(pid: usize) -> bool {
    let maps = std::fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
    let name = b"/memfd:atoll-tables";
    maps.windows(name.len()).any(|bytes| bytes == name)
}

/// The most that is asked for at once, bytes: the other process handles no signal meanwhile.
const AT_ONCE: usize = 256 << 10;
/// How long is waited before the signal is sent again: one that meets another on its way is lost.
const AGAIN: Duration = Duration::from_millis(2);

/// Has the process copy between `theirs`, from byte `done` on, and `local` here. The number of bytes copied in all, or -1 and errno.
fn ask(pid: usize, theirs: &[libc::iovec], local: usize, mut done: usize, write: bool) -> isize {
    let sum = length(theirs);
    while done < sum {
        let Some(v) = part(theirs, done, AT_ONCE).first().copied() else { break };
        static NUMBER: AtomicU8 = AtomicU8::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let mut request = Request::new(v.iov_base as usize, local + done, v.iov_len, write, number);
        match wait(pid, &mut request, number) {
            Ok(n) => {
                done += n;
                if n < v.iov_len {
                    break;
                }
            }
            Err(e) if done == 0 => return fail(e),
            Err(_) => break,
        }
    }
    if done == 0 && sum > 0 { fail(libc::EFAULT) } else { done as isize }
}

/// Sends the request and waits for its answer: the number of bytes, or an errno value.
fn wait(pid: usize, request: &mut Request, number: u8) -> Result<usize, i32> {
    let at = std::ptr::from_mut(request);
    // SAFETY: plain data; the fields that a signal with a value has.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    (info.si_signo, info.si_code) = (libc::SIGBUS, libc::SI_QUEUE);
    // SAFETY: after the first three numbers, and the gap behind them, lie the sender, its user and the value.
    unsafe {
        let words = (&raw mut info).cast::<u64>().add(2);
        let own = sys::syscall(libc::SYS_getpid, [0; 6]).unwrap_or(0) as u64;
        let user = sys::syscall(libc::SYS_getuid, [0; 6]).unwrap_or(0) as u64;
        words.write(own | user << 32);
        words.add(1).write(copies_for_others::value(at as usize, number) as u64);
    }
    loop {
        let send = [pid, libc::SIGBUS as usize, (&raw const info) as usize, 0, 0, 0];
        // SAFETY: the kernel reads the structure.
        unsafe { sys::syscall(libc::SYS_rt_sigqueueinfo, send) }.map_err(|e| e.0)?;
        let sent = std::time::Instant::now();
        while sent.elapsed() < AGAIN {
            // SAFETY: this thread's own; the kernel writes it for the other process.
            let answer = unsafe { (&raw const (*at).answer).read_volatile() };
            if answer != waiting(number) {
                return usize::try_from(answer).map_err(|_| -answer as i32);
            }
            if sent.elapsed() < Duration::from_micros(200) {
                std::thread::yield_now();
            } else {
                std::thread::sleep(Duration::from_micros(50));
            }
        }
        // A process that ended, and that its parent has not waited for yet, takes signals without an error and never answers.
        // One that runs another program by now would be killed by the signal.
        if !has_tables(pid) {
            return Err(libc::ESRCH);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_ended_is_not_waited_for_forever() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        // SAFETY: plain data, valid for writes. The process is left as it is: a zombie.
        unsafe {
            let mut info = std::mem::zeroed();
            let how = libc::WEXITED | libc::WNOWAIT;
            assert_eq!(libc::waitid(libc::P_PID, pid, &raw mut info, how), 0);
        }
        let mut request = Request::new(0x1000, 0x1000, 8, false, 1);
        assert_eq!(wait(pid as usize, &mut request, 1), Err(libc::ESRCH));
        child.wait().unwrap();
    }

    #[test]
    fn parts_of_lists() {
        let list = [(0x1000, 16), (0x2000, 0), (0x3000, 32)]
            .map(|(at, len)| libc::iovec { iov_base: at as *mut _, iov_len: len });
        let of = |skip, len| {
            part(&list, skip, len).iter().map(|v| (v.iov_base as usize, v.iov_len)).collect::<Vec<_>>()
        };
        assert_eq!(of(0, 100), [(0x1000, 16), (0x3000, 32)]);
        assert_eq!(of(4, 20), [(0x1004, 12), (0x3000, 8)]);
        assert_eq!(of(16, 1), [(0x3000, 1)]);
        assert_eq!(of(48, 1), []);
    }
}
