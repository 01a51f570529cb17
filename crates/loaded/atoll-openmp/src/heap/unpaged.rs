//! Anonymous mappings of the program's that are never paged: stacks, which the kernel writes to, and code.
//!
//! Called by `mapping`, where workers are processes: the kernel's own mapping would be private to the process that made it.
//! Each piece is pinned shared memory with the protection that the program asks for.

use std::collections::BTreeMap;
use std::ops::Range;

use atoll_memory::spin::Spin;
use atoll_memory::sys::{self, Errno};

use super::place;
use crate::state::SignalsBlocked;
use crate::wrap::replay;

struct Pieces {
    next: usize,
    /// Pieces that the program uses: start → bytes.
    live: BTreeMap<usize, usize>,
    /// Pieces that the program gave back: bytes → starts.
    free: BTreeMap<usize, Vec<usize>>,
}

static PIECES: Spin<Pieces> = Spin::new(Pieces { next: 0, live: BTreeMap::new(), free: BTreeMap::new() });

/// The addresses of these pieces: the last sixteenth of pinned memory.
fn area() -> Range<usize> {
    let pinned = place::pinned();
    pinned.end - pinned.len() / 16..pinned.end
}

/// Whether the address is in such a piece, or where one may be.
pub(crate) fn contains(at: usize) -> bool {
    area().contains(&at)
}

/// Maps a new piece of `len` bytes that reads as zeros, protected as `prot` says.
///
/// # Errors
/// `ENOMEM` where there is no room, or the kernel's.
pub(crate) fn map(len: usize, prot: i32) -> Result<usize, Errno> {
    let bytes = len.checked_next_multiple_of(4096).ok_or(Errno(libc::ENOMEM))?;
    let at = take(bytes).ok_or(Errno(libc::ENOMEM))?;
    replay::protect(at, bytes, prot)?;
    Ok(at)
}

fn take(bytes: usize) -> Option<usize> {
    let _blocked = SignalsBlocked::new();
    let mut pieces = PIECES.lock();
    let at = match pieces.free.get_mut(&bytes).and_then(Vec::pop) {
        Some(at) => at,
        None => {
            let area = area();
            let at = pieces.next.max(area.start);
            pieces.next = at.checked_add(bytes).filter(|end| *end <= area.end)?;
            at
        }
    };
    pieces.live.insert(at, bytes);
    Some(at)
}

/// Makes `at..at + len` read as zeros, protected as `prot` says, as `MAP_FIXED` does to a part of a piece.
///
/// # Errors
/// The kernel's error.
pub(crate) fn renew(at: usize, len: usize, prot: i32) -> Result<(), Errno> {
    clear(at, len);
    replay::protect(at, len, prot)
}

/// Unmaps `at..at + len`. A part of a piece gives its memory back; its addresses stay unused.
///
/// # Errors
/// The kernel's error.
pub(crate) fn unmap(at: usize, len: usize) -> Result<(), Errno> {
    let bytes = len.next_multiple_of(4096);
    clear(at, bytes);
    let _blocked = SignalsBlocked::new();
    let mut pieces = PIECES.lock();
    if pieces.live.get(&at) == Some(&bytes) {
        pieces.live.remove(&at);
        pieces.free.entry(bytes).or_default().push(at);
        drop(pieces);
        return replay::protect(at, bytes, libc::PROT_READ | libc::PROT_WRITE);
    }
    drop(pieces);
    replay::protect(at, bytes, libc::PROT_NONE)
}

/// Gives the memory of `at..at + len` back by a hole in the shared file.
fn clear(at: usize, len: usize) {
    // SAFETY: the program says that the content is worthless.
    let _ = unsafe { sys::syscall(libc::SYS_madvise, [at, len, libc::MADV_REMOVE as usize, 0, 0, 0]) };
}
