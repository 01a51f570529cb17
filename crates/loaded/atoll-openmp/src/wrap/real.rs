//! The addresses of libc's own functions behind ours.
//!
//! Used by every wrapper. An address is looked up once and kept in this library's data, which all workers share (libc lies at
//! the same address in each).

use std::ffi::CStr;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The next definition of `name` after this library's; if there is none, a function that fails with `ENOSYS`.
#[cold]
#[inline(never)]
fn look_up(cache: &AtomicUsize, name: &CStr) -> usize {
    // SAFETY: a C string. dlsym keeps errno unless it fails.
    let mut at = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) } as usize;
    if at == 0 {
        at = missing as *const () as usize;
    }
    cache.store(at, Ordering::Relaxed);
    at
}

/// A substitute for a function that this libc does not have.
extern "C" fn missing() -> isize {
    // SAFETY: errno is this thread's.
    unsafe { *libc::__errno_location() = libc::ENOSYS };
    -1
}

/// The address of libc's `name`.
#[inline]
pub(super) fn address(cache: &AtomicUsize, name: &CStr) -> usize {
    match cache.load(Ordering::Relaxed) {
        0 => look_up(cache, name),
        at => at,
    }
}

/// A name that is known when this is compiled, as a C string.
macro_rules! c_name {
    ($name:expr) => {
        const {
            match std::ffi::CStr::from_bytes_with_nul(concat!($name, "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("a name with a NUL"),
            }
        }
    };
}

pub(crate) use c_name;

/// libc's function of that name, as a pointer of the given type.
macro_rules! real {
    ($name:expr, $type:ty) => {{
        static CACHE: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        let at = $crate::wrap::real::address(&CACHE, $crate::wrap::c_name!($name));
        #[allow(unused_unsafe, reason = "used inside unsafe blocks, too")]
        // SAFETY: the named function of libc has this type, or one that is passed in the same registers.
        let function = unsafe { std::mem::transmute::<usize, $type>(at) };
        function
    }};
}

/// Defines wrappers whose arguments all travel in general registers. Each argument is named with what it needs while libc's
/// function runs; the function is called with the arguments that came in.
///
/// `v`: a plain value. `fd`: a descriptor. `s`: a string that the kernel reads. `r(n)`, `w(n)`: `n` bytes that the kernel
/// reads, writes. `t`: a string that is also written (a template). `o(n)`: an object of `n` bytes that others use meanwhile,
/// which stays where it is. `file`: a stream, which is locked. `mutex`, `condition`, `rwlock`: made to work between processes.
/// `mask`: a signal mask, from which SIGBUS is removed.
macro_rules! wrap {
    ($($name:ident ( $($arg:ident : $kind:ident $(($size:expr))?),* );)*) => {$(
        /// The function of this name in libc.
        ///
        /// # Safety
        /// The same as for libc's function.
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C" fn $name($($arg: usize),*) -> usize {
            let call = real!(stringify!($name), unsafe extern "C" fn($(wrap!(@usize $arg)),*) -> usize);
            if $crate::state::pager().is_some() {
                let ($($arg,)*) = ($(wrap!(@lend $arg $kind $(($size))?),)*);
                // SAFETY: the caller's arguments.
                let result = unsafe { call($($crate::wrap::lend::Argument::at(&$arg)),*) };
                $(let result = $crate::wrap::lend::Argument::returned(&$arg, result);)*
                return result;
            }
            // SAFETY: the caller's arguments.
            unsafe { call($($arg),*) }
        }
    )*};
    (@usize $arg:ident) => { usize };
    (@lend $arg:ident v) => { $arg };
    (@lend $arg:ident fd) => { $crate::wrap::lend::With($arg, $crate::wrap::elsewhere::have($arg)) };
    // SAFETY: the caller's string.
    (@lend $arg:ident s) => { unsafe { $crate::wrap::lend::string($arg, false) } };
    // SAFETY: the caller's string.
    (@lend $arg:ident t) => { unsafe { $crate::wrap::lend::string($arg, true) } };
    (@lend $arg:ident r($size:expr)) => { $crate::wrap::lend::memory($arg, $size, false) };
    (@lend $arg:ident w($size:expr)) => { $crate::wrap::lend::memory($arg, $size, true) };
    (@lend $arg:ident o($size:expr)) => {
        $crate::wrap::lend::With($arg, $crate::wrap::paged::hold($arg, $size, true))
    };
    (@lend $arg:ident mutex) => {
        // SAFETY: the caller's object.
        $crate::wrap::lend::With($arg, unsafe { $crate::wrap::sync::mutex($arg) })
    };
    (@lend $arg:ident condition) => {
        // SAFETY: the caller's object.
        $crate::wrap::lend::With($arg, unsafe { $crate::wrap::sync::condition($arg) })
    };
    (@lend $arg:ident rwlock) => {
        // SAFETY: the caller's object.
        $crate::wrap::lend::With($arg, unsafe { $crate::wrap::sync::rwlock($arg) })
    };
    (@lend $arg:ident file) => {
        // SAFETY: the caller's stream.
        $crate::wrap::lend::With($arg, unsafe { $crate::wrap::stream_lock::lock($arg) })
    };
}
