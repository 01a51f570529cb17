//! How many pages the pager moves, keeps and maps at once, by page size.
//!
//! `atoll-memory`'s pager goes by these numbers, and so does the simulator where it simulates that pager
//! (`atoll-machine`), so that counts of both can be compared. Page sizes are given as their shifts: 12, 16 or 21.

/// Free frames a worker keeps for its next faults at most.
pub const STORE: usize = 256;
/// Events a worker logs for the policy at most; a power of two.
pub const LOG: usize = 1024;
/// Victims of one batch at most.
pub const VICTIMS: usize = 64;
/// Pages that are about to leave, ahead of need, at most: each worker drops its mappings of them at its own faults.
pub const LEAVING: usize = 256;
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

/// Pages that are about to leave ahead of need, where near memory is `frames` and a batch takes `batch` of them: four batches, so that
/// every worker has a fault meanwhile, and a sixteenth of near memory at most. None if that is too little to be of use.
pub fn leaving(batch: usize, frames: u32) -> usize {
    let most = (4 * batch).min(LEAVING).min(frames as usize / 16);
    if most < 8 { 0 } else { most }
}

/// Fewer frames than this, and a single instruction could not make progress while others keep theirs.
pub const fn least_frames(shift: u32, workers: u32) -> u32 {
    if shift == 12 { 16 + 8 * workers } else { 4 + 2 * workers }
}
