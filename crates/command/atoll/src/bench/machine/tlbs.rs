//! The TLBs that this processor reports, as the simulator can have them.

use crate::arch;

/// A TLB.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tlb {
    pub(crate) level: u8,
    pub(crate) pages: Vec<&'static str>,
    pub(crate) entries: u32,
    pub(crate) ways: u32,
}

/// Returns the data TLBs of 4K and 2M pages, nearest first; empty if the processor reports none.
pub(super) fn tlbs() -> Vec<Tlb> {
    let mut found = arch::tlbs();
    found.retain_mut(|tlb| {
        tlb.ways = whole_sets(tlb.entries, tlb.ways);
        tlb.ways > 0
    });
    found.sort_by_key(|tlb| tlb.level);
    found
}

/// The simulator finds a set by the low bits of a page's number. So this returns the number of ways nearest to `ways` that
/// makes the number of sets a power of two; 0 if there is none.
fn whole_sets(entries: u32, ways: u32) -> u32 {
    let fits = |&ways: &u32| entries.is_multiple_of(ways) && (entries / ways).is_power_of_two();
    let all = 1..=if ways == 0 { 0 } else { entries };
    all.filter(fits).min_by_key(|&fit| fit.abs_diff(ways)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_a_power_of_two() {
        let cases =
            [((64, 64), 64), ((72, 72), 72), ((3072, 8), 6), ((2048, 8), 8), ((64, 0), 0), ((0, 8), 0)];
        for ((entries, ways), fit) in cases {
            assert_eq!(whole_sets(entries, ways), fit, "{entries} entries of {ways} ways");
        }
        for tlb in tlbs() {
            assert!((tlb.entries / tlb.ways).is_power_of_two() && !tlb.pages.is_empty());
        }
    }
}
