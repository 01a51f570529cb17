//! `syscall`, by which programs and C++'s library make system calls by number.
//!
//! It does for the calls that are known to be made so what `sync`, `io`, `table` and `closing` do for libc's functions of these names.

use std::ffi::c_int;

use super::lend::{self, Argument as _};
use super::{closing, io, node_sync, paged, rings};
use crate::state;

const TIME: usize = size_of::<libc::timespec>();
/// The bytes of a description of a performance counter.
const PERF: usize = 136;

type Syscall = unsafe extern "C" fn(i64, usize, usize, usize, usize, usize, usize) -> i64;

/// libc's `syscall`, whose variable arguments arrive like fixed ones. Futexes (libstdc++'s guards of static locals,
/// std::atomic::wait, std::future) reach other processes and absent pages; transfers are made in pieces; what the other calls here
/// point to is lent. Calls that are not here get the caller's own pointers.
///
/// # Safety
/// The same as for libc's function.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn syscall(
    number: i64,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> i64 {
    let call = real!("syscall", Syscall);
    if state::pager().is_none() {
        // SAFETY: the caller's arguments.
        return unsafe { call(number, a, b, c, d, e, f) };
    }
    // SAFETY: the caller's arguments.
    unsafe {
        match number {
            libc::SYS_futex if atoll_nodes::active() => node_sync::futex(a, b, c as u32, d, f as u32),
            libc::SYS_futex => {
                let operation = if super::separate() { b & !(libc::FUTEX_PRIVATE_FLAG as usize) } else { b };
                let _held = (paged::hold(a, 4, true), paged::hold(e, 4, true));
                let time = lend::memory(d, TIME, false);
                call(number, a, operation, c, time.at(), e, f)
            }
            libc::SYS_read => io::read(a, b, c) as i64,
            libc::SYS_write => io::write(a, b, c) as i64,
            libc::SYS_pread64 => io::pread64(a, b, c, d) as i64,
            libc::SYS_pwrite64 => io::pwrite64(a, b, c, d) as i64,
            libc::SYS_getrandom => io::getrandom(a, b, c) as i64,
            libc::SYS_readv => io::readv(a, b, c) as i64,
            libc::SYS_writev => io::writev(a, b, c) as i64,
            libc::SYS_close => closing::close(a as c_int).into(),
            libc::SYS_close_range => closing::close_range(a as u32, b as u32, c as c_int).into(),
            libc::SYS_openat => call(number, a, lend::string(b, false).at(), c, d, e, f),
            libc::SYS_memfd_create => call(number, lend::string(a, false).at(), b, c, d, e, f),
            libc::SYS_statx => {
                let (path, to) = (lend::string(b, false), lend::memory(e, size_of::<libc::statx>(), true));
                call(number, a, path.at(), c, d, to.at(), f)
            }
            libc::SYS_getcwd => call(number, lend::memory(a, b, true).at(), b, c, d, e, f),
            libc::SYS_getdents64 => call(number, a, lend::memory(b, c, true).at(), c, d, e, f),
            libc::SYS_sched_getaffinity => call(number, a, b, lend::memory(c, b, true).at(), d, e, f),
            libc::SYS_clock_gettime => call(number, a, lend::memory(b, TIME, true).at(), c, d, e, f),
            libc::SYS_newfstatat => {
                let (path, to) = (lend::string(b, false), lend::memory(c, size_of::<libc::stat>(), true));
                call(number, a, path.at(), to.at(), d, e, f)
            }
            libc::SYS_openat2 => {
                let (path, how) = (lend::string(b, false), lend::memory(c, d, false));
                call(number, a, path.at(), how.at(), d, e, f)
            }
            libc::SYS_pipe2 => call(number, lend::memory(a, 8, true).at(), b, c, d, e, f),
            libc::SYS_rt_sigpending => call(number, lend::memory(a, b, true).at(), b, c, d, e, f),
            // libnuma's calls. A page that is paged has no node of its own, which the kernel says.
            libc::SYS_get_mempolicy => {
                let (mode, nodes) = (lend::memory(a, 4, true), lend::memory(b, c.div_ceil(8), true));
                call(number, mode.at(), nodes.at(), c, d, e, f)
            }
            libc::SYS_move_pages => {
                let (pages, nodes) = (lend::memory(c, 8 * b, false), lend::memory(d, 4 * b, false));
                let status = lend::memory(e, 4 * b, true);
                call(number, a, b, pages.at(), nodes.at(), status.at(), f)
            }
            libc::SYS_sched_setaffinity => call(number, a, b, lend::memory(c, b, false).at(), d, e, f),
            libc::SYS_io_uring_setup if rings::are_refused() => {
                *libc::__errno_location() = libc::ENOSYS;
                -1
            }
            libc::SYS_perf_event_open => call(number, lend::memory(a, PERF, false).at(), b, c, d, e, f),
            _ => call(number, a, b, c, d, e, f),
        }
    }
}
