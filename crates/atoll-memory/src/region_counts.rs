//! Faults by parallel region: what workers counted between entering a region and leaving it, summed in shared memory.
//!
//! Part of the control block: the OpenMP runtime's hooks call it in the program, the launcher reads it at the end. Counted
//! only where a record is wanted (`Settings::count_regions`).
//!
//! Rules: no allocation, no locks, no arena access.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::control::{Figures, MAX_WORKERS};
use crate::sys;

/// Regions told apart; what happens in more of them is in no region.
pub const MAX_REGIONS: usize = 128;

/// What is counted of a region, in the order of [`Region::counts`].
pub const COUNTS: [&str; 7] = ["minor", "major", "first", "write", "prefetched", "fault ticks", "ticks"];

fn counted(figures: &Figures) -> [u64; COUNTS.len()] {
    let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    [
        get(&figures.minor_faults),
        get(&figures.major_faults),
        get(&figures.first_faults),
        get(&figures.write_faults),
        get(&figures.prefetched),
        get(&figures.fault_ticks),
        sys::ticks(),
    ]
}

/// One region, known by its outlined function.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Region {
    /// The function's address; 0: nothing is counted here.
    pub function: AtomicU64,
    /// How often the first worker entered it.
    pub entered: AtomicU64,
    /// Sums over all workers, as [`COUNTS`] names them; times in ticks.
    pub counts: [AtomicU64; COUNTS.len()],
}

/// The region one worker is in. Only that worker uses it.
#[repr(C, align(64))]
#[derive(Debug)]
struct Open {
    /// Regions it is in, one in the other; the outermost counts.
    depth: AtomicU32,
    /// Index of the region.
    region: AtomicU32,
    since: [AtomicU64; COUNTS.len()],
}

/// All of them; valid when zero.
#[repr(C)]
#[derive(Debug)]
pub struct Regions {
    open: [Open; MAX_WORKERS + 1],
    /// Regions in no order, behind each other from where their address puts them.
    pub all: [Region; MAX_REGIONS],
}

impl Regions {
    /// Worker `worker` enters the region of `function`.
    pub fn enter(&self, worker: usize, function: usize, figures: &Figures) {
        let open = &self.open[worker];
        let depth = open.depth.load(Ordering::Relaxed);
        open.depth.store(depth + 1, Ordering::Relaxed);
        if depth > 0 {
            return;
        }
        let region = self.find(function as u64);
        open.region.store(region.map_or(u32::MAX, |index| index as u32), Ordering::Relaxed);
        for (since, now) in open.since.iter().zip(counted(figures)) {
            since.store(now, Ordering::Relaxed);
        }
        if let Some(index) = region
            && worker == 0
        {
            self.all[index].entered.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Worker `worker` leaves the region it entered last.
    pub fn leave(&self, worker: usize, figures: &Figures) {
        let open = &self.open[worker];
        let depth = open.depth.load(Ordering::Relaxed).saturating_sub(1);
        open.depth.store(depth, Ordering::Relaxed);
        let Some(region) = self.all.get(open.region.load(Ordering::Relaxed) as usize).filter(|_| depth == 0)
        else {
            return;
        };
        for ((sum, since), now) in region.counts.iter().zip(&open.since).zip(counted(figures)) {
            sum.fetch_add(now.wrapping_sub(since.load(Ordering::Relaxed)), Ordering::Relaxed);
        }
    }

    /// The index of a function's region; takes a free one for a new function.
    fn find(&self, function: u64) -> Option<usize> {
        let from = (function >> 4) as usize;
        (0..MAX_REGIONS).map(|step| (from + step) % MAX_REGIONS).find(|&index| {
            let known = &self.all[index].function;
            // Relaxed: the address is all there is to see; counts begin at zero.
            match known.load(Ordering::Relaxed) {
                0 => known
                    .compare_exchange(0, function, Ordering::Relaxed, Ordering::Relaxed)
                    .map_or_else(|now| now == function, |_| true),
                now => now == function,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn regions() -> Box<Regions> {
        // SAFETY: atomics, for all of which zeros are valid.
        unsafe { Box::<Regions>::new_zeroed().assume_init() }
    }

    #[test]
    fn the_outermost_region_gets_what_happened_inside() {
        let (regions, figures) = (regions(), Figures::default());
        regions.enter(0, 0x1000, &figures);
        Figures::add(&figures.major_faults, 3);
        regions.enter(0, 0x2000, &figures);
        Figures::add(&figures.major_faults, 4);
        regions.leave(0, &figures);
        regions.leave(0, &figures);
        Figures::add(&figures.major_faults, 5);
        regions.enter(1, 0x1000, &figures);
        Figures::add(&figures.minor_faults, 1);
        regions.leave(1, &figures);
        let used: Vec<_> = regions.all.iter().filter(|r| r.function.load(Ordering::Relaxed) != 0).collect();
        assert_eq!(used.len(), 1);
        let get = |index: usize| used[0].counts[index].load(Ordering::Relaxed);
        assert_eq!((get(0), get(1), used[0].entered.load(Ordering::Relaxed)), (1, 7, 1));
        assert!(get(6) > 0);
    }

    #[test]
    fn more_regions_than_there_is_room_for_are_in_none() {
        let (regions, figures) = (regions(), Figures::default());
        for function in 1..=MAX_REGIONS + 9 {
            regions.enter(2, function << 4, &figures);
            Figures::add(&figures.first_faults, 1);
            regions.leave(2, &figures);
        }
        let sum: u64 = regions.all.iter().map(|region| region.counts[2].load(Ordering::Relaxed)).sum();
        assert_eq!(sum, MAX_REGIONS as u64);
    }
}
