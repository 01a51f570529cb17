//! System calls that change the address space, as words for the collector.
//!
//! The callbacks in the crate's root pass every call that returns; the numbers are Linux's for x86-64.

use std::sync::atomic::{AtomicU64, Ordering};

use atoll_trace_wire::Stream;
use atoll_trace_wire::word::{Kind, with_amount};

use crate::PAGE_SHIFT;

/// The program break, as far as it is known: 0 before the first call.
static BREAK: AtomicU64 = AtomicU64::new(0);

/// Whether this call changes the address space. Only for these calls arguments must be kept until they return.
pub(crate) fn is_one(call: i64) -> bool {
    [libc::SYS_mmap, libc::SYS_munmap, libc::SYS_mremap, libc::SYS_brk, libc::SYS_madvise].contains(&call)
}

/// Reports what a call that returned `result` did.
pub(crate) fn returned(stream: &mut Stream, call: i64, arguments: &[u64; 4], result: i64) {
    // An error is -1 to -4095.
    if (-4095..0).contains(&result) {
        return;
    }
    let [first, length, third, fourth] = *arguments;
    let result = result as u64;
    match call {
        libc::SYS_mmap => {
            if fourth & libc::MAP_FIXED as u64 != 0 {
                tell(stream, Kind::Unmap, result, length);
            }
            tell(stream, Kind::Map, result, length);
        }
        libc::SYS_munmap => tell(stream, Kind::Unmap, first, length),
        libc::SYS_mremap => {
            tell(stream, Kind::Unmap, first, length);
            tell(stream, Kind::Map, result, third);
        }
        libc::SYS_brk => {
            let before = BREAK.swap(result, Ordering::Relaxed);
            if before != 0 && result > before {
                tell(stream, Kind::Map, before, result - before);
            } else if result < before {
                tell(stream, Kind::Unmap, result, before - result);
            }
        }
        // What was mapped there is gone, and reads as zeros.
        libc::SYS_madvise if third == libc::MADV_DONTNEED as u64 => {
            tell(stream, Kind::Unmap, first, length);
            tell(stream, Kind::Map, first, length);
        }
        _ => {}
    }
}

/// Reports `length` bytes from `first`. A page that only partly belongs to them at the start was mapped before, or still is.
fn tell(stream: &mut Stream, kind: Kind, first: u64, length: u64) {
    let page = |address: u64| address.div_ceil(1 << PAGE_SHIFT);
    let (from, to) = (page(first), page(first.saturating_add(length)));
    if from < to {
        stream.mark(with_amount(kind, to - from), from);
    }
}
