//! Far memory in other hosts: `hosts`. Pages lie in memory that lenders lend, and move over a connection of each worker's own.
//!
//! `lenders` says who they are, `connection` talks to them in the format of `wire`, and `asking` makes the requests of a round, with pages that `pack` made
//! shorter where the link is slow. `room`
//! knows which places are taken, and `held` which pages are where. `keep` stores and `fetch` loads; `moving` gives lenders back what
//! they want to have. The lender is in the crate `atoll-lend`, as is what the launcher does for a run: it begins a session with
//! each lender and looks whether they live.
//!
//! A worker sends what it asks of each lender before it waits for the first reply, so several lenders work at once. A page lies on
//! one lender or two. Its checksum is kept here, so that no lender can give back anything but what it was given. A lender whose
//! connection breaks and cannot be made again is lost for the run: its pages come from their other copies, and where a page has
//! none the call fails with the lender's name. Behind the lenders is a file, for pages that they have no room for. Where `auto` is
//! asked for, `behind` puts this store behind this host's memory.
//!
//! Fault path: no allocation, no lock the program could hold, no arena access, no panic. (`HostsStore::new` is set-up code.)
//!
//! Source: the barrelfish paper, sections 3.4 and 6.6: the other address space's memory is reached by capabilities, in bulk.

mod asking;
pub(crate) mod connection;
mod fetch;
mod held;
mod keep;
pub mod lenders;
mod moving;
mod pack;
mod room;
pub mod wire;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use rustix::io_uring::iovec;

use self::asking::{BATCH, Round};
pub use self::connection::LenderTrouble;
use self::connection::{Connection, To};
use self::held::{COPIES, Held, Seal, Spot};
use self::lenders::{LenderState, Lenders, MAX_LENDERS};
use self::pack::{Packed, Packing};
use self::room::{Room, Taken};
use self::wire::{Handle, MOST_BYTES, Verb};
use super::file::FileStore;
use super::lane::{Lane, Lanes};
use super::shared::Mapping;
use super::{FarConfig, FarError, FarStore, Transfer, Usage};

/// The tiers by which the lanes count pages: those of lenders, and those of the file behind them.
const HOSTS: usize = 3;
const FILE: usize = 1;

/// The connections of a lane.
pub(crate) struct Connections {
    each: [Connection; MAX_LENDERS],
    /// The place that the lane took last, by lender.
    hints: [u32; MAX_LENDERS],
    /// Rounds of stores, by which lenders that are equally near take turns.
    turn: u32,
    packing: Packing,
}

impl Connections {
    pub(crate) const NONE: Connections = Connections {
        each: [const { Connection::NONE }; MAX_LENDERS],
        hints: [0; MAX_LENDERS],
        turn: 0,
        packing: Packing::NEW,
    };
}

/// Pages of a round: so many that a request is not too long.
fn pages_of_round(page_size: usize) -> usize {
    BATCH.min((MOST_BYTES as usize / page_size).max(1))
}

/// Far memory in other hosts; see the module.
pub struct HostsStore {
    lenders: Lenders,
    /// One for each lender that there is or may come.
    rooms: Vec<Room>,
    held: Held,
    /// Takes the pages that no lender has room for; none where no file can be made.
    behind: Option<FileStore>,
    /// Where pages are on their way from one lender to another: a round of them.
    moving: Mapping,
    lanes: Arc<Lanes>,
    /// Where the store's part of a lane's scratch memory begins.
    scratch_at: usize,
    pages: u64,
    page_size: usize,
    limit_pages: u64,
    /// Pages of a round: so many that a request is not too long.
    batch: usize,
    copies: usize,
}

impl HostsStore {
    /// Sets the store up over the lenders of the configuration.
    ///
    /// # Errors
    /// `Unavailable` where there are no lenders, `Io` if memory cannot be mapped.
    pub fn new(config: &FarConfig) -> Result<Self, FarError> {
        config.check()?;
        let scratch = Self::scratch_bytes(config);
        let lanes = Lanes::new(config.lanes, scratch, 0, None, FileStore::RING)?;
        Self::with_lanes(config, lanes, 0)
    }

    /// Where in the store's scratch memory packed pages are: behind the round, and that of the file.
    const PACKED_AT: usize = (size_of::<Round>() + FileStore::SCRATCH_BYTES).next_multiple_of(4096);

    /// Bytes of scratch memory that the store uses of each lane.
    pub(crate) fn scratch_bytes(config: &FarConfig) -> usize {
        Self::PACKED_AT + pack::scratch_bytes(config.page_size)
    }

    /// The store as one of those that the lanes lead to, with its scratch memory at `scratch_at` of each lane's.
    pub(crate) fn with_lanes(
        config: &FarConfig,
        lanes: Arc<Lanes>,
        scratch_at: usize,
    ) -> Result<Self, FarError> {
        let Some(lenders) = config.lenders.filter(|lenders| lenders.settings.count > 0) else {
            return Err(FarError::Unavailable(
                "no lender is known to this run: start one on another host with `atoll lend SIZE`, or name hosts with --hosts-far",
            ));
        };
        let room = |number| match lenders.get(number) {
            None => Room::later(),
            Some((lender, _)) => match lender.piece_bytes / config.page_size as u64 {
                0 => Err(FarError::Unavailable(
                    "a lender lends smaller pieces than a page: use a smaller --page",
                )),
                per_piece => Room::new(per_piece),
            },
        };
        let rooms = (0..MAX_LENDERS).map(room).collect::<Result<Vec<_>, _>>()?;
        let batch = pages_of_round(config.page_size);
        // The limit is for all pages, and looked at before one goes to the file.
        let of_file = FarConfig { limit_bytes: None, ..*config };
        let file_at = scratch_at + size_of::<Round>();
        Ok(Self {
            lenders,
            rooms,
            held: Held::new(config.pages)?,
            behind: FileStore::with_lanes(None, &of_file, Arc::clone(&lanes), FILE, file_at).ok(),
            moving: Mapping::new((batch * config.page_size) as u64, c"atoll moving pages", false)?,
            lanes,
            scratch_at,
            pages: config.pages,
            page_size: config.page_size,
            limit_pages: config.limit_pages(),
            batch,
            copies: (lenders.settings.copies as usize).clamp(1, COPIES),
        })
    }

    fn to(&self, lender: usize) -> Option<To<'static>> {
        let (settings, figures) = self.lenders.get(lender)?;
        Some(To { settings, figures })
    }

    fn state(&self, lender: usize) -> LenderState {
        self.lenders.figures.get(lender).map_or(LenderState::Lost, lenders::LenderFigures::state)
    }

    fn trouble(&self, lender: usize, why: LenderTrouble) -> FarError {
        let label = self.to(lender).map_or(lenders::Label::new("?"), |to| to.settings.label);
        FarError::Lender { label, why }
    }

    fn round(&self, lane: &Lane) -> Result<*mut Round, FarError> {
        // SAFETY: the scratch area of a lane holds a round at this place.
        Ok(unsafe { self.lanes.enter(lane)?.add(self.scratch_at) }.cast())
    }

    fn packed(&self, lane: &Lane) -> Result<Packed, FarError> {
        // SAFETY: the scratch area of a lane has packed pages' memory at this place, which is the lane's holder's alone.
        Ok(unsafe {
            let memory = self.lanes.enter(lane)?.add(self.scratch_at + Self::PACKED_AT);
            Packed::at(memory, self.page_size)
        })
    }

    fn seal(&self, memory: *const u8) -> Seal {
        // SAFETY: a page of the caller's, valid during the call, not written meanwhile.
        Seal::of(unsafe { std::slice::from_raw_parts(memory, self.page_size) })
    }

    fn free(&self, copy: Spot) {
        if let Some(lender) = copy.lender()
            && let Some(room) = self.rooms.get(lender)
        {
            room.free(copy.place());
            if let Some(figures) = self.lenders.figures.get(lender) {
                figures.pages_held.fetch_sub(1, Relaxed);
            }
        }
    }

    /// No lender has the page from now on.
    fn let_go(&self, page: u64) {
        let (seal, copies) = self.held.claim(page);
        // It may have moved to the file meanwhile.
        if seal != Seal::NONE {
            copies.into_iter().for_each(|copy| self.free(copy));
            self.held.place(page, [Spot::NONE; COPIES]);
            self.lanes.drop_held(HOSTS, 1);
        }
    }

    /// The page's copies are worthless, with lenders and in the file.
    pub(crate) fn forget(&self, page: u64) {
        if self.held.look(page).0 != Seal::NONE {
            self.let_go(page);
        }
        if let Some(file) = &self.behind {
            file.forget(page);
        }
    }

    /// Whether a copy lies where its lender wants the memory back.
    fn is_closed(&self, copy: Spot) -> bool {
        let room = copy.lender().and_then(|lender| self.rooms.get(lender));
        room.is_some_and(|room| room.is_closed(copy.place()))
    }

    /// Pages that lenders have, and those that are in the file.
    pub(crate) fn pages_held(&self) -> u64 {
        self.lanes.held(HOSTS).load(Relaxed) + self.pages_behind()
    }

    /// Pages that are in the file.
    fn pages_behind(&self) -> u64 {
        self.behind.as_ref().map_or(0, FileStore::pages_held)
    }

    /// Memory of lenders and disk taken for pages.
    pub(crate) fn reserved_bytes(&self) -> u64 {
        let held: u64 = self.lenders.all().map(|(_, figures)| figures.pages_held.load(Relaxed)).sum();
        let file = self.behind.as_ref().map_or(0, |file| file.usage().bytes_reserved);
        held * self.page_size as u64 + file
    }

    /// The room of a lender, which begins when a lender that came later is first used.
    fn room(&self, lender: usize) -> Option<&Room> {
        let room = self.rooms.get(lender)?;
        if !room.has_begun() {
            // The same number for every worker.
            room.begin(self.to(lender)?.settings.piece_bytes / self.page_size as u64);
        }
        Some(room)
    }

    /// How many lenders are as near as the nearest, by the last round trips.
    fn equally_near(&self) -> usize {
        let trip = |figures: &lenders::LenderFigures| figures.round_trip_ns.load(Relaxed);
        let nearest = self.lenders.figures.first().map_or(0, trip);
        let near = |trip: u64| trip <= nearest.saturating_add(nearest / 4);
        self.lenders.all().take_while(|(_, figures)| near(trip(figures))).count().max(1)
    }

    /// Takes a place on one of the lenders in this state, the nearest first, other than `not`. Those that are equally near take
    /// turns by rounds, so that several lenders work for one program.
    fn take_of(&self, connections: &mut Connections, state: LenderState, not: Spot) -> Option<Spot> {
        let near = self.equally_near();
        let turn = connections.turn as usize;
        for number in 0..self.lenders.count() {
            let lender = if number < near { (number + turn) % near } else { number };
            let room = self.room(lender)?;
            if self.state(lender) != state || not.lender() == Some(lender) {
                continue;
            }
            loop {
                if let Taken::Place(place) = room.take(connections.hints.get_mut(lender)?) {
                    self.lenders.figures.get(lender)?.pages_held.fetch_add(1, Relaxed);
                    return Some(Spot::new(lender, place));
                }
                // A lender that refuses, or fails here, is passed over.
                if !room.has_room_for_a_piece()
                    || !room.grow(|| self.borrow(connections, lender)).unwrap_or(false)
                {
                    break;
                }
            }
        }
        None
    }

    /// Takes a place on a lender other than `not`; none where no lender has any.
    fn take(&self, connections: &mut Connections, not: Spot) -> Spot {
        self.take_of(connections, LenderState::Well, not)
            .or_else(|| self.take_of(connections, LenderState::Slow, not))
            .unwrap_or(Spot::NONE)
    }

    /// Borrows one more piece; `None` where the lender has none left.
    fn borrow(&self, connections: &mut Connections, lender: usize) -> Result<Option<Handle>, LenderTrouble> {
        let (Some(to), Some(connection)) = (self.to(lender), connections.each.get_mut(lender)) else {
            return Ok(None);
        };
        // What it can lend is known from its last answer to the launcher.
        if to.figures.free_bytes.load(Relaxed) < to.settings.piece_bytes {
            return Ok(None);
        }
        let mut handle = [0; Handle::BYTES];
        let asked = self.retry(to, connection, |connection| {
            let mut head = [iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }];
            let mut data = [iovec { iov_base: handle.as_mut_ptr().cast(), iov_len: handle.len() }];
            // SAFETY: the first buffer is the connection's to fill, the second is the array above.
            unsafe {
                connection.send(to, (Verb::Borrow, 0), &[], &mut head)?;
                connection.receive(to, &mut data, &mut |_| {})
            }
        });
        match asked {
            Ok(free) => {
                to.figures.free_bytes.store(free, Relaxed);
                to.figures.borrowed_bytes.fetch_add(to.settings.piece_bytes, Relaxed);
                Ok(Some(Handle::decode(&handle)))
            }
            Err(LenderTrouble::Refused(wire::Status::Full)) => {
                to.figures.free_bytes.store(0, Relaxed);
                Ok(None)
            }
            Err(trouble) => Err(trouble),
        }
    }
}

impl FarStore for HostsStore {
    fn lane(&self, index: u32) -> Result<Lane, FarError> {
        self.lanes.lane(index)
    }

    fn store(&self, lane: &mut Lane, pages: &[Transfer]) -> Result<(), FarError> {
        // SAFETY: the round is the lane's holder's alone; any bytes are valid.
        let round = unsafe { &mut *self.round(lane)? };
        super::check_range(pages, self.pages)?;
        pages.chunks(self.batch).try_for_each(|pages| self.store_round(lane, round, pages))
    }

    fn load(&self, lane: &mut Lane, pages: &[Transfer]) -> Result<(), FarError> {
        // SAFETY: as in store.
        let round = unsafe { &mut *self.round(lane)? };
        super::check_range(pages, self.pages)?;
        pages.chunks(self.batch).try_for_each(|pages| self.load_round(lane, round, pages))
    }

    fn discard(&self, first: u64, count: u64) {
        self.held.visit(first..first.saturating_add(count), |page| self.let_go(page));
        if let Some(file) = &self.behind {
            file.discard(first, count);
        }
    }

    fn usage(&self) -> Usage {
        let mut usage = self.lanes.usage(self.page_size as u64);
        usage.bytes_after = usage.bytes_before;
        usage.bytes_reserved = self.reserved_bytes();
        usage
    }

    fn memory_bytes(&self) -> u64 {
        0
    }

    fn borrows(&self) -> bool {
        true
    }

    fn give_back(&self, lane: &mut Lane) -> bool {
        // What went wrong with a lender is in its state, and what went wrong with a page is told to who needs it.
        self.give_back_once(lane).unwrap_or(false)
    }
}
