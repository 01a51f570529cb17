//! Packing pages by LZ4 for their way to lenders and back, where the link takes longer for a page than LZ4.
//!
//! `keep` asks whether a page is worth a try and packs it; `asking` sends the packed bytes and unpacks what comes. A packed page lies on
//! its lenders as it was sent, at the beginning of its place.
//!
//! Fault path: no allocation, no lock the program could hold, no arena access, no panic.

use super::held::PARTS;
use crate::far::FarError;
use crate::far::compressed::Codec;
use crate::far::lz4::Lz4;

/// Bytes before the packed ones that say how many these are.
const HEAD: usize = 4;
/// One page in this number is tried however the last ones did, as data and links change.
const PROBE: u32 = 1024;

/// Bytes of a lane's scratch memory: LZ4's state, and a page's room for each page of a round.
pub(super) fn scratch_bytes(page_size: usize) -> usize {
    state_bytes() + super::pages_of_round(page_size) * page_size
}

fn state_bytes() -> usize {
    // The size of the units makes no difference.
    Lz4::scratch_bytes(0).next_multiple_of(4096)
}

/// A lane's memory for packed pages.
#[derive(Clone, Copy)]
pub(super) struct Packed {
    memory: *mut u8,
    page_size: usize,
}

impl Packed {
    /// # Safety
    /// The memory has [`scratch_bytes`] bytes, aligned to 4096, which nobody else uses as long as the value is used.
    pub(super) unsafe fn at(memory: *mut u8, page_size: usize) -> Packed {
        Packed { memory, page_size }
    }

    /// Readies LZ4's state, before pages are packed for the first time.
    ///
    /// # Errors
    /// `Unavailable` if LZ4 rejects the memory.
    pub(super) fn prepare(&self) -> Result<(), FarError> {
        // SAFETY: the state's bytes come first in the memory.
        unsafe { Lz4::prepare(self.memory, self.page_size as u32) }
    }

    /// The room of the page at `at` in the round.
    pub(super) fn slot(&self, at: usize) -> *mut u8 {
        let at = at % super::pages_of_round(self.page_size);
        // SAFETY: inside the memory.
        unsafe { self.memory.add(state_bytes() + at * self.page_size) }
    }

    /// Packs a page into the room at `at`: how many parts of a page it takes there, of [`PARTS`]; `None` where it does not shrink by an
    /// eighth.
    ///
    /// # Safety
    /// The state is ready, and the page is valid for reads.
    pub(super) unsafe fn pack(&self, at: usize, page: *const u8) -> Option<u8> {
        let (slot, room) = (self.slot(at), self.page_size / 8 * 7 - HEAD);
        // SAFETY: the caller's promise; the room behind the head lies in the slot.
        let bytes =
            unsafe { Lz4::compress(self.memory, page, self.page_size as u32, slot.add(HEAD), room as u32) }?;
        // SAFETY: the slot begins with the head.
        unsafe { slot.cast::<[u8; HEAD]>().write(bytes.to_le_bytes()) };
        let part = self.page_size / PARTS as usize;
        Some((bytes as usize + HEAD).div_ceil(part) as u8)
    }

    /// Unpacks what came into the room at `at`, so many parts of a page; `false` where these bytes are no page.
    ///
    /// # Safety
    /// The page is valid for writes.
    pub(super) unsafe fn unpack(&self, at: usize, parts: u8, page: *mut u8) -> bool {
        let slot = self.slot(at);
        // SAFETY: the slot begins with the head.
        let bytes = u32::from_le_bytes(unsafe { slot.cast::<[u8; HEAD]>().read() });
        let came = usize::from(parts) * (self.page_size / PARTS as usize);
        // SAFETY: as many bytes lie in the slot, and the page is valid by the caller's promise.
        bytes as usize <= came.saturating_sub(HEAD)
            && unsafe { Lz4::decompress(self.memory, slot.add(HEAD), bytes, page, self.page_size as u32) }
    }
}

/// What a lane knows of packing.
#[derive(Clone, Copy)]
pub(super) struct Packing {
    /// Whether LZ4's state is ready.
    is_ready: bool,
    /// Nanoseconds that packing a page takes, the least lately; 0: not known.
    ns: u64,
    /// Parts of [`PARTS`] that a page takes packed, lately, in sixteenths.
    taken: u32,
    /// Pages since the last try.
    since: u32,
}

impl Packing {
    pub(super) const NEW: Packing = Packing { is_ready: false, ns: 0, taken: PARTS * 8, since: 0 };

    /// Whether to pack the next page, which takes so many nanoseconds on its way as it is; 0: not known. It goes that way twice, and
    /// unpacking takes a quarter of the time of packing.
    pub(super) fn is_worth_it(&mut self, wire_ns: u64) -> bool {
        self.since += 1;
        let saved = wire_ns.saturating_mul(u64::from(PARTS * 16 - self.taken)) / u64::from(PARTS * 8);
        wire_ns > 0 && (saved > self.ns + self.ns / 4 || self.since >= PROBE)
    }

    /// Packs a page, with what it takes noted: its parts, [`PARTS`] for one that does not shrink.
    ///
    /// # Safety
    /// The page is valid for reads.
    pub(super) unsafe fn pack(&mut self, packed: &Packed, at: usize, page: *const u8) -> u8 {
        if !self.is_ready {
            if packed.prepare().is_err() {
                return PARTS as u8;
            }
            self.is_ready = true;
        }
        let began = super::connection::now();
        // SAFETY: the state is ready, and the page is valid by the caller's promise.
        let parts = unsafe { packed.pack(at, page) }.unwrap_or(PARTS as u8);
        let ns = super::connection::now().saturating_sub(began).max(1);
        // The least counts, as others may have the processor meanwhile; it is forgotten by and by.
        self.ns = if self.ns == 0 { ns } else { ns.min(self.ns + self.ns / 16 + 1) };
        self.taken = (self.taken * 7 + u32::from(parts) * 16).div_ceil(8);
        self.since = 0;
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that do not shrink, as far as `random`, and equal ones behind.
    fn page(random: usize) -> Vec<u8> {
        let mut state = 1_u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as u8
        };
        (0..4096).map(|at| if at < random { next() } else { 7 }).collect()
    }

    /// Memory for one round of small pages.
    fn packed() -> Packed {
        let layout = std::alloc::Layout::from_size_align(scratch_bytes(4096), 4096).unwrap();
        // SAFETY: the layout has bytes; the memory is leaked.
        let packed = unsafe { Packed::at(std::alloc::alloc_zeroed(layout), 4096) };
        packed.prepare().unwrap();
        packed
    }

    #[test]
    fn a_page_comes_out_as_it_went_in_or_not_at_all() {
        let packed = packed();
        // SAFETY: a page's bytes.
        assert_eq!(unsafe { packed.pack(5, page(3800).as_ptr()) }, None);
        for random in [0, 1, 200, 3000] {
            let page = page(random);
            // SAFETY: as above.
            let parts = unsafe { packed.pack(5, page.as_ptr()) }.unwrap();
            assert!(usize::from(parts) * 64 >= random && u32::from(parts) < PARTS);
            let mut out = vec![0_u8; 4096];
            // SAFETY: as above.
            assert!(unsafe { packed.unpack(5, parts, out.as_mut_ptr()) });
            assert_eq!(out, page);
            // A lender that gives back other bytes.
            for (at, byte) in [(0, 0xff), (1, 0xff), (3, 0x80), (4, 0xff)] {
                // SAFETY: inside the slot.
                let place = unsafe { &mut *packed.slot(5).add(at) };
                let was = std::mem::replace(place, byte);
                // SAFETY: as above.
                let whole = unsafe { packed.unpack(5, parts, out.as_mut_ptr()) };
                assert!(!whole || out != page || was == byte);
                // SAFETY: as above.
                unsafe { packed.slot(5).add(at).write(was) };
            }
        }
    }

    #[test]
    fn a_fast_link_packs_nothing_and_a_slow_one_what_shrinks() {
        let packed = packed();
        let (flat, mixed) = (page(0), page(4096));
        let tries = |wire_ns: u64, page: &[u8]| {
            let mut packing = Packing::NEW;
            // SAFETY: a page's bytes.
            let mut pack =
                || unsafe { packing.is_worth_it(wire_ns).then(|| packing.pack(&packed, 0, page.as_ptr())) };
            (0..2000).filter(|_| pack().is_some()).count()
        };
        assert_eq!(tries(0, &flat), 0, "nothing is known of the link");
        assert!(tries(1, &flat) <= 4);
        assert_eq!(tries(10_000_000, &flat), 2000);
        assert!(tries(10_000_000, &mixed) <= 60);
    }
}
