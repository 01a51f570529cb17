//! Tells the collector the place of each object file, so that regions get names.
//!
//! `start` calls it once, before `main`.

use std::ffi::{CStr, OsStr, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use atoll_trace_wire::word::{Kind, head, with_amount};
use atoll_trace_wire::{BLOCK_WORDS, put};

use crate::start::OWN_FILE;

/// The thread number of words that concern the process.
const NO_THREAD: u32 = u32::MAX;

/// Tells of all object files that are loaded now.
pub(crate) fn tell(pipe: i32) {
    let mut pipe = pipe;
    // SAFETY: the callback has the type it is called by, and its data is the pipe.
    unsafe { libc::dl_iterate_phdr(Some(one), (&raw mut pipe).cast()) };
}

unsafe extern "C" fn one(info: *mut libc::dl_phdr_info, _: usize, pipe: *mut c_void) -> c_int {
    // SAFETY: valid for the call; the data is what `tell` gave.
    let (info, pipe) = unsafe { (&*info, *pipe.cast::<i32>()) };
    let name = if info.dlpi_name.is_null() {
        c""
    } else {
        // SAFETY: a C string of the dynamic linker.
        unsafe { CStr::from_ptr(info.dlpi_name) }
    };
    let own;
    let path = if name.is_empty() {
        let link = Path::new(OsStr::from_bytes(OWN_FILE.to_bytes()));
        let Ok(target) = std::fs::read_link(link) else { return 0 };
        own = target.into_os_string();
        own.as_bytes()
    } else {
        name.to_bytes()
    };
    let words = 2 + path.len().div_ceil(8);
    let mut block = [0u64; BLOCK_WORDS];
    if words < BLOCK_WORDS {
        block[0] = head(words as u32, NO_THREAD);
        block[1] = with_amount(Kind::Module, path.len() as u64);
        block[2] = info.dlpi_addr;
        for (word, bytes) in block[3..].iter_mut().zip(path.chunks(8)) {
            let mut padded = [0; 8];
            padded[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_le_bytes(padded);
        }
        put(pipe, &block[..=words]);
    }
    0
}
