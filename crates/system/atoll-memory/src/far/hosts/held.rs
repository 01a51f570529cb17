//! Which pages the store holds, and where: for each page its seal and the places of its copies, in shared memory.
//!
//! A page's seal is its checksum, and how long it is on its lenders.
//!
//! A call that stores or discards a page has it alone among such calls, by the contract of far stores. Only `moving` may be at work on
//! it besides, in one thread of the run. These are the rules between the two:
//!
//! - Who loads takes the seal and the places without a lock, and compares the bytes that come with the checksum. Where they
//!   differ, or the lender refuses, and the page has other places by now, it loads again ([`Held::look`]).
//! - Who moves a page reads it in the same way, marks the seal ([`Held::begin_move`]) if the page is still the same, writes the
//!   page elsewhere, and then changes its places and takes the mark away ([`Held::end_move`]).
//! - Who stores or discards takes the seal away first ([`Held::claim`]), and waits as long as it has the mark: otherwise old
//!   bytes could come to lie over new ones.
//!
//! The tests of `atoll-lend` check these rules in every order (`tests/lenders/orders.rs`).
//!
//! Fault path: no allocation, no lock the program could hold, no arena access, no panic.

use std::sync::atomic::AtomicU64;

use crate::far::FarError;
use crate::far::table::Table;

/// Copies of a page at most.
pub(super) const COPIES: usize = 2;
/// The bit of a seal that says that the page is on its way to another place.
const MOVING: u64 = 1 << 63;
/// Parts of a page by which lengths are told.
pub(super) const PARTS: u32 = 64;
/// Where a seal has the length: 0 for a page as it is, otherwise parts of a packed one.
const LENGTH: u32 = 57;
/// How often a worker yields while a page moves, before it sleeps.
const YIELDS: u32 = 200;

/// A page's copy: a lender and a place there, or nothing (0).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Spot(u32);

impl Spot {
    pub(super) const NONE: Spot = Spot(0);

    pub(super) fn new(lender: usize, place: u32) -> Spot {
        Spot(1 << 31 | (lender as u32 & 15) << 27 | place & 0x07ff_ffff)
    }

    pub(super) fn lender(self) -> Option<usize> {
        (self.0 != 0).then_some((self.0 >> 27 & 15) as usize)
    }

    pub(super) fn place(self) -> u32 {
        self.0 & 0x07ff_ffff
    }
}

/// The copies of a page.
pub(super) type Copies = [Spot; COPIES];

fn copies_of(word: u64) -> Copies {
    [Spot(word as u32), Spot((word >> 32) as u32)]
}

fn word_of(copies: Copies) -> u64 {
    u64::from(copies[0].0) | u64::from(copies[1].0) << 32
}

/// A page's checksum and its length on its lenders. All zeros: the page is not held.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub(super) struct Seal(u64);

impl Seal {
    pub(super) const NONE: Seal = Seal(0);

    /// The seal of a page that lies on its lenders as it is. Two different pages have the same checksum with probability 2^-57.
    pub(super) fn of(page: &[u8]) -> Seal {
        Seal((xxhash_rust::xxh3::xxh3_64(page) & ((1 << LENGTH) - 1)).max(1))
    }

    /// The seal of the same page packed, in so many parts of [`PARTS`]; with all of them it lies as it is.
    pub(super) fn packed(self, parts: u8) -> Seal {
        Seal(self.checksum() | u64::from(u32::from(parts) % PARTS) << LENGTH)
    }

    /// The checksum alone: of the page's bytes when it is not packed.
    pub(super) fn checksum(self) -> u64 {
        self.0 & ((1 << LENGTH) - 1)
    }

    /// How many parts of a page it takes on its lenders, where it is packed.
    pub(super) fn parts(self) -> Option<u8> {
        let parts = (self.0 >> LENGTH) as u32 % PARTS;
        (parts > 0).then_some(parts as u8)
    }
}

/// All pages of a store.
pub(super) struct Held {
    /// Where each page's copies are.
    places: Table,
    /// The seal of each page held, 0 for none.
    seals: Table,
}

impl Held {
    pub(super) fn new(pages: u64) -> Result<Held, FarError> {
        Ok(Held { places: Table::new(pages)?, seals: Table::new(pages)? })
    }

    /// The seal and the copies of a page, which may move meanwhile.
    pub(super) fn look(&self, page: u64) -> (Seal, Copies) {
        (Seal(self.seals.load(page) & !MOVING), copies_of(self.places.load(page)))
    }

    /// Takes the page's seal away, so that it is not held and nobody moves it, and returns what [`look`](Self::look) would. Waits
    /// as long as it moves.
    pub(super) fn claim(&self, page: u64) -> (Seal, Copies) {
        let mut turns = 0;
        loop {
            let seal = self.seals.load(page);
            if seal & MOVING == 0 && (seal == 0 || self.seals.change(page, seal, 0)) {
                return (Seal(seal), copies_of(self.places.load(page)));
            }
            wait(&mut turns);
        }
    }

    /// Notes where a page's copies are that is not held, or about to be.
    pub(super) fn place(&self, page: u64, copies: Copies) {
        self.places.set(page, word_of(copies));
    }

    /// The page is held from now on.
    pub(super) fn hold(&self, page: u64, seal: Seal) {
        self.seals.set(page, seal.0);
    }

    /// Marks a page that is to be moved, if it is what [`look`](Self::look) said. Until the move ends nobody stores or discards it.
    pub(super) fn begin_move(&self, page: u64, seal: Seal, copies: Copies) -> bool {
        if seal == Seal::NONE || !self.seals.change(page, seal.0, seal.0 | MOVING) {
            return false;
        }
        // The same bytes may have been stored to another place meanwhile.
        let is_same = self.places.load(page) == word_of(copies);
        if !is_same {
            self.seals.set(page, seal.0);
        }
        is_same
    }

    /// Ends the move of a page: its copies are there from now on; [`Seal::NONE`]: it is not held here any more.
    pub(super) fn end_move(&self, page: u64, seal: Seal, copies: Copies) {
        self.places.set(page, word_of(copies));
        self.seals.set(page, seal.0);
    }

    /// Calls `see` with each page held of a range.
    pub(super) fn visit(&self, range: std::ops::Range<u64>, mut see: impl FnMut(u64)) {
        self.seals.visit(range, |page, _: &AtomicU64| see(page));
    }
}

fn wait(turns: &mut u32) {
    *turns = turns.saturating_add(1);
    if *turns < YIELDS {
        rustix::thread::sched_yield();
    } else {
        crate::sys::sleep_ns(100_000);
    }
}
