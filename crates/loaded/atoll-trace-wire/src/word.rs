//! The words of a block: 64 bits, with the kind in the lowest four.
//!
//! Engines make them ([`Stream`](crate::Stream)), and the collector takes them apart. Both run on one machine and have one
//! version, so the format need not be kept.

/// The number of bits of a kind.
const KIND_BITS: u32 = 4;
/// The number of bits of an access's elapsed instructions.
const ELAPSED_BITS: u32 = 20;
const PAGE_SHIFT: u32 = KIND_BITS + ELAPSED_BITS;
const WORKER_BITS: u32 = 16;

/// The most instructions that an access can hold; more need a word of their own before it.
pub const MAX_ELAPSED: u64 = (1 << ELAPSED_BITS) - 1;
/// The first page that is not sent: from here on pages are in the kernel's half of the address space.
pub const MAX_PAGE: u64 = 1 << (64 - PAGE_SHIFT);

/// The kinds of words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A read: the page, and the instructions since the word before.
    Read,
    /// A write: the page, and the instructions since the word before.
    Write,
    /// Instructions.
    Elapsed,
    /// A region begins: worker and team size; a word with its function follows.
    Begin,
    /// A region ends: worker; a word with its function follows.
    End,
    /// A barrier was passed; a word with its return address follows.
    Barrier,
    /// Pages were mapped: their number; a word with the first follows.
    Map,
    /// Pages were unmapped: their number; a word with the first follows.
    Unmap,
    /// The number of accesses seen since the last such word, filtered ones included.
    Seen,
    /// An object file of the program: the bytes of its path; words with its load bias and the path follow.
    Module,
}

impl Kind {
    const ALL: [Kind; 10] = [
        Kind::Read,
        Kind::Write,
        Kind::Elapsed,
        Kind::Begin,
        Kind::End,
        Kind::Barrier,
        Kind::Map,
        Kind::Unmap,
        Kind::Seen,
        Kind::Module,
    ];

    /// Returns the kind of a word; `None` if it has none.
    #[inline]
    pub fn of(word: u64) -> Option<Kind> {
        Self::ALL.get((word & ((1 << KIND_BITS) - 1)) as usize).copied()
    }

    /// Returns the number of words that follow one of this kind.
    #[inline]
    pub fn more(self, word: u64) -> usize {
        match self {
            Kind::Read | Kind::Write | Kind::Elapsed | Kind::Seen => 0,
            Kind::Begin | Kind::End | Kind::Barrier | Kind::Map | Kind::Unmap => 1,
            Kind::Module => 1 + (amount(word) as usize).div_ceil(8),
        }
    }
}

/// Makes a word of this kind with an amount below 2^60: instructions, pages, accesses, bytes.
#[inline]
pub const fn with_amount(kind: Kind, amount: u64) -> u64 {
    amount << KIND_BITS | kind as u64
}

/// Returns the amount in a word.
#[inline]
pub const fn amount(word: u64) -> u64 {
    word >> KIND_BITS
}

/// Makes an access. `page` is below [`MAX_PAGE`], `elapsed` at most [`MAX_ELAPSED`].
#[inline]
pub const fn access(page: u64, write: bool, elapsed: u64) -> u64 {
    page << PAGE_SHIFT | elapsed << KIND_BITS | write as u64
}

/// Returns the page of an access.
#[inline]
pub const fn page(word: u64) -> u64 {
    word >> PAGE_SHIFT
}

/// Returns the instructions of an access.
#[inline]
pub const fn elapsed(word: u64) -> u64 {
    word >> KIND_BITS & MAX_ELAPSED
}

/// Makes the begin or end of a region for a worker of a team of `team`.
#[inline]
pub const fn member(kind: Kind, worker: u16, team: u32) -> u64 {
    (team as u64) << (KIND_BITS + WORKER_BITS) | (worker as u64) << KIND_BITS | kind as u64
}

/// Returns the worker of a region's begin or end.
#[inline]
pub const fn worker(word: u64) -> u16 {
    (word >> KIND_BITS) as u16
}

/// Returns the team size of a region's begin.
#[inline]
pub const fn team(word: u64) -> u32 {
    (word >> (KIND_BITS + WORKER_BITS)) as u32
}

/// Makes a block's first word: the number of words that follow, and their thread.
#[inline]
pub const fn head(words: u32, thread: u32) -> u64 {
    (words as u64) << 32 | thread as u64
}

/// Returns the number of words that follow a head, and their thread.
#[inline]
pub const fn parse_head(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_apart_as_they_were_made() {
        let access = access(MAX_PAGE - 1, true, MAX_ELAPSED);
        assert_eq!(
            (Kind::of(access), page(access), elapsed(access)),
            (Some(Kind::Write), MAX_PAGE - 1, MAX_ELAPSED)
        );
        let begin = member(Kind::Begin, u16::MAX, 1 << 20);
        assert_eq!((Kind::of(begin), worker(begin), team(begin)), (Some(Kind::Begin), u16::MAX, 1 << 20));
        let module = with_amount(Kind::Module, 9);
        assert_eq!((Kind::of(module), Kind::Module.more(module)), (Some(Kind::Module), 3));
        assert_eq!(parse_head(head(511, 77)), (511, 77));
        for (number, kind) in Kind::ALL.into_iter().enumerate() {
            assert_eq!((kind as usize, Kind::of(number as u64)), (number, Some(kind)));
        }
        assert_eq!(Kind::of(15), None);
    }
}
