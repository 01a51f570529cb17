//! C++'s `operator new` and `operator delete`, interposed: their blocks are those of `exports`' `malloc` and `free`.
//!
//! C++'s own library calls these two anyway. Others' allocators do not: jemalloc's `operator new` makes a block of its own, which its
//! `operator delete` passes to `free`, and that is this library's.
//!
//! A program may replace some of these operators, or `malloc`, and the rest then call what it has. Where it does, nothing is done here: each operator is
//! passed on to the library that would have had it. The same is done where there is no memory, since only C++'s library can call the
//! program's handler and throw.

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use super::exports::{free, malloc_for, memalign_for};
use crate::wrap::c_name;
use crate::{arch, state};

/// What all other operators call, unless a library does otherwise.
const BASES: [&CStr; 6] =
    [c"_Znwm", c"_ZdlPv", c"_ZnwmSt11align_val_t", c"_ZdlPvSt11align_val_t", c"malloc", c"free"];

/// Whether the program has one of these itself: not known yet, or one of the following.
static REPLACED: AtomicU8 = AtomicU8::new(0);
const NO: u8 = 1;
const YES: u8 = 2;

/// Whether the program has one of [`BASES`] itself.
#[inline]
fn are_replaced() -> bool {
    match REPLACED.load(Ordering::Relaxed) {
        0 => find_out(),
        known => known == YES,
    }
}

#[cold]
fn find_out() -> bool {
    let object = |address: *const c_void| {
        // SAFETY: plain data, which the call fills.
        unsafe {
            let mut about: libc::Dl_info = std::mem::zeroed();
            if libc::dladdr(address, &raw mut about) == 0 {
                std::ptr::null()
            } else {
                about.dli_fbase.cast_const()
            }
        }
    };
    let own = object(find_out as *const c_void);
    let is_replaced = |name: &CStr| {
        // SAFETY: a C string.
        let first = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
        !first.is_null() && object(first) != own
    };
    let replaced = BASES.into_iter().any(is_replaced);
    // Whoever comes here at the same time finds out the same.
    REPLACED.store(if replaced { YES } else { NO }, Ordering::Relaxed);
    replaced
}

/// The libraries of C++ that may have come with a plugin, whose names the rest of the program does not see.
const LIBRARIES: [&CStr; 3] = [c"libstdc++.so.6", c"libc++abi.so.1", c"libc++.so.1"];

/// Finds the operator that would have been called without this library.
#[cold]
fn find_next(next: &AtomicUsize, name: &CStr) {
    let in_library = |library: &CStr| {
        // SAFETY: C strings; the library stays loaded as long as its caller is.
        unsafe {
            let handle = libc::dlopen(library.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
            if handle.is_null() { std::ptr::null_mut() } else { libc::dlsym(handle, name.as_ptr()) }
        }
    };
    // SAFETY: a C string.
    let behind = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    let mut places = std::iter::once(behind).chain(LIBRARIES.into_iter().map(in_library));
    let Some(address) = places.find(|address| !address.is_null()) else {
        state::give_up(
            134,
            "no library of C++ is loaded that has the operator `new` or `delete` to be called here",
        );
    };
    next.store(address as usize, Ordering::Relaxed);
}

/// Defines operators, named as compilers name them. `new`: takes a size. `aligned`: takes a size and an alignment. `delete`: takes a block,
/// and perhaps what is known of it.
macro_rules! operators {
    ($($kind:ident $name:ident;)*) => {$(
        const _: () = {
            static NEXT: AtomicUsize = AtomicUsize::new(0);

            /// Does the operator's work; 0 where the next one of its name is to do it.
            extern "C" fn work(first: usize, second: usize, _: usize, caller: usize) -> usize {
                let done = if are_replaced() { 0 } else { operators!(@$kind first second caller) };
                if done == 0 && NEXT.load(Ordering::Relaxed) == 0 {
                    find_next(&NEXT, c_name!(stringify!($name)));
                }
                done
            }

            /// The operator.
            ///
            /// # Safety
            /// The same as for C++'s.
            #[unsafe(naked)]
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name() {
                arch::call_or_jump_on!(work, NEXT)
            }
        };
    )*};
    (@new $size:ident $second:ident $caller:ident) => {{
        let _ = $second;
        malloc_for($size.max(1), $caller) as usize
    }};
    (@aligned $size:ident $alignment:ident $caller:ident) => {
        memalign_for($alignment, $size.max(1), $caller) as usize
    };
    (@delete $block:ident $second:ident $caller:ident) => {{
        let _ = ($second, $caller);
        // SAFETY: the caller's block.
        unsafe { free($block as *mut c_void) };
        1
    }};
}

operators! {
    new _Znwm;
    new _Znam;
    new _ZnwmRKSt9nothrow_t;
    new _ZnamRKSt9nothrow_t;
    aligned _ZnwmSt11align_val_t;
    aligned _ZnamSt11align_val_t;
    aligned _ZnwmSt11align_val_tRKSt9nothrow_t;
    aligned _ZnamSt11align_val_tRKSt9nothrow_t;
    delete _ZdlPv;
    delete _ZdaPv;
    delete _ZdlPvm;
    delete _ZdaPvm;
    delete _ZdlPvRKSt9nothrow_t;
    delete _ZdaPvRKSt9nothrow_t;
    delete _ZdlPvSt11align_val_t;
    delete _ZdaPvSt11align_val_t;
    delete _ZdlPvmSt11align_val_t;
    delete _ZdaPvmSt11align_val_t;
    delete _ZdlPvSt11align_val_tRKSt9nothrow_t;
    delete _ZdaPvSt11align_val_tRKSt9nothrow_t;
}
