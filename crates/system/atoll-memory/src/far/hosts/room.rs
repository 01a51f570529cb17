//! Which of the borrowed memory is used: pieces that a lender gave, and in them a place for each page, in shared memory.
//!
//! `keep` takes and frees places. A place is a number below the pages of all pieces of its lender. The pieces' capabilities are
//! here, as all workers need them. A piece that the lender wants back is closed (`moving`): nobody takes a place in it any more,
//! each place that is free is kept from then on, and the piece is empty when all of its places are kept.
//!
//! Fault path: no allocation, no lock the program could hold, no arena access, no panic. (`Room::new` is set-up code.)

use std::sync::atomic::{
    AtomicU32, AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};

use super::wire::Handle;
use crate::far::FarError;
use crate::far::shared::{Mapping, SharedWord};

/// Pieces that a run borrows of one lender at most.
const MOST_PIECES: u64 = 4096;
/// Places of one lender at most: their numbers have to fit a page's entry.
const MOST_PLACES: u64 = 1 << 27;

/// How often a worker yields while another one asks for a piece, before it sleeps.
const YIELDS: u32 = 1000;

/// What is counted of all pieces.
#[repr(C, align(64))]
struct Head {
    /// Places that are taken, or about to be.
    used: AtomicU64,
    /// Pieces that were given.
    pieces: AtomicU32,
    /// Whether a worker is asking for a piece.
    asking: AtomicU32,
    /// Pieces that were closed, among them those that were given back.
    closed: AtomicU32,
    /// Pieces that were given back and not yet replaced.
    returned: AtomicU32,
    /// Places of a piece, a multiple of 64 or a part of it; 0 before the lender is known.
    per_piece: AtomicU64,
}

/// One piece's capability.
#[repr(C)]
struct Piece {
    node_and_slot: AtomicU64,
    generation: AtomicU64,
    check: AtomicU64,
    /// [`OPEN`], [`CLOSED`] or [`RETURNED`].
    state: AtomicU32,
    /// Places of the closed piece that nobody can take any more.
    kept: AtomicU32,
}

/// The piece's places are taken and freed.
const OPEN: u32 = 0;
/// The lender wants the piece back: its places are only freed.
const CLOSED: u32 = 1;
/// The lender has the piece back.
const RETURNED: u32 = 2;

// SAFETY: atomics alone, less than a base page.
unsafe impl SharedWord for Head {}
// SAFETY: as above.
unsafe impl SharedWord for Piece {}

/// The borrowed memory of one lender.
pub(super) struct Room {
    /// The head, then the pieces.
    heads: Mapping,
    /// A bit for each place: whether it is taken.
    bits: Mapping,
}

/// What came of asking for a place.
pub(super) enum Taken {
    /// A place.
    Place(u32),
    /// All places of the pieces are taken.
    None,
}

impl Room {
    /// No memory yet, of pieces with `per_piece` places each.
    pub(super) fn new(per_piece: u64) -> Result<Room, FarError> {
        let room = Room::of_places(MOST_PIECES.min(MOST_PLACES / per_piece.max(1)) * per_piece)?;
        room.begin(per_piece);
        Ok(room)
    }

    /// No memory yet, of a lender that comes later.
    pub(super) fn later() -> Result<Room, FarError> {
        Room::of_places(MOST_PLACES)
    }

    /// Only what is used of this takes memory.
    fn of_places(places: u64) -> Result<Room, FarError> {
        let pieces = MOST_PIECES as usize * size_of::<Piece>();
        Ok(Room {
            heads: Mapping::new((size_of::<Head>() + pieces) as u64, c"atoll borrowed pieces", false)?,
            bits: Mapping::new(places.div_ceil(64) * 8, c"atoll borrowed places", false)?,
        })
    }

    /// The lender is known: its pieces have so many places.
    pub(super) fn begin(&self, per_piece: u64) {
        self.head().per_piece.store(per_piece, Release);
    }

    /// Whether the lender is known.
    pub(super) fn has_begun(&self) -> bool {
        self.head().per_piece.load(Relaxed) > 0
    }

    /// Places of a piece, at least one.
    fn per_piece(&self) -> u64 {
        self.head().per_piece.load(Acquire).max(1)
    }

    fn most_pieces(&self) -> u64 {
        MOST_PIECES.min(MOST_PLACES / self.per_piece())
    }

    fn head(&self) -> &Head {
        self.heads.get(0)
    }

    fn piece(&self, piece: u64) -> &Piece {
        self.heads.get(size_of::<Head>() + piece.min(MOST_PIECES - 1) as usize * size_of::<Piece>())
    }

    fn word(&self, word: u64) -> &AtomicU64 {
        self.bits.get(word as usize * 8)
    }

    fn pieces(&self) -> u64 {
        // Pairs with the Release in `add`: who counts a piece sees its capability.
        u64::from(self.head().pieces.load(Acquire))
    }

    /// Whether one more piece can be added.
    pub(super) fn has_room_for_a_piece(&self) -> bool {
        self.pieces() < self.most_pieces() || self.head().returned.load(Relaxed) > 0
    }

    /// Takes a free place, the next one behind `hint` if it is free, which then is the place taken.
    pub(super) fn take(&self, hint: &mut u32) -> Taken {
        let places = self.pieces() * self.per_piece();
        // The place is counted first: so many are free that every counter finds one.
        if self.head().used.fetch_add(1, AcqRel) >= places {
            self.head().used.fetch_sub(1, AcqRel);
            return Taken::None;
        }
        let words = places.div_ceil(64);
        let mut place = (u64::from(*hint) + 1) % places;
        let mut rounds = 0;
        loop {
            // What is free in closed pieces was counted as free, and is for nobody.
            if rounds > 2 && self.head().closed.load(Relaxed) > 0 {
                self.head().used.fetch_sub(1, AcqRel);
                return Taken::None;
            }
            let (word, bit) = (place / 64, place % 64);
            let behind = (places - word * 64).min(64);
            let outside = u64::MAX.checked_shl(behind as u32).unwrap_or(0);
            let below = (1_u64 << bit) - 1;
            let free = !(self.word(word).load(Acquire) | outside | below);
            if free == 0 {
                let next = (word + 1) % words * 64;
                rounds += u32::from(next <= place);
                place = next;
                continue;
            }
            let mask = free & free.wrapping_neg();
            let piece = (word * 64 + u64::from(mask.trailing_zeros())) / self.per_piece();
            if self.piece(piece).state.load(Relaxed) != OPEN {
                let next = (piece + 1) * self.per_piece() % places;
                rounds += u32::from(next <= place);
                place = next;
                continue;
            }
            if self.word(word).fetch_or(mask, AcqRel) & mask == 0 {
                let taken = (word * 64 + u64::from(mask.trailing_zeros())) as u32;
                *hint = taken;
                return Taken::Place(taken);
            }
        }
    }

    /// Frees a place.
    pub(super) fn free(&self, place: u32) {
        let (word, mask) = (u64::from(place) / 64, 1_u64 << (place % 64));
        if u64::from(place) < self.pieces() * self.per_piece()
            && self.word(word).fetch_and(!mask, AcqRel) & mask != 0
        {
            self.head().used.fetch_sub(1, AcqRel);
        }
    }

    /// The capability of a place's piece, and the number of the place in it.
    pub(super) fn locate(&self, place: u32) -> (Handle, u64) {
        let piece = self.piece(u64::from(place) / self.per_piece());
        let both = piece.node_and_slot.load(Relaxed);
        let handle = Handle {
            node: (both >> 32) as u32,
            slot: both as u32,
            generation: piece.generation.load(Relaxed) as u32,
            check: piece.check.load(Relaxed),
        };
        (handle, u64::from(place) % self.per_piece())
    }

    fn state(&self, piece: u64) -> u32 {
        // Pairs with the Release in `close`.
        self.piece(piece).state.load(Acquire)
    }

    /// Calls `see` with the words that have the bits of a piece, and a mask of these bits.
    fn words_of(&self, piece: u64, mut see: impl FnMut(&AtomicU64, u64)) {
        let (mut at, end) = (piece * self.per_piece(), (piece + 1) * self.per_piece());
        while at < end {
            let (word, bit) = (at / 64, at % 64);
            let bits = (end - at).min(64 - bit);
            let mask = if bits == 64 { u64::MAX } else { ((1 << bits) - 1) << bit };
            see(self.word(word), mask);
            at += bits;
        }
    }

    fn taken_of(&self, piece: u64) -> u64 {
        let mut taken = 0;
        self.words_of(piece, |word, mask| taken += u64::from((word.load(Relaxed) & mask).count_ones()));
        taken
    }

    /// Whether a place lies in a piece that was closed.
    pub(super) fn is_closed(&self, place: u32) -> bool {
        self.head().closed.load(Relaxed) > 0 && self.state(u64::from(place) / self.per_piece()) != OPEN
    }

    /// Pieces that the lender is to have back, and has not.
    pub(super) fn closing(&self) -> u64 {
        let head = self.head();
        u64::from(head.closed.load(Relaxed)).saturating_sub(head.returned.load(Relaxed).into())
    }

    /// Closes pieces until `count` are closed and not given back, if there are so many: those with the fewest pages first, by
    /// quarters, and none with more than `quarters` of its places taken. Only one thread closes, sweeps and returns.
    pub(super) fn close(&self, count: u64, quarters: u64) {
        for quarter in 0..=quarters.min(4) {
            for piece in 0..self.pieces() {
                if self.closing() >= count {
                    return;
                }
                if self.state(piece) == OPEN && self.taken_of(piece) * 4 <= self.per_piece() * quarter {
                    self.piece(piece).state.store(CLOSED, Release);
                    self.head().closed.fetch_add(1, Relaxed);
                }
            }
        }
    }

    /// Keeps the free places of closed pieces, so that nobody has them any more, and calls `empty` with the capability of each piece
    /// that has no page left, which counts as given back from then on.
    pub(super) fn sweep(&self, mut empty: impl FnMut(Handle)) {
        for number in (0..self.pieces()).filter(|piece| self.state(*piece) == CLOSED) {
            let piece = self.piece(number);
            self.words_of(number, |word, mask| {
                let free = !word.load(Relaxed) & mask;
                let count = u64::from(free.count_ones());
                // Counted first, as in `take`.
                self.head().used.fetch_add(count, AcqRel);
                // A worker that had seen the piece open may have taken some meanwhile.
                let got = (free & !word.fetch_or(free, AcqRel)).count_ones();
                self.head().used.fetch_sub(count - u64::from(got), AcqRel);
                piece.kept.fetch_add(got, Relaxed);
            });
            if u64::from(piece.kept.load(Relaxed)) == self.per_piece() {
                empty(self.locate((number * self.per_piece()) as u32).0);
                piece.state.store(RETURNED, Release);
                self.head().returned.fetch_add(1, Release);
            }
        }
    }

    /// Whether two places lie one behind the other in one piece.
    pub(super) fn are_neighbours(&self, first: u32, second: u32) -> bool {
        first.checked_add(1) == Some(second) && u64::from(second) % self.per_piece() != 0
    }

    /// Runs `ask` if no other worker is asking for a piece, which gets the lender to give one, and adds the piece. Otherwise waits
    /// until the other worker has its answer. Returns what `ask` returned; true where another worker asked.
    pub(super) fn grow(
        &self,
        ask: impl FnOnce() -> Result<Option<Handle>, super::LenderTrouble>,
    ) -> Result<bool, super::LenderTrouble> {
        let asking = &self.head().asking;
        if asking.compare_exchange(0, 1, Acquire, Relaxed).is_err() {
            let mut turns = 0_u32;
            while asking.load(Acquire) != 0 {
                // The answer takes some ten microseconds, unless the lender is stopped.
                turns = turns.saturating_add(1);
                if turns < YIELDS {
                    rustix::thread::sched_yield();
                } else {
                    crate::sys::sleep_ns(1_000_000);
                }
            }
            return Ok(true);
        }
        let given = ask();
        if let Ok(Some(handle)) = &given {
            let head = self.head();
            let returned = match head.returned.load(Relaxed) {
                0 => None,
                _ => (0..self.pieces()).find(|piece| self.state(*piece) == RETURNED),
            };
            let piece = self.piece(returned.unwrap_or_else(|| self.pieces()));
            // A worker that has just read a page's old place may read half of this: the lender then refuses, or gives other bytes
            // than the page's checksum allows, and the worker looks for the page anew.
            piece.node_and_slot.store(u64::from(handle.node) << 32 | u64::from(handle.slot), Relaxed);
            piece.generation.store(handle.generation.into(), Relaxed);
            piece.check.store(handle.check, Relaxed);
            match returned {
                None => _ = head.pieces.fetch_add(1, Release),
                Some(number) => {
                    piece.kept.store(0, Relaxed);
                    piece.state.store(OPEN, Release);
                    head.returned.fetch_sub(1, Relaxed);
                    head.closed.fetch_sub(1, Relaxed);
                    self.words_of(number, |word, mask| _ = word.fetch_and(!mask, AcqRel));
                    head.used.fetch_sub(self.per_piece(), AcqRel);
                }
            }
        }
        asking.store(0, Release);
        given.map(|handle| handle.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grow(room: &Room, slot: u32) {
        let handle = Handle { node: 1, slot, generation: 3, check: 4 };
        assert!(room.grow(|| Ok(Some(handle))).unwrap());
    }

    #[test]
    fn every_place_is_taken_once_and_again_when_it_was_freed() {
        for per_piece in [2, 48, 64, 1000] {
            let room = Room::new(per_piece).unwrap();
            let mut hint = 0;
            assert!(matches!(room.take(&mut hint), Taken::None));
            let mut seen = std::collections::BTreeSet::new();
            for piece in 0..3 {
                grow(&room, piece);
                while let Taken::Place(place) = room.take(&mut hint) {
                    assert!(seen.insert(place));
                    assert_eq!(room.locate(place).0.slot, piece);
                }
            }
            assert_eq!(seen.len() as u64, 3 * per_piece);
            room.free(1);
            room.free(1);
            assert!(matches!(room.take(&mut hint), Taken::Place(1)));
            assert!(matches!(room.take(&mut hint), Taken::None));
        }
    }

    #[test]
    fn a_closed_piece_is_empty_when_its_pages_have_left_and_another_takes_its_number() {
        for per_piece in [2, 48, 64, 1000] {
            let room = Room::new(per_piece).unwrap();
            (0..3).for_each(|piece| grow(&room, piece));
            let mut hint = u32::MAX - 1;
            let all: Vec<u32> = std::iter::from_fn(|| match room.take(&mut hint) {
                Taken::Place(place) => Some(place),
                Taken::None => None,
            })
            .collect();
            assert_eq!(all.len() as u64, 3 * per_piece);
            // The second piece has a page less than the others, and is the first to go.
            let of_second = |place: &&u32| u64::from(**place) / per_piece == 1;
            let second: Vec<u32> = all.iter().filter(of_second).copied().collect();
            room.free(second[0]);
            if per_piece > 4 {
                second[1..second.len() / 2].iter().for_each(|place| room.free(*place));
            }
            room.close(1, 4);
            assert_eq!((room.closing(), room.is_closed(second[0])), (1, true));
            assert!(matches!(room.take(&mut hint), Taken::None));
            let mut gone = Vec::new();
            room.sweep(|handle| gone.push(handle.slot));
            assert!(matches!(room.take(&mut hint), Taken::None));
            assert_eq!((gone.len(), room.closing()), (0, 1));
            let kept: u64 = room.piece(1).kept.load(Relaxed).into();
            second.iter().rev().take((per_piece - kept) as usize).for_each(|place| room.free(*place));
            room.sweep(|handle| gone.push(handle.slot));
            assert_eq!((gone, room.closing()), (vec![1], 0));
            assert!(matches!(room.take(&mut hint), Taken::None));
            // A piece that comes later has its number.
            assert!(room.has_room_for_a_piece());
            grow(&room, 7);
            for _ in 0..per_piece {
                assert!(
                    matches!(room.take(&mut hint), Taken::Place(place) if room.locate(place).0.slot == 7)
                );
            }
            assert!(matches!(room.take(&mut hint), Taken::None));
        }
    }

    #[test]
    fn workers_that_take_and_free_at_once_never_have_the_same_place() {
        let room = Room::new(64).unwrap();
        (0..2).for_each(|piece| grow(&room, piece));
        let owners: Vec<AtomicU32> = (0..128).map(|_| AtomicU32::new(0)).collect();
        std::thread::scope(|scope| {
            for worker in 1..=4_u32 {
                let (room, owners) = (&room, &owners);
                scope.spawn(move || {
                    let mut hint = worker * 30;
                    for _ in 0..2000 {
                        let mut mine = Vec::new();
                        while mine.len() < 40
                            && let Taken::Place(place) = room.take(&mut hint)
                        {
                            assert_eq!(owners[place as usize].swap(worker, AcqRel), 0);
                            mine.push(place);
                        }
                        for place in mine {
                            owners[place as usize].store(0, Release);
                            room.free(place);
                        }
                    }
                });
            }
        });
    }
}
