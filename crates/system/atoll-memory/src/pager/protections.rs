//! What the program allows of its paged memory (`mprotect`), for each 4K.
//!
//! The kernel enforces it: the runtime changes the rights of the mappings, and the pager brings and takes pages under any rights, as it reads and
//! writes them by their file and by userfaultfd. Here is noted what the program asked for. Who asks: handlers of signals, which have to tell a
//! fault of the program's own from one of the pager's; wrappers of system calls, which copy what the kernel would refuse to touch; and whoever frees memory,
//! which is usual again for the next block. The runtime's `heap::protections` changes it.
//!
//! Rules: no allocation, no locks but those of pages, no arena access, no printing. Two bits stand for each 4K, in memory that all workers share.

use std::sync::atomic::{AtomicU64, Ordering};

use super::Pager;
use super::frames::CoreMap;
use super::page_word::{self, State};
use crate::spin::Backoff;

/// What the program allows of a part of its memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Allowed {
    /// All that arena memory allows by itself: reading and writing.
    Usual,
    /// Reading.
    Reading,
    /// Nothing.
    Nothing,
    /// All that is usual, and to execute it.
    Everything,
}

impl Allowed {
    /// By the rights to read and write that `mprotect` takes. A processor that lets memory be written lets it be read.
    pub fn of(prot: i32) -> Allowed {
        if prot & libc::PROT_WRITE != 0 {
            Allowed::Usual
        } else if prot & libc::PROT_READ != 0 {
            Allowed::Reading
        } else {
            Allowed::Nothing
        }
    }

    /// The rights that `mprotect` takes.
    pub fn prot(self) -> i32 {
        match self {
            Allowed::Usual => libc::PROT_READ | libc::PROT_WRITE,
            Allowed::Reading => libc::PROT_READ,
            Allowed::Nothing => libc::PROT_NONE,
            Allowed::Everything => libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC,
        }
    }

    fn forbids(self, write: bool) -> bool {
        self == Allowed::Nothing || write && self == Allowed::Reading
    }

    fn bits(self) -> u64 {
        match self {
            Allowed::Usual => 0,
            Allowed::Reading => 1,
            Allowed::Nothing => 2,
            Allowed::Everything => 3,
        }
    }

    fn of_bits(bits: u64) -> Allowed {
        match bits & 3 {
            0 => Allowed::Usual,
            1 => Allowed::Reading,
            2 => Allowed::Nothing,
            _ => Allowed::Everything,
        }
    }
}

/// Entries of a word.
const EACH: u64 = 32;
/// Entries of a chunk: those of one of the kernel's pages.
const CHUNK: u64 = 4096 / 8 * EACH;
/// All entries of a word that have the lower bit.
const LOWER: u64 = 0x5555_5555_5555_5555;

/// The notes of all 4K of the arena's files.
pub(crate) struct Protections {
    words: &'static [AtomicU64],
    /// A bit for each chunk of which some was ever other than usual. The notes of the others are zero, and not even read, as that would take memory.
    chunks: &'static [AtomicU64],
    /// How many 4K are not usual.
    count: AtomicU64,
}

impl Protections {
    /// Words for files of `total` bytes: of the notes, and of the chunks.
    pub(crate) const fn words(total: usize) -> (usize, usize) {
        let words = (total >> 12).div_ceil(CHUNK as usize) * (CHUNK / EACH) as usize;
        (words, words.div_ceil((CHUNK / EACH) as usize * 64))
    }

    /// Both are zero, and as many as [`words`](Self::words) says.
    pub(super) fn new(words: &'static [AtomicU64], chunks: &'static [AtomicU64]) -> Protections {
        Protections { words, chunks, count: AtomicU64::new(0) }
    }

    /// The bit of the chunk that holds entry `number`, and the word that it is in.
    fn chunk(&self, number: u64) -> (Option<&AtomicU64>, u64) {
        let chunk = number / CHUNK;
        (self.chunks.get((chunk / 64) as usize), 1 << (chunk % 64))
    }

    fn is_usual_chunk(&self, number: u64) -> bool {
        let (word, bit) = self.chunk(number);
        word.is_none_or(|word| word.load(Ordering::Relaxed) & bit == 0)
    }

    fn at(&self, number: u64) -> Allowed {
        let word = self.words.get((number / EACH) as usize).filter(|_| !self.is_usual_chunk(number));
        word.map_or(Allowed::Usual, |word| {
            Allowed::of_bits(word.load(Ordering::Relaxed) >> (number % EACH * 2))
        })
    }

    fn set(&self, from: u64, to: u64, allowed: Allowed) {
        let mut number = from;
        while number < to {
            if number == from || number.is_multiple_of(CHUNK) {
                if allowed != Allowed::Usual {
                    let (word, bit) = self.chunk(number);
                    word.map(|word| word.fetch_or(bit, Ordering::Relaxed));
                } else if self.is_usual_chunk(number) {
                    number = (number / CHUNK + 1) * CHUNK;
                    continue;
                }
            }
            let end = ((number / EACH + 1) * EACH).min(to);
            let mask = (u64::MAX >> (2 * (EACH - (end - number)))) << (number % EACH * 2);
            // Each entry's two bits at once.
            let bits = (LOWER * allowed.bits()) & mask;
            let Some(word) = self.words.get((number / EACH) as usize) else { return };
            let mut seen = word.load(Ordering::Relaxed);
            while let Err(now) =
                word.compare_exchange_weak(seen, seen & !mask | bits, Ordering::Relaxed, Ordering::Relaxed)
            {
                seen = now;
            }
            let unusual = |word: u64| u64::from(((word | word >> 1) & LOWER).count_ones());
            // Two's complement: the difference may be negative.
            self.count.fetch_add(unusual(bits).wrapping_sub(unusual(seen & mask)), Ordering::Relaxed);
            number = end;
        }
    }

    /// The end of the entries from `from` on that are like it, at most `to`.
    fn end_of_like(&self, from: u64, to: u64) -> u64 {
        let allowed = self.at(from);
        let mut number = from + 1;
        while number < to {
            if number.is_multiple_of(CHUNK) && self.is_usual_chunk(number) {
                if allowed != Allowed::Usual {
                    return number;
                }
                number += CHUNK;
                continue;
            }
            if number.is_multiple_of(EACH) {
                let word = self.words.get((number / EACH) as usize);
                if word.map_or(0, |word| word.load(Ordering::Relaxed)) == LOWER * allowed.bits() {
                    number += EACH;
                    continue;
                }
            }
            if self.at(number) != allowed {
                return number;
            }
            number += 1;
        }
        to
    }
}

impl Pager {
    /// Whether all of the program's paged memory is usual: it may be read and written.
    #[inline]
    pub fn all_is_usual(&self) -> bool {
        self.protections.count.load(Ordering::Relaxed) == 0
    }

    /// Notes what the program allows of `start..end`, paged memory of one stretch.
    pub fn note_allowed(&self, start: usize, end: usize, allowed: Allowed) {
        if let Some(from) = self.number_of(start).filter(|_| start < end) {
            self.protections.set(from, from + ((end - start) as u64).div_ceil(4096), allowed);
        }
    }

    /// What the program allows at `address`; usual where that is no paged memory.
    pub fn allowed_at(&self, address: usize) -> Allowed {
        self.number_of(address).map_or(Allowed::Usual, |number| self.protections.at(number))
    }

    /// Whether the program forbids itself to read at `address`, or to write.
    #[inline]
    pub fn is_forbidden(&self, address: usize, write: bool) -> bool {
        !self.all_is_usual() && self.allowed_at(address).forbids(write)
    }

    /// Where the 4K from `start` on, paged memory of one stretch, end of which the program allows the same, at most at `end`.
    pub fn end_of_like(&self, start: usize, end: usize) -> usize {
        let Some(from) = self.number_of(start) else { return end };
        let to = from + (end - (start & !4095)).div_ceil(4096) as u64;
        ((start & !4095) + ((self.protections.end_of_like(from, to) - from) << 12) as usize).min(end)
    }

    /// The first part of `start..end`, paged memory of one stretch, of which the program does not allow all that is usual, and what it allows.
    pub fn first_unusual(&self, start: usize, end: usize) -> Option<(usize, usize, Allowed)> {
        let mut at = start;
        while at < end && !self.all_is_usual() {
            let to = self.end_of_like(at, end);
            match self.allowed_at(at) {
                Allowed::Usual => at = to,
                allowed => return Some((at, to, allowed)),
            }
        }
        None
    }

    /// How many bytes from `start` on, of `len`, the program allows itself to read, or to write. What is no paged memory counts as allowed.
    #[inline]
    pub fn allowed_bytes(&self, start: usize, len: usize, write: bool) -> usize {
        if self.all_is_usual() { len } else { self.count_allowed(start, len, write) }
    }

    #[cold]
    fn count_allowed(&self, start: usize, len: usize, write: bool) -> usize {
        let (mut at, end) = (start, start.saturating_add(len));
        while let Some((from, to)) = self.first_paged(at, end - at) {
            let mut here = from;
            while let Some((unusual, until, allowed)) = self.first_unusual(here, to) {
                if allowed.forbids(write) {
                    return unusual - start;
                }
                here = until;
            }
            at = to;
        }
        len
    }

    /// Forbids writes to `start..end` in all page tables but `table`, until a fault there, as the program has forbidden them in that one.
    pub fn forbid_writes_elsewhere(&self, table: usize, start: usize, end: usize) {
        let Some(first) = self.page_at(start).filter(|_| start < end) else { return };
        let last = self.last_of(first, start, end);
        let mut page = first;
        while page <= last {
            let mut mappers = CoreMap::EMPTY;
            let from = page;
            while page <= last && self.add_mappers(page, &mut mappers) {
                page += 1;
            }
            mappers.remove(table);
            if !mappers.is_empty() {
                let (at, _) = self.places.address_of(from);
                // Where the kernel has no memory for that, the others learn of it later.
                let _ = self.tables.protect(&mappers, at, ((page - from) as usize) << self.places.shift);
            }
            page += u32::from(page == from);
        }
    }

    /// Adds those who map `page` to `mappers`; `false` if it is not near.
    fn add_mappers(&self, page: u32, mappers: &mut CoreMap) -> bool {
        let word = self.pages.word(page);
        let mut wait = Backoff::new();
        loop {
            let seen = page_word::load(word);
            if seen.state() == State::Busy {
                wait.pause();
            } else if seen.state() != State::Resident {
                return false;
            } else if page_word::try_lock(word, seen) {
                self.pages.frames.union_into(seen.frame(), mappers);
                page_word::unlock(word, seen);
                return true;
            }
        }
    }

    /// Whether something else of the program's lies over the page at `address`, as far as that is known.
    pub fn is_covered(&self, address: usize) -> bool {
        self.page_at(address).is_some_and(|page| page_word::load(self.pages.word(page)).is_covered())
    }

    /// Calls `each` with the start and the end of every stretch of paged memory outside the arena.
    pub fn for_each_range(&self, mut each: impl FnMut(usize, usize)) {
        let all = self.places.try_for_each_range(|start, len| {
            each(start, start + len);
            Ok::<(), std::convert::Infallible>(())
        });
        let Ok(()) = all;
    }

    /// The number of the 4K that hold `address`: where they lie in the arena's files.
    fn number_of(&self, address: usize) -> Option<u64> {
        let page = self.page_at(address)?;
        let within = (address & (self.page_bytes() - 1)) as u64;
        Some((self.places.offset(page) + within) >> 12)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn protections(total: usize) -> Protections {
        let zeros = |count| (0..count).map(|_| AtomicU64::new(0)).collect::<Vec<_>>().leak();
        let (words, chunks) = Protections::words(total);
        Protections::new(zeros(words), zeros(chunks))
    }

    #[test]
    fn notes_are_as_those_of_a_plain_list() {
        let most = 3 * CHUNK + 100;
        let mut random = 88_172_645_463_325_252_u64;
        let mut next = move |below: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % below
        };
        for reach in [40, 3 * CHUNK] {
            let protections = protections((most as usize) << 12);
            let mut plain = vec![Allowed::Usual; most as usize];
            for _ in 0..500 {
                let from = next(most);
                let to = (from + 1 + next(reach)).min(most);
                let allowed = [Allowed::Usual, Allowed::Reading, Allowed::Nothing, Allowed::Everything]
                    [next(4) as usize];
                protections.set(from, to, allowed);
                plain[from as usize..to as usize].fill(allowed);
                let unusual = plain.iter().filter(|allowed| **allowed != Allowed::Usual).count() as u64;
                assert_eq!(protections.count.load(Ordering::Relaxed), unusual);
                let at = next(most) as usize;
                assert_eq!(protections.at(at as u64), plain[at]);
                let like = plain[at..].iter().take_while(|allowed| **allowed == plain[at]).count();
                assert_eq!(protections.end_of_like(at as u64, most), (at + like) as u64);
            }
        }
    }

    /// To look at what was never protected took 512 MiB of tables, where a program with one protected page forked.
    #[test]
    fn notes_of_what_is_usual_were_read() {
        let protections = protections(64 << 30);
        protections.set(CHUNK, CHUNK + 1, Allowed::Nothing);
        protections.set(0, 64 << 18, Allowed::Usual);
        assert_eq!(protections.end_of_like(2 * CHUNK, 64 << 18), 64 << 18);
        assert_eq!(protections.chunks[0].load(Ordering::Relaxed), 2);
    }

    #[test]
    fn rights_are_what_they_allow() {
        assert_eq!(Allowed::of(libc::PROT_READ | libc::PROT_WRITE), Allowed::Usual);
        assert_eq!(Allowed::of(libc::PROT_WRITE), Allowed::Usual);
        assert_eq!(Allowed::of(libc::PROT_READ), Allowed::Reading);
        assert_eq!(Allowed::of(libc::PROT_NONE), Allowed::Nothing);
        assert!(Allowed::Reading.forbids(true) && !Allowed::Reading.forbids(false));
        assert!(Allowed::Nothing.forbids(false) && !Allowed::Usual.forbids(true));
        for allowed in [Allowed::Usual, Allowed::Reading, Allowed::Nothing, Allowed::Everything] {
            assert!(allowed == Allowed::Everything || Allowed::of(allowed.prot()) == allowed);
            assert_eq!(Allowed::of_bits(allowed.bits()), allowed);
        }
    }
}
