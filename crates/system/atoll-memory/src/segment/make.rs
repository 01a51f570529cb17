//! Making a segment: its file, its mapping where the arena begins, every page of it there before anybody asks.
//!
//! Called by the runtime before the program's first instruction. Goes from 1 GiB pages to 2 MiB pages to transparent
//! huge pages, unless it is told to be strict.

use super::contiguity::{self, Pieces};
use super::fill;
use super::kind::PageKind;
use crate::layout;
use crate::limits;
use crate::sys::{self, Errno};

/// The least segment: the runtime's own needs and one worker's.
pub const LEAST_BYTES: u64 = 128 << 20;

/// Why there is no segment.
#[derive(thiserror::Error, Debug)]
pub enum SegmentError {
    /// The kind of pages asked for is not to be had.
    #[error("--strict: no segment of {}: {why}; `atoll doctor` says how to reserve them", kind.name())]
    Strict {
        /// The pages.
        kind: PageKind,
        /// What is missing.
        why: Refusal,
    },
    /// No kind of pages is to be had.
    #[error("no segment: {why}; take less with --segment-size")]
    Refused {
        /// What is missing for the last kind.
        why: Refusal,
    },
    /// Too small for the runtime itself.
    #[error(
        "--segment-size {given}M is too small: {least}M at least, for stacks and small blocks of the workers"
    )]
    TooSmall {
        /// MiB asked for.
        given: u64,
        /// MiB needed.
        least: u64,
    },
    /// Something lies where the segment belongs.
    #[error(
        "address {0:#x}, which the segment needs, is in use (or the address space is limited by `ulimit -v`)"
    )]
    AddressTaken(usize),
}

/// Why pages of one kind are not to be had.
#[derive(thiserror::Error, Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The pool holds fewer than needed.
    #[error("{need} are needed and {free} are free")]
    Pool {
        /// Pages needed.
        need: u64,
        /// Pages free.
        free: u64,
    },
    /// This machine has less memory.
    #[error("{need} MiB are needed and {free} MiB of memory are available")]
    Memory {
        /// MiB needed.
        need: u64,
        /// MiB available.
        free: u64,
    },
    /// The kernel would not collapse all pages.
    #[error("the kernel did not collapse {0} MiB of it")]
    Collapse(u64),
    /// Anything else.
    #[error("the kernel refused: {0}")]
    Kernel(Errno),
}

/// A segment: one stretch of addresses, mapped shared and filled.
#[derive(Debug)]
pub struct Segment {
    /// The segment's first address.
    pub start: usize,
    /// Bytes of the segment.
    pub bytes: usize,
    /// The pages it is made of.
    pub kind: PageKind,
    /// How it lies in physical memory, where the kernel tells.
    pub pieces: Option<Pieces>,
    /// The file that holds the segment.
    pub fd: i32,
}

fn available() -> u64 {
    limits::available_bytes().unwrap_or(0)
}

/// How large a segment of `kind` is if nobody says: all that is reserved; half of what is available where nothing is
/// reserved.
fn default_bytes(kind: PageKind) -> u64 {
    match kind.pool() {
        Some(_) => kind.free() * kind.bytes() as u64,
        None => available() / 2,
    }
}

impl Segment {
    /// Makes the segment: of `first` or the next kind that is to be had, `bytes` long (0: the kind's default), at least
    /// `least`. The second result says, if it is not of `first`, why.
    ///
    /// # Errors
    /// See [`SegmentError`]; nothing is left mapped or reserved.
    pub fn make(
        first: PageKind,
        bytes: u64,
        least: u64,
        strict: bool,
    ) -> Result<(Segment, Option<Refusal>), SegmentError> {
        let least = least.max(LEAST_BYTES);
        if bytes != 0 && bytes < least {
            return Err(SegmentError::TooSmall { given: bytes >> 20, least: least.div_ceil(1 << 20) });
        }
        let mut why = None;
        for kind in PageKind::ALL.into_iter().filter(|kind| *kind >= first) {
            let page = kind.bytes() as u64;
            let wanted = if bytes == 0 { default_bytes(kind).max(least) } else { bytes };
            let refusal = match wanted.checked_next_multiple_of(page) {
                Some(whole) if whole <= layout::ARENA_BYTES as u64 / 8 * 7 => {
                    match Segment::of(kind, whole as usize, strict)? {
                        Ok(segment) => return Ok((segment, why)),
                        Err(refusal) => refusal,
                    }
                }
                _ => Refusal::Kernel(Errno(libc::ENOMEM)),
            };
            if strict {
                return Err(SegmentError::Strict { kind, why: refusal });
            }
            why = why.or(Some(refusal));
            if kind == PageKind::Transparent {
                return Err(SegmentError::Refused { why: refusal });
            }
        }
        Err(SegmentError::Refused { why: why.unwrap_or(Refusal::Kernel(Errno(libc::EINVAL))) })
    }

    /// A segment of one kind of pages.
    fn of(kind: PageKind, bytes: usize, strict: bool) -> Result<Result<Segment, Refusal>, SegmentError> {
        let mut stretch = match Stretch::make(kind, layout::ARENA, bytes) {
            Err(Refusal::Kernel(Errno(libc::EEXIST))) => {
                return Err(SegmentError::AddressTaken(layout::ARENA));
            }
            Err(refusal) => return Ok(Err(refusal)),
            Ok(stretch) => stretch,
        };
        if stretch.small > 0 {
            if strict {
                return Ok(Err(Refusal::Collapse(stretch.small as u64 >> 20)));
            }
            stretch.kind = PageKind::Small;
        }
        let kind = stretch.kind;
        let step = if kind == PageKind::Small { 4096 } else { kind.bytes() };
        let pieces = contiguity::pieces(layout::ARENA, bytes, step);
        Ok(Ok(Segment { start: layout::ARENA, bytes, kind, pieces, fd: stretch.keep() }))
    }
}

/// Filled shared memory of one kind; unmapped and given back when dropped, unless it is kept.
pub struct Stretch {
    at: usize,
    bytes: usize,
    kind: PageKind,
    /// Bytes of it that were not collapsed.
    small: usize,
    fd: i32,
}

impl Stretch {
    /// Maps `bytes` (a multiple of the kind's page) of `kind` at `at`, where nothing may be yet, and fills them.
    ///
    /// # Errors
    /// See [`Refusal`]; `EEXIST` if the address is taken.
    pub fn make(kind: PageKind, at: usize, bytes: usize) -> Result<Stretch, Refusal> {
        match kind.pool() {
            None => {
                let (need, free) = ((bytes as u64).div_ceil(1 << 20), available() >> 20);
                // Something is left for the rest of the machine.
                if need + need / 16 > free {
                    return Err(Refusal::Memory { need, free });
                }
            }
            Some(pool) if !pool.exists() => {
                return Err(Refusal::Pool { need: (bytes / kind.bytes()) as u64, free: 0 });
            }
            Some(_) => {}
        }
        let pool_refusal = |errno: Errno| match errno {
            Errno(libc::ENOMEM | libc::EFAULT | libc::ENOSPC) if kind.pool().is_some() => {
                Refusal::Pool { need: (bytes / kind.bytes()) as u64, free: kind.free() }
            }
            errno => Refusal::Kernel(errno),
        };
        let fd = sys::memfd(c"atoll-segment", kind.memfd_flags(), bytes as u64).map_err(pool_refusal)?;
        let flags = libc::MAP_SHARED | libc::MAP_FIXED_NOREPLACE;
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: NOREPLACE: nothing that exists is touched. Not NORESERVE: the pool's pages are promised here, so that
        // none is missing later.
        let mapped = unsafe { sys::mmap(at, bytes, prot, flags, fd, 0) };
        let mut stretch = Stretch { at, bytes, kind, small: 0, fd };
        match mapped {
            Ok(got) if got == at => {}
            Ok(got) => {
                stretch.at = got;
                return Err(Refusal::Kernel(Errno(libc::EEXIST)));
            }
            Err(errno) => {
                stretch.bytes = 0;
                return Err(pool_refusal(errno));
            }
        }
        if kind.pool().is_some() {
            fill::write(at, bytes).map_err(pool_refusal)?;
        } else {
            stretch.collapse().map_err(Refusal::Kernel)?;
        }
        Ok(stretch)
    }

    /// Has the kernel make huge pages of it: it wants a first 4K page in each, and fills the rest itself, which is thirty times
    /// as fast as filling all of them before. What it does not collapse is filled with 4K pages.
    fn collapse(&mut self) -> Result<(), Errno> {
        let page = self.kind.bytes();
        fill::advise(self.at, self.bytes, libc::MADV_HUGEPAGE).unwrap_or(());
        for at in (self.at..self.at + self.bytes).step_by(page) {
            fill::write(at, 4096)?;
            if fill::advise(at, page, fill::MADV_COLLAPSE).is_err() {
                self.small += page;
            }
            fill::write(at, page)?;
        }
        Ok(())
    }

    /// Whether all pages of the segment are huge.
    pub fn is_huge(&self) -> bool {
        self.small == 0
    }

    /// Maps it over `to..` too, replacing what is there.
    ///
    /// # Safety
    /// As for [`sys::mmap`] with `MAP_FIXED`.
    ///
    /// # Errors
    /// The kernel's.
    pub unsafe fn map_over(&self, to: usize) -> Result<(), Errno> {
        let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_FIXED);
        // SAFETY: by the caller.
        unsafe { sys::mmap(to, self.bytes, prot, flags, self.fd, 0) }.map(drop)
    }

    /// It stays mapped, and its file open, for ever.
    fn keep(self) -> i32 {
        let fd = self.fd;
        std::mem::forget(self);
        fd
    }
}

impl Drop for Stretch {
    fn drop(&mut self) {
        if self.bytes > 0 {
            // SAFETY: made by `make`; whoever drops it has no more use for it.
            let _ = unsafe { sys::syscall(libc::SYS_munmap, [self.at, self.bytes, 0, 0, 0, 0]) };
        }
        sys::close(self.fd);
    }
}
