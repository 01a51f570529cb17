//! Far memory in memory, compressed: `lz4` and `zstd`.
//!
//! Fault path: no allocation, no lock the program could hold, no arena access, no panic.
//!
//! A page is stored as units of at most 64K, each on its own: scratch memory stays small. Each unit has a
//! word in a table: nothing, a repeated 8-byte pattern (zeros above all), or the location, length and kind
//! of its blob. Blobs lie in size-class slots that every worker shares.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::ages::{Ages, Fetches};
use super::lane::{Lane, Lanes};
use super::shared::BASE_PAGE;
use super::slots::Slots;
use super::table::Table;
use super::{Access, FarConfig, FarError, FarStore, Transfer, Usage};

/// The largest unit of compression: bytes.
const LARGEST_UNIT: u32 = 64 << 10;
/// The least part that tells whether a unit is worth compressing: bytes.
const PROBE_BYTES: u32 = 1 << 10;
/// Units looked at, at most, for one that is to be moved within memory.
const LOOKED_AT: usize = 256;
/// The oldest pages are those which hold one part in this number of the bytes.
const OLD_PART: u64 = 16;

/// Room for what is compressed. Compressing takes time again and again, which is not worth it unless an eighth is saved; and unless
/// three eighths are saved where the other choice is the next store, and not the unit as it is.
const fn worth_keeping(bytes: u32, keeps_raw: bool) -> u32 {
    bytes - if keeps_raw { bytes / 8 } else { bytes / 8 * 3 }
}

/// A compressor of whole units, with its state in a lane's scratch memory.
pub trait Codec {
    /// Bytes of state for units of this size.
    fn scratch_bytes(unit: u32) -> usize;
    /// Sets the state up in the process that will use it, outside the handler.
    ///
    /// # Errors
    /// `Unavailable` if the library rejects the memory.
    ///
    /// # Safety
    /// `scratch` has `scratch_bytes(unit)` bytes, aligned to 4096, that nobody else uses.
    unsafe fn prepare(scratch: *mut u8, unit: u32) -> Result<(), FarError>;
    /// Compresses `unit` bytes at `src` into at most `room` at `dst`; None if they do not fit.
    ///
    /// # Safety
    /// `scratch` was prepared in this process for this unit and nobody else uses it; the buffers are valid
    /// and do not overlap.
    unsafe fn compress(scratch: *mut u8, src: *const u8, unit: u32, dst: *mut u8, room: u32) -> Option<u32>;
    /// The reverse; false if `src` is not a blob of exactly one unit.
    ///
    /// # Safety
    /// As for `compress`.
    unsafe fn decompress(scratch: *mut u8, src: *const u8, length: u32, dst: *mut u8, unit: u32) -> bool;
}

/// What a table word says.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Entry {
    Nothing,
    /// Eight bytes, repeated.
    Pattern(u64),
    Blob(Blob),
}

/// Where a blob lies and what it is.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Blob {
    raw: bool,
    length: u32,
    /// The generation, as [`Ages`] numbers them; 0 where ages do not matter.
    generation: u8,
    /// Less than 2 to the 37th.
    location: u64,
}

/// Kinds, in the low three bits.
const HIGH: u64 = 1;
const LOW: u64 = 2;
const PACKED: u64 = 3;
const RAW: u64 = 4;

impl Entry {
    fn decode(word: u64) -> Self {
        let blob = |raw| {
            let length = (word >> 3 & 0xffff) as u32 + 1;
            Self::Blob(Blob { raw, length, generation: (word >> 19) as u8, location: word >> 27 })
        };
        match word & 7 {
            HIGH => Self::Pattern(word >> 3),
            LOW => Self::Pattern(word & !7),
            PACKED => blob(false),
            RAW => blob(true),
            _ => Self::Nothing,
        }
    }

    /// A pattern with three zero bits at either end fits a word (most doubles and integers do); None for others.
    fn of_pattern(pattern: u64) -> Option<u64> {
        match () {
            () if pattern >> 61 == 0 => Some(pattern << 3 | HIGH),
            () if pattern & 7 == 0 => Some(pattern | LOW),
            () => None,
        }
    }

    fn of_blob(Blob { raw, length, generation, location }: Blob) -> u64 {
        let kind = if raw { RAW } else { PACKED };
        location << 27 | u64::from(generation) << 19 | u64::from(length - 1) << 3 | kind
    }
}

/// Compressed far memory; see the module.
pub struct CompressedStore<C> {
    table: Table,
    slots: Slots,
    lanes: Arc<Lanes>,
    pages: u64,
    page_size: usize,
    unit: u32,
    /// Whether pages that do not shrink are held as they are.
    keeps_raw: bool,
    /// The ages of blobs, where their memory is taken off near memory.
    ages: Option<Ages>,
    codec: PhantomData<fn() -> C>,
}

impl<C: Codec> CompressedStore<C> {
    /// Sets the store up; in the master, before workers exist.
    ///
    /// # Errors
    /// `Io` or `Unavailable` if memory cannot be mapped or the configuration makes no sense.
    pub fn new(config: &FarConfig) -> Result<Self, FarError> {
        config.check()?;
        Self::with_lanes(config, Self::lanes(config, 0, 0)?)
    }

    fn unit(config: &FarConfig) -> u32 {
        (config.page_size as u32).min(LARGEST_UNIT)
    }

    /// Bytes of scratch memory that the store uses of each lane, whole base pages.
    pub(crate) fn scratch_bytes(config: &FarConfig) -> usize {
        let unit = Self::unit(config);
        (Self::blob_room(unit) + C::scratch_bytes(unit)).next_multiple_of(BASE_PAGE)
    }

    /// Lanes for this store with `more` bytes of scratch memory behind its own, and a ring of so many entries.
    pub(crate) fn lanes(config: &FarConfig, more: usize, ring: u32) -> Result<Arc<Lanes>, FarError> {
        Lanes::new(
            config.lanes,
            Self::scratch_bytes(config) + more,
            Self::unit(config),
            Some(|scratch, unit| {
                // SAFETY: the scratch area holds the blob room, whole base pages, and the codec's bytes behind it.
                unsafe { C::prepare(scratch.add(Self::blob_room(unit)), unit) }
            }),
            ring,
        )
    }

    /// The store on lanes of [`lanes`](Self::lanes).
    pub(crate) fn with_lanes(config: &FarConfig, lanes: Arc<Lanes>) -> Result<Self, FarError> {
        let unit = Self::unit(config);
        let units = config.pages.saturating_mul(config.page_size as u64 / u64::from(unit));
        let shards = if unit > 4096 { 1 } else { config.lanes.clamp(1, 4) };
        Ok(Self {
            table: Table::new(units)?,
            slots: Slots::new(unit, units, shards, config.limit_bytes)?,
            lanes,
            pages: config.pages,
            page_size: config.page_size,
            unit,
            keeps_raw: true,
            ages: if config.counts_as_near { Some(Ages::new()?) } else { None },
            codec: PhantomData,
        })
    }

    /// The same store, but pages that do not shrink well are refused as if it were full.
    pub(crate) fn without_raw(self) -> Self {
        Self { keeps_raw: false, ..self }
    }

    fn blob_room(unit: u32) -> usize {
        (unit as usize).next_multiple_of(BASE_PAGE)
    }

    /// `OutOfRange` if a page is.
    pub(crate) fn check_range(&self, pages: &[Transfer]) -> Result<(), FarError> {
        super::check_range(pages, self.pages)
    }

    /// Whether the store holds the page.
    pub(crate) fn holds(&self, page: u64) -> bool {
        self.table.load(page.saturating_mul(self.units_per_page())) != 0
    }

    /// A page that is to leave memory: one of the oldest, if there are any among those that are looked at next.
    pub(crate) fn next_of_the_oldest(&self) -> Option<u64> {
        let ages = self.ages.as_ref()?;
        let least = ages.age_of_oldest(ages.bytes() / OLD_PART);
        self.next_blob(|blob| ages.age(blob.generation) >= least)
    }

    /// Whether the oldest pages are to leave since ages are told apart no longer.
    pub(crate) fn grows_too_old(&self) -> bool {
        self.ages.as_ref().is_some_and(Ages::is_full)
    }

    /// The program fetches a page: counts it for [`take_fetches`](Self::take_fetches).
    pub(crate) fn count_fetch(&self, page: u64) {
        let entry = Entry::decode(self.table.load(page.saturating_mul(self.units_per_page())));
        if let (Entry::Blob(blob), Some(ages)) = (entry, &self.ages) {
            ages.fetched(blob.generation);
        }
    }

    /// See [`Ages::take_fetches`].
    pub(super) fn take_fetches(&self, bytes: u64) -> Fetches {
        self.ages.as_ref().map_or_else(Fetches::default, |ages| ages.take_fetches(bytes))
    }

    /// The page of the next blob that is wanted, among those that are looked at: one pass after the other over all pages.
    fn next_blob(&self, is_wanted: impl Fn(&Blob) -> bool) -> Option<u64> {
        let units = self.units_per_page();
        let hand = self.slots.hand();
        let mut from = hand.load(Relaxed);
        for _ in 0..LOOKED_AT {
            let unit = self.table.next(from..u64::MAX).or_else(|| self.table.next(0..from))?;
            from = unit + 1;
            if matches!(Entry::decode(self.table.load(unit)), Entry::Blob(blob) if is_wanted(&blob)) {
                // Racing workers may be told of the same page: its lock decides.
                hand.store((unit / units + 1) * units, Relaxed);
                return Some(unit / units);
            }
        }
        hand.store(from, Relaxed);
        None
    }

    fn takes_memory(&self, unit: u64) -> bool {
        matches!(Entry::decode(self.table.load(unit)), Entry::Blob(_))
    }

    /// Whether much of the memory held was free, here and there, when `next_to_move` looked last; cheap.
    pub(crate) fn was_scattered(&self) -> bool {
        self.slots.was_scattered()
    }

    /// Moves the blob of a unit, whose page's lock the caller has, from a chunk that is part empty to a fuller one.
    fn gather(&self, unit: u64) {
        let Entry::Blob(blob) = Entry::decode(self.table.load(unit)) else { return };
        let Some(location) = self.slots.denser(blob.location) else { return };
        let (from, to) = (self.slots.pointer(blob.location), self.slots.pointer(location));
        // SAFETY: both slots have room for the blob, are different ones, and are this unit's alone.
        unsafe { std::ptr::copy_nonoverlapping(from, to, blob.length as usize) };
        self.table.set(unit, Entry::of_blob(Blob { location, ..blob }));
        self.slots.free(blob.location);
    }

    fn units_per_page(&self) -> u64 {
        self.page_size as u64 / u64::from(self.unit)
    }

    /// Frees what a unit holds; its bytes after compression.
    fn drop_unit(&self, index: u64) -> u64 {
        let entry = Entry::decode(self.table.load(index));
        if entry != Entry::Nothing {
            self.table.set(index, 0);
        }
        let Entry::Blob(Blob { length, generation, location, .. }) = entry else { return 0 };
        self.slots.free(location);
        if let Some(ages) = &self.ages {
            ages.went(generation, length);
        }
        u64::from(length)
    }

    /// Stores one unit: the change of the bytes after compression, and whether there was room for it.
    /// Only if it `opens` chunks it takes more memory.
    fn store_unit(
        &self,
        scratch: *mut u8,
        shard: u32,
        index: u64,
        src: *const u8,
        opens: bool,
    ) -> (i64, bool) {
        // SAFETY: src is a unit of the caller's page: valid, and aligned since pages are.
        let words = unsafe { std::slice::from_raw_parts(src.cast::<u64>(), self.unit as usize / 8) };
        if let Some(word) = repeated(words).and_then(Entry::of_pattern) {
            let freed = self.drop_unit(index);
            self.table.set(index, word);
            return (-(freed as i64), true);
        }
        let before = Entry::decode(self.table.load(index));
        let pack = |part: usize, bytes: u32| {
            // SAFETY: the part lies in the unit; scratch holds the blob room, then the codec's state, prepared at attach.
            unsafe {
                let state = scratch.add(Self::blob_room(self.unit));
                C::compress(state, src.add(part), bytes, scratch, worth_keeping(bytes, self.keeps_raw))
            }
        };
        // What did not shrink last time is tried in a small part first: most of it never will.
        let hopeless = matches!(before, Entry::Blob(Blob { raw: true, .. })) && {
            let probe = (self.unit / 16).max(PROBE_BYTES);
            // Another part each time it is decided anew.
            pack((words[0] as u32 % (self.unit / probe) * probe) as usize, probe).is_none()
        };
        let packed = if hopeless { None } else { pack(0, self.unit) };
        if packed.is_none() && !self.keeps_raw {
            return (-(self.drop_unit(index) as i64), false);
        }
        let (from, length) = match packed {
            Some(length) => (scratch.cast_const(), length),
            None => (src, self.unit),
        };
        let mut change = i64::from(length);
        let location = match before {
            Entry::Blob(Blob { length: old, location, generation, .. })
                if self.slots.suits(location, length) =>
            {
                change -= i64::from(old);
                if let Some(ages) = &self.ages {
                    ages.went(generation, old);
                }
                location
            }
            _ => {
                change -= self.drop_unit(index) as i64;
                match self.slots.alloc(shard, length, opens) {
                    Some(location) => location,
                    None => return (change - i64::from(length), false),
                }
            }
        };
        // SAFETY: the slot has room for length bytes and is this unit's alone; from has length bytes.
        unsafe { std::ptr::copy_nonoverlapping(from, self.slots.pointer(location), length as usize) };
        let generation = self.ages.as_ref().map_or(0, |ages| ages.came(length));
        self.table.set(index, Entry::of_blob(Blob { raw: packed.is_none(), length, generation, location }));
        (change, true)
    }

    fn load_unit(&self, scratch: *mut u8, index: u64, dst: *mut u8) -> bool {
        let unit = self.unit as usize;
        match Entry::decode(self.table.load(index)) {
            Entry::Nothing => false,
            Entry::Pattern(0) => {
                // SAFETY: dst is a unit of the caller's page.
                unsafe { dst.write_bytes(0, unit) };
                true
            }
            Entry::Pattern(pattern) => {
                // SAFETY: as above; pages are aligned to their size.
                unsafe { std::slice::from_raw_parts_mut(dst.cast::<u64>(), unit / 8) }.fill(pattern);
                true
            }
            Entry::Blob(Blob { raw: true, location, .. }) => {
                // SAFETY: a raw blob has unit bytes; slots and pages do not overlap.
                unsafe { std::ptr::copy_nonoverlapping(self.slots.pointer(location), dst, unit) };
                true
            }
            // SAFETY: the slot holds length bytes; scratch and dst as above.
            Entry::Blob(Blob { length, location, .. }) => unsafe {
                let src = self.slots.pointer(location);
                C::decompress(scratch.add(Self::blob_room(self.unit)), src, length, dst, self.unit)
            },
        }
    }

    /// Stores a page, whose range was checked. Only if it `opens` chunks it takes more memory.
    pub(crate) fn store_page(&self, lane: &Lane, transfer: &Transfer, opens: bool) -> Result<(), FarError> {
        let scratch = self.lanes.enter(lane)?;
        let units = self.units_per_page();
        let first = transfer.page * units;
        let counters = lane.counters();
        if self.table.load(first) == 0 {
            self.lanes.hold(0, 1, u64::MAX)?;
        }
        for i in 0..units {
            // SAFETY: unit i lies in the caller's page.
            let src = unsafe { transfer.memory.add((i * u64::from(self.unit)) as usize) };
            let (change, stored) = self.store_unit(scratch, lane.index(), first + i, src, opens);
            counters.bytes_after.fetch_add(change, Relaxed);
            if !stored {
                // Half a page is worth nothing.
                let freed: u64 = (0..units).map(|i| self.drop_unit(first + i)).sum();
                counters.bytes_after.fetch_sub(freed as i64, Relaxed);
                self.lanes.drop_held(0, 1);
                return Err(FarError::Full);
            }
        }
        counters.bytes_stored.fetch_add(self.page_size as u64, Relaxed);
        Ok(())
    }
}

/// The 8-byte pattern that fills the words, if one does. Looks at the ends first: most pages differ there.
fn repeated(words: &[u64]) -> Option<u64> {
    let (first, last) = (*words.first()?, *words.last()?);
    (first == last && words.iter().all(|w| *w == first)).then_some(first)
}

impl<C: Codec> FarStore for CompressedStore<C> {
    fn lane(&self, index: u32) -> Result<Lane, FarError> {
        self.lanes.lane(index)
    }

    fn store(&self, lane: &mut Lane, pages: &[Transfer]) -> Result<(), FarError> {
        super::check_range(pages, self.pages)?;
        pages.iter().try_for_each(|transfer| self.store_page(lane, transfer, true))
    }

    fn load(&self, lane: &mut Lane, pages: &[Transfer]) -> Result<(), FarError> {
        let scratch = self.lanes.enter(lane)?;
        super::check_range(pages, self.pages)?;
        let units = self.units_per_page();
        for &Transfer { page, memory } in pages {
            if self.table.load(page * units) == 0 {
                return Err(FarError::NotStored { page });
            }
            for i in 0..units {
                // SAFETY: unit i lies in the caller's page.
                let dst = unsafe { memory.add((i * u64::from(self.unit)) as usize) };
                if !self.load_unit(scratch, page * units + i, dst) {
                    return Err(FarError::Damaged { page });
                }
            }
            lane.counters().bytes_loaded.fetch_add(self.page_size as u64, Relaxed);
        }
        Ok(())
    }

    fn discard(&self, first: u64, count: u64) {
        let units = self.units_per_page();
        let range = first.saturating_mul(units)..first.saturating_add(count).saturating_mul(units);
        let (mut pages, mut freed) = (0, 0);
        self.table.visit(range, |index, _| {
            pages += u64::from(index.is_multiple_of(units));
            freed += self.drop_unit(index);
        });
        self.lanes.drop_held(0, pages);
        self.lanes.shared().bytes_after.fetch_sub(freed as i64, Relaxed);
    }

    fn direct(&self, lane: &Lane, page: u64, access: Access) -> Result<Option<*mut u8>, FarError> {
        // Pages that did not shrink lie there as they are.
        if self.units_per_page() != 1 || !matches!(access, Access::Load) {
            return Ok(None);
        }
        if page >= self.pages {
            return Err(FarError::OutOfRange { page });
        }
        let Entry::Blob(Blob { raw: true, location, .. }) = Entry::decode(self.table.load(page)) else {
            return Ok(None);
        };
        lane.counters().bytes_loaded.fetch_add(self.page_size as u64, Relaxed);
        Ok(Some(self.slots.pointer(location)))
    }

    fn usage(&self) -> Usage {
        let mut usage = self.lanes.usage(self.page_size as u64);
        usage.bytes_reserved = self.slots.bytes();
        usage
    }

    fn next_to_move(&self) -> Option<u64> {
        if !self.slots.is_scattered() {
            return None;
        }
        self.next_blob(|blob| self.slots.lies_sparsely(blob.location))
    }

    fn move_pages(&self, _lane: &mut Lane, pages: &[Transfer]) {
        let units = self.units_per_page();
        pages
            .iter()
            .for_each(|it| (it.page * units..(it.page + 1) * units).for_each(|unit| self.gather(unit)));
    }

    fn memory_bytes(&self) -> u64 {
        self.slots.bytes()
    }

    fn let_go(&self, page: u64) -> bool {
        let first = page.saturating_mul(self.units_per_page());
        let goes =
            self.ages.is_some() && (0..self.units_per_page()).any(|unit| self.takes_memory(first + unit));
        if goes {
            self.discard(page, 1);
        }
        !goes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_survive_a_round_trip() {
        for pattern in [0, 1, 8, 1.0_f64.to_bits(), (-2.0_f64).to_bits(), u64::MAX << 3, u64::MAX >> 3] {
            let word = Entry::of_pattern(pattern).unwrap();
            assert!(word != 0 && Entry::decode(word) == Entry::Pattern(pattern));
        }
        assert!(Entry::of_pattern(u64::MAX).is_none());
        let blobs = [(false, 1, 0, 0), (true, 65536, 255, (1 << 37) - 1), (false, 4032, 9, 77)];
        for (raw, length, generation, location) in blobs {
            let blob = Blob { raw, length, generation, location };
            assert!(Entry::decode(Entry::of_blob(blob)) == Entry::Blob(blob));
        }
        assert!(Entry::decode(0) == Entry::Nothing);
    }
}
