//! Words that two nodes wrote in one region, and regions whose twins near memory was too small for: in the control block.
//!
//! The origin's agent counts; the launcher reads at the end.
//!
//! Rules: no allocation, no locks, no arena access.

use std::sync::atomic::{AtomicU64, Ordering};

/// Words told apart at most.
pub const MAX_RACES: usize = 1024;
/// Regions that are noted at most.
pub const MAX_CROWDED: usize = 16;

/// One word, in one region.
#[repr(C)]
#[derive(Debug)]
pub struct Race {
    /// The region's outlined function; 0: nothing is counted here.
    pub function: AtomicU64,
    /// The word's address.
    pub address: AtomicU64,
    /// The nodes that wrote it: bit n for node n.
    pub nodes: AtomicU64,
    /// At how many barriers it was found.
    pub count: AtomicU64,
}

/// All of them; valid when zero.
#[repr(C)]
#[derive(Debug)]
pub struct Races {
    /// Runs of regions in which races were looked for.
    pub checked: AtomicU64,
    /// Runs of regions over several nodes in which they were not, as their code synchronises by itself.
    pub unchecked: AtomicU64,
    /// Finds for which there was no place.
    pub lost: AtomicU64,
    /// In no order, behind each other from where function and address put them.
    pub all: [Race; MAX_RACES],
    /// Outlined functions of regions that keep to one writer as near memory is too small for their twins; 0: none.
    pub crowded: [AtomicU64; MAX_CROWDED],
}

impl Races {
    /// The word at `address` was found to be written by `nodes` in the region of `function`. Called by one thread only.
    pub fn found(&self, function: u64, address: u64, nodes: u64) {
        let start = (function ^ address >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let place =
            (0..MAX_RACES).map(|step| &self.all[(start as usize + step) % MAX_RACES]).find(|race| match race
                .function
                .load(Ordering::Relaxed)
            {
                0 => true,
                known => known == function && race.address.load(Ordering::Relaxed) == address,
            });
        let Some(race) = place else {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return;
        };
        race.address.store(address, Ordering::Relaxed);
        race.nodes.fetch_or(nodes, Ordering::Relaxed);
        race.count.fetch_add(1, Ordering::Relaxed);
        race.function.store(function, Ordering::Relaxed);
    }

    /// The region of `function` keeps to one writer from now on. `false` if that was known. Called by one thread only.
    pub fn crowded(&self, function: u64) -> bool {
        for place in &self.crowded {
            match place.load(Ordering::Relaxed) {
                0 => {
                    place.store(function, Ordering::Relaxed);
                    return true;
                }
                known if known == function => return false,
                _ => {}
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_has_one_place_in_each_region() {
        // SAFETY: atomics, for all of which zeros are valid.
        let races: Box<Races> = unsafe { Box::new_zeroed().assume_init() };
        races.found(7, 64, 0b11);
        races.found(7, 64, 0b101);
        races.found(8, 64, 0b11);
        let found: Vec<_> = races
            .all
            .iter()
            .filter(|race| race.function.load(Ordering::Relaxed) == 7)
            .map(|race| (race.nodes.load(Ordering::Relaxed), race.count.load(Ordering::Relaxed)))
            .collect();
        assert_eq!(found, [(0b111, 2)]);
        (0..2000).for_each(|word| races.found(9, 8 * word, 3));
        assert!(races.lost.load(Ordering::Relaxed) >= 2000 - MAX_RACES as u64);
        assert!(races.crowded(5) && !races.crowded(5) && races.crowded(6));
    }
}
