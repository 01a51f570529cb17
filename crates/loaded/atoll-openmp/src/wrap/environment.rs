//! The environment, common to all workers.
//!
//! `environ` is libc's private variable, but it points to shared memory. A worker that changes it publishes the pointer; a
//! worker that reads it first checks whether a newer one was published.

use std::cell::Cell;
use std::ffi::{c_char, c_int};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use atoll_memory::spin::Spin;

unsafe extern "C" {
    static mut environ: usize;
}

static GENERATION: AtomicU64 = AtomicU64::new(0);
static POINTER: AtomicUsize = AtomicUsize::new(0);
/// Held while the environment changes.
static CHANGING: Spin<()> = Spin::new(());

thread_local! {
    static SEEN: Cell<u64> = const { Cell::new(0) };
}

/// Sets libc's variable to what libc will set it to. Called in the constructor, which runs before libc's own, for libraries
/// that are loaded then.
pub(crate) fn begin(environment: usize) {
    // SAFETY: the process's environment, and nobody else runs yet.
    unsafe { environ = environment };
}

/// Takes over the environment that another worker published.
#[inline]
fn catch_up() {
    // Acquire: pairs with the Release in `change`.
    let now = GENERATION.load(Ordering::Acquire);
    if now != SEEN.get() {
        SEEN.set(now);
        // SAFETY: an environment that libc made in another worker.
        unsafe { environ = POINTER.load(Ordering::Relaxed) };
    }
}

/// In a process that the program forked, libc's variable alone counts from now on.
pub(super) fn in_forked() {
    if GENERATION.load(Ordering::Relaxed) != 0 {
        catch_up();
        GENERATION.store(0, Ordering::Relaxed);
        SEEN.set(0);
    }
}

fn change<R>(f: impl FnOnce() -> R) -> R {
    if !super::separate() {
        return f();
    }
    let _changing = CHANGING.lock();
    catch_up();
    let result = f();
    // SAFETY: reading the variable.
    POINTER.store(unsafe { environ }, Ordering::Relaxed);
    let next = GENERATION.load(Ordering::Relaxed) + 1;
    SEEN.set(next);
    // Release: pairs with the Acquire in `catch_up`.
    GENERATION.store(next, Ordering::Release);
    result
}

macro_rules! readers {
    ($($name:ident)*) => {$(
        /// The function of this name in libc.
        ///
        /// # Safety
        /// The same as for libc's function.
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C" fn $name(name: *const c_char) -> *mut c_char {
            let call = real!(stringify!($name), unsafe extern "C" fn(*const c_char) -> *mut c_char);
            if GENERATION.load(Ordering::Relaxed) != 0 {
                catch_up();
            }
            // SAFETY: the caller's string.
            unsafe { call(name) }
        }
    )*};
}

readers! { getenv secure_getenv }

/// `setenv`.
///
/// # Safety
/// The same as for libc's function.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn setenv(name: *const c_char, value: *const c_char, over: c_int) -> c_int {
    let call = real!("setenv", unsafe extern "C" fn(*const c_char, *const c_char, c_int) -> c_int);
    // SAFETY: the caller's strings.
    change(|| unsafe { call(name, value, over) })
}

macro_rules! changers {
    ($($name:ident)*) => {$(
        /// The function of this name in libc.
        ///
        /// # Safety
        /// The same as for libc's function.
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C" fn $name(entry: *mut c_char) -> c_int {
            let call = real!(stringify!($name), unsafe extern "C" fn(*mut c_char) -> c_int);
            // SAFETY: the caller's string.
            change(|| unsafe { call(entry) })
        }
    )*};
}

changers! { putenv unsetenv }

/// `clearenv`.
#[unsafe(no_mangle)]
pub(super) extern "C" fn clearenv() -> c_int {
    let call = real!("clearenv", unsafe extern "C" fn() -> c_int);
    // SAFETY: no arguments.
    change(|| unsafe { call() })
}
