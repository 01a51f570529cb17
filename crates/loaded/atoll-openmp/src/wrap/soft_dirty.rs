//! Opening files, of which one is refused: `/proc/PID/clear_refs`, by which a program asks the kernel to note which pages are written from then on.
//!
//! The kernel keeps these notes in page tables, and loses them of a page that comes and goes: a collector with write barriers (libgc 8.2 and newer) would
//! miss what was written, and free memory in use. Where it cannot open the file it protects memory instead, of which nothing is lost.

use std::ffi::{CStr, c_char, c_int};

use super::lend::{self, Argument as _};
use crate::start::take_over;
use crate::state;

/// Whether the program must not write to the file at `path`.
///
/// # Safety
/// `path` is a string or null.
unsafe fn is_refused(path: usize, flags: c_int) -> bool {
    if path == 0 || flags & libc::O_ACCMODE == libc::O_RDONLY {
        return false;
    }
    let is_paged = state::pager().is_some_and(|pager| !pager.is_segment()) || take_over::is_watched();
    // SAFETY: the caller's promise.
    is_paged && names_notes(unsafe { CStr::from_ptr(path as *const c_char) }.to_bytes())
}

fn names_notes(path: &[u8]) -> bool {
    path.starts_with(b"/proc/") && path.ends_with(b"/clear_refs")
}

macro_rules! opens {
    ($($name:ident)*) => {$(
        /// The function of this name in libc.
        ///
        /// # Safety
        /// The same as for libc's function. It ignores a mode that the caller did not pass, too.
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C" fn $name(path: usize, flags: c_int, mode: usize) -> c_int {
            let call = real!(stringify!($name), unsafe extern "C" fn(usize, c_int, usize) -> c_int);
            // SAFETY: the caller's string; errno is this thread's.
            unsafe {
                if is_refused(path, flags) {
                    *libc::__errno_location() = libc::EACCES;
                    return -1;
                }
                call(lend::string(path, false).at(), flags, mode)
            }
        }
    )*};
}

opens! { open open64 __open __open64 }

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_known_by_any_process() {
        assert!(names_notes(b"/proc/self/clear_refs") && names_notes(b"/proc/17/clear_refs"));
        assert!(!names_notes(b"/proc/self/maps") && !names_notes(b"/tmp/clear_refs"));
    }
}
