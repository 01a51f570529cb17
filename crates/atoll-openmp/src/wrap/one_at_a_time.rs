//! libc's objects with a lock in them that wakes waiters of its own process only: compiled regular expressions, directories.
//!
//! Workers are processes, so two of them may not meet at such a lock. Each call takes a lock of ours before, by the object's
//! address: that of libc is always free then. On several nodes it is the origin's agent's, and what is compiled lies where all see it.

use super::lend::Argument as _;
use super::{replay, travel};
use atoll_memory::futex::Lock;
use atoll_nodes::ask;

/// Objects share them by address.
static LOCKS: [Lock<()>; 64] = [const { Lock::new(()) }; 64];

/// Calls with the object's lock held.
fn with_lock<R>(object: usize, call: impl FnOnce() -> R) -> R {
    if !super::separate() {
        return call();
    }
    if atoll_nodes::active() {
        ask::lock(object);
        replay::catch_up();
        let result = call();
        ask::unlock(object);
        return result;
    }
    let _held = LOCKS[object.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58].lock();
    call()
}

macro_rules! one_at_a_time {
    ($($name:ident ( $object:ident $(, $arg:ident : $kind:ident $(($size:expr))?)* );)*) => {$(
        /// See libc.
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C" fn $name($object: usize $(, $arg: usize)*) -> usize {
            let call = real!(
                stringify!($name),
                unsafe extern "C" fn(wrap!(@usize $object) $(, wrap!(@usize $arg))*) -> usize
            );
            $(let $arg = wrap!(@lend $arg $kind $(($size))?);)*
            // SAFETY: the caller's arguments.
            with_lock($object, || travel::alone(|| unsafe { call($object $(, $arg.at())*) }))
        }
    )*};
}

one_at_a_time! {
    regcomp(pattern, text: v, flags: v);
    regexec(pattern, text: v, n: v, matches: v, flags: v);
    regfree(pattern);
}

macro_rules! directories {
    ($($name:ident ( $($arg:ident),* );)*) => {$(
        /// See libc.
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C" fn $name(directory: usize $(, $arg: usize)*) -> usize {
            let call = real!(
                stringify!($name),
                unsafe extern "C" fn(usize $(, wrap!(@usize $arg))*) -> usize
            );
            // SAFETY: the caller's arguments.
            with_lock(directory, || unsafe { call(directory $(, $arg)*) })
        }
    )*};
}

directories! {
    readdir();
    readdir64();
    readdir_r(entry, result);
    readdir64_r(entry, result);
    rewinddir();
    seekdir(position);
    telldir();
}
