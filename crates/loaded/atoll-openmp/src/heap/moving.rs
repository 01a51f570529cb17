//! `mremap`, interposed: memory of the arena is moved by copying it, as the arena's addresses are the pager's.
//!
//! Called by the program and its libraries. `mapping` has the other calls of this family.

use std::ffi::{c_int, c_void};
use std::ops::Range;

use atoll_memory::sys::{self, Errno};
use atoll_nodes::files;

use super::large::Content;
use super::mapping::{in_arena, result};
use super::{large, mapped_over, protections};
use crate::start::take_over;
use crate::state;

/// C's `mremap` (its variadic fifth argument arrives like any other).
///
/// # Safety
/// The same as for C's function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn mremap(
    at: *mut c_void,
    old: usize,
    new: usize,
    flags: c_int,
    to: *mut c_void,
) -> *mut c_void {
    let (start, to) = (at as usize, to as usize);
    let is_fixed = flags & libc::MREMAP_FIXED != 0;
    if in_arena(start, old) {
        // SAFETY: the caller's promise.
        return result(Move::checked(start, old, new, flags, to).and_then(|m| unsafe { m.make() }));
    }
    // SAFETY: the caller's promise.
    let by_kernel = || unsafe { sys::syscall(libc::SYS_mremap, [start, old, new, flags as usize, to, 0]) };
    let moved = if is_fixed && state::pager().is_some() && in_arena(to, new) {
        over_arena(to..(to + new).next_multiple_of(4096), by_kernel)
    } else {
        by_kernel()
    };
    if let Ok(at) = moved {
        files::moved(start, old, at, new);
    }
    result(moved)
}

/// Moves memory of the kernel's over `range` of the arena, by `moved`.
fn over_arena(range: Range<usize>, moved: impl FnOnce() -> Result<usize, Errno>) -> Result<usize, Errno> {
    // Processes that share the arena would not see it.
    if !has_one_page_table() {
        return Err(Errno(libc::EINVAL));
    }
    mapped_over::put_back(range.start, range.end)?;
    large::renew(range.start, range.end);
    mapped_over::pin_edges(range.start, range.end);
    mapped_over::cover(range.start, range.end, || moved().map(drop)).map(|()| range.start)
}

/// Whether all that runs of the program sees what the kernel maps.
pub(super) fn has_one_page_table() -> bool {
    !state::are_workers_processes() && !atoll_nodes::active()
}

/// Where memory goes.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    /// It stays if there is room behind it, and goes anywhere if it `may_move`.
    Any { may_move: bool },
    /// It goes anywhere else.
    Elsewhere,
    /// It goes to this address, in place of what lies there.
    At(usize),
}

/// A move of the arena's memory. Lengths are whole pages of the kernel.
#[derive(Debug, PartialEq, Eq)]
struct Move {
    from: Range<usize>,
    new: usize,
    place: Place,
    /// Whether the memory stays mapped where it was, and is empty then.
    leaves: bool,
}

impl Move {
    /// Checks what the program asks for as the kernel does.
    fn checked(start: usize, old: usize, new: usize, flags: c_int, to: usize) -> Result<Move, Errno> {
        let invalid = Errno(libc::EINVAL);
        let pages =
            |bytes: usize| bytes.checked_next_multiple_of(4096).filter(|bytes| *bytes > 0).ok_or(invalid);
        let (old, new) = (pages(old)?, pages(new)?);
        let has = |flag: c_int| flags & flag != 0;
        let (may_move, is_fixed, leaves) =
            (has(libc::MREMAP_MAYMOVE), has(libc::MREMAP_FIXED), has(libc::MREMAP_DONTUNMAP));
        let is_known = flags & !(libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP) == 0;
        if !is_known
            || !start.is_multiple_of(4096)
            || (is_fixed || leaves) && !may_move
            || leaves && old != new
        {
            return Err(invalid);
        }
        let place = match () {
            () if is_fixed => {
                let end = to.checked_add(new).ok_or(invalid)?;
                if !to.is_multiple_of(4096) || to < start + old && start < end {
                    return Err(invalid);
                }
                Place::At(to)
            }
            () if leaves => Place::Elsewhere,
            () => Place::Any { may_move },
        };
        Ok(Move { from: start..start + old, new, place, leaves })
    }

    /// Moves the memory; returns its new address.
    ///
    /// # Safety
    /// The program has given up what it says is to be replaced, and nobody else uses the memory meanwhile.
    unsafe fn make(self) -> Result<usize, Errno> {
        let no_room = Errno(libc::ENOMEM);
        let (from, new) = (self.from, self.new);
        // What is added to the end has the rights of the end.
        let added = protections::at_end(from.clone());
        let to = match self.place {
            Place::Any { .. } if large::resize(from.start, new, Content::Zeros) => {
                protections::again_of(added, from.start + from.len().min(new)..from.start + new)?;
                return Ok(from.start);
            }
            Place::Any { .. } if new <= from.len() => {
                give_up(from.start + new..from.end)?;
                return Ok(from.start);
            }
            Place::Any { may_move: false } => return Err(no_room),
            Place::Any { .. } | Place::Elsewhere => {
                large::allocate(new, 4096, Content::Zeros).or_else(|| elsewhere(new)).ok_or(no_room)?
            }
            Place::At(to) if in_arena(to, new) => {
                mapped_over::put_back(to, to + new)?;
                large::renew(to, to + new);
                to
            }
            Place::At(to) if has_one_page_table() => {
                let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
                // SAFETY: the caller's promise. What lay there is replaced.
                unsafe { sys::mmap(to, new, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) }?
            }
            // The other processes of the team would not see it.
            Place::At(_) => return Err(Errno(libc::EINVAL)),
        };
        let rights = protections::of(from.start, from.start + from.len().min(new));
        protections::lift(from.start, from.end)?;
        // SAFETY: both are the program's, and do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(from.start as *const u8, to as *mut u8, from.len().min(new)) };
        if in_arena(to, new) {
            protections::again(&rights, from.start, to)?;
            protections::again_of(added, to + from.len().min(new)..to + new)?;
        }
        if self.leaves {
            mapped_over::put_back(from.start, from.end)?;
            large::zero(from.start, from.end);
            protections::again(&rights, from.start, from.start)?;
        } else {
            give_up(from)?;
        }
        Ok(to)
    }
}

/// Unmaps a part of the arena.
fn give_up(range: Range<usize>) -> Result<(), Errno> {
    let whole = mapped_over::put_back(range.start, range.end);
    large::free_range(range.start, range.end);
    whole
}

/// Maps private memory in a process that the program forked, where no arena memory can be taken.
fn elsewhere(bytes: usize) -> Option<usize> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping.
    let map = || unsafe { sys::mmap(0, bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    (state::pager().is_none() && take_over::is_heap_private()).then(map)?.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moves_are_checked_as_the_kernel_checks_them() {
        let (may, fixed, leave) = (libc::MREMAP_MAYMOVE, libc::MREMAP_FIXED, libc::MREMAP_DONTUNMAP);
        let refused = Err(Errno(libc::EINVAL));
        let m = |start, old, new, flags, to| Move::checked(start, old, new, flags, to);
        assert_eq!(m(0x1001, 4096, 8192, may, 0), refused);
        assert_eq!(m(0x1000, 0, 8192, may, 0), refused);
        assert_eq!(m(0x1000, 4096, 0, may, 0), refused);
        assert_eq!(m(0x1000, usize::MAX, 4096, may, 0), refused);
        assert_eq!(m(0x1000, 8192, 8192, fixed, 0x10000), refused);
        assert_eq!(m(0x1000, 8192, 8192, may | fixed, 0x10001), refused);
        assert_eq!(m(0x1000, 8192, 8192, may | fixed, 0x2000), refused);
        assert_eq!(m(0x1000, 8192, 4096, may | leave, 0), refused);
        assert_eq!(m(0x1000, 8192, 8192, 8, 0), refused);
        let plain = m(0x1000, 5000, 3, may, 0).unwrap();
        let place = Place::Any { may_move: true };
        assert_eq!(plain, Move { from: 0x1000..0x3000, new: 4096, place, leaves: false });
        assert_eq!(m(0x1000, 4096, 4096, may | leave, 0).unwrap().place, Place::Elsewhere);
        assert_eq!(m(0x1000, 4096, 4096, may | fixed, 0x2000).unwrap().place, Place::At(0x2000));
    }
}
