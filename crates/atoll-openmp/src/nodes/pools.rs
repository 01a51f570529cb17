//! Pools of allocators on several nodes: the origin's agent keeps them for all (`omp::pools`). `omp::alloc` asks.
//!
//! A handle is the address of memory that all nodes see; the pool's count is not in it, as a region may write on several nodes at
//! once.

use super::mail::{self, Kind};

/// What is asked, in the upper bits of the first word, above an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ask {
    Make,
    Forget,
    Take,
    Give,
    Of,
}

const ASKS: [Ask; 5] = [Ask::Make, Ask::Forget, Ask::Take, Ask::Give, Ask::Of];
const SHIFT: u32 = 60;

/// What a question's first word means.
pub(super) fn parse(word: u64) -> Option<(Ask, usize)> {
    let ask = ASKS.get((word >> SHIFT) as usize)?;
    Some((*ask, (word & ((1 << SHIFT) - 1)) as usize))
}

fn post(ask: Ask, address: usize, words: [usize; 2]) -> usize {
    mail::post(Kind::Pool, [(ask as u64) << SHIFT | address as u64, words[0] as u64, words[1] as u64])
        as usize
}

/// An allocator with a pool of so many bytes was made.
pub(crate) fn make(handle: usize, limit: usize) {
    post(Ask::Make, handle, [limit, 0]);
}

/// It is gone.
pub(crate) fn forget(handle: usize) {
    post(Ask::Forget, handle, [0, 0]);
}

/// See `omp::pools::Pools::take`.
pub(crate) fn take(handle: usize, block: usize, bytes: usize) -> bool {
    post(Ask::Take, handle, [block, bytes]) != 0
}

/// See `omp::pools::Pools::give`.
pub(crate) fn give(block: usize) -> Option<usize> {
    Some(post(Ask::Give, block, [0, 0])).filter(|handle| *handle != 0)
}

/// See `omp::pools::Pools::of`.
pub(crate) fn of(block: usize) -> Option<usize> {
    Some(post(Ask::Of, block, [0, 0])).filter(|handle| *handle != 0)
}
