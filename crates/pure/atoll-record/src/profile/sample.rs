//! A sample, and the form of a chunk of samples on disk.
//!
//! `writer` makes chunks and `reader` takes them apart; both compress or decompress what is encoded here. Each chunk begins
//! anew, so chunks can be decoded apart. Each chunk has samples of one sampler.

use super::header::Access;
use super::varint;

/// An access that a sampler saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sample {
    /// The time, in nanoseconds since the record's start.
    pub time_ns: u64,
    /// The address touched.
    pub address: u64,
    /// The address of the instruction that touched it; 0: not known.
    pub ip: u64,
    /// The worker: an index of [`Profile::workers`](super::Profile::workers).
    pub worker: u32,
    /// Whether it read or wrote.
    pub access: Access,
    /// The sampler's weight of it ([`SamplerInfo::weight`](super::SamplerInfo::weight)); 0: none.
    pub weight: u64,
    /// The source of the data, in the kernel's encoding (`perf_mem_data_src`). 0: not known. [`PAGING`]: the sample was taken
    /// while the data came from far memory.
    pub source: u64,
    /// The physical address; 0: not known.
    pub physical: u64,
}

/// The source of a sample that was taken while atoll's runtime resolved a fault: the access at this address, by this
/// instruction, faulted. The kernel's encoding never has this bit.
pub const PAGING: u64 = 1 << 63;

impl Sample {
    /// Whether the sample was taken while the access faulted.
    pub fn is_paging(&self) -> bool {
        self.source == PAGING
    }
}

/// The most samples of a chunk.
pub const MAX_SAMPLES: u32 = 1 << 20;
/// The most bytes that a chunk decompresses to.
pub const MAX_BYTES: usize = 64 << 20;

const COLUMNS: usize = 8;

/// Encodes samples as bytes: eight columns, each with its length before it. Times, addresses, instructions and physical
/// addresses are steps from the one before; addresses are steps from the same worker's last (workers' numbers taken modulo 64).
pub fn encode(samples: &[Sample]) -> Vec<u8> {
    let mut columns: [Vec<u8>; COLUMNS] = Default::default();
    let (mut time, mut ip, mut physical, mut addresses) = (0, 0, 0, [0u64; 64]);
    for s in samples {
        varint::put_step(&mut columns[0], &mut time, s.time_ns);
        varint::put(&mut columns[1], u64::from(s.worker));
        varint::put_step(&mut columns[2], &mut addresses[s.worker as usize % 64], s.address);
        varint::put_step(&mut columns[3], &mut ip, s.ip);
        columns[4].push(match s.access {
            Access::Unknown => 0,
            Access::Read => 1,
            Access::Write => 2,
        });
        varint::put(&mut columns[5], s.weight);
        varint::put(&mut columns[6], s.source);
        varint::put_step(&mut columns[7], &mut physical, s.physical);
    }
    let mut bytes = Vec::with_capacity(columns.iter().map(|c| c.len() + 4).sum());
    for column in &columns {
        varint::put(&mut bytes, column.len() as u64);
        bytes.extend_from_slice(column);
    }
    bytes
}

/// Decodes what [`encode`] made; returns `None` where the bytes are no such samples.
pub fn decode(mut bytes: &[u8], count: u32) -> Option<Vec<Sample>> {
    if count > MAX_SAMPLES || count as usize > bytes.len() {
        return None;
    }
    let mut columns = [&[][..]; COLUMNS];
    for column in &mut columns {
        let len = usize::try_from(varint::take(&mut bytes)?).ok()?;
        let (head, rest) = bytes.split_at_checked(len)?;
        (*column, bytes) = (head, rest);
    }
    let (mut time, mut ip, mut physical, mut addresses) = (0, 0, 0, [0u64; 64]);
    let mut samples = Vec::with_capacity(count as usize);
    let [times, workers, at, ips, accesses, weights, sources, physicals] = &mut columns;
    for _ in 0..count {
        let time_ns = varint::take_step(times, &mut time)?;
        let worker = u32::try_from(varint::take(workers)?).ok()?;
        let address = varint::take_step(at, &mut addresses[worker as usize % 64])?;
        let ip = varint::take_step(ips, &mut ip)?;
        let (&access, rest) = accesses.split_first()?;
        *accesses = rest;
        let access = match access {
            0 => Access::Unknown,
            1 => Access::Read,
            2 => Access::Write,
            _ => return None,
        };
        let weight = varint::take(weights)?;
        let source = varint::take(sources)?;
        let physical = varint::take_step(physicals, &mut physical)?;
        samples.push(Sample { time_ns, address, ip, worker, access, weight, source, physical });
    }
    let over = bytes.is_empty() && columns.iter().all(|column| column.is_empty());
    over.then_some(samples)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) fn samples() -> impl Strategy<Value = Vec<Sample>> {
        let access = prop_oneof![Just(Access::Unknown), Just(Access::Read), Just(Access::Write)];
        let one = (any::<u64>(), any::<u64>(), any::<u64>(), 0u32..600, access, any::<u64>(), any::<u64>());
        let one = one.prop_map(|(time_ns, address, ip, worker, access, weight, source)| Sample {
            time_ns,
            address,
            ip,
            worker,
            access,
            weight,
            source,
            physical: address ^ ip,
        });
        proptest::collection::vec(one, 0..60)
    }

    proptest! {
        #[test]
        fn samples_come_back(samples in samples()) {
            let bytes = encode(&samples);
            prop_assert_eq!(decode(&bytes, samples.len() as u32), Some(samples));
        }

        #[test]
        fn any_bytes_end_in_samples_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..300), n in 0u32..200) {
            let _ = decode(&bytes, n);
        }

        #[test]
        fn changed_bytes_end_in_samples_or_none(samples in samples(), at in any::<usize>(), to in any::<u8>()) {
            let mut bytes = encode(&samples);
            let len = bytes.len();
            bytes[at % len] = to;
            let _ = decode(&bytes, samples.len() as u32);
        }
    }
}
