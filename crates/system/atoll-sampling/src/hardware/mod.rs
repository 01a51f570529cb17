//! The hardware samplers: Intel PEBS, AMD IBS and Arm SPE, by perf.
//!
//! The processor writes one record for each period of accesses (PEBS: loads and stores; IBS: micro-operations; SPE: operations)
//! and interrupts only when a buffer is full, as in MCHPC'18, section 2.1. `--reset` and `--buffer` are that paper's knobs.
//! [`pmu`] finds what this machine has. [`ibs`] and [`spe`] decode what those PMUs write themselves to an
//! [`Operation`](operation::Operation); PEBS's records are the kernel's own.

pub mod ibs;
pub mod operation;
pub mod pmu;
pub mod spe;

use atoll_record::profile::{Access, SamplerInfo};
use perf_event_open_sys::bindings as sys;

use crate::clock;
use crate::instruction::CodeBytes;
use crate::perf::record::Sample;
use crate::perf::{Attached, Layout, Setup};
use crate::sampler::{Found, Harvest, Knobs, Sampler, SamplerError};
use pmu::{Kind, Pmu};

const FIELDS: u32 = sys::PERF_SAMPLE_IP
    | sys::PERF_SAMPLE_TID
    | sys::PERF_SAMPLE_TIME
    | sys::PERF_SAMPLE_ADDR
    | sys::PERF_SAMPLE_WEIGHT
    | sys::PERF_SAMPLE_DATA_SRC;

/// The number of bytes of a thread's second buffer, for SPE: larger than a wake-up's share of it.
const AUX_BYTES: usize = 256 << 10;

/// The sampler that uses the processor's hardware.
#[derive(Debug)]
pub struct Hardware {
    kind: Kind,
    events: Vec<Attached>,
    /// The nanoseconds by which CLOCK_MONOTONIC is ahead of the kernel's clock, once known.
    ahead_ns: Option<u64>,
}

impl Hardware {
    /// Sets up the sampler that this machine has; the period is in accesses (SPE, IBS: operations).
    ///
    /// # Errors
    /// See [`SamplerError`]: there is none, or it is not available.
    pub fn new(pmu: &Pmu, knobs: Knobs) -> Result<Self, SamplerError> {
        let mut events = Vec::new();
        for &(config, config1) in &pmu.events {
            // Only privileged users may have the physical address.
            let with = |physical: u32| {
                Attached::new(Setup {
                    kind: pmu.number,
                    config,
                    config1,
                    period: pmu.period(knobs.period),
                    layout: Layout {
                        sample_type: u64::from(FIELDS | physical | raw(pmu.kind)),
                        registers: 0,
                        stack_bytes: 0,
                    },
                    precise: if pmu.kind == Kind::Pebs { 2 } else { 0 },
                    user_only: pmu.kind != Kind::Ibs,
                    aux_bytes: if pmu.kind == Kind::Spe { AUX_BYTES } else { 0 },
                    // With a clock of the user's choice the kernel stamps each record itself, and PEBS interrupts for each.
                    monotonic: false,
                    ..Setup::of(&knobs)
                })
            };
            let event = match with(sys::PERF_SAMPLE_PHYS_ADDR) {
                Err(SamplerError::Forbidden(_)) => with(0),
                other => other,
            };
            events.push(event?);
        }
        Ok(Self { kind: pmu.kind, events, ahead_ns: None })
    }
}

fn raw(kind: Kind) -> u32 {
    if kind == Kind::Ibs { sys::PERF_SAMPLE_RAW } else { 0 }
}

/// Returns the access of a record; `None` where the record has no data address.
pub fn found(kind: Kind, number: usize, s: &Sample<'_>) -> Option<Found> {
    let mut one = Found {
        time_ns: s.time,
        pid: s.pid,
        tid: s.tid,
        ip: s.ip,
        address: s.address,
        access: operation(s.source),
        weight: s.weight,
        source: s.source,
        physical: s.physical,
        paging: false,
    };
    match kind {
        // Loads are the first event, stores the second.
        Kind::Pebs if one.access == Access::Unknown => {
            one.access = if number == 0 { Access::Read } else { Access::Write };
        }
        Kind::Ibs => one = ibs::decode(s.raw)?.found(one)?,
        _ => {}
    }
    (one.address != 0).then_some(one)
}

/// Returns whether the access loads or stores, from `perf_mem_data_src`.
fn operation(source: u64) -> Access {
    match source & 0x1f {
        op if op & 4 != 0 => Access::Write,
        op if op & 2 != 0 => Access::Read,
        _ => Access::Unknown,
    }
}

impl Sampler for Hardware {
    fn info(&self) -> SamplerInfo {
        let event = self.events.first().map(Attached::setup);
        SamplerInfo {
            name: self.kind.word().into(),
            meaning: "an access that the processor sampled".into(),
            period: self.period(),
            period_unit: if self.kind == Kind::Pebs { "accesses" } else { "operations" }.into(),
            buffer_bytes: event.map_or(0, |e| e.wakeup_bytes as u64),
            reads: true,
            writes: true,
            byte_addresses: true,
            weight: "cycles of latency".into(),
            ..SamplerInfo::default()
        }
    }

    fn harvest(&mut self, _code: &mut dyn CodeBytes, to: &mut Vec<Found>) -> Harvest {
        if let Some(kernel) = self.events.iter().find_map(Attached::kernel_clock) {
            self.ahead_ns = Some(clock::now_ns().wrapping_sub(kernel));
        }
        let ahead = self.ahead_ns.unwrap_or(0);
        let (kind, mut harvest) = (self.kind, Harvest::default());
        for (number, event) in self.events.iter_mut().enumerate() {
            harvest += event.harvest(|s, harvest| match found(kind, number, s) {
                Some(one) => to.push(Found { time_ns: one.time_ns.wrapping_add(ahead), ..one }),
                None => harvest.without_address += 1,
            });
            if kind == Kind::Spe {
                let now = clock::now_ns();
                event.harvest_aux(|tid, packets| {
                    for op in spe::operations(packets) {
                        harvest.records += 1;
                        // SPE's own time is the system counter's; the harvest's is near enough for a picture.
                        match op.found(Found { time_ns: now, tid, ..Found::default() }) {
                            Some(one) => to.push(one),
                            None => harvest.without_address += 1,
                        }
                    }
                });
            }
        }
        harvest
    }

    fn events(&self) -> &[Attached] {
        &self.events
    }

    fn events_mut(&mut self) -> &mut [Attached] {
        &mut self.events
    }

    fn set_period(&mut self, period: u64) {
        self.events.iter_mut().for_each(|event| event.set_period(period.max(16) & !15));
    }

    fn jitter(&mut self, factor: f64) {
        if self.kind == Kind::Pebs {
            self.events.iter().for_each(|event| event.jitter(factor));
        }
    }

    fn seconds_a_sample(&self) -> f64 {
        // The paper: 20 thousand cycles for an interrupt of some 40 records at 1.4 GHz.
        3.5e-7
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::{Record, record};

    /// A record of a load as Skylake's PEBS gives it through Linux: 8 bytes of head, then ip, pid and tid, time, address,
    /// weight, data source (a load that hit the third cache), physical address.
    const LOAD: [u8; 64] = [
        9, 0, 0, 0, 2, 0x40, 64, 0, // PERF_RECORD_SAMPLE, user mode and exact ip, 64 bytes
        0x5a, 0x13, 0x40, 0, 0, 0, 0, 0, // ip 0x40135a
        0xd2, 4, 0, 0, 0xd3, 4, 0, 0, // pid 1234, tid 1235
        0x15, 0xcd, 0x5b, 7, 0, 0, 0, 0, // time 123456789
        0x40, 0x71, 0x5f, 0xf7, 0xff, 0x7f, 0, 0, // address 0x7ffff75f7140
        57, 0, 0, 0, 0, 0, 0, 0, // 57 cycles
        0x42, 0x08, 0x10, 0x18, 0, 0, 0, 0, // op load; level 3, hit
        0x40, 0x71, 0x9a, 0x3b, 1, 0, 0, 0, // physical 0x13b9a7140
    ];

    #[test]
    fn a_pebs_load_is_decoded_byte_for_byte() {
        let layout = Layout {
            sample_type: u64::from(FIELDS | sys::PERF_SAMPLE_PHYS_ADDR),
            registers: 0,
            stack_bytes: 0,
        };
        let all: Vec<_> = record::records(&LOAD, layout).collect();
        let [Record::Sample(sample)] = &all[..] else { panic!("{all:?}") };
        let want = Found {
            time_ns: 123_456_789,
            pid: 1234,
            tid: 1235,
            ip: 0x40135a,
            address: 0x7fff_f75f_7140,
            access: Access::Read,
            weight: 57,
            source: 0x1810_0842,
            physical: 0x1_3b9a_7140,
            paging: false,
        };
        assert_eq!(found(Kind::Pebs, 0, sample), Some(want));
        // Records of stores on older processors do not say that they are stores; their event does.
        let store = Sample { source: 0, ..*sample };
        assert_eq!(found(Kind::Pebs, 1, &store).map(|f| f.access), Some(Access::Write));
        assert_eq!(found(Kind::Pebs, 0, &Sample { address: 0, ..*sample }), None);
    }
}
