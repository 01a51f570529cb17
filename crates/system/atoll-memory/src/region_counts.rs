//! Faults by parallel region: what workers counted between entering a region and leaving it, summed in shared memory.
//!
//! Part of the control block: the OpenMP runtime's hooks call it in the program, the launcher reads it at the end. What workers
//! count is counted only where a record is wanted (`Settings::count_regions`); what several nodes do for a region
//! (`region_spread`), always.
//!
//! Rules: no allocation, no locks, no arena access.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::control::{Figures, MAX_WORKERS};
use crate::region_spread::Spread;
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

/// What tells regions apart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Key {
    /// The outlined function.
    pub function: u64,
    /// Where the region is begun from; 0: not told, or not told apart.
    pub call_site: u64,
    /// About how many iterations the loop has that the region is (a power of two), and how they are dealt; 0: the region is no
    /// loop, or one that the compiler deals itself. A program that works on grids of several sizes runs the same code for all.
    pub extent: u64,
}

impl Key {
    /// One number for it, not 0.
    #[must_use]
    pub fn number(&self) -> u64 {
        let mix = |hash: u64, word: u64| (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        [self.function, self.call_site, self.extent].into_iter().fold(0, mix).max(1)
    }
}

/// One region.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Region {
    /// The number of the region's key; 0: nothing is counted here.
    number: AtomicU64,
    function: AtomicU64,
    call_site: AtomicU64,
    extent: AtomicU64,
    /// How often the first worker entered it.
    pub entered: AtomicU64,
    /// Sums over all workers, as [`COUNTS`] names them; times in ticks.
    pub counts: [AtomicU64; COUNTS.len()],
    /// Counts of a program on several nodes.
    pub spread: Spread,
}

impl Region {
    /// Which region it is; none if none.
    #[must_use]
    pub fn key(&self) -> Option<Key> {
        let get = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let key =
            Key { function: get(&self.function), call_site: get(&self.call_site), extent: get(&self.extent) };
        // Who took the place may not have said yet for what.
        (get(&self.number) == key.number()).then_some(key)
    }
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
    /// Worker `worker` enters the region of `key`.
    pub fn enter(&self, worker: usize, key: Key, figures: &Figures) {
        let open = &self.open[worker];
        let depth = open.depth.load(Ordering::Relaxed);
        open.depth.store(depth + 1, Ordering::Relaxed);
        if depth > 0 {
            return;
        }
        let region = self.find(key);
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

    /// The index of a region; takes a free one for a new one, if there is one left.
    pub fn find(&self, key: Key) -> Option<usize> {
        let number = key.number();
        let from = number as usize % MAX_REGIONS;
        (0..MAX_REGIONS).map(|step| (from + step) % MAX_REGIONS).find(|&index| {
            let region = &self.all[index];
            // Relaxed: counts begin at zero, and `Region::key` sees whether the key is there.
            let taken = match region.number.load(Ordering::Relaxed) {
                0 => region
                    .number
                    .compare_exchange(0, number, Ordering::Relaxed, Ordering::Relaxed)
                    .map_or_else(|now| now == number, |_| true),
                now => return now == number,
            };
            if taken {
                region.function.store(key.function, Ordering::Relaxed);
                region.call_site.store(key.call_site, Ordering::Relaxed);
                region.extent.store(key.extent, Ordering::Relaxed);
            }
            taken
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

    fn key(function: u64) -> Key {
        Key { function, ..Key::default() }
    }

    #[test]
    fn one_function_has_a_region_for_each_call_site_and_loop() {
        let regions = regions();
        let keys = [(1, 2, 3), (1, 2, 4), (1, 3, 3), (2, 2, 3), (1, 2, 3)];
        let index = keys.map(|(function, call_site, extent)| {
            let key = Key { function, call_site, extent };
            let index = regions.find(key).unwrap();
            assert_eq!(regions.all[index].key(), Some(key));
            index
        });
        assert_eq!(index[0], index[4]);
        assert!((0..4).all(|i| (0..i).all(|j| index[i] != index[j])));
    }

    #[test]
    fn the_outermost_region_gets_what_happened_inside() {
        let (regions, figures) = (regions(), Figures::default());
        regions.enter(0, key(0x1000), &figures);
        Figures::add(&figures.major_faults, 3);
        regions.enter(0, key(0x2000), &figures);
        Figures::add(&figures.major_faults, 4);
        regions.leave(0, &figures);
        regions.leave(0, &figures);
        Figures::add(&figures.major_faults, 5);
        regions.enter(1, key(0x1000), &figures);
        Figures::add(&figures.minor_faults, 1);
        regions.leave(1, &figures);
        let used: Vec<_> = regions.all.iter().filter(|r| r.key().is_some()).collect();
        assert_eq!(used.len(), 1);
        let get = |index: usize| used[0].counts[index].load(Ordering::Relaxed);
        assert_eq!((get(0), get(1), used[0].entered.load(Ordering::Relaxed)), (1, 7, 1));
        assert!(get(6) > 0);
    }

    #[test]
    fn more_regions_than_there_is_room_for_are_in_none() {
        let (regions, figures) = (regions(), Figures::default());
        for function in 1..=MAX_REGIONS as u64 + 9 {
            regions.enter(2, key(function << 4), &figures);
            Figures::add(&figures.first_faults, 1);
            regions.leave(2, &figures);
        }
        let sum: u64 = regions.all.iter().map(|region| region.counts[2].load(Ordering::Relaxed)).sum();
        assert_eq!(sum, MAX_REGIONS as u64);
    }
}
