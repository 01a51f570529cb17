//! Large blocks and anonymous mappings: extents of arena pages, best fit, joined when freed.
//!
//! Used by `exports` and `mapping`. Free memory reads as zeros, so a block is as new as if it came from the kernel: freed pages are
//! released at once, but for those that `kept` notes. Blocks that are freed and allocated in turn pass by `parked`, without the lock.
//! The bookkeeping is in pinned memory.

use std::collections::{BTreeMap, BTreeSet};

use atoll_memory::control::{self, Figures};
use atoll_memory::pager::Pager;
use atoll_memory::spin::{Held, Spin};
use atoll_memory::sys;

use super::kept::{self, Stale};
use super::parked::{PLACES, Parked};
use super::sizes::SIZES;
use super::{GRANULE, bounds, mapped_over, place, protections};
use crate::arch;
use crate::start::{forked, take_over};
use crate::state::{self, SignalsBlocked};

/// Blocks of this many bytes or more are paged.
pub(crate) const LEAST: usize = 64 << 10;

struct Extents {
    live: Live,
    /// Free extents below `top`, no two of which touch: start address → bytes.
    free: BTreeMap<usize, usize>,
    /// The free extents again, ordered by (bytes, start).
    by_size: BTreeSet<(usize, usize)>,
    /// The pages of free extents that still hold what a block left in them.
    stale: Stale,
    /// The end of the highest extent that was ever used.
    top: usize,
}

/// Live extents: start address → bytes.
struct Live {
    extents: BTreeMap<usize, usize>,
    /// The bytes of all of them.
    bytes: usize,
}

impl Live {
    const fn new() -> Live {
        Live { extents: BTreeMap::new(), bytes: 0 }
    }

    /// Enters an extent, or changes the bytes of the one that begins at `start`.
    fn insert(&mut self, start: usize, bytes: usize) {
        self.bytes += bytes;
        self.bytes -= self.extents.insert(start, bytes).unwrap_or(0);
        SIZES.enter(start, bytes);
    }

    fn remove(&mut self, start: usize) -> Option<usize> {
        let bytes = self.extents.remove(&start)?;
        SIZES.remove(start);
        self.bytes -= bytes;
        Some(bytes)
    }

    fn get(&self, start: usize) -> Option<usize> {
        self.extents.get(&start).copied()
    }
}

static EXTENTS: Spin<Extents> = Spin::new(Extents {
    live: Live::new(),
    free: BTreeMap::new(),
    by_size: BTreeSet::new(),
    stale: Stale::new(),
    top: 0,
});

/// Takes the lock, with signals blocked: a handler of the program's that faults must not find this thread inside.
fn lock() -> (Held<'static, Extents>, SignalsBlocked) {
    let blocked = SignalsBlocked::new();
    (EXTENTS.lock(), blocked)
}

/// What a new block holds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    /// The block reads as zeros, and takes memory as it is touched.
    Zeros,
    /// The block reads as zeros, and pages that an earlier one touched are near if they were.
    Cleared,
    /// The block may hold what an earlier one left there, as `malloc`'s may.
    Any,
}

/// Bytes of a block at most whose pages are cleared for `calloc`: libc's does so for blocks of its heap, and maps larger ones
/// (`DEFAULT_MMAP_THRESHOLD_MAX`).
const CLEARED: usize = 32 << 20;

/// A guard that keeps the sets of live and free extents unchanged while it lives.
pub(crate) struct Kept {
    _extents: Held<'static, Extents>,
}

/// Locks the extents for a fork. The caller blocks signals.
pub(crate) fn keep() -> Kept {
    Kept { _extents: EXTENTS.lock() }
}

/// A block for the program of at least `bytes`, aligned to `alignment` (a power of two). `None`: the arena is full.
pub(crate) fn allocate_block(bytes: usize, alignment: usize, is_zeroed: bool) -> Option<usize> {
    if place::nodes() == 1
        && let Some(start) = PLACES.take(&SIZES, arch::thread_pointer(), bytes, alignment)
    {
        if is_zeroed {
            clear(start, start + bytes);
        }
        return Some(start);
    }
    let content = match is_zeroed {
        false => Content::Any,
        true if bytes < CLEARED => Content::Cleared,
        true => Content::Zeros,
    };
    allocate(bytes, alignment, content)
}

/// Frees a block of the program's, which may be its next one of that size. `false` if no block begins at `start`.
pub(crate) fn free_block(start: usize) -> bool {
    let pager = state::pager().filter(|_| place::nodes() == 1 && mapped_over::are_none());
    let parked =
        pager.map(|pager| PLACES.park(&SIZES, arch::thread_pointer(), start, pager.control().near()));
    match parked {
        Some(Parked::Alone) => true,
        Some(Parked::InsteadOf(other)) => free(other),
        Some(Parked::Not) | None => free(start),
    }
}

/// An extent of at least `bytes`, aligned to `alignment` (a power of two), that holds `content`. `None`: the arena is full.
pub(crate) fn allocate(bytes: usize, alignment: usize, content: Content) -> Option<usize> {
    let pager = state::pager()?;
    let page = pager.page_bytes();
    let len = bytes.max(1).checked_next_multiple_of(GRANULE)?;
    // A block of a page or more shares its pages with no other block, as far as possible.
    let alignment = alignment.max(if len >= page { page } else { GRANULE });
    let (start, used, old) = {
        let (mut extents, _blocked) = lock();
        let used = extents.top;
        let start = extents.take(len, alignment)?;
        let old = extents.settle_stale(pager, start, start + len, content);
        (start, used, old)
    };
    pager.is_one_block(start, start + len);
    clear_old(pager, start, start + len, used, &old);
    Some(start)
}

/// Clears what earlier blocks left in `start..end`, which is taken: the `old` ranges that [`Extents::settle_stale`] returned, and what it cannot release.
/// `used`: where the memory ends that was ever used before.
fn clear_old(pager: &Pager, start: usize, end: usize, used: usize, old: &[(usize, usize)]) {
    old.iter().for_each(|&(from, to)| clear(from, to));
    if pager.is_segment() || place::nodes() > 1 {
        // No memory is given back here: in a segment all pages stay, and other nodes may have copies of earlier content. Memory
        // that was used before is zeroed when it is used again.
        return clear(start, used.min(end));
    }
    // A page shared with a neighbour may hold what an earlier block left there.
    let (inner_start, inner_end) = whole_pages(start, end, pager.page_bytes());
    clear(start, inner_start.min(end));
    clear(inner_end.max(start), end);
}

/// Where the calling worker's events are counted.
pub(super) fn figures(pager: &Pager) -> &Figures {
    &pager.control().figures[state::executor_index().min(control::MAX_WORKERS)]
}

fn clear(start: usize, end: usize) {
    if start < end {
        // SAFETY: the range lies in an extent that only the caller uses.
        unsafe { std::ptr::write_bytes(start as *mut u8, 0, end - start) };
    }
}

/// The whole pages inside `start..end`; empty (start ≥ end) if there is none.
fn whole_pages(start: usize, end: usize, page: usize) -> (usize, usize) {
    let (a, b) = (start.next_multiple_of(page), end & !(page - 1));
    if a < b { (a, b) } else { (end, end) }
}

/// The bytes of the live extent that begins at `start`.
pub(crate) fn size(start: usize) -> Option<usize> {
    SIZES.of(start).or_else(|| {
        let (extents, _blocked) = lock();
        extents.live.get(start)
    })
}

/// Frees the live extent that begins at `start`; `false` if there is none. Its pages may stay for the next block.
pub(crate) fn free(start: usize) -> bool {
    if SIZES.is_parked(start) {
        return false;
    }
    let is_own = mapped_over::are_none() || size(start).is_none_or(|len| is_own_again(start, start + len));
    let (mut extents, blocked) = lock();
    let Some(len) = extents.live.remove(start) else { return false };
    if is_own {
        extents.give(start, len, true, blocked);
    }
    true
}

/// Puts the arena's pages back where something else lies over a part of `start..end`, which nobody uses any more. `false`: the kernel
/// refuses, and no block may come to lie there.
fn is_own_again(start: usize, end: usize) -> bool {
    mapped_over::put_back(start, end).is_ok()
}

/// The extents that have a part in `start..end`, each by its first address and its bytes, the last one first.
fn reaching_into(
    extents: &BTreeMap<usize, usize>,
    start: usize,
    end: usize,
) -> impl Iterator<Item = (usize, usize)> {
    extents.range(..end).rev().map(|(s, l)| (*s, *l)).take_while(move |(s, l)| s + l > start)
}

/// Frees every granule of `start..end`, splitting live extents that reach beyond.
pub(crate) fn free_range(start: usize, end: usize) {
    let (mut extents, blocked) = lock();
    let hit: Vec<(usize, usize)> = reaching_into(&extents.live.extents, start, end).collect();
    let mut pieces = Vec::new();
    for (s, l) in hit {
        extents.live.remove(s);
        if s < start {
            extents.live.insert(s, start - s);
        }
        if s + l > end {
            extents.live.insert(end, s + l - end);
        }
        pieces.push((s.max(start), (s + l).min(end)));
    }
    drop(extents);
    drop(blocked);
    for (a, b) in pieces {
        let (mut extents, blocked) = lock();
        extents.give(a, b - a, false, blocked);
    }
}

/// Makes the live extent at `start` `bytes` long without moving it, if what follows is free, which holds `content` then.
pub(crate) fn resize(start: usize, bytes: usize, content: Content) -> bool {
    let Some(want) = bytes.checked_next_multiple_of(GRANULE) else { return false };
    let is_own = mapped_over::are_none()
        || size(start).is_none_or(|have| want >= have || is_own_again(start + want, start + have));
    let (mut extents, blocked) = lock();
    let Some(have) = extents.live.get(start) else { return false };
    if want <= have {
        if want < have && is_own {
            extents.live.insert(start, want);
            extents.give(start + want, have - want, false, blocked);
        }
        return true;
    }
    // In a process that was forked, free memory of the arena may hold anything.
    let Some(pager) = state::pager() else { return false };
    let (end, more) = (start + have, want - have);
    let used = extents.top;
    if end == extents.top {
        if !bounds::raise(start + want) {
            return false;
        }
        extents.top = start + want;
    } else {
        match extents.free.get(&end).copied() {
            Some(len) if len >= more => {
                extents.unfree(end, len);
                if len > more {
                    extents.enter(end + more, len - more);
                }
            }
            _ => return false,
        }
    }
    extents.live.insert(start, want);
    let old = extents.settle_stale(pager, end, end + more, content);
    drop(extents);
    drop(blocked);
    clear_old(pager, end, end + more, used, &old);
    true
}

/// Makes `start..end` (inside live extents) read as zeros.
pub(crate) fn zero(start: usize, end: usize) {
    let Some(pager) = state::pager() else {
        forked::complete();
        return forget(start, end);
    };
    if pager.is_segment() || place::nodes() > 1 {
        return clear(start, end);
    }
    let (a, b) = whole_pages(start, end, pager.page_bytes());
    {
        let _blocked = SignalsBlocked::new();
        pager.release(a, b, figures(pager));
    }
    for (from, to) in [(start, a.min(end)), (b.max(start), end)] {
        // Where the kernel has no room to change its rights it stays as it is, as advice may be without effect.
        let _ = protections::while_usual(from, to, || clear(from, to));
    }
}

/// Makes `start..end` the program's, also what it had unmapped of it, where it maps memory at an address of its own choice. The memory reads as zeros.
pub(crate) fn renew(start: usize, end: usize) {
    if let Some(pager) = state::pager() {
        let (mut extents, _blocked) = lock();
        if extents.claim(start, end) {
            extents.settle_stale(pager, start, end, Content::Zeros);
        }
    }
    zero(start, end);
}

/// Makes `start..end` the program's if all of it is memory that the program has unmapped; `false` if not.
pub(crate) fn claim_unmapped(start: usize, end: usize) -> bool {
    let Some(pager) = state::pager() else { return false };
    let (mut extents, _blocked) = lock();
    let is_free = start < end && extents.free.range(..=start).next_back().is_some_and(|(s, l)| s + l >= end);
    if is_free {
        extents.claim(start, end);
        extents.settle_stale(pager, start, end, Content::Zeros);
    }
    is_free
}

/// Whether all of `start..end` is the program's.
pub(crate) fn is_live(start: usize, end: usize) -> bool {
    let (extents, _blocked) = lock();
    let live: usize =
        reaching_into(&extents.live.extents, start, end).map(|(s, l)| (s + l).min(end) - s.max(start)).sum();
    start < end && live == end - start
}

/// The end of the memory that was ever used.
pub(super) fn top() -> usize {
    let (extents, _blocked) = lock();
    extents.top
}

/// Whether the program has unmapped any of `start..end`, or freed the block that was there.
pub(crate) fn has_unmapped(start: usize, end: usize) -> bool {
    // A process that the program forked has its memory from the kernel, also where this list has nothing.
    if state::pager().is_none() {
        return false;
    }
    let (extents, _blocked) = lock();
    start < end && reaching_into(&extents.free, start, end).next().is_some()
}

/// Keeps the pager from changing the rights of `start..end`, as it does of huge pages, now that the program has changed them or something lies over a
/// part of it.
pub(crate) fn keep_pages_single(start: usize, end: usize) {
    let Some(pager) = state::pager() else { return };
    let end = end.min(atoll_memory::layout::ARENA + atoll_memory::layout::ARENA_BYTES);
    let _blocked = SignalsBlocked::new();
    if let Err(e) = pager.keep_single(start, end) {
        atoll_memory::ending::end(e);
    }
}

/// Keeps the pager from changing the rights of `start..end` as long as those are not the usual ones.
pub(super) fn make_pages_single(pager: &Pager, start: usize, end: usize) {
    let _blocked = SignalsBlocked::new();
    if let Err(e) = pager.make_single(start, end) {
        atoll_memory::ending::end(e);
    }
}

/// Drops the content of `start..end` in a process that the program forked, whose arena is private memory; the range then reads
/// as zeros.
fn forget(start: usize, end: usize) {
    if take_over::is_heap_private() && start < end {
        // SAFETY: the owner of the memory gives its content up.
        let _ = unsafe {
            let advice = libc::MADV_DONTNEED as usize;
            sys::syscall(libc::SYS_madvise, [start, end - start, advice, 0, 0, 0])
        };
    }
}

impl Extents {
    fn enter(&mut self, start: usize, len: usize) {
        self.free.insert(start, len);
        self.by_size.insert((len, start));
    }

    fn unfree(&mut self, start: usize, len: usize) {
        self.free.remove(&start);
        self.by_size.remove(&(len, start));
    }

    fn take(&mut self, len: usize, alignment: usize) -> Option<usize> {
        let fit = self.by_size.range((len, 0)..).take(64).find_map(|&(l, s)| {
            let at = s.next_multiple_of(alignment);
            (at + len <= s + l).then_some((s, l, at))
        });
        let at = if let Some((s, l, at)) = fit {
            self.unfree(s, l);
            if at > s {
                self.enter(s, at - s);
            }
            if s + l > at + len {
                self.enter(at + len, s + l - at - len);
            }
            at
        } else {
            if self.top == 0 {
                self.top = place::large().start;
            }
            let at = self.top.checked_next_multiple_of(alignment)?;
            let end = at.checked_add(len)?;
            if !bounds::raise(end) {
                return None;
            }
            if at > self.top {
                let mut gap = self.top;
                if let Some((&s, &l)) = self.free.last_key_value()
                    && s + l == gap
                {
                    self.unfree(s, l);
                    gap = s;
                }
                self.enter(gap, at - gap);
            }
            self.top = end;
            at
        };
        self.live.insert(at, len);
        Some(at)
    }

    /// Makes what is free of `start..end` live; `false` if nothing is.
    fn claim(&mut self, start: usize, end: usize) -> bool {
        let hit: Vec<(usize, usize)> = reaching_into(&self.free, start, end).collect();
        for &(s, l) in &hit {
            self.unfree(s, l);
            let (a, b) = (s.max(start), (s + l).min(end));
            if s < a {
                self.enter(s, a - s);
            }
            if b < s + l {
                self.enter(b, s + l - b);
            }
            self.live.insert(a, b - a);
        }
        !hit.is_empty()
    }

    /// The pages of `start..end`, which are free no more, hold `content` from now on, but for the ranges that are returned: the caller clears these without
    /// the lock, as that may fault.
    fn settle_stale(
        &mut self,
        pager: &Pager,
        start: usize,
        end: usize,
        content: Content,
    ) -> Vec<(usize, usize)> {
        let mut old = Vec::new();
        while let Some((from, to)) = self.stale.take(start, end, pager.page_bytes()) {
            if content == Content::Any {
                continue;
            }
            // A page that is shared with a free neighbour has to be all zeros, and one that is far would come back to be cleared.
            let is_inside = start <= from && to <= end;
            if content == Content::Cleared && is_inside && pager.are_near(from, to) {
                old.push((from, to));
            } else {
                pager.release(from, to, figures(pager));
            }
        }
        self.give_stale_back(pager);
        old
    }

    /// Bytes of freed pages that may stay for later blocks.
    fn most_stale(&self, pager: &Pager) -> usize {
        kept::most(pager.control().near(), pager.is_full(), self.live.bytes)
    }

    /// Releases pages that stayed for later blocks, as long as there are more than may stay.
    fn give_stale_back(&mut self, pager: &Pager) {
        while self.stale.bytes() > self.most_stale(pager)
            && let Some((from, to)) = self.stale.take(0, usize::MAX, pager.page_bytes())
        {
            pager.release(from, to, figures(pager));
        }
    }

    /// Frees an extent that is no longer live: its pages, also those it shares with free neighbours, are released. If
    /// `may_keep`, they may also stay as they are for the next block.
    fn give(&mut self, start: usize, len: usize, may_keep: bool, _blocked: SignalsBlocked) {
        let (mut a, mut b) = (start, start + len);
        if let Some((&s, &l)) = self.free.range(..start).next_back()
            && s + l == start
        {
            self.unfree(s, l);
            a = s;
        }
        if let Some(&l) = self.free.get(&b) {
            self.unfree(b, l);
            b += l;
        }
        if let Some(pager) = state::pager().filter(|pager| !pager.is_segment() && place::nodes() == 1) {
            let page = pager.page_bytes();
            let from = (start & !(page - 1)).max(a);
            let to = (start + len).next_multiple_of(page).min(b);
            if may_keep && self.stale.bytes() + len <= self.most_stale(pager) {
                self.stale.add(from.next_multiple_of(page), to & !(page - 1));
            } else {
                pager.release(from, to, figures(pager));
                self.give_stale_back(pager);
            }
        } else if state::pager().is_none() && forked::is_complete() {
            forget(start, start + len);
        }
        self.enter(a, b - a);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn empty() -> Extents {
        Extents {
            live: Live::new(),
            free: BTreeMap::new(),
            by_size: BTreeSet::new(),
            stale: Stale::new(),
            top: place::large().start,
        }
    }

    /// Live and free extents cover everything up to the top, without overlap, and no two free ones touch.
    fn check(e: &Extents) {
        let mut all: Vec<(usize, usize, bool)> = e.live.extents.iter().map(|(s, l)| (*s, *l, true)).collect();
        all.extend(e.free.iter().map(|(s, l)| (*s, *l, false)));
        all.sort_unstable();
        let mut at = place::large().start;
        let mut before_free = false;
        for (start, len, live) in all {
            assert_eq!(start, at);
            assert!(live || !before_free, "two free extents touch");
            before_free = !live;
            at += len;
        }
        assert_eq!(at, e.top);
        assert_eq!(e.free.len(), e.by_size.len());
        assert_eq!(e.live.bytes, e.live.extents.values().sum::<usize>());
    }

    #[test]
    fn memory_mapped_where_a_part_was_unmapped_is_live() {
        let mut e = empty();
        let at = e.take(10 * GRANULE, GRANULE).unwrap();
        e.live.remove(at);
        e.live.insert(at, 2 * GRANULE);
        e.give(at + 2 * GRANULE, 8 * GRANULE, false, SignalsBlocked::new());
        assert!(e.claim(at + GRANULE, at + 5 * GRANULE));
        check(&e);
        assert_eq!(e.live.get(at + 2 * GRANULE), Some(3 * GRANULE));
        assert_eq!(e.free.get(&(at + 5 * GRANULE)), Some(&(5 * GRANULE)));
        assert!(!e.claim(at, at + 5 * GRANULE));
    }

    #[test]
    fn extents_neither_overlap_nor_get_lost() {
        let mut e = empty();
        let mut random = 88_172_645_463_325_252u64;
        let mut next = move || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random as usize
        };
        let mut live: Vec<usize> = Vec::new();
        for _ in 0..3000 {
            if live.is_empty() || next() % 5 < 3 {
                let len = (1 + next() % 64) * GRANULE;
                let alignment = GRANULE << (next() % 5);
                let at = e.take(len, alignment).unwrap();
                assert!(at.is_multiple_of(alignment));
                live.push(at);
            } else {
                let at = live.swap_remove(next() % live.len());
                let len = e.live.remove(at).unwrap();
                e.give(at, len, true, SignalsBlocked::new());
            }
            check(&e);
        }
        for at in live {
            let len = e.live.remove(at).unwrap();
            e.give(at, len, true, SignalsBlocked::new());
        }
        check(&e);
        assert_eq!(e.free.len(), 1, "all is one free extent again");
    }
}
