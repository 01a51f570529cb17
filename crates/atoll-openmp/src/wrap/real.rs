//! Finding libc's own functions behind ours.
//!
//! Used by every wrapper. The address is looked up once and kept in this library's data, which all workers share
//! (libc lies at the same address in each).

use std::ffi::CStr;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The next definition of `name` after this library; a function that fails with `ENOSYS` if there is none.
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

/// Stands for a function that this libc does not have.
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

/// libc's function of that name, as a pointer of the given type.
macro_rules! real {
    ($name:expr, $type:ty) => {{
        static CACHE: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        const NAME: &std::ffi::CStr =
            match std::ffi::CStr::from_bytes_with_nul(concat!($name, "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("a name with a NUL"),
            };
        let at = $crate::wrap::real::address(&CACHE, NAME);
        #[allow(unused_unsafe, reason = "used inside unsafe blocks, too")]
        // SAFETY: the named function of libc has this type, or one that is passed in the same registers.
        let function = unsafe { std::mem::transmute::<usize, $type>(at) };
        function
    }};
}

/// Wrappers whose arguments all travel in general registers: each argument is named with what has to be done with
/// it while libc's function runs, and the function is called with what came in.
///
/// `v`: a value, nothing. `fd`: a descriptor. `s`: a string the kernel reads. `r(n)`, `w(n)`: `n` bytes the kernel reads, writes.
/// `t`: a string that is written too (a template). `o(n)`: an object of `n` bytes that others use meanwhile, which stays where
/// it is. `file`: a stream, which is locked. `mutex`, `condition`, `rwlock`: made to work between processes. `mask`: a signal
/// mask, which SIGBUS is taken out of.
macro_rules! wrap {
    ($($name:ident ( $($arg:ident : $kind:ident $(($size:expr))?),* );)*) => {$(
        /// See libc.
        ///
        /// # Safety
        /// As libc's.
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
