//! Finds the PMU of this machine that samples accesses with their addresses, from the kernel's event sources.

use std::path::Path;

use crate::sampler::SamplerError;

/// The kinds of sampling hardware.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Intel's processor event-based sampling.
    Pebs,
    /// AMD's instruction-based sampling.
    Ibs,
    /// Arm's statistical profiling extension.
    Spe,
}

impl Kind {
    /// Returns the name that `--sampler` takes.
    pub fn word(self) -> &'static str {
        match self {
            Self::Pebs => "pebs",
            Self::Ibs => "ibs",
            Self::Spe => "spe",
        }
    }
}

/// A PMU and its events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pmu {
    /// The kind of hardware.
    pub kind: Kind,
    /// The PMU's number, `perf_event_attr.type`.
    pub number: u32,
    /// `config` and `config1` of each event.
    pub events: Vec<(u64, u64)>,
}

/// MEM_INST_RETIRED.ALL_LOADS and ALL_STORES (MEM_UOPS_RETIRED before Skylake). Every PEBS with addresses has both, and neither
/// needs a second event.
const PEBS: [(u64, u64); 2] = [(0x81d0, 0), (0x82d0, 0)];
/// IbsOpCntCtl: counts micro-operations, not cycles.
const IBS: [(u64, u64); 1] = [(1 << 19, 0)];
/// Bits of SPE's `config`: time stamps, physical addresses, loads, stores.
const SPE_LOADS_STORES: u64 = 1 | 1 << 33 | 1 << 34;

impl Pmu {
    /// Returns the PMU among the kernel's event sources in `directory` (`/sys/bus/event_source/devices`); `processor` is the
    /// text of `/proc/cpuinfo`.
    ///
    /// # Errors
    /// There is none.
    pub fn find(directory: &Path, processor: &str) -> Result<Pmu, SamplerError> {
        let number = |name: &str| -> Option<u32> {
            std::fs::read_to_string(directory.join(name).join("type")).ok()?.trim().parse().ok()
        };
        if let Some(number) = number("ibs_op") {
            return Ok(Pmu { kind: Kind::Ibs, number, events: IBS.to_vec() });
        }
        if let Some(number) = number("arm_spe_0") {
            return Ok(Pmu { kind: Kind::Spe, number, events: vec![(SPE_LOADS_STORES, 0)] });
        }
        let intel =
            processor.lines().any(|line| line.starts_with("vendor_id") && line.contains("GenuineIntel"));
        match number("cpu").or_else(|| number("cpu_core")) {
            // A virtual machine may have counters without PEBS; opening the event shows that.
            Some(number) if intel => Ok(Pmu { kind: Kind::Pebs, number, events: PEBS.to_vec() }),
            Some(_) => Err(SamplerError::Absent("the processor's counters do not sample addresses".into())),
            None => Err(SamplerError::Absent(
                "this machine has no processor counters (most virtual ones have none)".into(),
            )),
        }
    }

    /// Returns a period as this PMU takes it: IBS counts in sixteens, from 0x90 on.
    pub fn period(&self, wanted: u64) -> u64 {
        match self.kind {
            Kind::Ibs => (wanted & !15).max(0x90),
            Kind::Pebs | Kind::Spe => wanted.max(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pmu_is_found_by_what_the_kernel_lists() {
        let dir = tempfile::tempdir().unwrap();
        let intel = "processor\t: 0\nvendor_id\t: GenuineIntel\n";
        assert!(matches!(Pmu::find(dir.path(), intel), Err(SamplerError::Absent(_))));
        std::fs::create_dir(dir.path().join("cpu")).unwrap();
        std::fs::write(dir.path().join("cpu/type"), "4\n").unwrap();
        assert_eq!(Pmu::find(dir.path(), intel).unwrap().kind, Kind::Pebs);
        assert!(Pmu::find(dir.path(), "vendor_id\t: AuthenticAMD\n").is_err());
        std::fs::create_dir(dir.path().join("ibs_op")).unwrap();
        std::fs::write(dir.path().join("ibs_op/type"), "9\n").unwrap();
        let ibs = Pmu::find(dir.path(), "").unwrap();
        assert_eq!((ibs.kind, ibs.number, ibs.period(64), ibs.period(1001)), (Kind::Ibs, 9, 0x90, 992));
    }
}
