//! `aio_read`, `aio_write` and `lio_listio`: transfers that libc's own threads would make, whose memory may be paged.
//!
//! Stands on `io`. libc's threads hand the kernel the program's buffer where it lies, and have all signals blocked, so that they could not
//! even bring the request near. A transfer from or to a file whose memory is paged is made at once instead, before the call returns,
//! as the standard allows; its result is where libc's `aio_error` and `aio_return` look for it. Transfers of pipes and sockets are libc's.

use std::ffi::{c_int, c_void};
use std::mem::offset_of;

use atoll_memory::sys;

use super::io;
use super::lend::{self, Argument as _};
use super::paged::{self, Kind};

type Request = libc::aiocb;

/// Where in a request libc keeps the error and the result: in front of the offset.
const OFFSET: usize = offset_of!(Request, aio_offset);
const RESULT: usize = OFFSET - size_of::<isize>();
const ERROR: usize = RESULT - size_of::<isize>();

/// Where in an event the function of [`libc::SIGEV_THREAD`] and the attributes of its thread are.
const FUNCTION: usize = offset_of!(libc::sigevent, sigev_notify_thread_id);
const ATTRIBUTES: usize = FUNCTION + size_of::<usize>();

/// Whether the request, or the memory that it names, is paged, and its descriptor a file.
///
/// # Safety
/// A request, as libc wants it.
unsafe fn is_for_us(request: *const Request) -> bool {
    let Some(pager) = paged::active() else { return false };
    // SAFETY: the caller's promise.
    let (buffer, len, fd) =
        unsafe { ((*request).aio_buf as usize, (*request).aio_nbytes, (*request).aio_fildes) };
    let any = |start: usize, len: usize| pager.first_paged(start, len).is_some();
    (any(request.addr(), size_of::<Request>()) || len > 0 && any(buffer, len))
        && paged::kind(fd) == Kind::File
}

/// Makes the transfer and notes its result; whether it succeeded.
///
/// # Safety
/// A request, as libc wants it.
unsafe fn transfer(request: *mut Request, write: bool) -> bool {
    let call = if write { io::pwrite64 } else { io::pread64 };
    // SAFETY: the caller's request, whose memory is valid for the transfer; libc's fields lie within it.
    unsafe {
        let Request { aio_fildes: fd, aio_buf: buffer, aio_nbytes: len, aio_offset: offset, .. } = *request;
        let result = call(fd as usize, buffer as usize, len, offset as usize);
        let error = if result < 0 { *libc::__errno_location() } else { 0 };
        request.byte_add(RESULT).cast::<isize>().write(result);
        request.byte_add(ERROR).cast::<c_int>().write(error);
        result >= 0
    }
}

/// Tells the program that a request is done, in the way that it asked for.
///
/// # Safety
/// An event, as libc wants it.
unsafe fn notify(event: *const libc::sigevent) {
    // SAFETY: the caller's promise. An event by thread has the function and the attributes behind its kind.
    unsafe {
        let value = (*event).sigev_value.sival_ptr;
        match (*event).sigev_notify {
            libc::SIGEV_SIGNAL if (*event).sigev_signo > 0 => {
                let mut info: libc::siginfo_t = std::mem::zeroed();
                (info.si_signo, info.si_code) = ((*event).sigev_signo, libc::SI_ASYNCIO);
                // Behind the kind: the sender's process and user, and the value.
                let words = (&raw mut info).cast::<u32>();
                words.add(4).write(std::process::id());
                words.add(5).write(libc::getuid());
                words.add(6).cast::<*mut c_void>().write_unaligned(value);
                let info = (&raw const info) as usize;
                let signal = (*event).sigev_signo as usize;
                let of = [std::process::id() as usize, signal, info, 0, 0, 0];
                let _ = sys::syscall(libc::SYS_rt_sigqueueinfo, of);
            }
            libc::SIGEV_THREAD => {
                let function = event.byte_add(FUNCTION).cast::<usize>().read();
                let attributes = event.byte_add(ATTRIBUTES).cast::<*const libc::pthread_attr_t>().read();
                let function =
                    std::mem::transmute::<usize, extern "C" fn(*mut c_void) -> *mut c_void>(function);
                let mut thread = 0;
                if super::threads::pthread_create(&raw mut thread, attributes, function, value) == 0 {
                    libc::pthread_detach(thread);
                }
            }
            _ => {}
        }
    }
}

/// Defines the two transfers, each with the name of its form for large files, which is the same here.
macro_rules! transfers {
    ($($name:ident, $name64:ident, $write:literal;)*) => {$(
        /// The function of this name in libc.
        ///
        /// # Safety
        /// The same as for libc's function.
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C" fn $name(request: *mut Request) -> c_int {
            // SAFETY: the caller's request.
            unsafe {
                if !is_for_us(request) {
                    return real!(stringify!($name), unsafe extern "C" fn(*mut Request) -> c_int)(request);
                }
                transfer(request, $write);
                notify(&raw const (*request).aio_sigevent);
            }
            0
        }

        /// The function of this name in libc.
        ///
        /// # Safety
        /// The same as for libc's function.
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C" fn $name64(request: *mut Request) -> c_int {
            // SAFETY: the caller's promise; both forms of the request are one on this machine.
            unsafe { $name(request) }
        }
    )*};
}

transfers! {
    aio_read, aio_read64, false;
    aio_write, aio_write64, true;
}

/// `lio_listio`: requests whose memory is paged are done before the others begin.
///
/// # Safety
/// The same as for libc's function.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn lio_listio(
    mode: c_int,
    list: *const *mut Request,
    count: c_int,
    event: *mut libc::sigevent,
) -> c_int {
    type Call = unsafe extern "C" fn(c_int, *const *mut Request, c_int, *mut libc::sigevent) -> c_int;
    let call = real!("lio_listio", Call);
    if paged::active().is_none() || count <= 0 {
        // SAFETY: the caller's arguments.
        return unsafe { call(mode, list, count, event) };
    }
    // SAFETY: the caller's list.
    let requests = unsafe { std::slice::from_raw_parts(list, count as usize) };
    let (mut left, mut ours, mut failed) = (Vec::new(), Vec::new(), false);
    for &request in requests.iter().filter(|request| !request.is_null()) {
        // SAFETY: one of the caller's requests.
        unsafe {
            match (*request).aio_lio_opcode {
                operation @ (libc::LIO_READ | libc::LIO_WRITE) if is_for_us(request) => {
                    failed |= !transfer(request, operation == libc::LIO_WRITE);
                    ours.push(request);
                }
                _ => left.push(request),
            }
        }
    }
    for request in ours {
        // SAFETY: one of the caller's requests.
        unsafe { notify(&raw const (*request).aio_sigevent) };
    }
    let event = lend::memory(event as usize, size_of::<libc::sigevent>(), false);
    // SAFETY: the rest of the caller's requests, in a list of this library's own. An empty list is done at once, and told so.
    let result = unsafe { call(mode, left.as_ptr(), left.len() as c_int, event.at() as *mut _) };
    if failed && mode == libc::LIO_WAIT {
        // SAFETY: errno is this thread's.
        unsafe { *libc::__errno_location() = libc::EIO };
        return -1;
    }
    result
}

/// `lio_listio64`, which is the same here.
///
/// # Safety
/// The same as for libc's function.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn lio_listio64(
    mode: c_int,
    list: *const *mut Request,
    count: c_int,
    event: *mut libc::sigevent,
) -> c_int {
    // SAFETY: the caller's promise; both forms of a request are one on this machine.
    unsafe { lio_listio(mode, list, count, event) }
}
