//! Blocks that libc allocates for the program, on several nodes: they lie where the program's own do, so that other nodes see
//! them.
//!
//! Otherwise what libc allocates stays on its node, as libc hands some of it to the kernel, which cannot fetch pages
//! (`heap::overflow`). Where a function only writes memory, all that it allocates becomes the program's (`alone`); where it
//! also calls the kernel, its result is copied (`moved`).

use std::ffi::{c_char, c_int, c_void};

use atoll_memory::layout;

use super::far_streams;
use super::lend::{self, Argument as _};
use crate::heap::exports;

/// Calls a function that allocates nothing but its result.
pub(super) fn alone<R>(call: impl FnOnce() -> R) -> R {
    if !atoll_nodes::active() {
        return call();
    }
    let before = exports::set_travels(true);
    let result = call();
    exports::set_travels(before);
    result
}

/// Sets whether what libc allocates from now on is the program's; returns the setting before. For `variadic.c`.
#[unsafe(no_mangle)]
extern "C" fn atoll_travels(on: c_int) -> c_int {
    c_int::from(atoll_nodes::active() && exports::set_travels(on != 0))
}

/// Moves a block that libc made for the program to the program's memory; returns its address, which is the old one if there is
/// no need to move.
///
/// # Safety
/// `block` is null, or a live block that only the caller knows.
pub(super) unsafe fn moved(block: usize) -> usize {
    if !atoll_nodes::active() || !layout::in_pinned(block) {
        return block;
    }
    // SAFETY: the caller's promise; the new block is as large.
    unsafe {
        let bytes = exports::malloc_usable_size(block as *mut c_void);
        let Some(new) = exports::program_block(bytes) else { return block };
        std::ptr::copy_nonoverlapping(block as *const u8, new.cast(), bytes);
        exports::free(block as *mut c_void);
        new as usize
    }
}

/// Allocates a block as the program itself would get one; 0 if there is none.
pub(super) fn program_block(size: usize) -> usize {
    exports::program_block(size).map_or(0, |block| block as usize)
}

/// Moves the block that a variable of the program points to, as [`moved`] does.
///
/// # Safety
/// The same as for [`moved`], of the block that the variable points to.
pub(super) unsafe fn moved_at(variable: usize) {
    if atoll_nodes::active() && variable != 0 {
        let place = variable as *mut usize;
        // SAFETY: the caller's promise.
        unsafe { place.write(moved(place.read())) };
    }
}

macro_rules! alone {
    ($($name:ident ( $($arg:ident),* );)*) => {$(
        /// The function of this name in libc.
        ///
        /// # Safety
        /// The same as for libc's function.
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C" fn $name($($arg: usize),*) -> usize {
            let call = real!(stringify!($name), unsafe extern "C" fn($(wrap!(@usize $arg)),*) -> usize);
            // SAFETY: the caller's arguments.
            alone(|| unsafe { call($($arg),*) })
        }
    )*};
}

alone! {
    strdup(text);
    __strdup(text);
    strndup(text, n);
    __strndup(text, n);
    wcsdup(text);
    vasprintf(to, text, list);
    __vasprintf_chk(to, flag, text, list);
    vsscanf(from, text, list);
    __isoc99_vsscanf(from, text, list);
    argz_create(words, argz, len);
    argz_create_sep(text, separator, argz, len);
    argz_add(argz, len, text);
    argz_add_sep(argz, len, text, separator);
    argz_append(argz, len, more, more_len);
    argz_insert(argz, len, before, entry);
    argz_replace(argz, len, from, to, count);
    envz_add(envz, len, name, value);
    tsearch(key, root, compare);
}

macro_rules! returning {
    ($($name:ident ( $($arg:ident : $kind:ident),* );)*) => {$(
        /// The function of this name in libc.
        ///
        /// # Safety
        /// The same as for libc's function.
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C" fn $name($($arg: usize),*) -> usize {
            let call = real!(stringify!($name), unsafe extern "C" fn($(wrap!(@usize $arg)),*) -> usize);
            let ($($arg,)*) = ($(wrap!(@lend $arg $kind),)*);
            // SAFETY: the caller's arguments; a block that is returned is the caller's.
            unsafe {
                let result = call($($arg.at()),*);
                moved(result)
            }
        }
    )*};
}

returning! {
    get_current_dir_name();
    canonicalize_file_name(path: s);
    tempnam(directory: s, prefix: s);
}

macro_rules! into_or_new {
    ($($name:ident ( $($before:ident : $kind:ident,)* ; $to:ident $(, $after:ident)* );)*) => {$(
        /// The function of this name in libc.
        ///
        /// # Safety
        /// The same as for libc's function.
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C" fn $name($($before: usize,)* $to: usize $(, $after: usize)*) -> usize {
            let call = real!(
                stringify!($name),
                unsafe extern "C" fn($(wrap!(@usize $before),)* usize $(, wrap!(@usize $after))*) -> usize
            );
            let ($($before,)*) = ($(wrap!(@lend $before $kind),)*);
            // SAFETY: the caller's arguments; without a buffer of the caller's the result is a block for it.
            unsafe {
                let result = call($($before.at(),)* $to $(, $after)*);
                if $to == 0 { moved(result) } else { result }
            }
        }
    )*};
}

into_or_new! {
    realpath(path: s, ; to);
    __realpath_chk(path: s, ; to, size);
}

/// `getcwd`.
///
/// # Safety
/// The same as for libc's function.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn getcwd(to: usize, len: usize) -> usize {
    let call = real!("getcwd", unsafe extern "C" fn(usize, usize) -> usize);
    // SAFETY: the caller's buffer, or a block for it.
    unsafe {
        if to == 0 {
            return moved(call(0, len));
        }
        let lent = lend::memory(to, len, true);
        let result = call(lent.at(), len);
        lent.returned(result)
    }
}

/// `getaddrinfo`, whose result `freeaddrinfo` frees, each element and its name.
type GetAddressInfo = unsafe extern "C" fn(usize, usize, usize, *mut *mut libc::addrinfo) -> c_int;

/// `getaddrinfo`: returns a list of blocks, each an element with its address behind it, the first with a name.
///
/// # Safety
/// The same as for libc's function.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn getaddrinfo(
    node: usize,
    service: usize,
    hints: usize,
    list: *mut *mut libc::addrinfo,
) -> c_int {
    let call = real!("getaddrinfo", GetAddressInfo);
    let mut first = std::ptr::null_mut();
    // SAFETY: the caller's arguments; the list is a new one.
    unsafe {
        let result = call(node, service, hints, &raw mut first);
        if result == 0 {
            let mut link = &raw mut first;
            while !(*link).is_null() {
                let before = *link;
                let after = moved(before as usize) as *mut libc::addrinfo;
                *link = after;
                let element = &mut *after;
                if !element.ai_addr.is_null() {
                    let offset = (element.ai_addr as usize).wrapping_sub(before as usize);
                    element.ai_addr = (after as usize).wrapping_add(offset) as *mut libc::sockaddr;
                }
                element.ai_canonname = moved(element.ai_canonname as usize) as *mut c_char;
                link = &raw mut element.ai_next;
            }
            *list = first;
        }
        result
    }
}

type Scan = unsafe extern "C" fn(usize, *mut *mut usize, usize, usize) -> c_int;

macro_rules! scans {
    ($($name:ident)*) => {$(
        /// `scandir`: returns a block of pointers to blocks.
        ///
        /// # Safety
        /// The same as for libc's function.
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C" fn $name(
            path: usize,
            list: *mut *mut usize,
            select: usize,
            compare: usize,
        ) -> c_int {
            let call = real!(stringify!($name), Scan);
            let path = wrap!(@lend path s);
            let mut found = std::ptr::null_mut();
            // SAFETY: the caller's arguments; the blocks are new.
            unsafe {
                let count = call(path.at(), &raw mut found, select, compare);
                if count >= 0 {
                    found = moved(found as usize) as *mut usize;
                    (0..count as usize).for_each(|at| moved_at(found.add(at) as usize));
                    *list = found;
                }
                count
            }
        }
    )*};
}

scans! { scandir scandir64 }

type Line = unsafe extern "C" fn(usize, usize, usize, usize) -> isize;

macro_rules! lines {
    ($($name:ident ( $($delimiter:ident)? );)*) => {$(
        /// The function of this name in libc.
        ///
        /// # Safety
        /// The same as for libc's function.
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C" fn $name(to: usize, n: usize $(, $delimiter: usize)?, file: usize) -> isize {
            let delimiter = usize::from(b'\n');
            $(let delimiter = { let _ = delimiter; $delimiter };)?
            if let Some(far) = far_streams::of(file) {
                // SAFETY: the caller's variables.
                return unsafe { far.getdelim(to, n, delimiter) };
            }
            let call = real!("getdelim", Line);
            // SAFETY: the caller's variables and stream.
            unsafe {
                let _locked = super::stream_lock::lock(file);
                let result = call(to, n, delimiter, file);
                moved_at(to);
                result
            }
        }
    )*};
}

lines! {
    getline();
    getdelim(delimiter);
    __getdelim(delimiter);
}
