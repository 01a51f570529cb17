//! The malloc family, `operator new` and `mmap`: passes every call on to the function that would have been called, and marks
//! large blocks.
//!
//! Rules: nothing here allocates. Before the dynamic linker has found the real functions, libc's own answer.

use std::cell::Cell;
use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use atoll_libgomp::with_caller;
use atoll_profile_wire::{LEAST_BLOCK, What};

use crate::start::{mark, on};

unsafe extern "C" {
    fn __libc_malloc(size: usize) -> *mut c_void;
    fn __libc_calloc(n: usize, size: usize) -> *mut c_void;
    fn __libc_realloc(block: *mut c_void, size: usize) -> *mut c_void;
    fn __libc_memalign(alignment: usize, size: usize) -> *mut c_void;
    fn __libc_free(block: *mut c_void);
}

/// The function that would have been called without this library.
struct Next {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
}

thread_local! {
    /// Whether the thread is asking the dynamic linker, which may allocate.
    static LOOKING: Cell<bool> = const { Cell::new(false) };
    /// The caller of `operator new`, which calls malloc.
    static OUTER: Cell<usize> = const { Cell::new(0) };
}

impl Next {
    const fn new(name: &'static CStr) -> Self {
        Self { name, found: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// Returns the function's address; null while the linker looks for it, or where there is none.
    fn get(&self) -> *mut c_void {
        let found = self.found.load(Ordering::Relaxed);
        if !found.is_null() || LOOKING.get() {
            return found;
        }
        LOOKING.set(true);
        // SAFETY: a C string.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        LOOKING.set(false);
        self.found.store(found, Ordering::Relaxed);
        found
    }
}

/// Calls the next function of this name, or a substitute where there is none.
macro_rules! next {
    ($name:literal, fn($($type:ty),*) $(-> $result:ty)?, ($($argument:expr),*), $else:expr) => {{
        static NEXT: Next = Next::new($name);
        let found = NEXT.get();
        // SAFETY: the function of this name has this type, and libc's own does the same; arguments are the caller's.
        unsafe {
            if found.is_null() {
                $else
            } else {
                std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($type),*) $(-> $result)?>(found)($($argument),*)
            }
        }
    }};
}

/// The starts of blocks that were marked, so that their ends are marked, too.
static LIVE: [AtomicUsize; PLACES] = [const { AtomicUsize::new(0) }; PLACES];
const PLACES: usize = 1 << 14;
const NEAR: usize = 16;

fn places(start: usize) -> impl Iterator<Item = &'static AtomicUsize> {
    let first = (start >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    (0..NEAR).map(move |i| &LIVE[(first + i) % PLACES])
}

/// Marks a block if it is large enough.
fn born(start: *mut c_void, bytes: usize, caller: usize) {
    if start.is_null() || bytes < LEAST_BLOCK || !on() {
        return;
    }
    let outer = OUTER.get();
    let site = if outer != 0 { outer } else { caller };
    // Where there is no place for the block, the next block at its address ends it.
    for place in places(start as usize) {
        if place.compare_exchange(0, start as usize, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            break;
        }
    }
    // The address lies within the call, not behind it.
    mark(What::Block { start: start as u64, bytes: bytes as u64, site: site.saturating_sub(1) as u64 });
}

fn dies(start: *mut c_void) {
    let at = start as usize;
    if at == 0 || !on() {
        return;
    }
    for place in places(at) {
        if place.load(Ordering::Relaxed) == at
            && place.compare_exchange(at, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            mark(What::Free { start: at as u64 });
            return;
        }
    }
}

with_caller! {
    malloc to malloc_for as argument 1;
    calloc to calloc_for as argument 2;
    realloc to realloc_for as argument 2;
    memalign to memalign_for as argument 2;
    aligned_alloc to aligned_alloc_for as argument 2;
    posix_memalign to posix_memalign_for as argument 3;
    _Znwm to new_for as argument 1;
    _Znam to new_array_for as argument 1;
}

extern "C" fn malloc_for(bytes: usize, caller: usize) -> *mut c_void {
    let block = next!(c"malloc", fn(usize) -> *mut c_void, (bytes), __libc_malloc(bytes));
    born(block, bytes, caller);
    block
}

extern "C" fn calloc_for(n: usize, each: usize, caller: usize) -> *mut c_void {
    let block = next!(c"calloc", fn(usize, usize) -> *mut c_void, (n, each), __libc_calloc(n, each));
    let bytes = n.saturating_mul(each);
    born(block, bytes, caller);
    block
}

extern "C" fn realloc_for(old: *mut c_void, bytes: usize, caller: usize) -> *mut c_void {
    dies(old);
    let block =
        next!(c"realloc", fn(*mut c_void, usize) -> *mut c_void, (old, bytes), __libc_realloc(old, bytes));
    born(block, bytes, caller);
    block
}

/// Two names of one function; each passes calls on to the next function of its own name.
macro_rules! aligned {
    ($($body:ident as $name:literal;)*) => {$(
        extern "C" fn $body(alignment: usize, bytes: usize, caller: usize) -> *mut c_void {
            let block = next!($name, fn(usize, usize) -> *mut c_void, (alignment, bytes), __libc_memalign(alignment, bytes));
            born(block, bytes, caller);
            block
        }
    )*};
}

aligned! {
    memalign_for as c"memalign";
    aligned_alloc_for as c"aligned_alloc";
}

unsafe extern "C" fn posix_memalign_for(
    to: *mut *mut c_void,
    alignment: usize,
    bytes: usize,
    caller: usize,
) -> c_int {
    let done = next!(
        c"posix_memalign",
        fn(*mut *mut c_void, usize, usize) -> c_int,
        (to, alignment, bytes),
        libc::ENOMEM
    );
    if done == 0 {
        // SAFETY: written by the call.
        born(unsafe { *to }, bytes, caller);
    }
    done
}

/// `operator new`: the block belongs to the function's caller, not to the C++ library.
extern "C" fn new_for(bytes: usize, caller: usize) -> *mut c_void {
    let before = OUTER.replace(caller);
    let block = next!(c"_Znwm", fn(usize) -> *mut c_void, (bytes), malloc_for(bytes, caller));
    OUTER.set(before);
    block
}

/// `operator new[]`.
extern "C" fn new_array_for(bytes: usize, caller: usize) -> *mut c_void {
    let before = OUTER.replace(caller);
    let block = next!(c"_Znam", fn(usize) -> *mut c_void, (bytes), malloc_for(bytes, caller));
    OUTER.set(before);
    block
}

/// `free` of C.
///
/// # Safety
/// The same as for C's `free`.
#[unsafe(no_mangle)]
unsafe extern "C" fn free(block: *mut c_void) {
    dies(block);
    next!(c"free", fn(*mut c_void), (block), __libc_free(block));
}

/// `munmap`, which ends blocks that `mmap` made.
///
/// # Safety
/// The same as for the system call.
#[unsafe(no_mangle)]
unsafe extern "C" fn munmap(at: *mut c_void, bytes: usize) -> c_int {
    dies(at);
    next!(
        c"munmap",
        fn(*mut c_void, usize) -> c_int,
        (at, bytes),
        libc::syscall(libc::SYS_munmap, at, bytes) as c_int
    )
}
