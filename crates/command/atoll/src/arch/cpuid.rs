//! What `atoll bench` reads by the instruction CPUID: data caches and TLBs.

use raw_cpuid::{Associativity, CacheType, CpuId, DatType};

use crate::bench::Tlb;

/// The data caches of this CPU, each by its level and its bytes. Leaf 4 is Intel's: processors of other vendors may report none here.
pub(crate) fn caches() -> Vec<(u8, usize)> {
    let of_data = |kind| matches!(kind, CacheType::Data | CacheType::Unified);
    let caches = CpuId::new().get_cache_parameters().into_iter().flatten();
    caches
        .filter(|cache| of_data(cache.cache_type()))
        .map(|cache| {
            let ways = cache.associativity() * cache.physical_line_partitions();
            (cache.level(), ways * cache.coherency_line_size() * cache.sets())
        })
        .collect()
}

/// The data TLBs of 4K and 2M pages; empty if the processor reports none.
pub(crate) fn tlbs() -> Vec<Tlb> {
    let found = intel();
    if found.is_empty() { amd() } else { found }
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
