//! Reads the TLBs that this processor reports.

use raw_cpuid::{Associativity, CpuId, DatType};

/// A TLB.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tlb {
    pub(super) level: u8,
    pub(super) pages: Vec<&'static str>,
    pub(super) entries: u32,
    pub(super) ways: u32,
}

/// Returns the data TLBs of 4K and 2M pages, nearest first; empty if the processor reports none.
pub(super) fn tlbs() -> Vec<Tlb> {
    let mut found = intel();
    if found.is_empty() {
        found = amd();
    }
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

/// Reads CPUID leaf 0x18.
fn intel() -> Vec<Tlb> {
    let mut found = Vec::new();
    for tlb in CpuId::new().get_deterministic_address_translation_info().into_iter().flatten() {
        if !matches!(tlb.cache_type(), DatType::DataTLB | DatType::UnifiedTLB | DatType::LoadOnly) {
            continue;
        }
        let sizes = [(tlb.has_4k_entries(), "4K"), (tlb.has_2mb_entries(), "2M")];
        let pages: Vec<&str> = sizes.iter().filter(|(has, _)| *has).map(|(_, size)| *size).collect();
        let entries = u32::from(tlb.ways()) * tlb.sets();
        let ways = if tlb.is_fully_associative() { entries } else { tlb.ways().into() };
        if !pages.is_empty() {
            found.push(Tlb { level: tlb.cache_level(), pages, entries, ways });
        }
    }
    found
}

/// Reads CPUID leaves 0x8000_0005 and 0x8000_0006.
fn amd() -> Vec<Tlb> {
    let cpuid = CpuId::new();
    let mut found = Vec::new();
    if let Some(first) = cpuid.get_l1_cache_and_tlb_info() {
        found.push(of_amd(1, "4K", first.dtlb_4k_size().into(), &first.dtlb_4k_associativity()));
        found.push(of_amd(1, "2M", first.dtlb_2m_4m_size().into(), &first.dtlb_2m_4m_associativity()));
    }
    if let Some(second) = cpuid.get_l2_l3_cache_and_tlb_info() {
        found.push(of_amd(2, "4K", second.dtlb_4k_size().into(), &second.dtlb_4k_associativity()));
        found.push(of_amd(2, "2M", second.dtlb_2m_4m_size().into(), &second.dtlb_2m_4m_associativity()));
    }
    found
}

fn of_amd(level: u8, page: &'static str, entries: u32, associativity: &Associativity) -> Tlb {
    let ways = match associativity {
        Associativity::FullyAssociative => entries,
        Associativity::DirectMapped => 1,
        Associativity::NWay(ways) => u32::from(*ways),
        Associativity::Disabled => 0,
        // This is reported elsewhere, or nowhere: the number is that of common processors.
        Associativity::Unknown => 8,
    };
    Tlb { level, pages: vec![page], entries, ways }
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
