//! How many pages the pager moves, keeps and maps at once, by page size.
//!
//! `atoll-memory`'s pager goes by these numbers, and so does the simulator where it simulates that pager
//! (`atoll-machine`), so that counts of both can be compared. Page sizes are given as their shifts: 12, 16 or 21.

use core::ops::{Range, RangeInclusive};

use crate::neighbours::block;

/// Free frames a worker keeps for its next faults at most.
pub const STORE: usize = 512;
/// Events a worker logs for the policy at most; a power of two.
pub const LOG: usize = 2048;
/// Victims of one batch at most.
pub const VICTIMS: usize = 256;
/// Pages that are mapped together, leave together and are made together, aligned; a power of two.
pub const BLOCK: u32 = 16;
/// One in how many times a page that is known to be written is mapped read-only, to notice when that changes.
pub const LOOK: u32 = 64;

/// Pages fetched at once at most: 256K.
pub const fn window(shift: u32) -> u32 {
    match shift {
        12 => 64,
        16 => 4,
        _ => 1,
    }
}

/// Frames one batch takes: 256K, or an eighth of what each of `workers` (at least 1) may have of `frames` if that is less.
pub fn batch(shift: u32, frames: u64, workers: u64) -> usize {
    let most = match shift {
        12 => 64,
        16 => 8,
        _ => 1,
    };
    (frames / (8 * workers)).clamp(1, most) as usize
}

/// Frames one batch takes where stretches leave as a whole (see [`stretch`]): 1 MiB, or a 32nd of what each of `workers` (at least 1) may
/// have of `frames` if that is less, but no fewer than [`batch`] says. A batch interrupts the other threads' CPUs once, however large it is.
/// Its frames are of no use until they are filled, which is why the batch is a small part of near memory.
pub fn batch_of_stretches(shift: u32, frames: u64, workers: u64) -> usize {
    let most = ((1 << 20) >> shift).clamp(1, VICTIMS as u64);
    let share = (frames / (32 * workers)).min(most) as usize;
    share.max(batch(shift, frames, workers))
}

/// What a policy that names victims ahead of need knows of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ahead {
    /// The policy guesses. Uses of a page before its turn comes are what it has to go by.
    Guessed,
    /// The policy guesses, and threads share a page table: to ask for a page's uses interrupts the others once.
    GuessedShared,
    /// The policy knows when the pages are used next.
    Known,
    /// The policy does not ask for uses.
    Unasked,
}

/// Pages that are about to leave, where near memory is `frames` and a batch takes `batch` of them. Each worker drops its mappings of them
/// at its own faults. A quarter of near memory where uses meanwhile are asked for, a sixteenth where it is dear to ask; where they are not,
/// enough that every worker has a fault before the first of them leaves. None if that is too little to be of use.
pub fn leaving(frames: u32, batch: usize, ahead: Ahead) -> usize {
    let frames = frames as usize;
    let most = match ahead {
        Ahead::Guessed => frames / 4,
        Ahead::GuessedShared => frames / 16,
        Ahead::Known => (8 * batch).min(frames / 16),
        Ahead::Unasked => (4 * batch).min(frames / 16),
    };
    if most < 8 { 0 } else { most }
}

/// The pages that leave as a whole with `page`, one of near memory's `frames`: aligned, at most what one of the kernel's tables maps, and at
/// most an eighth of near memory. Pages have `1 << shift` bytes.
pub fn stretch(page: u32, frames: u32, shift: u32) -> Range<u32> {
    let most = (2 << 20 >> shift).max(1);
    let size = (frames / 8).clamp(1, most);
    let size = 1 << size.ilog2();
    let first = page & !(size - 1);
    first..first.saturating_add(size)
}

/// How far ahead of need pages are announced where the policy guesses: as far as [`leaving`] says, but no farther than that about a quarter of them is
/// used until its turn, as each of those is a fault that moves nothing.
///
/// Where a table is looked up at random and 95 % of it are near, seven of ten pages are used while an eighth of near memory leaves (measured: 2.4 such
/// faults for each page fetched).
#[derive(Debug, Clone, Copy)]
pub struct Distance {
    /// The part of the full distance, of [`FULL`].
    part: u32,
}

/// The full distance.
const FULL: u32 = 1 << 24;
/// The least part of it.
const NEAREST: u32 = FULL / 8;
/// Pages that are announced however many of them are used, as far as [`leaving`] allows: room for some huge pages, which is made at once, must come from
/// pages that somebody had the time to use.
const LEAST_AHEAD: usize = 4096;

impl Default for Distance {
    fn default() -> Self {
        Distance { part: FULL }
    }
}

impl Distance {
    /// The turn of a page has come, or of a huge page; `used`: it was used since it was announced. `frames`: those of near memory.
    pub fn judge(&mut self, used: bool, frames: u32) {
        // Back from the least to the full distance in a fifth of the pages that near memory has.
        let step = (4 * FULL / frames.max(64)).max(1);
        self.part =
            if used { self.part.saturating_sub(3 * step) } else { self.part + step }.clamp(NEAREST, FULL);
    }

    /// How many pages are announced, where [`leaving`] says `pages`.
    pub fn of(self, pages: usize) -> usize {
        let part = (pages as u64 * u64::from(self.part) / u64::from(FULL)) as usize;
        part.max(pages.min(LEAST_AHEAD))
    }
}

/// The most that [`leaving`] says for near memory of up to `frames`.
pub fn most_leaving(frames: u32) -> usize {
    frames as usize / 4
}

/// Frames that a worker with `had` in store asks for at once when it needs `need` of them: a batch, as far as its store has room.
pub fn refill(batch: usize, need: usize, had: usize) -> usize {
    batch.max(need.saturating_sub(had)).min(STORE - had)
}

/// Pages that leave at once for a worker with `had` frames in store that asked for `wanted`. `surplus`: frames in use beyond near
/// memory's present size, which go as well.
pub fn victims(wanted: usize, surplus: usize, had: usize) -> usize {
    (wanted + surplus).min(VICTIMS).min(STORE - had)
}

/// Pages that are fetched together at most where room has to be made for them, by one of `workers` (at least 1), near memory being `frames`:
/// fetching ahead is worth two batches of evictions. What all workers fetch together is a 64th of near memory, or a block each if that is
/// more. A policy that keeps most pages leaves but a sixteenth to those that come and go, and there pages fetched ahead must last until they
/// are used.
pub fn worth_evicting(batch: usize, frames: u64, workers: u64) -> usize {
    let share = usize::try_from(frames / (64 * workers)).unwrap_or(usize::MAX);
    (2 * batch).min(share.max(BLOCK as usize))
}

/// Whether a worker that noted so many events tells the policy at the next opportunity: its log has no room for a whole store of
/// frames more.
pub fn is_nearly_full(noted: usize) -> bool {
    noted >= LOG - STORE
}

/// The pages worth fetching with `page`, of a stretch that ends with page `last`. Pages that never were anywhere (`is_new`) are made
/// ahead only within their block, as nobody may ever want the rest.
pub fn worth_fetching(page: u64, is_new: bool, last: u64) -> RangeInclusive<u64> {
    if !is_new {
        return 0..=last;
    }
    let block = block(page);
    *block.start()..=last.min(*block.end())
}

/// Fewer frames than this, and a single instruction could not make progress while others keep theirs.
pub const fn least_frames(shift: u32, workers: u32) -> u32 {
    if shift == 12 { 16 + 8 * workers } else { 4 + 2 * workers }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stretch_is_aligned_and_a_small_part_of_near_memory() {
        assert_eq!(stretch(1_000, 1 << 20, 12), 512..1_024);
        assert_eq!(stretch(1_000, 1 << 20, 16), 992..1_024);
        assert_eq!(stretch(1_000, 1_773, 12), 896..1_024);
        assert_eq!(stretch(1_000, 32, 12), 1_000..1_004);
        assert_eq!(stretch(1_000, 0, 21), 1_000..1_001);
        assert_eq!(stretch(u32::MAX, 1 << 20, 12).end, u32::MAX);
    }

    #[test]
    fn a_batch_of_stretches_is_a_mebibyte_at_most_and_a_small_part_of_near_memory() {
        let together = |frames, workers| batch_of_stretches(12, frames, workers);
        assert_eq!((together(1 << 20, 2), together(1 << 14, 2), together(1 << 12, 2)), (256, 256, 64));
        assert_eq!((together(100, 2), batch(12, 100, 2)), (6, 6));
        assert_eq!((batch_of_stretches(16, 1 << 14, 2), batch_of_stretches(21, 1 << 14, 2)), (16, 1));
    }

    #[test]
    fn a_distance_goes_down_while_pages_are_used_and_up_while_they_are_not_in_near_memory_of_any_size() {
        for frames in [1_u32 << 14, 1 << 20, 1 << 26] {
            let most = leaving(frames, 64, Ahead::Guessed);
            let mut distance = Distance::default();
            assert_eq!(distance.of(most), most);
            (0..frames / 8).for_each(|_| distance.judge(true, frames));
            assert_eq!(distance.of(most), most.min(LEAST_AHEAD.max(most / 8)));
            (0..frames / 4).for_each(|_| distance.judge(false, frames));
            assert_eq!(distance.of(most), most);
        }
    }

    #[test]
    fn windows_of_all_workers_evicted_each_other_in_little_near_memory() {
        let together = |frames, workers| worth_evicting(batch(12, frames, workers), frames, workers);
        assert_eq!((together(2_000, 2), together(4_096, 2), together(1 << 20, 56)), (16, 32, 128));
        for (frames, workers) in [(1_000, 1), (2_000, 2), (16_000, 56), (1 << 20, 112)] {
            let all = together(frames, workers) as u64 * workers;
            assert!(all <= (frames / 32).max(u64::from(BLOCK) * workers), "{frames} {workers}");
        }
    }
}
