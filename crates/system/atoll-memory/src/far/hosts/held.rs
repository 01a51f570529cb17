//! Which pages the store holds, and where: for each page its checksum and the places of its copies, in shared memory.
//!
//! A call that stores or discards a page has it alone among such calls, by the contract of far stores. Only `moving` may be at work on
//! it besides, in one thread of the run. These are the rules between the two:
//!
//! - Who loads takes the checksum and the places without a lock, and compares the bytes that come with the checksum. Where they
//!   differ, or the lender refuses, and the page has other places by now, it loads again ([`Held::look`]).
//! - Who moves a page reads it in the same way, marks the checksum ([`Held::begin_move`]) if the page is still the same, writes the
//!   page elsewhere, and then changes its places and takes the mark away ([`Held::end_move`]).
//! - Who stores or discards takes the checksum away first ([`Held::claim`]), and waits as long as it has the mark: otherwise old
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
/// The bit of a checksum that says that the page is on its way to another place.
const MOVING: u64 = 1 << 63;
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

/// The checksum of a page: neither 0 nor marked.
pub(super) fn checksum(page: &[u8]) -> u64 {
    (xxhash_rust::xxh3::xxh3_64(page) & !MOVING).max(1)
}

/// All pages of a store.
pub(super) struct Held {
    /// Where each page's copies are.
    places: Table,
    /// The checksum of each page held, 0 for none.
    sums: Table,
}

impl Held {
    pub(super) fn new(pages: u64) -> Result<Held, FarError> {
        Ok(Held { places: Table::new(pages)?, sums: Table::new(pages)? })
    }

    /// The checksum and the copies of a page, which may move meanwhile; checksum 0: the page is not held.
    pub(super) fn look(&self, page: u64) -> (u64, Copies) {
        (self.sums.load(page) & !MOVING, copies_of(self.places.load(page)))
    }

    /// Takes the page's checksum away, so that it is not held and nobody moves it, and returns what [`look`](Self::look) would. Waits
    /// as long as it moves.
    pub(super) fn claim(&self, page: u64) -> (u64, Copies) {
        let mut turns = 0;
        loop {
            let sum = self.sums.load(page);
            if sum & MOVING == 0 && (sum == 0 || self.sums.change(page, sum, 0)) {
                return (sum, copies_of(self.places.load(page)));
            }
            wait(&mut turns);
        }
    }

    /// Notes where a page's copies are that is not held, or about to be.
    pub(super) fn place(&self, page: u64, copies: Copies) {
        self.places.set(page, word_of(copies));
    }

    /// The page is held from now on.
    pub(super) fn hold(&self, page: u64, sum: u64) {
        self.sums.set(page, sum);
    }

    /// Marks a page that is to be moved, if it is what [`look`](Self::look) said. Until the move ends nobody stores or discards it.
    pub(super) fn begin_move(&self, page: u64, sum: u64, copies: Copies) -> bool {
        if sum == 0 || !self.sums.change(page, sum, sum | MOVING) {
            return false;
        }
        // The same bytes may have been stored to another place meanwhile.
        let is_same = self.places.load(page) == word_of(copies);
        if !is_same {
            self.sums.set(page, sum);
        }
        is_same
    }

    /// Ends the move of a page: its copies are there from now on; checksum 0: it is not held here any more.
    pub(super) fn end_move(&self, page: u64, sum: u64, copies: Copies) {
        self.places.set(page, word_of(copies));
        self.sums.set(page, sum);
    }

    /// Calls `see` with each page held of a range.
    pub(super) fn visit(&self, range: std::ops::Range<u64>, mut see: impl FnMut(u64)) {
        self.sums.visit(range, |page, _: &AtomicU64| see(page));
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
