//! Encodes a chunk's events as bytes: one byte for a worker's step to a near-by page, a few for any other event.
//!
//! [`writer`](super::writer) compresses these bytes. Each chunk begins anew, so chunks can be decoded apart. A decoder takes
//! any bytes: it returns the events or the reason why the bytes hold none.

use super::event::Event;

/// The bit that says that an event is no access. An access has bit 0 clear; bit 1 says whether it writes, and the rest of the
/// varint is the step from the worker's last page. Any other event has bit 0 set and its code above.
const OTHER: u8 = 1;
const WRITE: u8 = 2;
/// The number of the step's bits in an access's first byte.
const STEP_BITS: u32 = 5;
const STEP_MASK: u64 = (1 << STEP_BITS) - 1;
const MORE: u8 = 0x80;

/// Codes of events that are no access, in bits 1 and up. The first code makes a worker the one that all further events belong
/// to.
mod code {
    pub(super) const WORKER: u8 = 0;
    pub(super) const COMPUTE: u8 = 1;
    pub(super) const REGION_BEGIN: u8 = 2;
    pub(super) const REGION_END: u8 = 3;
    pub(super) const BARRIER: u8 = 4;
    pub(super) const MAP: u8 = 5;
    pub(super) const UNMAP: u8 = 6;
}

/// The last page of each worker.
#[derive(Debug, Default)]
struct Pages(Vec<u64>);

impl Pages {
    fn at(&mut self, worker: u16) -> &mut u64 {
        let worker = usize::from(worker);
        if self.0.len() <= worker {
            self.0.resize(worker + 1, 0);
        }
        &mut self.0[worker]
    }
}

/// Encodes the events of a chunk.
#[derive(Debug, Default)]
pub struct Encoder {
    bytes: Vec<u8>,
    events: u32,
    worker: u16,
    pages: Pages,
}

impl Encoder {
    /// Returns the number of events since the chunk began.
    pub fn events(&self) -> u32 {
        self.events
    }

    /// Returns the bytes of these events.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Begins a new chunk.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.pages.0.clear();
        self.events = 0;
        self.worker = 0;
    }

    /// Adds an event.
    pub fn push(&mut self, event: &Event) {
        self.events += 1;
        if let Some(worker) = event.worker()
            && worker != self.worker
        {
            self.other(code::WORKER, u64::from(worker));
            self.worker = worker;
        }
        match *event {
            Event::Access { page, write, .. } => self.access(page, write),
            Event::Compute { instructions, .. } => self.other(code::COMPUTE, instructions),
            Event::RegionBegin { name, .. } => self.other(code::REGION_BEGIN, name),
            Event::RegionEnd { name, .. } => self.other(code::REGION_END, name),
            Event::Barrier { name, .. } => self.other(code::BARRIER, name),
            Event::Map { first, pages } => {
                self.other(code::MAP, first);
                self.number(pages);
            }
            Event::Unmap { first, pages } => {
                self.other(code::UNMAP, first);
                self.number(pages);
            }
        }
    }

    fn access(&mut self, page: u64, write: bool) {
        let last = self.pages.at(self.worker);
        let step = page.wrapping_sub(*last) as i64;
        *last = page;
        let step = ((step << 1) ^ (step >> 63)) as u64;
        let first = ((step & STEP_MASK) << 2) as u8 | if write { WRITE } else { 0 };
        let rest = step >> STEP_BITS;
        if rest == 0 {
            self.bytes.push(first);
        } else {
            self.bytes.push(first | MORE);
            self.number(rest);
        }
    }

    fn other(&mut self, code: u8, number: u64) {
        self.bytes.push(code << 1 | OTHER);
        self.number(number);
    }

    fn number(&mut self, mut number: u64) {
        while number >= u64::from(MORE) {
            self.bytes.push(number as u8 | MORE);
            number >>= 7;
        }
        self.bytes.push(number as u8);
    }
}

/// Decodes a chunk's bytes.
#[derive(Debug, Default)]
pub struct Decoder {
    pages: Pages,
}

impl Decoder {
    /// Appends the `events` events in `bytes` to `into`.
    ///
    /// # Errors
    /// Returns what is wrong with the bytes; `into` then holds the events before that.
    pub fn decode(&mut self, bytes: &[u8], events: u32, into: &mut Vec<Event>) -> Result<(), &'static str> {
        self.pages.0.clear();
        let mut from = Bytes { bytes, at: 0 };
        let (mut worker, mut last) = (0u16, 0u64);
        // Each event has at least one byte, so the bytes that are there bound what is reserved.
        into.reserve((events as usize).min(bytes.len()));
        for _ in 0..events {
            let mut first = from.byte()?;
            while first == code::WORKER << 1 | OTHER {
                *self.pages.at(worker) = last;
                worker =
                    u16::try_from(from.number()?).map_err(|_| "an event's worker is none there can be")?;
                last = *self.pages.at(worker);
                first = from.byte()?;
            }
            if first & OTHER == 0 {
                let mut step = u64::from(first >> 2) & STEP_MASK;
                if first & MORE != 0 {
                    let rest = from.number()?;
                    if rest > u64::MAX >> STEP_BITS {
                        return Err("an access's step is too long");
                    }
                    step |= rest << STEP_BITS;
                }
                last = last.wrapping_add((step >> 1) ^ (step & 1).wrapping_neg());
                into.push(Event::Access { worker, page: last, write: first & WRITE != 0 });
                continue;
            }
            let number = from.number()?;
            into.push(match first >> 1 {
                code::COMPUTE => Event::Compute { worker, instructions: number },
                code::REGION_BEGIN => Event::RegionBegin { worker, name: number },
                code::REGION_END => Event::RegionEnd { worker, name: number },
                code::BARRIER => Event::Barrier { worker, name: number },
                code::MAP => Event::Map { first: number, pages: from.number()? },
                code::UNMAP => Event::Unmap { first: number, pages: from.number()? },
                _ => return Err("an event has a code that this format does not know"),
            });
        }
        if from.at == bytes.len() { Ok(()) } else { Err("a chunk has bytes behind its last event") }
    }
}

struct Bytes<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Bytes<'_> {
    #[inline]
    fn byte(&mut self) -> Result<u8, &'static str> {
        let byte = *self.bytes.get(self.at).ok_or("a chunk ends in the middle of an event")?;
        self.at += 1;
        Ok(byte)
    }

    #[inline]
    fn number(&mut self) -> Result<u64, &'static str> {
        let first = self.byte()?;
        if first < MORE { Ok(u64::from(first)) } else { self.long(first) }
    }

    fn long(&mut self, first: u8) -> Result<u64, &'static str> {
        let mut number = u64::from(first & !MORE);
        for shift in (7..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & !MORE);
            if bits << shift >> shift != bits {
                break;
            }
            number |= bits << shift;
            if byte < MORE {
                return Ok(number);
            }
        }
        Err("a number is longer than 64 bits")
    }
}
