//! Events of a profile beside the samples: workers, mappings, blocks, regions, wake-ups.
//!
//! Each event is framed by its length, so that a reader passes over kinds that it does not know. Times are nanoseconds since
//! the record's start. A *space* is an address space, named by its process (workers of atoll's runtime are in the space of
//! their program).

use serde::{Deserialize, Serialize};

use super::varint;

/// The reason why samples or marks are missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Loss {
    /// The kernel's or the runtime's buffer was full.
    Full,
    /// The kernel throttled the event.
    Throttled,
    /// The record's own bound was reached.
    Bound,
}

/// An event of a profile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// A worker came; its number in samples is the number of workers before it.
    Worker {
        /// The time, in nanoseconds since the record's start.
        time_ns: u64,
        /// The address space.
        space: u32,
        /// The process.
        pid: u32,
        /// The thread.
        tid: u32,
        /// The worker's number in the team; `u32::MAX`: not known.
        number: u32,
        /// The node that the worker is on.
        node: u32,
        /// The name.
        name: String,
    },
    /// A worker ended.
    WorkerEnd {
        /// The time, in nanoseconds since the record's start.
        time_ns: u64,
        /// The worker's number in samples.
        worker: u32,
    },
    /// The space was emptied, and another program is in it now.
    Exec {
        /// The time, in nanoseconds since the record's start.
        time_ns: u64,
        /// The address space.
        space: u32,
        /// The program's name.
        name: String,
    },
    /// A process made another, which begins with the same memory.
    Fork {
        /// The time, in nanoseconds since the record's start.
        time_ns: u64,
        /// The new address space.
        space: u32,
        /// The space whose memory it begins with.
        parent: u32,
    },
    /// Memory was mapped.
    Map {
        /// The time, in nanoseconds since the record's start.
        time_ns: u64,
        /// The address space.
        space: u32,
        /// The first address.
        start: u64,
        /// The number of bytes.
        bytes: u64,
        /// The offset in the file.
        offset: u64,
        /// The file, or the kernel's name of the mapping (`[stack]`, `//anon`).
        path: String,
        /// Whether it is code.
        code: bool,
    },
    /// Memory was unmapped.
    Unmap {
        /// The time, in nanoseconds since the record's start.
        time_ns: u64,
        /// The address space.
        space: u32,
        /// The first address.
        start: u64,
        /// The number of bytes.
        bytes: u64,
    },
    /// A large block was allocated.
    Block {
        /// The time, in nanoseconds since the record's start.
        time_ns: u64,
        /// The address space.
        space: u32,
        /// The first address.
        start: u64,
        /// The number of bytes.
        bytes: u64,
        /// An address within the call that allocated it; 0: not known.
        site: u64,
    },
    /// A large block was freed.
    Free {
        /// The time, in nanoseconds since the record's start.
        time_ns: u64,
        /// The address space.
        space: u32,
        /// The first address.
        start: u64,
    },
    /// The first worker entered a parallel region.
    RegionBegin {
        /// The time, in nanoseconds since the record's start.
        time_ns: u64,
        /// The address space.
        space: u32,
        /// The outlined function.
        function: u64,
    },
    /// The first worker left the region.
    RegionEnd {
        /// The time, in nanoseconds since the record's start.
        time_ns: u64,
        /// The address space.
        space: u32,
    },
    /// The harvester woke up and found something.
    Wakeup {
        /// The time, in nanoseconds since the record's start.
        time_ns: u64,
        /// The sampler.
        sampler: u32,
        /// The number of records found.
        records: u64,
        /// The number of bytes of these.
        bytes: u64,
    },
    /// A sampler's period was changed.
    Period {
        /// The time, in nanoseconds since the record's start.
        time_ns: u64,
        /// The sampler.
        sampler: u32,
        /// The new period.
        period: u64,
    },
    /// Samples are missing.
    Lost {
        /// The time at which the loss was noticed.
        time_ns: u64,
        /// The sampler; `u32::MAX`: marks.
        sampler: u32,
        /// The number of samples that are missing.
        samples: u64,
        /// The reason.
        cause: Loss,
    },
    /// A worker's number in the team became known.
    Number {
        /// The time, in nanoseconds since the record's start.
        time_ns: u64,
        /// The worker's number in samples.
        worker: u32,
        /// The worker's number in the team.
        number: u32,
    },
}

impl Event {
    /// Returns the event's time, in nanoseconds since the record's start.
    pub fn time_ns(&self) -> u64 {
        match *self {
            Self::Worker { time_ns, .. }
            | Self::WorkerEnd { time_ns, .. }
            | Self::Exec { time_ns, .. }
            | Self::Fork { time_ns, .. }
            | Self::Map { time_ns, .. }
            | Self::Unmap { time_ns, .. }
            | Self::Block { time_ns, .. }
            | Self::Free { time_ns, .. }
            | Self::RegionBegin { time_ns, .. }
            | Self::RegionEnd { time_ns, .. }
            | Self::Wakeup { time_ns, .. }
            | Self::Period { time_ns, .. }
            | Self::Lost { time_ns, .. }
            | Self::Number { time_ns, .. } => time_ns,
        }
    }

    /// Appends the event with its frame.
    pub fn encode(&self, to: &mut Vec<u8>) {
        // Serialising to a vector cannot fail: no field is a map or a sequence of unknown length.
        let Ok(bytes) = postcard::to_stdvec(self) else { return };
        varint::put(to, bytes.len() as u64);
        to.extend_from_slice(&bytes);
    }
}

/// The content of a decoded chunk.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Decoded {
    /// The events.
    pub events: Vec<Event>,
    /// The number of events of kinds not known here.
    pub unknown: u64,
}

/// Decodes a chunk's events; returns `None` where the frames do not fit together.
pub fn decode(mut bytes: &[u8]) -> Option<Decoded> {
    let mut decoded = Decoded::default();
    while !bytes.is_empty() {
        let len = usize::try_from(varint::take(&mut bytes)?).ok()?;
        let (frame, rest) = bytes.split_at_checked(len)?;
        bytes = rest;
        match postcard::from_bytes(frame) {
            Ok(event) => decoded.events.push(event),
            Err(_) => decoded.unknown += 1,
        }
    }
    Some(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn events_come_back_and_unknown_kinds_are_passed_over() {
        let events = [
            Event::Worker { time_ns: 1, space: 7, pid: 7, tid: 8, number: 0, node: 0, name: "cg".into() },
            Event::Block { time_ns: 2, space: 7, start: 1 << 40, bytes: 1 << 20, site: 0x5555 },
            Event::Free { time_ns: 9, space: 7, start: 1 << 40 },
        ];
        let mut bytes = Vec::new();
        events[0].encode(&mut bytes);
        bytes.extend_from_slice(&[3, 0xfe, 1, 2]);
        events[1].encode(&mut bytes);
        events[2].encode(&mut bytes);
        assert_eq!(decode(&bytes), Some(Decoded { events: events.to_vec(), unknown: 1 }));
        assert_eq!(decode(&bytes[..bytes.len() - 1]), None);
    }

    proptest! {
        #[test]
        fn any_bytes_end_in_events_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = decode(&bytes);
        }
    }
}
