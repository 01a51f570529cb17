//! Variables and functions that only newer glibcs have, looked up by name, so that the library can be loaded with glibc 2.28.
//!
//! `wrap` has them looked up while the master has one thread; `process` uses them in a new worker, where nothing can be looked
//! up.

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicIsize, AtomicU32, Ordering};

use crate::arch;

static RSEQ_OFFSET: AtomicIsize = AtomicIsize::new(0);
static RSEQ_SIZE: AtomicU32 = AtomicU32::new(0);

/// The minor version of glibc 2 from which its own locks read `__libc_single_threaded` instead of the thread's own flag.
const ASKS_THE_VARIABLE: u32 = 35;

fn variable<T>(name: &CStr) -> Option<*mut T> {
    // SAFETY: the name is a string.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!found.is_null()).then_some(found.cast())
}

/// The minor version of glibc, 36 for "2.36".
fn minor_version() -> u32 {
    // SAFETY: a string that stays.
    let version = unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) };
    let minor = version.to_str().ok().and_then(|version| version.split('.').nth(1)?.parse().ok());
    minor.unwrap_or(u32::MAX)
}

/// Looks up the values for [`rseq_area`].
pub(crate) fn find() {
    let (offset, size) = (variable::<isize>(c"__rseq_offset"), variable::<u32>(c"__rseq_size"));
    if let (Some(offset), Some(size)) = (offset, size) {
        // SAFETY: glibc's constants of these types.
        let (offset, size) = unsafe { (*offset, *size) };
        RSEQ_OFFSET.store(offset, Ordering::Relaxed);
        RSEQ_SIZE.store(size, Ordering::Relaxed);
    }
}

/// The offset from the thread pointer of the area for restartable sequences that glibc registered with the kernel; `None` if it
/// registered none.
pub(super) fn rseq_area() -> Option<isize> {
    (RSEQ_SIZE.load(Ordering::Relaxed) > 0).then(|| RSEQ_OFFSET.load(Ordering::Relaxed))
}

/// libc's `pthread_create`.
pub(crate) type Create = unsafe extern "C" fn(
    *mut libc::pthread_t,
    *const libc::pthread_attr_t,
    extern "C" fn(*mut c_void) -> *mut c_void,
    *mut c_void,
) -> c_int;

/// Makes a thread that ends at once. With the first, glibc sets its handlers of the signals by which all threads change their user, which
/// end the program if nobody handles them, and it takes a thread for the first only while its promise stands.
fn make_first_thread(create: Create) {
    extern "C" fn nothing(_: *mut c_void) -> *mut c_void {
        std::ptr::null_mut()
    }
    let mut thread = 0;
    // SAFETY: a function that touches nothing; the thread is waited for.
    unsafe {
        if create(&raw mut thread, std::ptr::null(), nothing, std::ptr::null_mut()) == 0 {
            libc::pthread_join(thread, std::ptr::null_mut());
        }
    }
}

/// Takes back libc's promise that there is one thread, by which libstdc++ leaves out atomics (reference counts, guards of
/// static locals) and wake-ups, and libc its own locks. Copies of the calling thread, as workers are, inherit its flag.
///
/// `create` is libc's own `pthread_create`.
pub(crate) fn not_single_threaded(create: Create) {
    make_first_thread(create);
    if let Some(single) = variable::<u8>(c"__libc_single_threaded") {
        // SAFETY: a byte that libc itself clears when a thread is made.
        unsafe { *single = 0 };
    }
    if minor_version() < ASKS_THE_VARIABLE {
        arch::set_multiple_threads();
    }
}

/// What glibc's allocator says of itself, as `mallinfo2` returns it: bytes, but for three counts.
#[repr(C)]
struct Blocks {
    arena: usize,
    free_chunks: usize,
    fast_chunks: usize,
    mapped_chunks: usize,
    /// Blocks that are mappings of their own.
    mapped: usize,
    unused: usize,
    fast: usize,
    /// The other blocks that are in use.
    used: usize,
    free: usize,
    releasable: usize,
}

/// Bytes of the blocks that libc's allocator has handed out and that were not freed, touched or not. 0 where this glibc does not say.
pub(super) fn blocks_in_use() -> u64 {
    let Some(function) = variable::<c_void>(c"mallinfo2") else { return 0 };
    // SAFETY: the function of this name in glibc.
    let blocks = unsafe { std::mem::transmute::<*mut c_void, extern "C" fn() -> Blocks>(function) }();
    blocks.mapped as u64 + blocks.used as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_that_nobody_touched_are_in_use() {
        let before = blocks_in_use();
        // The compiler may leave out a block that nobody looks at.
        // SAFETY: a plain allocation.
        let block = std::hint::black_box(unsafe { libc::malloc(50 << 20) });
        let with = blocks_in_use();
        // SAFETY: allocated above.
        unsafe { libc::free(block) };
        assert!(with == 0 || with >= before + (40 << 20), "{before} {with}");
    }

    #[test]
    fn this_glibc_has_a_version_and_no_variable_that_nobody_defines() {
        assert!((17..1000).contains(&minor_version()));
        assert!(variable::<u8>(c"__atoll_no_such_variable").is_none());
    }
}
