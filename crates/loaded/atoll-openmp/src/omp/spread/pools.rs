//! Pools of allocators on several nodes: the origin keeps them for all (`omp::pools`, in `served`). `omp::alloc` asks.
//!
//! A handle is the address of memory that all nodes see; the pool's count is not in it, as a region may write on several nodes at
//! once.

use super::served::{self, Service};
use crate::omp::pools::Pools;

/// A question, which travels in the upper bits of the first word, above an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ask {
    Make,
    Forget,
    Take,
    Give,
    Of,
    Replace,
}

const ASKS: [Ask; 6] = [Ask::Make, Ask::Forget, Ask::Take, Ask::Give, Ask::Of, Ask::Replace];
const SHIFT: u32 = 60;

/// The meaning of a question's first word.
fn parse(word: u64) -> Option<(Ask, usize)> {
    let ask = ASKS.get((word >> SHIFT) as usize)?;
    Some((*ask, (word & ((1 << SHIFT) - 1)) as usize))
}

/// On the origin: the answer to a question.
pub(super) fn serve(pools: &mut Pools, words: [u64; 3]) -> u64 {
    let [_, block, bytes] = words.map(|word| word as usize);
    let answer = match parse(words[0]) {
        Some((Ask::Make, handle)) => {
            pools.make(handle, block);
            0
        }
        Some((Ask::Forget, handle)) => {
            pools.forget(handle);
            0
        }
        Some((Ask::Take, handle)) => pools.take(handle, block, bytes).into(),
        Some((Ask::Give, block)) => pools.give(block).unwrap_or(0),
        Some((Ask::Of, block)) => pools.of(block).unwrap_or(0),
        Some((Ask::Replace, old)) => pools.replace(old, block, bytes).into(),
        None => 0,
    };
    answer as u64
}

fn post(ask: Ask, address: usize, words: [usize; 2]) -> usize {
    let first = (ask as u64) << SHIFT | address as u64;
    served::ask(Service::Pool, [first, words[0] as u64, words[1] as u64])[0] as usize
}

/// An allocator with a pool of so many bytes was made.
pub(crate) fn make(handle: usize, limit: usize) {
    post(Ask::Make, handle, [limit, 0]);
}

/// The allocator is gone.
pub(crate) fn forget(handle: usize) {
    post(Ask::Forget, handle, [0, 0]);
}

/// Is there room for a block? See `omp::pools::Pools::take`.
pub(crate) fn take(handle: usize, block: usize, bytes: usize) -> bool {
    post(Ask::Take, handle, [block, bytes]) != 0
}

/// Is there room for a block in place of another? See `omp::pools::Pools::replace`.
pub(crate) fn replace(old: usize, block: usize, bytes: usize) -> bool {
    post(Ask::Replace, old, [block, bytes]) != 0
}

/// Gives a block back: see `omp::pools::Pools::give`.
pub(crate) fn give(block: usize) -> Option<usize> {
    Some(post(Ask::Give, block, [0, 0])).filter(|handle| *handle != 0)
}

/// The pool of a block: see `omp::pools::Pools::of`.
pub(crate) fn of(block: usize) -> Option<usize> {
    Some(post(Ask::Of, block, [0, 0])).filter(|handle| *handle != 0)
}
