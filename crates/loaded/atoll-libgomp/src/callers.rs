//! Entry points that learn the address they return to, which names the place in the program that called them.
//!
//! Each is a few instructions in front of a function in Rust; [`frames`](crate::frames) has those with any number of arguments.

/// Defines the entry points `$entry`, each of which jumps to `$body` with its return address as argument `$argument`, counted from
/// 0: the one that follows the entry point's own.
///
/// # Safety
/// The same as for `$body`, whose arguments but the last these entry points have.
#[macro_export]
macro_rules! with_caller {
    ($($(#[$attribute:meta])* $entry:ident to $body:ident as argument $argument:tt;)*) => {$(
        $(#[$attribute])*
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $entry() {
            $crate::jump_with_caller!($argument, $body)
        }
    )*};
}
