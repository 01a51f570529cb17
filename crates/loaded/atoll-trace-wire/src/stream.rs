//! One thread's stream to the collector: its filter, its clock and the block that is being filled.
//!
//! Engines call [`Stream::is_known`] at every access of the program, so it does as little as it can. [`word`](crate::word)
//! defines the words that are sent.

use crate::filter::Filter;
use crate::word::{self, Kind};
use crate::{BLOCK_WORDS, REFRESH_INSTRUCTIONS};

/// The most words of an access: instructions of their own, then the access.
const ACCESS_WORDS: usize = 2;
/// The most words of a mark: earlier instructions and accesses, then the mark and its number.
const MARK_WORDS: usize = 4;

/// The number of accesses that an engine without other counts may let go by without counting them.
const COUNTED_AT_ONCE: i64 = 1 << 16;

/// The stream of one thread's events.
#[derive(Debug)]
#[repr(align(128))] // Two threads' must not share a cache line, nor a pair of them.
pub struct Stream {
    /// The number of accesses since the last `Seen`.
    seen: u64,
    /// The number of instructions since the last word.
    elapsed: u64,
    /// The number of instructions until the filter is refreshed.
    until_refresh: i64,
    /// For engines that count accesses only: the number that may still go by before [`count`](Self::count) must be called.
    left: i64,
    filter: Filter,
    thread: u32,
    pipe: i32,
    /// The process that may write: a child made by fork inherits the stream and must not write to it.
    process: i32,
    /// The number of words in use, the head's place included.
    used: usize,
    block: [u64; BLOCK_WORDS],
}

impl Stream {
    /// Makes a stream of `thread`'s events to the descriptor `pipe`, with a filter of `entries` places; 0: none.
    pub fn new(thread: u32, pipe: i32, entries: u32) -> Self {
        // SAFETY: no arguments, no effect.
        let process = unsafe { libc::getpid() };
        Self {
            thread,
            pipe,
            process,
            filter: Filter::new(entries),
            elapsed: 0,
            until_refresh: REFRESH_INSTRUCTIONS as i64,
            left: COUNTED_AT_ONCE,
            seen: 0,
            used: 1,
            block: [0; BLOCK_WORDS],
        }
    }

    /// Notes that the thread executed instructions.
    #[inline(always)]
    pub fn execute(&mut self, instructions: u64) {
        self.elapsed += instructions;
        self.until_refresh -= instructions as i64;
        if self.until_refresh < 0 {
            self.refresh();
        }
    }

    #[cold]
    #[inline(never)]
    fn refresh(&mut self) {
        self.until_refresh = REFRESH_INSTRUCTIONS as i64;
        self.filter.clear();
    }

    /// Whether an access to this page needs no more. If not, [`tell`](Self::tell) must follow.
    #[inline(always)]
    pub fn is_known(&mut self, page: u64, write: bool) -> bool {
        self.seen += 1;
        self.filter.is_known(page, write)
    }

    /// Does the same as [`is_known`](Self::is_known), for engines that do not know instructions: each access stands for one.
    /// Where it returns `false`, [`count`](Self::count) and [`access`](Self::access) must follow. It changes only a counter, so
    /// a signal's handler may call it while the stream is in use.
    #[inline(always)]
    pub fn is_known_and_counted(&mut self, page: u64, write: bool) -> bool {
        self.left -= 1;
        self.left >= 0 && self.filter.is_known(page, write)
    }

    /// Takes the accesses since the last call as instructions executed.
    pub fn count(&mut self) {
        let accesses = (COUNTED_AT_ONCE - self.left) as u64;
        self.left = COUNTED_AT_ONCE;
        self.seen += accesses;
        self.execute(accesses);
    }

    /// Notes that the thread touched a page that [`is_known`](Self::is_known) did not know.
    #[inline(never)]
    pub fn tell(&mut self, page: u64, write: bool) {
        if !self.filter.is_new(page, write) || page >= word::MAX_PAGE {
            return;
        }
        self.room(ACCESS_WORDS);
        if self.elapsed > word::MAX_ELAPSED {
            self.tell_elapsed();
        }
        self.push(word::access(page, write, self.elapsed));
        self.elapsed = 0;
    }

    /// Notes that the thread touched a page.
    #[inline]
    pub fn access(&mut self, page: u64, write: bool) {
        if !self.is_known(page, write) {
            self.tell(page, write);
        }
    }

    /// Sends a mark of a kind that one number follows. Everything noted so far is then sent, and the filter empty.
    pub fn mark(&mut self, mark: u64, number: u64) {
        self.room(MARK_WORDS);
        self.tell_elapsed();
        self.push(mark);
        self.push(number);
        self.filter.clear();
        self.flush();
    }

    /// Sends what is in the block.
    pub fn flush(&mut self) {
        if self.seen > 0 && self.used < BLOCK_WORDS {
            self.push(word::with_amount(Kind::Seen, self.seen));
            self.seen = 0;
        }
        if self.used > 1 {
            self.block[0] = word::head(self.used as u32 - 1, self.thread);
            // SAFETY: no arguments, no effect.
            if unsafe { libc::getpid() } == self.process {
                put(self.pipe, &self.block[..self.used]);
            }
            self.used = 1;
        }
    }

    fn tell_elapsed(&mut self) {
        if self.elapsed > 0 {
            self.push(word::with_amount(Kind::Elapsed, self.elapsed));
            self.elapsed = 0;
        }
    }

    /// Makes room for `words` words; one more is left for `Seen`.
    #[inline]
    fn room(&mut self, words: usize) {
        if self.used + words >= BLOCK_WORDS {
            self.flush();
        }
    }

    #[inline]
    fn push(&mut self, word: u64) {
        self.block[self.used] = word;
        self.used += 1;
    }
}

/// Writes a whole block to the pipe. Where nobody reads any more it is lost, and the program goes on.
pub fn put(pipe: i32, block: &[u64]) {
    loop {
        // SAFETY: the block is valid for reads of its size.
        let written = unsafe { libc::write(pipe, block.as_ptr().cast(), size_of_val(block)) };
        // SAFETY: the calling thread's errno.
        if written >= 0 || unsafe { *libc::__errno_location() } != libc::EINTR {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::fd::AsRawFd;

    /// Returns the words that `tell` makes a stream send, without the heads.
    fn told(entries: u32, tell: impl FnOnce(&mut Stream)) -> Vec<u64> {
        let (mut from, to) = std::io::pipe().unwrap();
        let mut stream = Stream::new(3, to.as_raw_fd(), entries);
        tell(&mut stream);
        stream.flush();
        drop(to);
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes).unwrap();
        let all: Vec<u64> =
            bytes.chunks_exact(8).map(|b| u64::from_le_bytes(b.try_into().unwrap())).collect();
        let (mut words, mut at) = (Vec::new(), 0);
        while at < all.len() {
            let (count, thread) = word::parse_head(all[at]);
            assert!(thread == 3 && (1..BLOCK_WORDS as u32).contains(&count));
            words.extend(&all[at + 1..=at + count as usize]);
            at += 1 + count as usize;
        }
        words
    }

    #[test]
    fn every_access_comes_through_without_a_filter() {
        let words = told(0, |stream| {
            for page in 0..2000 {
                stream.execute(3);
                stream.access(page / 2, page % 2 == 1);
            }
        });
        let accesses: Vec<u64> = words.iter().copied().filter(|&w| Kind::of(w) != Some(Kind::Seen)).collect();
        let expected: Vec<u64> = (0..2000).map(|page| word::access(page / 2, page % 2 == 1, 3)).collect();
        assert_eq!(accesses, expected);
        let seen = words.iter().filter(|&&w| Kind::of(w) == Some(Kind::Seen));
        assert_eq!(seen.map(|&w| word::amount(w)).sum::<u64>(), 2000);
    }

    #[test]
    fn a_filtered_page_shows_up_again_at_a_mark_and_after_a_while() {
        let mark = word::member(Kind::Begin, 1, 2);
        let words = told(64, |stream| {
            stream.execute(2);
            stream.access(7, false);
            stream.execute(5);
            stream.access(7, false);
            stream.mark(mark, 99);
            stream.access(7, false);
            stream.execute(word::MAX_ELAPSED + REFRESH_INSTRUCTIONS);
            stream.access(7, false);
            stream.access(word::MAX_PAGE, true);
        });
        let long = word::MAX_ELAPSED + REFRESH_INSTRUCTIONS;
        assert_eq!(
            words,
            [
                word::access(7, false, 2),
                word::with_amount(Kind::Elapsed, 5),
                mark,
                99,
                word::with_amount(Kind::Seen, 2),
                word::access(7, false, 0),
                word::with_amount(Kind::Elapsed, long),
                word::access(7, false, 0),
                word::with_amount(Kind::Seen, 3),
            ]
        );
    }
}
