//! What happened beside the samples: workers, mappings, blocks, regions, wake-ups.
//!
//! Each event is framed by its length, so that a reader passes over kinds that it does not know. Times are nanoseconds since
//! the record's start; a *space* is an address space, named by the process whose it is (workers of atoll's runtime are in
//! the space of their program).

use serde::{Deserialize, Serialize};

use super::varint;

/// Why samples or marks are missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Loss {
    /// The kernel's or the runtime's buffer was full.
    Full,
    /// The kernel throttled the event.
    Throttled,
    /// The record's own bound was reached.
    Bound,
}

/// One event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// A worker came; its number in samples is how many came before it.
    Worker {
        /// When.
        time_ns: u64,
        /// Whose address space.
        space: u32,
        /// Its process.
        pid: u32,
        /// Its thread.
        tid: u32,
        /// Its number in the team; `u32::MAX`: not known.
        number: u32,
        /// The node it is on.
        node: u32,
        /// Its name.
        name: String,
    },
    /// A worker ended.
    WorkerEnd {
        /// When.
        time_ns: u64,
        /// Its number in samples.
        worker: u32,
    },
    /// The space was emptied: another program is in it now.
    Exec {
        /// When.
        time_ns: u64,
        /// Which.
        space: u32,
        /// The program's name.
        name: String,
    },
    /// A process made another, which begins with the same memory.
    Fork {
        /// When.
        time_ns: u64,
        /// The new one.
        space: u32,
        /// Whose memory it begins with.
        parent: u32,
    },
    /// Memory was mapped.
    Map {
        /// When.
        time_ns: u64,
        /// In which space.
        space: u32,
        /// First address.
        start: u64,
        /// How long.
        bytes: u64,
        /// Where in the file.
        offset: u64,
        /// The file, or what the kernel calls it (`[stack]`, `//anon`).
        path: String,
        /// Is it code?
        code: bool,
    },
    /// Memory was unmapped.
    Unmap {
        /// When.
        time_ns: u64,
        /// In which space.
        space: u32,
        /// First address.
        start: u64,
        /// How long.
        bytes: u64,
    },
    /// A large block was allocated.
    Block {
        /// When.
        time_ns: u64,
        /// In which space.
        space: u32,
        /// First address.
        start: u64,
        /// How long.
        bytes: u64,
        /// An address within the call that allocated it; 0: not known.
        site: u64,
    },
    /// A large block was freed.
    Free {
        /// When.
        time_ns: u64,
        /// In which space.
        space: u32,
        /// First address.
        start: u64,
    },
    /// The first worker entered a parallel region.
    RegionBegin {
        /// When.
        time_ns: u64,
        /// In which space.
        space: u32,
        /// The outlined function.
        function: u64,
    },
    /// The first worker left it.
    RegionEnd {
        /// When.
        time_ns: u64,
        /// In which space.
        space: u32,
    },
    /// The harvester woke up and found something.
    Wakeup {
        /// When.
        time_ns: u64,
        /// Of which sampler.
        sampler: u32,
        /// Records it found.
        records: u64,
        /// Their bytes.
        bytes: u64,
    },
    /// A sampler's period was changed.
    Period {
        /// When.
        time_ns: u64,
        /// Which sampler's.
        sampler: u32,
        /// The new one.
        period: u64,
    },
    /// Samples are missing.
    Lost {
        /// When it was noticed.
        time_ns: u64,
        /// Which sampler's; `u32::MAX`: marks.
        sampler: u32,
        /// How many.
        samples: u64,
        /// Why.
        cause: Loss,
    },
    /// A worker's number in the team is known.
    Number {
        /// When.
        time_ns: u64,
        /// Its number in samples.
        worker: u32,
        /// Its number in the team.
        number: u32,
    },
}

impl Event {
    /// When.
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

    /// Appends it, framed.
    pub fn encode(&self, to: &mut Vec<u8>) {
        // Serialising to a vector cannot fail: no field is a map or a sequence of unknown length.
        let Ok(bytes) = postcard::to_stdvec(self) else { return };
        varint::put(to, bytes.len() as u64);
        to.extend_from_slice(&bytes);
    }
}

/// What a chunk decodes to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Decoded {
    /// The events.
    pub events: Vec<Event>,
    /// Events of kinds not known here.
    pub unknown: u64,
}

/// A chunk's events; `None` where the frames do not fit together.
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
