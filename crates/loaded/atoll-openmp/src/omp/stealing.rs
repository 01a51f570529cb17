//! Chunks of a dynamic loop that may come in any order: each member takes them from a block of its own, and from another member's
//! when its own is empty.
//!
//! `loops` decides which loops are dealt out this way: those of programs of LLVM's compilers, whose own runtime does so. gcc's code says
//! `nonmonotonic` of every dynamic loop, but libgomp deals the chunks out in order, and programs rely on it: MEGAHIT gives each thread
//! room for its first chunk, sorted to be its largest. With one counter for all members, each chunk moves a cache line between CPUs, and
//! neighbouring chunks go to different members: then nearly every page is mapped by all of them. Here a member stays in one place of the
//! program's data.
//!
//! The loop's last chunk is kept for the member that finds all else taken, and is the last that this member gets: gcc's code copies a
//! `lastprivate` variable after the loop, if the thread's last iteration was the loop's.
//!
//! Source: Blumofe and Leiserson, "Scheduling Multithreaded Computations by Work Stealing", Journal of the ACM 46 (1999). Here the
//! thief takes half of what is left, from the end, as chunks need no order.

use std::sync::atomic::{AtomicU64, Ordering};

/// The least number of chunks for each member with which a loop is dealt out this way. With fewer of them one counter costs little,
/// and the order of the chunks, in which a program may have its longest ones first, is worth more.
const LEAST_CHUNKS: u64 = 8;

/// The chunks that are left of one member's block: the number of the first in the low half, and of the one after the last in the
/// high half. It lies on a cache line of its own.
#[repr(align(64))]
struct Block(AtomicU64);

fn pack(first: u32, end: u32) -> u64 {
    u64::from(end) << 32 | u64::from(first)
}

fn unpack(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

/// The word of a member that has had the loop's last chunk.
const DONE: u64 = u64::MAX;

/// The blocks of all members of a team for one loop, and the loop's last chunk.
pub(crate) struct Blocks {
    of: Vec<Block>,
    /// The number of the loop's last chunk and one more, or 0 once it is taken.
    last: AtomicU64,
}

impl Blocks {
    pub(crate) const fn none() -> Blocks {
        Blocks { of: Vec::new(), last: AtomicU64::new(0) }
    }

    /// Whether a loop of so many chunks is dealt out by blocks to so many members.
    pub(crate) fn suit(chunks: u64, members: u32) -> bool {
        members > 1 && chunks <= u64::from(u32::MAX) && chunks / u64::from(members) >= LEAST_CHUNKS
    }

    /// Divides chunks 0 to `chunks`, at least one and at most `u32::MAX` of them, into a block for each member. No other thread sees
    /// the loop yet.
    pub(crate) fn divide(&mut self, chunks: u64, members: u32) {
        *self.last.get_mut() = chunks;
        self.of.resize_with(members as usize, || Block(AtomicU64::new(0)));
        let at = |member: u64| ((chunks - 1) * member / u64::from(members)) as u32;
        for (member, block) in self.of.iter_mut().enumerate() {
            let member = member as u64;
            *block.0.get_mut() = pack(at(member), at(member + 1));
        }
    }

    /// Takes the next chunk for a member: returns its number, or `None` when no member has one left.
    ///
    /// All accesses are relaxed: members order nothing by the chunks they take, and the blocks came with the loop itself. Each word
    /// holds a set of chunks that nobody has taken, and a chunk leaves that set once, so a word that has a value again which another
    /// member has read before still means the same.
    #[inline]
    pub(crate) fn take(&self, member: u32) -> Option<u32> {
        let own = &self.of[member as usize].0;
        let mut now = own.load(Ordering::Relaxed);
        loop {
            let (first, end) = unpack(now);
            if first >= end {
                return self.steal(member);
            }
            // Other side: the exchange in `steal`.
            match own.compare_exchange_weak(now, pack(first + 1, end), Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some(first),
                Err(other) => now = other,
            }
        }
    }

    /// Moves half of the chunks that another member has left to this member's empty block, and takes the first. Where nobody has any
    /// left, this takes the loop's last chunk.
    #[cold]
    fn steal(&self, member: u32) -> Option<u32> {
        let (before, from_own) = self.of.split_at(member as usize);
        let (own, after) = from_own.split_first()?;
        if own.0.load(Ordering::Relaxed) == DONE {
            return None;
        }
        for Block(victim) in after.iter().chain(before) {
            let mut now = victim.load(Ordering::Relaxed);
            loop {
                let (first, end) = unpack(now);
                if first >= end {
                    break;
                }
                let middle = first + (end - first) / 2;
                // Other side: the exchange in `take`, and this one in other thieves.
                match victim.compare_exchange_weak(
                    now,
                    pack(first, middle),
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                ) {
                    Ok(_) => {
                        // Only its member changes an empty block, as thieves pass it by.
                        own.0.store(pack(middle + 1, end), Ordering::Relaxed);
                        return Some(middle);
                    }
                    Err(other) => now = other,
                }
            }
        }
        // Chunks that another thief is moving now are not seen here, and stay that thief's.
        if self.last.load(Ordering::Relaxed) == 0 {
            return None;
        }
        // Other side: this exchange in other members.
        let last = self.last.swap(0, Ordering::Relaxed).checked_sub(1)?;
        own.0.store(DONE, Ordering::Relaxed);
        Some(last as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn divided(chunks: u64, members: u32) -> Blocks {
        let mut blocks = Blocks::none();
        blocks.divide(chunks, members);
        blocks
    }

    #[test]
    fn members_begin_in_their_own_blocks() {
        let blocks = divided(100, 3);
        assert_eq!([0, 1, 2].map(|member| blocks.take(member)), [Some(0), Some(33), Some(66)]);
        assert_eq!([0, 1, 2].map(|member| blocks.take(member)), [Some(1), Some(34), Some(67)]);
    }

    #[test]
    fn one_member_takes_all_chunks_if_the_others_do_not_come() {
        let blocks = divided(1000, 7);
        let mut taken: Vec<_> = std::iter::from_fn(|| blocks.take(3)).collect();
        taken.sort_unstable();
        assert!(taken.into_iter().eq(0..1000));
    }

    #[test]
    fn every_chunk_is_taken_once_by_members_that_race() {
        for round in 0..200 {
            let (members, chunks) = (2 + round % 4, 16 + u64::from(round) * 7);
            let blocks = divided(chunks, members);
            let of_each: Vec<Vec<u32>> = std::thread::scope(|scope| {
                let each = |member| {
                    let blocks = &blocks;
                    scope.spawn(move || std::iter::from_fn(|| blocks.take(member)).collect())
                };
                let threads: Vec<_> = (0..members).map(each).collect();
                threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
            });
            let last = chunks as u32 - 1;
            let ends = of_each.iter().filter(|taken| taken.last() == Some(&last)).count();
            assert_eq!(ends, 1, "the loop's last chunk is the last of the member that gets it");
            let mut taken: Vec<_> = of_each.into_iter().flatten().collect();
            taken.sort_unstable();
            assert!(taken.into_iter().eq(0..chunks as u32), "{members} members, {chunks} chunks");
        }
    }

    #[test]
    fn loops_of_few_chunks_keep_their_order() {
        assert!(!Blocks::suit(15, 2) && Blocks::suit(16, 2));
        assert!(!Blocks::suit(1000, 1));
        assert!(!Blocks::suit(1 << 33, 2));
    }
}
