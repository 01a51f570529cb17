//! libc's objects that contain a lock which wakes waiters of its own process only: compiled regular expressions and
//! directories.
//!
//! Workers are processes, so two of them must never meet at such a lock. Each call first takes a lock of ours, chosen by the
//! object's address, so libc's is always free. On several nodes the origin's agent keeps our lock, and compiled expressions lie
//! where all nodes see them.

use super::lend::Argument as _;
use super::{replay, travel};
use atoll_memory::futex::Lock;
use atoll_nodes::ask;

/// The locks, which objects share by their addresses.
static LOCKS: [Lock<()>; 64] = [const { Lock::new(()) }; 64];

/// Runs `call` with the object's lock held.
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
        /// The function of this name in libc.
        ///
        /// # Safety
        /// The same as for libc's function.
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
        /// The function of this name in libc.
        ///
        /// # Safety
        /// The same as for libc's function.
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
