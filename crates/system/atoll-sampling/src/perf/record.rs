//! Decodes perf records, which the kernel puts into an event's buffer.
//!
//! Pure: bytes in, records out. The layout is that of `perf_event_open(2)`; fields come in the order of the bits of
//! `sample_type`. A record that is shorter than it should be decodes to [`Record::Unknown`].

use perf_event_open_sys::bindings as sys;

/// The fields that a record has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Layout {
    /// `PERF_SAMPLE_…` bits. Of those not named in [`Sample`], only ones that come behind all of these may be set.
    pub sample_type: u64,
    /// The mask of registers, if `PERF_SAMPLE_REGS_USER` is set.
    pub registers: u64,
    /// The number of bytes of the stack, if `PERF_SAMPLE_STACK_USER` is set.
    pub stack_bytes: u32,
}

/// The most registers that a layout may ask for.
pub const MAX_REGISTERS: usize = 32;

/// A sample; fields that the layout lacks are zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sample<'a> {
    /// The address of the sampled instruction.
    pub ip: u64,
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// The time, in nanoseconds.
    pub time: u64,
    /// The address of the data.
    pub address: u64,
    /// The processor.
    pub cpu: u32,
    /// The number of events since the last sample.
    pub period: u64,
    /// The raw data that a PMU writes.
    pub raw: &'a [u8],
    /// Registers, little-endian words in the order of their bits; empty where there are none (a kernel thread).
    pub registers: &'a [u8],
    /// The bytes of the stack from the stack pointer on.
    pub stack: &'a [u8],
    /// The weight: for `PERF_SAMPLE_WEIGHT` the whole value, for `PERF_SAMPLE_WEIGHT_STRUCT` the lower 32 bits (the latency).
    pub weight: u64,
    /// `perf_mem_data_src`.
    pub source: u64,
    /// The physical address.
    pub physical: u64,
}

/// One record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Record<'a> {
    /// A sample.
    Sample(Sample<'a>),
    /// Memory was mapped.
    Map {
        /// The process.
        pid: u32,
        /// The first address.
        start: u64,
        /// The number of bytes.
        bytes: u64,
        /// The offset in the file.
        offset: u64,
        /// Whether the memory is executable.
        code: bool,
        /// The file, or the kernel's name of the mapping.
        path: &'a [u8],
        /// The time.
        time: u64,
    },
    /// A thread got a name.
    Name {
        /// The process.
        pid: u32,
        /// The thread.
        tid: u32,
        /// Whether the thread executed another program.
        exec: bool,
        /// The name.
        name: &'a [u8],
        /// The time.
        time: u64,
    },
    /// A thread or process was made.
    Fork {
        /// The process.
        pid: u32,
        /// Its parent.
        parent: u32,
        /// The thread.
        tid: u32,
        /// The time.
        time: u64,
    },
    /// A thread or process ended.
    Exit {
        /// The process.
        pid: u32,
        /// The thread.
        tid: u32,
        /// The time.
        time: u64,
    },
    /// This number of records was lost because the buffer was full.
    Lost(u64),
    /// The kernel stopped the event until the next tick.
    Throttle,
    /// Data was added to the second buffer.
    Aux {
        /// The offset of the data.
        offset: u64,
        /// The number of bytes.
        bytes: u64,
        /// `PERF_AUX_FLAG_…`.
        flags: u64,
        /// The time.
        time: u64,
    },
    /// A record of any other type.
    Unknown(u32),
}

struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn word(&mut self) -> Option<u64> {
        let (head, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*head))
    }

    fn pair(&mut self) -> Option<(u32, u32)> {
        self.word().map(|word| (word as u32, (word >> 32) as u32))
    }

    fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(head)
    }
}

/// Returns the records in `bytes`, one after the other. Ends where a record's length makes no sense.
pub fn records(bytes: &[u8], layout: Layout) -> impl Iterator<Item = Record<'_>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let (head, _) = rest.split_first_chunk::<8>()?;
        let kind = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
        let misc = u16::from_le_bytes([head[4], head[5]]);
        let size = usize::from(u16::from_le_bytes([head[6], head[7]]));
        if size < 8 {
            return None;
        }
        let (record, after) = rest.split_at_checked(size)?;
        rest = after;
        Some(decode(kind, misc, &record[8..], layout).unwrap_or(Record::Unknown(kind)))
    })
}

fn decode(kind: u32, misc: u16, body: &[u8], layout: Layout) -> Option<Record<'_>> {
    let mut f = Fields(body);
    Some(match kind {
        sys::PERF_RECORD_SAMPLE => Record::Sample(sample(&mut f, layout)?),
        sys::PERF_RECORD_MMAP2 => {
            let (pid, _) = f.pair()?;
            let (start, bytes, offset) = (f.word()?, f.word()?, f.word()?);
            // Device and inode, or a build id.
            f.bytes(24)?;
            let (protection, _) = f.pair()?;
            let code = protection & libc::PROT_EXEC as u32 != 0;
            Record::Map { pid, start, bytes, offset, code, path: text(f.0), time: trailer(body, layout)? }
        }
        sys::PERF_RECORD_COMM => {
            let (pid, tid) = f.pair()?;
            let exec = u32::from(misc) & sys::PERF_RECORD_MISC_COMM_EXEC != 0;
            Record::Name { pid, tid, exec, name: text(f.0), time: trailer(body, layout)? }
        }
        sys::PERF_RECORD_FORK | sys::PERF_RECORD_EXIT => {
            let (pid, parent) = f.pair()?;
            let (tid, _) = f.pair()?;
            let time = f.word()?;
            match kind {
                sys::PERF_RECORD_FORK => Record::Fork { pid, parent, tid, time },
                _ => Record::Exit { pid, tid, time },
            }
        }
        sys::PERF_RECORD_LOST => {
            f.word()?;
            Record::Lost(f.word()?)
        }
        sys::PERF_RECORD_LOST_SAMPLES => Record::Lost(f.word()?),
        sys::PERF_RECORD_THROTTLE => Record::Throttle,
        sys::PERF_RECORD_AUX => Record::Aux {
            offset: f.word()?,
            bytes: f.word()?,
            flags: f.word()?,
            time: trailer(body, layout)?,
        },
        _ => Record::Unknown(kind),
    })
}

/// Returns the text up to its NUL.
fn text(bytes: &[u8]) -> &[u8] {
    bytes.split(|&b| b == 0).next().unwrap_or_default()
}

/// Returns the time from the fields behind records that are no samples (`sample_id_all`); 0 where the layout has none.
fn trailer(body: &[u8], layout: Layout) -> Option<u64> {
    let has = |bit: u32| usize::from(layout.sample_type & u64::from(bit) != 0);
    let after = has(sys::PERF_SAMPLE_ID)
        + has(sys::PERF_SAMPLE_STREAM_ID)
        + has(sys::PERF_SAMPLE_CPU)
        + has(sys::PERF_SAMPLE_IDENTIFIER);
    if has(sys::PERF_SAMPLE_TIME) == 0 {
        return Some(0);
    }
    let at = body.len().checked_sub(8 * (after + 1))?;
    body.get(at..).map(Fields)?.word()
}

fn sample<'a>(f: &mut Fields<'a>, layout: Layout) -> Option<Sample<'a>> {
    let has = |bit: u32| layout.sample_type & u64::from(bit) != 0;
    let mut s = Sample::default();
    if has(sys::PERF_SAMPLE_IDENTIFIER) {
        f.word()?;
    }
    if has(sys::PERF_SAMPLE_IP) {
        s.ip = f.word()?;
    }
    if has(sys::PERF_SAMPLE_TID) {
        (s.pid, s.tid) = f.pair()?;
    }
    if has(sys::PERF_SAMPLE_TIME) {
        s.time = f.word()?;
    }
    if has(sys::PERF_SAMPLE_ADDR) {
        s.address = f.word()?;
    }
    if has(sys::PERF_SAMPLE_ID) {
        f.word()?;
    }
    if has(sys::PERF_SAMPLE_STREAM_ID) {
        f.word()?;
    }
    if has(sys::PERF_SAMPLE_CPU) {
        s.cpu = f.pair()?.0;
    }
    if has(sys::PERF_SAMPLE_PERIOD) {
        s.period = f.word()?;
    }
    if has(sys::PERF_SAMPLE_RAW) {
        let (head, rest) = f.0.split_first_chunk::<4>()?;
        f.0 = rest;
        s.raw = f.bytes(u32::from_le_bytes(*head) as usize)?;
    }
    if has(sys::PERF_SAMPLE_REGS_USER) && f.word()? != 0 {
        s.registers = f.bytes(8 * layout.registers.count_ones() as usize)?;
    }
    if has(sys::PERF_SAMPLE_STACK_USER) {
        let room = usize::try_from(f.word()?).ok()?;
        if room > 0 {
            let stack = f.bytes(room)?;
            let filled = usize::try_from(f.word()?).ok()?;
            s.stack = stack.get(..filled)?;
        }
    }
    if has(sys::PERF_SAMPLE_WEIGHT_STRUCT) {
        s.weight = f.word()? & u64::from(u32::MAX);
    } else if has(sys::PERF_SAMPLE_WEIGHT) {
        s.weight = f.word()?;
    }
    if has(sys::PERF_SAMPLE_DATA_SRC) {
        s.source = f.word()?;
    }
    if has(sys::PERF_SAMPLE_PHYS_ADDR) {
        s.physical = f.word()?;
    }
    Some(s)
}

impl Sample<'_> {
    /// Returns the registers as numbers, in the order of their bits.
    pub fn registers(&self) -> impl Iterator<Item = u64> + '_ {
        self.registers.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record(kind: u32, misc: u16, words: &[u64]) -> Vec<u8> {
        let size = 8 + 8 * words.len();
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&kind.to_le_bytes());
        bytes.extend_from_slice(&misc.to_le_bytes());
        bytes.extend_from_slice(&(size as u16).to_le_bytes());
        words.iter().for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
        bytes
    }

    const SIDE: Layout = Layout {
        sample_type: (sys::PERF_SAMPLE_TID | sys::PERF_SAMPLE_TIME | sys::PERF_SAMPLE_CPU) as u64,
        registers: 0,
        stack_bytes: 0,
    };

    #[test]
    fn sideband_records_have_their_times() {
        let mut bytes = record(
            sys::PERF_RECORD_MMAP2,
            0,
            &[
                7 | 8 << 32,
                0x1000,
                0x2000,
                0x3000,
                0,
                0,
                0,
                u64::from(libc::PROT_EXEC as u32),
                u64::from_le_bytes(*b"/bin/a\0\0"),
                7 | 8 << 32,
                99,
                1,
            ],
        );
        bytes.extend(record(
            sys::PERF_RECORD_COMM,
            sys::PERF_RECORD_MISC_COMM_EXEC as u16,
            &[7 | 7 << 32, u64::from_le_bytes(*b"app\0\0\0\0\0"), 7 | 7 << 32, 100, 0],
        ));
        bytes.extend(record(sys::PERF_RECORD_FORK, 0, &[7 | 6 << 32, 9 | 6 << 32, 101, 7 | 7 << 32, 101, 0]));
        bytes.extend(record(sys::PERF_RECORD_LOST, 0, &[1, 5, 0, 0, 0]));
        let all: Vec<_> = records(&bytes, SIDE).collect();
        assert_eq!(
            all,
            [
                Record::Map {
                    pid: 7,
                    start: 0x1000,
                    bytes: 0x2000,
                    offset: 0x3000,
                    code: true,
                    path: b"/bin/a",
                    time: 99
                },
                Record::Name { pid: 7, tid: 7, exec: true, name: b"app", time: 100 },
                Record::Fork { pid: 7, parent: 6, tid: 9, time: 101 },
                Record::Lost(5),
            ]
        );
    }

    proptest! {
        #[test]
        fn any_bytes_end(bytes in proptest::collection::vec(any::<u8>(), 0..400), sample_type in any::<u64>()) {
            let layout = Layout { sample_type, registers: 0xff01ff, stack_bytes: 64 };
            prop_assert!(records(&bytes, layout).count() <= bytes.len());
        }
    }
}
