//! The files that hold the arena's pages, each a part of its addresses.
//!
//! `arena` makes and maps them; the pager moves pages by `offset`, which is the same in every file, and the file it
//! lies in. There are several because whatever comes into a file or leaves it takes the file's own locks in the
//! kernel: workers that page in different stripes do not wait for each other there.

use crate::layout;
use crate::sys::{self, Errno};

/// Files; a power of two.
const FILES: usize = 8;
/// Stripes of the arena's first [`NARROW_BYTES`]: log2 of bytes. As narrow as the number of mappings allows.
const NARROW_SHIFT: u32 = 22;
/// Where wider stripes begin.
const NARROW_BYTES: u64 = 1 << 30;
/// Stripes behind: log2 of bytes.
const WIDE_SHIFT: u32 = 29;
/// Where the widest stripes begin.
const WIDE_BYTES: u64 = 64 << 30;
/// Stripes of the rest of the arena: log2 of bytes.
const WIDEST_SHIFT: u32 = 36;
/// Stripes of what lies outside the arena, large globals: log2 of bytes.
const GLOBALS_SHIFT: u32 = 24;
/// What the kernel calls them.
const NAME: &std::ffi::CStr = c"atoll-arena";

/// The open files. Offsets are bytes from the arena's start; those behind the arena's end are globals.
#[derive(Debug, Clone, Copy)]
pub struct ArenaFiles {
    fds: [i32; FILES],
    striped: bool,
}

impl ArenaFiles {
    /// Makes them, for `total` bytes; one only of huge pages, where the kernel's work is a single page's.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub(crate) fn new(total: u64, huge: bool) -> Result<ArenaFiles, Errno> {
        let flags = if huge { libc::MFD_HUGETLB | libc::MFD_HUGE_2MB } else { 0 };
        let first = sys::memfd(NAME, flags, total)?;
        let mut fds = [first; FILES];
        if !huge {
            for fd in &mut fds[1..] {
                *fd = sys::memfd(NAME, flags, total)?;
            }
        }
        Ok(ArenaFiles { fds, striped: !huge })
    }

    /// One file that exists already holds everything.
    pub(crate) fn one(fd: i32) -> ArenaFiles {
        ArenaFiles { fds: [fd; FILES], striped: false }
    }

    /// The numbers of their descriptors, by which another process finds them with [`Self::of_process`].
    pub fn numbers(self) -> Vec<i32> {
        self.fds.to_vec()
    }

    /// Opens the arena's files of another process of this user's on this machine, to be read.
    ///
    /// # Errors
    /// The kernel's refusal; `EINVAL` if they are no files like these.
    pub fn of_process(process: i32, numbers: &[i32], like: ArenaFiles) -> Result<ArenaFiles, Errno> {
        // One that holds everything has one number.
        let count = if like.striped { FILES } else { 1 };
        let numbers = numbers.get(..count).ok_or(Errno(libc::EINVAL))?;
        let mut opened = [-1; FILES];
        for (at, number) in numbers.iter().enumerate() {
            opened[at] = sys::open_of_process(process, *number, NAME, libc::O_RDONLY)
                .inspect_err(|_| opened[..at].iter().for_each(|fd| sys::close(*fd)))?;
        }
        let fds = std::array::from_fn(|at| opened[at % count]);
        Ok(ArenaFiles { fds, striped: like.striped })
    }

    /// log2 of the bytes of the stripe that `offset` is in.
    #[inline]
    fn stripe_shift(self, offset: u64) -> u32 {
        match offset {
            _ if !self.striped => 63,
            0..NARROW_BYTES => NARROW_SHIFT,
            NARROW_BYTES..WIDE_BYTES => WIDE_SHIFT,
            _ if offset < layout::ARENA_BYTES as u64 => WIDEST_SHIFT,
            _ => GLOBALS_SHIFT,
        }
    }

    /// The file that holds `offset`.
    #[inline]
    pub fn file(self, offset: u64) -> i32 {
        self.fds[(offset >> self.stripe_shift(offset)) as usize % FILES]
    }

    /// Where the stripe that `offset` is in ends.
    #[inline]
    pub fn stripe_end(self, offset: u64) -> u64 {
        ((offset >> self.stripe_shift(offset)) + 1) << self.stripe_shift(offset)
    }

    /// The stretch `offset..offset + len` by stripes: file, offset and length of each.
    pub fn pieces(self, offset: u64, len: u64) -> impl Iterator<Item = (i32, u64, u64)> {
        let end = offset + len;
        let mut at = offset;
        std::iter::from_fn(move || {
            let from = at;
            at = self.stripe_end(from).min(end);
            (from < end).then(|| (self.file(from), from, at - from))
        })
    }

    /// Maps the stretch `offset..offset + len`, shared, at `address`.
    ///
    /// # Safety
    /// As for [`sys::mmap`] with these flags.
    ///
    /// # Errors
    /// The kernel's; `EEXIST` where it put a piece elsewhere.
    pub unsafe fn map(self, address: usize, offset: u64, len: usize, flags: i32) -> Result<(), Errno> {
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let flags = flags | libc::MAP_SHARED | libc::MAP_NORESERVE;
        self.pieces(offset, len as u64).try_for_each(|(fd, from, len)| {
            let at = address + (from - offset) as usize;
            // SAFETY: a part of what the caller vouches for.
            let got = unsafe { sys::mmap(at, len as usize, prot, flags, fd, from)? };
            if got == at { Ok(()) } else { Err(Errno(libc::EEXIST)) }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STRIPED: ArenaFiles = ArenaFiles { fds: [0, 1, 2, 3, 4, 5, 6, 7], striped: true };

    #[test]
    fn pieces_cover_a_stretch_once_and_change_file_at_stripes() {
        let spans = [
            (0, 3 << 30),
            (NARROW_BYTES - 4096, 8192),
            (WIDE_BYTES - 4096, 64 << 30),
            (layout::ARENA_BYTES as u64 - 65536, 65536 + (100 << 20)),
        ];
        for (offset, len) in spans {
            let mut at = offset;
            for (fd, from, len) in STRIPED.pieces(offset, len) {
                assert_eq!(from, at);
                assert_eq!(fd, STRIPED.file(from));
                assert_eq!(fd, STRIPED.file(from + len - 1));
                at += len;
            }
            assert_eq!(at, offset + len);
        }
    }

    #[test]
    fn all_of_the_arena_is_far_fewer_mappings_than_a_process_may_have() {
        assert!(STRIPED.pieces(0, layout::ARENA_BYTES as u64).count() < 600);
        let one = ArenaFiles { fds: [3; FILES], striped: false };
        assert_eq!(one.pieces(0, layout::ARENA_BYTES as u64 + 4096).count(), 1);
    }
}
