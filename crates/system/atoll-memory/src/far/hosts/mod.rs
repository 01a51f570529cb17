//! Far memory in other hosts: `hosts`. Pages lie in memory that lenders lend, and move over a connection of each worker's own.
//!
//! `lenders` says who they are, `connection` talks to them in the format of `wire`, and `room` knows which places are taken. The
//! lender is in the crate `atoll-lend`, as is what the launcher does for a run: it begins a session with each lender and looks
//! whether they live.
//!
//! A worker sends what it asks of each lender before it waits for the first reply, so several lenders work at once. A page lies on
//! one lender or two. Its checksum is kept here, so that no lender can give back anything but what it was given. A lender whose
//! connection breaks and cannot be made again is lost for the run: its pages come from their other copies, and where a page has
//! none the call fails with the lender's name.
//!
//! Fault path: no allocation, no lock the program could hold, no arena access, no panic. (`HostsStore::new` is set-up code.)
//!
//! Source: the barrelfish paper, sections 3.4 and 6.6: the other address space's memory is reached by capabilities, in bulk.

pub(crate) mod connection;
pub mod lenders;
mod room;
pub mod wire;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use rustix::io_uring::iovec;
use xxhash_rust::xxh3::xxh3_64;

pub use self::connection::LenderTrouble;
use self::connection::{Connection, To};
use self::lenders::{LenderState, Lenders, MAX_LENDERS};
use self::room::{Room, Taken};
use self::wire::{Entry, Handle, MOST_BYTES, MOST_ENTRIES, Verb};
use super::lane::{Lane, Lanes};
use super::table::Table;
use super::{FarConfig, FarError, FarStore, Transfer, Usage};

/// Pages of one round of requests at most.
const BATCH: usize = MOST_ENTRIES;
/// Copies of a page at most.
const COPIES: usize = 2;

/// The connections of a lane.
pub(crate) struct Connections {
    each: [Connection; MAX_LENDERS],
    /// The place that the lane took last, by lender.
    hints: [u32; MAX_LENDERS],
    /// Rounds of stores, by which lenders that are equally near take turns.
    turn: u32,
}

impl Connections {
    pub(crate) const NONE: Connections =
        Connections { each: [const { Connection::NONE }; MAX_LENDERS], hints: [0; MAX_LENDERS], turn: 0 };
}

/// A page's copy: a lender and a place there, or nothing (0).
#[derive(Clone, Copy, PartialEq, Eq)]
struct Spot(u32);

impl Spot {
    const NONE: Spot = Spot(0);

    fn new(lender: usize, place: u32) -> Spot {
        Spot(1 << 31 | (lender as u32 & 7) << 28 | place & 0x0fff_ffff)
    }

    fn lender(self) -> Option<usize> {
        (self.0 != 0).then_some((self.0 >> 28 & 7) as usize)
    }

    fn place(self) -> u32 {
        self.0 & 0x0fff_ffff
    }
}

/// The copies of one page, as they are kept in one word.
fn copies_of(word: u64) -> [Spot; COPIES] {
    [Spot(word as u32), Spot((word >> 32) as u32)]
}

fn word_of(copies: [Spot; COPIES]) -> u64 {
    u64::from(copies[0].0) | u64::from(copies[1].0) << 32
}

/// A lane's scratch memory; all zeros is a valid value.
#[repr(C)]
struct Round {
    /// The copies of each page of the round.
    copies: [[Spot; COPIES]; BATCH],
    sums: [u64; BATCH],
    /// What is still to be moved of each page: a bit for each copy.
    due: [u8; BATCH],
    /// What was written of each page: a bit for each copy.
    done: [u8; BATCH],
    entries: [u8; MOST_ENTRIES * Entry::BYTES],
    /// The request's own bytes, and the pages.
    buffers: [iovec; BATCH + 1],
}

/// Far memory in other hosts; see the module.
pub struct HostsStore {
    lenders: Lenders,
    rooms: Vec<Room>,
    /// Where each page's copies are.
    places: Table,
    /// The checksum of each page held, 0 for none.
    sums: Table,
    lanes: Arc<Lanes>,
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
        let Some(lenders) = config.lenders.filter(|lenders| lenders.settings.count > 0) else {
            return Err(FarError::Unavailable(
                "no lender is known to this run: start one on another host with `atoll lend SIZE`, or name hosts with --hosts-far",
            ));
        };
        let room = |(lender, _): (&lenders::LenderSettings, _)| {
            let per_piece = lender.piece_bytes / config.page_size as u64;
            if per_piece == 0 {
                return Err(FarError::Unavailable(
                    "a lender lends smaller pieces than a page: use a smaller --page",
                ));
            }
            Room::new(per_piece)
        };
        let rooms = lenders.all().map(room).collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            lenders,
            rooms,
            places: Table::new(config.pages)?,
            sums: Table::new(config.pages)?,
            lanes: Lanes::new(config.lanes, size_of::<Round>(), 0, None, 0)?,
            pages: config.pages,
            page_size: config.page_size,
            limit_pages: config.limit_pages(),
            batch: BATCH.min((MOST_BYTES as usize / config.page_size).max(1)),
            copies: (lenders.settings.copies as usize).clamp(1, COPIES),
        })
    }

    fn to(&self, lender: usize) -> Option<To<'static>> {
        let (settings, figures) = (self.lenders.settings, self.lenders.figures);
        Some(To { settings: settings.all().get(lender)?, figures: figures.get(lender)? })
    }

    fn state(&self, lender: usize) -> LenderState {
        self.lenders.figures.get(lender).map_or(LenderState::Lost, lenders::LenderFigures::state)
    }

    fn trouble(&self, lender: usize, why: LenderTrouble) -> FarError {
        let label = self.to(lender).map_or(lenders::Label::new("?"), |to| to.settings.label);
        FarError::Lender { label, why }
    }

    fn round(&self, lane: &Lane) -> Result<*mut Round, FarError> {
        Ok(self.lanes.enter(lane)?.cast())
    }

    fn checksum(&self, memory: *const u8) -> u64 {
        // SAFETY: a page of the caller's, valid during the call, not written meanwhile.
        xxh3_64(unsafe { std::slice::from_raw_parts(memory, self.page_size) }).max(1)
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
        for (number, _) in self.rooms.iter().enumerate() {
            let lender = if number < near { (number + turn) % near } else { number };
            let room = self.rooms.get(lender)?;
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
                connection.receive(to, &mut data)
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

    /// Does something with a lender, twice where its connection breaks: a lender that does not take a new one is lost.
    fn retry<T>(
        &self,
        to: To<'_>,
        connection: &mut Connection,
        mut work: impl FnMut(&mut Connection) -> Result<T, LenderTrouble>,
    ) -> Result<T, LenderTrouble> {
        for last in [false, true] {
            match work(connection) {
                Ok(value) => return Ok(value),
                Err(refused @ LenderTrouble::Refused(status)) if status != wire::Status::NoSession => {
                    return Err(refused);
                }
                Err(trouble) => {
                    connection.close();
                    if last {
                        to.figures.set_state(LenderState::Lost);
                        return Err(trouble);
                    }
                }
            }
        }
        Err(LenderTrouble::Lost)
    }

    /// Writes the entries of the round's pages that are due on `lender`, and points the buffers behind the first at their memory.
    /// The bytes of the entries, and the number of buffers.
    fn plan(&self, round: &mut Round, pages: &[Transfer], lender: usize) -> (usize, usize) {
        let (mut entries, mut buffers) = (0, 1);
        let mut run: Option<(Entry, u32)> = None;
        let Some(room) = self.rooms.get(lender) else { return (0, 1) };
        let size = self.page_size as u64;
        let bytes = &mut round.entries;
        let mut finish = |entry: &Entry, entries: &mut usize| {
            if let Some(place) = bytes.get_mut(*entries..*entries + Entry::BYTES) {
                place.copy_from_slice(&entry.encode());
                *entries += Entry::BYTES;
            }
        };
        for ((t, copies), due) in pages.iter().zip(&round.copies).zip(&round.due) {
            for (copy, bit) in copies.iter().zip([1, 2]) {
                if due & bit == 0 || copy.lender() != Some(lender) {
                    continue;
                }
                let place = copy.place();
                match &mut run {
                    Some((entry, last)) if room.are_neighbours(*last, place) => {
                        entry.length += size;
                        *last = place;
                    }
                    _ => {
                        if let Some((entry, _)) = &run {
                            finish(entry, &mut entries);
                        }
                        let (handle, number) = room.locate(place);
                        run = Some((Entry { handle, offset: number * size, length: size }, place));
                    }
                }
                if let Some(buffer) = round.buffers.get_mut(buffers) {
                    *buffer = iovec { iov_base: t.memory.cast(), iov_len: self.page_size };
                    buffers += 1;
                }
            }
        }
        if let Some((entry, _)) = &run {
            finish(entry, &mut entries);
        }
        (entries, buffers)
    }

    /// Sends the request for the pages that are due on `lender`. Whether there are any.
    fn send(
        &self,
        connection: &mut Connection,
        round: &mut Round,
        pages: &[Transfer],
        (lender, verb): (usize, Verb),
    ) -> Result<bool, LenderTrouble> {
        let Some(to) = self.to(lender) else { return Ok(false) };
        let (entries, buffers) = self.plan(round, pages, lender);
        if buffers == 1 {
            return Ok(false);
        }
        let bytes = ((buffers - 1) * self.page_size) as u64;
        // Only what is written goes with the request.
        let sent = if verb == Verb::Write { buffers } else { 1 };
        let (entries, buffers) = (round.entries.get(..entries), round.buffers.get_mut(..sent));
        let data = if verb == Verb::Write { bytes } else { 0 };
        // SAFETY: the first buffer is the connection's to fill; the others are pages, valid by the caller's contract.
        unsafe {
            connection.send(to, (verb, data), entries.unwrap_or_default(), buffers.unwrap_or_default())?;
        }
        Ok(true)
    }

    /// Receives the reply to what `send` sent, and counts the pages.
    fn receive(
        &self,
        connection: &mut Connection,
        round: &mut Round,
        pages: &[Transfer],
        (lender, verb): (usize, Verb),
    ) -> Result<(), LenderTrouble> {
        let Some(to) = self.to(lender) else { return Err(LenderTrouble::Lost) };
        let (_, buffers) = self.plan(round, pages, lender);
        let count = buffers as u64 - 1;
        let read = if verb == Verb::Read { 1..buffers } else { 1..1 };
        let buffers = round.buffers.get_mut(read).unwrap_or_default();
        // SAFETY: pages, valid for writes by the contract of `load`.
        unsafe { connection.receive(to, buffers) }?;
        let (pages, bytes) = match verb {
            Verb::Read => (&to.figures.pages_in, &to.figures.bytes_in),
            _ => (&to.figures.pages_out, &to.figures.bytes_out),
        };
        pages.fetch_add(count, Relaxed);
        bytes.fetch_add(count * self.page_size as u64, Relaxed);
        Ok(())
    }

    /// Asks all lenders for what is due on them, and waits for all. The connections of those that had trouble are closed: replies
    /// that were not read whole would be taken for others.
    fn ask(
        &self,
        connections: &mut Connections,
        round: &mut Round,
        pages: &[Transfer],
        verb: Verb,
    ) -> Result<(), Troubles> {
        let mut troubles = Troubles { each: [None; MAX_LENDERS] };
        let began = connection::now();
        let mut sent = [false; MAX_LENDERS];
        for (lender, connection) in connections.each.iter_mut().enumerate() {
            match self.send(connection, round, pages, (lender, verb)) {
                Ok(some) => set(&mut sent, lender, some),
                Err(why) => set(&mut troubles.each, lender, Some(why)),
            }
        }
        for (lender, connection) in connections.each.iter_mut().enumerate() {
            if sent.get(lender) != Some(&true) {
                continue;
            }
            match self.receive(connection, round, pages, (lender, verb)) {
                Ok(()) if verb == Verb::Read => {
                    if let Some(figures) = self.lenders.figures.get(lender) {
                        figures.note_read(connection::now().saturating_sub(began));
                    }
                }
                Ok(()) => {}
                Err(why) => set(&mut troubles.each, lender, Some(why)),
            }
        }
        for (connection, trouble) in connections.each.iter_mut().zip(&troubles.each) {
            if trouble.is_some() {
                connection.close();
            }
        }
        if troubles.each == [None; MAX_LENDERS] { Ok(()) } else { Err(troubles) }
    }

    /// Decides about lenders that had trouble: one whose connection broke is asked once more, over a new one. Others are lost:
    /// those that no new connection reaches, and those that took back a page or lied.
    fn judge(&self, troubles: &Troubles, tries: &mut [u8; MAX_LENDERS]) {
        for ((trouble, tries), figures) in troubles.each.iter().zip(tries).zip(self.lenders.figures) {
            let Some(why) = trouble else { continue };
            *tries += 1;
            if *tries > 1 || !matches!(why, LenderTrouble::Gone(_) | LenderTrouble::Silent) {
                figures.set_state(LenderState::Lost);
            }
        }
    }

    /// Readies a page to be stored: where its copies go. `None`: it is there already.
    fn ready(&self, lane: &mut Lane, t: &Transfer, sum: u64) -> Result<Option<[Spot; COPIES]>, FarError> {
        let old_sum = self.sums.load(t.page);
        let mut copies = copies_of(self.places.load(t.page));
        for copy in &mut copies {
            // What lies on a lost lender is gone. What lies on a slow one is left alone, and given up where it is no longer right.
            if let Some(lender) = copy.lender()
                && match self.state(lender) {
                    LenderState::Well => false,
                    LenderState::Slow => old_sum != sum,
                    LenderState::Lost => true,
                }
            {
                self.free(std::mem::replace(copy, Spot::NONE));
            }
        }
        let have = copies.iter().filter(|copy| **copy != Spot::NONE).count();
        if old_sum == sum && have >= self.copies {
            lane.counters().writes_avoided.fetch_add(1, Relaxed);
            return Ok(None);
        }
        if old_sum == 0 {
            self.lanes.hold(0, self.limit_pages)?;
        }
        // Until the write is done the page is not held.
        self.sums.set(t.page, 0);
        let [mut first, mut second] = copies;
        if first == Spot::NONE {
            (first, second) = (second, first);
        }
        if first == Spot::NONE {
            first = self.take(&mut lane.connections, Spot::NONE);
        }
        if self.copies > 1 && second == Spot::NONE && first != Spot::NONE {
            second = self.take(&mut lane.connections, first);
        }
        self.places.set(t.page, word_of([first, second]));
        if first == Spot::NONE {
            self.lanes.drop_held(0, 1);
            return Err(self.no_room());
        }
        Ok(Some([first, second]))
    }

    /// Why no lender has a place.
    fn no_room(&self) -> FarError {
        match self.lenders.all().position(|(_, figures)| figures.state() != LenderState::Lost) {
            None => self.trouble(0, LenderTrouble::Lost),
            Some(_) => FarError::LendersFull,
        }
    }

    fn store_round(&self, lane: &mut Lane, round: &mut Round, pages: &[Transfer]) -> Result<(), FarError> {
        (round.due, round.done) = ([0; BATCH], [0; BATCH]);
        lane.connections.turn = lane.connections.turn.wrapping_add(1);
        let mut result = Ok(());
        // Pages of this round that are to be written.
        let mut writing = [false; BATCH];
        for (at, t) in pages.iter().enumerate() {
            let sum = self.checksum(t.memory);
            match self.ready(lane, t, sum) {
                Ok(Some(copies)) => {
                    set(&mut round.sums, at, sum);
                    set(&mut round.copies, at, copies);
                    set(&mut round.due, at, bits_of(&copies));
                    set(&mut writing, at, true);
                }
                Ok(None) => {}
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
        let wrote = self.write(lane, round, pages, &writing);
        let (mut held, mut lost) = (0, 0);
        let written = pages.iter().zip(&round.sums).zip(round.done.iter().zip(&writing));
        for ((t, sum), (done, _)) in written.filter(|(_, (_, writing))| **writing) {
            if *done != 0 {
                self.sums.set(t.page, *sum);
                held += 1;
            } else {
                self.places.set(t.page, 0);
                lost += 1;
            }
        }
        self.lanes.drop_held(0, lost);
        lane.counters().bytes_stored.fetch_add(held * self.page_size as u64, Relaxed);
        if lost > 0 { wrote.and(result) } else { result }
    }

    /// Writes all that is due, elsewhere where a lender is lost. An error is the reason why a page is nowhere.
    fn write(
        &self,
        lane: &mut Lane,
        round: &mut Round,
        pages: &[Transfer],
        writing: &[bool; BATCH],
    ) -> Result<(), FarError> {
        let (mut tries, mut result) = ([0; MAX_LENDERS], Ok(()));
        while round.due != [0; BATCH] {
            let troubles =
                self.ask(&mut lane.connections, round, pages, Verb::Write).err().unwrap_or_default();
            self.judge(&troubles, &mut tries);
            for (at, t) in pages.iter().enumerate().filter(|(at, _)| writing.get(*at) == Some(&true)) {
                let (Some(due), Some(done), Some(copies)) =
                    (round.due.get_mut(at), round.done.get_mut(at), round.copies.get_mut(at))
                else {
                    break;
                };
                for (copy, bit) in copies.iter_mut().zip([1, 2]) {
                    let Some(lender) = copy.lender().filter(|_| *due & bit != 0) else { continue };
                    match troubles.of(lender) {
                        None => (*due, *done) = (*due & !bit, *done | bit),
                        Some(why) if self.state(lender) == LenderState::Lost => {
                            result = Err(self.trouble(lender, why));
                            self.free(std::mem::replace(copy, Spot::NONE));
                            *due &= !bit;
                        }
                        Some(_) => {}
                    }
                }
                if *copies == [Spot::NONE; COPIES] {
                    *copies = [self.take(&mut lane.connections, Spot::NONE), Spot::NONE];
                    *due = bits_of(copies);
                }
                self.places.set(t.page, word_of(*copies));
            }
        }
        result
    }

    /// Decides from which copy each page of the round comes: one that is well before one that is slow. `None`: there is no other
    /// than those of the mask `not`.
    fn choose(&self, copies: &[Spot; COPIES], not: u8) -> Option<u8> {
        [LenderState::Well, LenderState::Slow].into_iter().find_map(|state| {
            copies.iter().zip([1, 2]).find_map(|(copy, bit)| {
                (bit & not == 0 && self.state(copy.lender()?) == state).then_some(bit)
            })
        })
    }

    fn load_round(&self, lane: &mut Lane, round: &mut Round, pages: &[Transfer]) -> Result<(), FarError> {
        (round.due, round.done) = ([0; BATCH], [0; BATCH]);
        for (at, t) in pages.iter().enumerate() {
            let sum = self.sums.load(t.page);
            if sum == 0 {
                return Err(FarError::NotStored { page: t.page });
            }
            let copies = copies_of(self.places.load(t.page));
            let due = self.choose(&copies, 0).ok_or_else(|| self.nowhere(&copies, LenderTrouble::Lost))?;
            set(&mut round.copies, at, copies);
            set(&mut round.sums, at, sum);
            set(&mut round.due, at, due);
        }
        let mut tries = [0; MAX_LENDERS];
        while round.due != [0; BATCH] {
            let troubles =
                self.ask(&mut lane.connections, round, pages, Verb::Read).err().unwrap_or_default();
            self.judge(&troubles, &mut tries);
            for (at, t) in pages.iter().enumerate() {
                let (Some(due), Some(bad), Some(copies), Some(sum)) =
                    (round.due.get_mut(at), round.done.get_mut(at), round.copies.get(at), round.sums.get(at))
                else {
                    break;
                };
                let Some(lender) =
                    copies.get(usize::from(*due == 2)).and_then(|copy| copy.lender()).filter(|_| *due != 0)
                else {
                    continue;
                };
                let why = match troubles.of(lender) {
                    None if self.checksum(t.memory) == *sum => {
                        *due = 0;
                        continue;
                    }
                    None => LenderTrouble::Damaged,
                    Some(why) => why,
                };
                if why == LenderTrouble::Damaged {
                    *bad |= *due;
                }
                *due = self.choose(copies, *bad).ok_or_else(|| self.trouble(lender, why))?;
            }
        }
        lane.counters().bytes_loaded.fetch_add((pages.len() * self.page_size) as u64, Relaxed);
        Ok(())
    }

    /// Why a page cannot be had: the lender that had it.
    fn nowhere(&self, copies: &[Spot; COPIES], why: LenderTrouble) -> FarError {
        self.trouble(copies.iter().find_map(|copy| copy.lender()).unwrap_or(0), why)
    }
}

/// What went wrong with each lender in one round.
#[derive(Clone, Copy, Default)]
struct Troubles {
    each: [Option<LenderTrouble>; MAX_LENDERS],
}

impl Troubles {
    fn of(&self, lender: usize) -> Option<LenderTrouble> {
        self.each.get(lender).copied().flatten()
    }
}

/// Writes to a place that is there.
fn set<T>(to: &mut [T], at: usize, value: T) {
    if let Some(place) = to.get_mut(at) {
        *place = value;
    }
}

/// The bits of the copies that there are.
fn bits_of(copies: &[Spot; COPIES]) -> u8 {
    copies.iter().zip([1, 2]).filter(|(copy, _)| **copy != Spot::NONE).map(|(_, bit)| bit).sum()
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
        let mut dropped = 0;
        self.sums.visit(first..first.saturating_add(count), |page, sum| {
            sum.store(0, Relaxed);
            copies_of(self.places.load(page)).into_iter().for_each(|copy| self.free(copy));
            self.places.set(page, 0);
            dropped += 1;
        });
        self.lanes.drop_held(0, dropped);
    }

    fn usage(&self) -> Usage {
        let mut usage = self.lanes.usage(self.page_size as u64);
        usage.bytes_after = usage.bytes_before;
        let held: u64 = self.lenders.all().map(|(_, figures)| figures.pages_held.load(Relaxed)).sum();
        usage.bytes_reserved = held * self.page_size as u64;
        usage
    }

    fn memory_bytes(&self) -> u64 {
        0
    }
}
