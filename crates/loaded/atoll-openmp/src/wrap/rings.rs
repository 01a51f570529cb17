//! `io_uring`, which a managed program is refused: the kernel reads and writes by itself then, outside of any call, and fails with EFAULT where memory is far.
//! Programs that look whether the kernel has it make ordinary calls instead.
//!
//! `raw_calls` asks here for the system call by number. liburing makes it by an instruction of its own, so its functions are here, too, for programs
//! that are linked with the shared library. It is never loaded on their account: a program that is not managed is handed on to the one that it has.

use std::ffi::{CStr, c_int};
use std::sync::atomic::{AtomicBool, Ordering};

use atoll_memory::sys;

use super::paged;

/// Whether a ring is refused, which is said once.
pub(super) fn are_refused() -> bool {
    static SAID: AtomicBool = AtomicBool::new(false);
    // Where a thread serves faults, or none come, the kernel reaches all memory.
    let are = paged::active().is_some();
    if are && !SAID.swap(true, Ordering::Relaxed) {
        sys::complain(
            "atoll: io_uring is refused with ENOSYS, as the kernel cannot fetch far memory for it: the program has to do with ordinary reads and writes\n",
        );
    }
    are
}

/// liburing's function of that name; `None` where the program has no liburing. It is looked up anew each time: the library may come late.
fn find(name: &CStr) -> Option<usize> {
    // SAFETY: C strings. A library that is loaded is neither loaded again nor given back.
    unsafe {
        let mut at = libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) as usize;
        // A library that came with `dlopen` is not among those that are searched for everybody.
        for library in [c"liburing.so.2", c"liburing.so.1"] {
            if at == 0 {
                let of = libc::dlopen(library.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD);
                at = if of.is_null() { 0 } else { libc::dlsym(of, name.as_ptr()) as usize };
            }
        }
        (at != 0).then_some(at)
    }
}

/// Defines functions of liburing that set up a ring, and return 0 or an error's negative number.
macro_rules! rings {
    ($($name:ident ( $($arg:ident),* );)*) => {$(
        /// The function of this name in liburing.
        ///
        /// # Safety
        /// The same as for liburing's function.
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C" fn $name($($arg: usize),*) -> c_int {
            let found = if are_refused() { None } else { find(c_name!(stringify!($name))) };
            let Some(at) = found else { return -libc::ENOSYS };
            // SAFETY: liburing's function, all of whose arguments travel in general registers.
            unsafe {
                let call = std::mem::transmute::<usize, unsafe extern "C" fn($(wrap!(@usize $arg)),*) -> c_int>(at);
                call($($arg),*)
            }
        }
    )*};
}

rings! {
    io_uring_setup(entries, parameters);
    io_uring_queue_init(entries, ring, flags);
    io_uring_queue_init_params(entries, ring, parameters);
    io_uring_queue_init_mem(entries, ring, parameters, memory, bytes);
}
