//! Calls of libomp's with any number of arguments: how an entry point gets them, and how they are passed on.
//!
//! The frame of a call lies on the caller's stack, which all members of the team see: the function, the number of its arguments
//! after the first two, and these arguments. `__kmpc_fork_call` and the like are called in this way; gcc's programs never call
//! them.

use crate::arch;

/// A function that libomp calls with the addresses of two numbers, of the thread in the program and in the team, and an
/// argument.
pub type Member = unsafe extern "C" fn(*const i32, *const i32, *mut u8);

/// Calls the function of a frame with the addresses of two numbers, of the thread in the program and in the team, and its
/// arguments.
///
/// # Safety
/// `frame` is from [`framed!`](macro@crate::framed), and six words behind its head can be read even if there are fewer arguments.
pub unsafe fn call(frame: *const usize, global: *const i32, bound: *const i32) {
    // SAFETY: the caller's promise.
    unsafe { arch::call(frame, global, bound) }
}

/// The function of a frame.
///
/// # Safety
/// `frame` is from [`framed!`](macro@crate::framed).
pub unsafe fn outlined(frame: *const u8) -> usize {
    // SAFETY: a frame begins with the function.
    unsafe { *frame.cast() }
}

/// Defines `void name(location, count, function, ...)`, which makes a frame of function and arguments, and calls `$body` with
/// the location, the frame and the return address.
#[macro_export]
macro_rules! framed {
    ($($(#[$attribute:meta])* $name:ident $body:ident;)*) => {$(
        $(#[$attribute])*
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        extern "C" fn $name() {
            $crate::call_with_frame!($body)
        }
    )*};
}
