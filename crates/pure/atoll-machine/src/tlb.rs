//! The TLBs of all workers: set associative, least recently used first to go, by page size.
//!
//! [`engine`](crate::engine) asks on every access, so a hit in the first way touches one word. An entry says whether it has
//! been written through, so that only the first write looks the page up again, as in hardware.

use atoll_pages::PageSize;

use crate::describe::Node;

/// A page size as the TLBs see it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Class {
    /// The index of the page size: 0 for 4K, 1 for 64K, 2 for 2M.
    pub(crate) size: usize,
    /// The number of bits by which a 4K page's number is shifted to give the entry's.
    shift: u32,
    /// The hardware's page size of the entries.
    hardware: usize,
}

/// The answer to an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lookup {
    /// The first TLB has the page, and no more is needed.
    Hit,
    /// A later TLB has the page.
    Found {
        /// The picoseconds that this takes.
        after: u64,
        /// Whether this write is the first through this entry, so that the page is to be marked dirty.
        clean: bool,
    },
    /// A page walk is needed.
    Miss,
}

const VALID: u64 = 1;
const DIRTY: u64 = 2;
/// The number of flag bits in an entry: above them is the size, and above that the number of its first 4K page.
const SIZE_SHIFT: u32 = 2;
const NUMBER_SHIFT: u32 = 4;
const LEVELS: usize = 4;

/// One of the TLBs, for all workers.
#[derive(Debug)]
struct Array {
    /// The sets of all workers, with the most recently used way of a set in front.
    entries: Vec<u64>,
    ways: usize,
    sets: usize,
    /// The picoseconds of a hit.
    hit: u64,
}

impl Array {
    #[inline(always)]
    fn set(&mut self, worker: usize, number: u64) -> &mut [u64] {
        let set = number as usize & (self.sets - 1);
        let from = (worker * self.sets + set) * self.ways;
        &mut self.entries[from..from + self.ways]
    }

    /// Finds the entry and brings it to the front.
    #[inline(always)]
    fn find(&mut self, worker: usize, number: u64, entry: u64) -> Option<&mut u64> {
        let set = self.set(worker, number);
        if set[0] & !DIRTY == entry {
            return Some(&mut set[0]);
        }
        // All ways are looked at: the processor would mispredict half of the time where to stop.
        let mut found = usize::MAX;
        for (way, &held) in set.iter().enumerate() {
            found = if held & !DIRTY == entry { way } else { found };
        }
        let held = *set.get(found)?;
        push_front(&mut set[..=found], held);
        Some(&mut set[0])
    }

    #[inline]
    fn fill(&mut self, worker: usize, number: u64, entry: u64) {
        push_front(self.set(worker, number), entry);
    }

    fn drop_one(&mut self, worker: usize, number: u64, entry: u64) {
        let set = self.set(worker, number);
        if let Some(way) = set.iter().position(|&way| way & !DIRTY == entry) {
            set[way..].rotate_left(1);
            if let Some(last) = set.last_mut() {
                *last = 0;
            }
        }
    }

    fn drop_range(&mut self, worker: usize, from: u64, numbers: u64, flags: u64) {
        let all = self.sets * self.ways;
        let entries = &mut self.entries[worker * all..(worker + 1) * all];
        let inside = |entry: u64| {
            let number = entry >> NUMBER_SHIFT;
            entry & ((1 << NUMBER_SHIFT) - 1) & !DIRTY == flags && number >= from && number < from + numbers
        };
        for set in entries.chunks_mut(self.ways) {
            // Entries that stay keep their order in front of the empty ways.
            let mut kept = 0;
            for way in 0..set.len() {
                let entry = set[way];
                if !inside(entry) {
                    set[way] = 0;
                    set[kept] = entry;
                    kept += usize::from(entry != 0);
                } else {
                    set[way] = 0;
                }
            }
        }
    }
}

/// Puts `entry` in front; the last entry goes. Sets are short, so this beats a general rotation.
#[inline(always)]
fn push_front(ways: &mut [u64], mut entry: u64) {
    for way in ways {
        std::mem::swap(way, &mut entry);
    }
}

/// All TLBs of all workers.
#[derive(Debug)]
pub(crate) struct Tlbs {
    arrays: Vec<Array>,
    /// The arrays that are asked for a page size of the hardware, in order, and their number.
    asked: [([u8; LEVELS], usize); 3],
    classes: [Class; 3],
}

impl Tlbs {
    /// Makes empty TLBs of `workers` cores. Of a description's TLBs for one page size the first four count.
    pub(crate) fn new(node: &Node, workers: usize) -> Self {
        let mut arrays = Vec::new();
        let mut asked = [([0; LEVELS], 0); 3];
        for (index, tlb) in node.tlbs.iter().enumerate() {
            let (entries, ways) = (*tlb.entries as usize, *tlb.ways as usize);
            let hit = (*tlb.hit_cycles * 1e6 / *node.cores.clock_mhz).round() as u64;
            arrays.push(Array { entries: vec![0; entries * workers], ways, sets: entries / ways, hit });
            for (size, (list, len)) in PageSize::ALL.iter().zip(&mut asked) {
                if *len < LEVELS && tlb.holds(*size) {
                    list[*len] = index as u8;
                    *len += 1;
                }
            }
        }
        let class = |size: usize| {
            // Pages of a size that the hardware lacks are made of 4K entries.
            let hardware = if asked[size].1 > 0 { size } else { 0 };
            Class { size, shift: PageSize::ALL[hardware].shift() - 12, hardware }
        };
        Self { arrays, asked, classes: [class(0), class(1), class(2)] }
    }

    /// Returns how the TLBs see pages of this size.
    pub(crate) fn class(&self, size: PageSize) -> Class {
        self.classes[PageSize::ALL.iter().position(|&known| known == size).unwrap_or(0)]
    }

    /// Whether the hardware has entries of this page size.
    pub(crate) fn is_native(&self, class: Class) -> bool {
        class.hardware == class.size
    }

    /// Looks up 4K page `page`, which lies in a page of `class`, for `worker`.
    #[inline(always)]
    pub(crate) fn look_up(&mut self, worker: usize, class: Class, page: u64, write: bool) -> Lookup {
        let number = page >> class.shift;
        let entry = number << NUMBER_SHIFT | (class.hardware as u64) << SIZE_SHIFT | VALID;
        let (list, len) = self.asked[class.hardware];
        if len == 0 {
            return Lookup::Miss;
        }
        if let Some(found) = self.arrays[usize::from(list[0])].find(worker, number, entry) {
            let clean = write && *found & DIRTY == 0;
            *found |= if write { DIRTY } else { 0 };
            let after = self.arrays[usize::from(list[0])].hit;
            return if after == 0 && !clean { Lookup::Hit } else { Lookup::Found { after, clean } };
        }
        self.look_further(worker, class, number, entry, write)
    }

    fn look_further(&mut self, worker: usize, class: Class, number: u64, entry: u64, write: bool) -> Lookup {
        let (list, len) = self.asked[class.hardware];
        let mut after = self.arrays[usize::from(list[0])].hit;
        for level in 1..len {
            let array = &mut self.arrays[usize::from(list[level])];
            after += array.hit;
            if let Some(found) = array.find(worker, number, entry) {
                let clean = write && *found & DIRTY == 0;
                *found |= if write { DIRTY } else { 0 };
                let entry = *found;
                for earlier in &list[..level] {
                    self.arrays[usize::from(*earlier)].fill(worker, number, entry);
                }
                return Lookup::Found { after, clean };
            }
        }
        Lookup::Miss
    }

    /// Adds a page that a walk has found to every TLB of its size.
    pub(crate) fn fill(&mut self, worker: usize, class: Class, page: u64, write: bool) {
        let number = page >> class.shift;
        let flags = VALID | if write { DIRTY } else { 0 };
        let entry = number << NUMBER_SHIFT | (class.hardware as u64) << SIZE_SHIFT | flags;
        let (list, len) = self.asked[class.hardware];
        for array in &list[..len] {
            self.arrays[usize::from(*array)].fill(worker, number, entry);
        }
    }

    /// Drops `worker`'s entries of the page of `class` that begins at 4K page `first`.
    pub(crate) fn invalidate(&mut self, worker: usize, class: Class, first: u64) {
        let number = first >> class.shift;
        let numbers = 1u64 << (PageSize::ALL[class.size].shift() - 12 - class.shift);
        let flags = (class.hardware as u64) << SIZE_SHIFT | VALID;
        let (list, len) = self.asked[class.hardware];
        for array in &list[..len] {
            let array = &mut self.arrays[usize::from(*array)];
            if numbers == 1 {
                array.drop_one(worker, number, number << NUMBER_SHIFT | flags);
            } else {
                array.drop_range(worker, number, numbers, flags);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::describe::Machine;

    #[test]
    fn sets_keep_what_was_used_last() {
        let machine = Machine::shipped("knc-5110p").unwrap();
        let mut tlbs = Tlbs::new(machine.node(), 2);
        let class = tlbs.class(PageSize::K4);
        // 16 sets of 4 ways: these five share a set.
        for page in [0, 16, 32, 48] {
            assert_eq!(tlbs.look_up(1, class, page, false), Lookup::Miss);
            tlbs.fill(1, class, page, false);
        }
        assert_eq!(tlbs.look_up(1, class, 0, false), Lookup::Hit);
        tlbs.fill(1, class, 64, true);
        assert_eq!(tlbs.look_up(1, class, 16, false), Lookup::Miss);
        assert_eq!(tlbs.look_up(1, class, 0, true), Lookup::Found { after: 0, clean: true });
        assert_eq!(tlbs.look_up(1, class, 0, true), Lookup::Hit);
        assert_eq!(tlbs.look_up(1, class, 64, true), Lookup::Hit);
        assert_eq!(tlbs.look_up(0, class, 0, false), Lookup::Miss);
        tlbs.invalidate(1, class, 0);
        assert_eq!(tlbs.look_up(1, class, 0, false), Lookup::Miss);
        assert_eq!(tlbs.look_up(1, class, 32, false), Lookup::Hit);
    }

    #[test]
    fn later_levels_and_sizes_the_hardware_lacks() {
        let machine = Machine::shipped("knl-7250").unwrap();
        let mut tlbs = Tlbs::new(machine.node(), 1);
        let class = tlbs.class(PageSize::K64);
        for page in 0..16 {
            tlbs.fill(0, class, page, false);
        }
        assert_eq!(tlbs.look_up(0, class, 15, false), Lookup::Hit);
        // The first level has eight ways a set, the second 32 sets.
        for page in (0..10).map(|n| 1024 + n * 8) {
            tlbs.fill(0, class, page, false);
        }
        assert!(
            matches!(tlbs.look_up(0, class, 1024, false), Lookup::Found { clean: false, after } if after > 0)
        );
        tlbs.invalidate(0, class, 0);
        assert!((0..16).all(|page| tlbs.look_up(0, class, page, false) == Lookup::Miss));
        assert_eq!(tlbs.look_up(0, class, 1024, false), Lookup::Hit);
    }
}
