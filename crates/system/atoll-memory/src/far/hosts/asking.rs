//! What a worker asks its lenders for in one round: the requests, the replies, and what is thought of a lender that had trouble.
//!
//! `keep` writes by it and `fetch` reads; `connection` sends and receives.
//!
//! Fault path: no allocation, no lock the program could hold, no arena access, no panic.

use std::sync::atomic::Ordering::Relaxed;

use rustix::io_uring::iovec;

use super::connection::{self, Connection, To};
use super::held::{Copies, PARTS, Seal, Spot};
use super::lenders::{LenderState, MAX_LENDERS};
use super::pack::Packed;
use super::wire::{self, Entry, MOST_ENTRIES, Verb};
use super::{HostsStore, LenderTrouble};
use crate::far::lane::Lane;
use crate::far::{FarError, Transfer};

/// Pages of one round of requests at most.
pub(super) const BATCH: usize = MOST_ENTRIES;

/// A lane's scratch memory; all zeros is a valid value.
#[repr(C)]
pub(super) struct Round {
    /// The copies of each page of the round.
    pub(super) copies: [Copies; BATCH],
    pub(super) seals: [Seal; BATCH],
    /// What is still to be moved of each page: a bit for each copy.
    pub(super) due: [u8; BATCH],
    /// What was written of each page: a bit for each copy. Of a page that is read: the copies that are damaged.
    pub(super) done: [u8; BATCH],
    /// The checksum of each page of the round as it came.
    pub(super) came: [u64; BATCH],
    /// The page of the round that each buffer behind the first one is of.
    order: [u8; BATCH],
    entries: [u8; MOST_ENTRIES * Entry::BYTES],
    /// The request's own bytes, and the pages.
    buffers: [iovec; BATCH + 1],
}

impl Round {
    /// Nothing is to be moved, and nothing was.
    pub(super) fn clear(&mut self) {
        (self.due, self.done) = ([0; BATCH], [0; BATCH]);
    }
}

impl HostsStore {
    /// Does something with a lender, twice where its connection breaks: a lender that does not take a new one is lost.
    pub(super) fn retry<T>(
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

    /// Writes the entries of the round's pages that are due on `lender`, and points the buffers behind the first at their memory, or
    /// at that of their packed bytes.
    fn plan(&self, round: &mut Round, pages: &[Transfer], lender: usize, packed: &Packed) -> Plan {
        let (mut entries, mut buffers, mut data) = (0, 1, 0);
        // An entry, and its last place if the page there is whole, so that the next place's page follows.
        let mut run: Option<(Entry, Option<u32>)> = None;
        let Some(room) = self.rooms.get(lender) else { return Plan { entries, buffers, data } };
        let size = self.page_size as u64;
        let bytes = &mut round.entries;
        let mut finish = |entry: &Entry, entries: &mut usize| {
            if let Some(place) = bytes.get_mut(*entries..*entries + Entry::BYTES) {
                place.copy_from_slice(&entry.encode());
                *entries += Entry::BYTES;
            }
        };
        let due = pages.iter().zip(&round.copies).zip(&round.due).zip(&round.seals);
        for (at, (((t, copies), due), seal)) in due.enumerate() {
            let length = seal.parts().map_or(size, |parts| u64::from(parts) * (size / u64::from(PARTS)));
            let memory = if seal.parts().is_some() { packed.slot(at) } else { t.memory };
            for (copy, bit) in copies.iter().zip([1, 2]) {
                if due & bit == 0 || copy.lender() != Some(lender) {
                    continue;
                }
                let place = copy.place();
                let whole = (length == size).then_some(place);
                match &mut run {
                    Some((entry, last)) if last.is_some_and(|last| room.are_neighbours(last, place)) => {
                        entry.length += length;
                        *last = whole;
                    }
                    _ => {
                        if let Some((entry, _)) = &run {
                            finish(entry, &mut entries);
                        }
                        let (handle, number) = room.locate(place);
                        run = Some((Entry { handle, offset: number * size, length }, whole));
                    }
                }
                set(&mut round.order, buffers - 1, at as u8);
                if let Some(buffer) = round.buffers.get_mut(buffers) {
                    *buffer = iovec { iov_base: memory.cast(), iov_len: length as usize };
                    buffers += 1;
                    data += length;
                }
            }
        }
        if let Some((entry, _)) = &run {
            finish(entry, &mut entries);
        }
        Plan { entries, buffers, data }
    }

    /// Sends the request for the pages that are due on `lender`. Whether there are any.
    fn send(
        &self,
        connection: &mut Connection,
        round: &mut Round,
        pages: &[Transfer],
        (lender, verb): (usize, Verb),
        packed: &Packed,
    ) -> Result<bool, LenderTrouble> {
        let Some(to) = self.to(lender) else { return Ok(false) };
        let Plan { entries, buffers, data: bytes } = self.plan(round, pages, lender, packed);
        if buffers == 1 {
            return Ok(false);
        }
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
        packed: &Packed,
    ) -> Result<u64, LenderTrouble> {
        let Some(to) = self.to(lender) else { return Err(LenderTrouble::Lost) };
        let Plan { buffers, data, .. } = self.plan(round, pages, lender, packed);
        let count = buffers as u64 - 1;
        let read = if verb == Verb::Read { 1..buffers } else { 1..1 };
        let Round { buffers, order, came, seals, .. } = round;
        let buffers = buffers.get_mut(read).unwrap_or_default();
        // While the next pages are on their way: what has just been copied is in the processor's cache.
        let mut summed = 0;
        let mut sum = |full: usize| {
            for at in order.get(summed..full).unwrap_or_default() {
                let at = usize::from(*at);
                let (Some(t), Some(seal)) = (pages.get(at), seals.get(at)) else { continue };
                // SAFETY: a page, valid for writes by the contract of `load`.
                let whole = seal.parts().is_none_or(|parts| unsafe { packed.unpack(at, parts, t.memory) });
                set(came, at, if whole { self.seal(t.memory).checksum() } else { 0 });
            }
            summed = full;
        };
        // SAFETY: pages, valid for writes by the contract of `load`.
        unsafe { connection.receive(to, buffers, &mut sum) }?;
        let (pages, bytes) = match verb {
            Verb::Read => (&to.figures.pages_in, &to.figures.bytes_in),
            _ => (&to.figures.pages_out, &to.figures.bytes_out),
        };
        pages.fetch_add(count, Relaxed);
        bytes.fetch_add(data, Relaxed);
        Ok(data)
    }

    /// Asks all lenders for what is due on them, waits for all, and says what went wrong. The connections of those that had trouble are
    /// closed: replies that were not read whole would be taken for others.
    pub(super) fn ask(
        &self,
        lane: &mut Lane,
        round: &mut Round,
        pages: &[Transfer],
        verb: Verb,
    ) -> Result<Troubles, FarError> {
        let packed = self.packed(lane)?;
        let connections = &mut lane.connections;
        let mut troubles = Troubles { each: [None; MAX_LENDERS] };
        let began = connection::now();
        let mut sent = [false; MAX_LENDERS];
        for (lender, connection) in connections.each.iter_mut().enumerate() {
            match self.send(connection, round, pages, (lender, verb), &packed) {
                Ok(some) => set(&mut sent, lender, some),
                Err(why) => set(&mut troubles.each, lender, Some(why)),
            }
        }
        for (lender, connection) in connections.each.iter_mut().enumerate() {
            if sent.get(lender) != Some(&true) {
                continue;
            }
            match self.receive(connection, round, pages, (lender, verb), &packed) {
                Ok(bytes) => {
                    if let Some(figures) = self.lenders.figures.get(lender) {
                        let ns = connection::now().saturating_sub(began);
                        figures.note_moved(ns, bytes);
                        if verb == Verb::Read {
                            figures.note_read(ns);
                        }
                    }
                }
                Err(why) => set(&mut troubles.each, lender, Some(why)),
            }
        }
        for (connection, trouble) in connections.each.iter_mut().zip(&troubles.each) {
            if trouble.is_some() {
                connection.close();
            }
        }
        Ok(troubles)
    }

    /// Decides about lenders that had trouble: one whose connection broke is asked once more, over a new one. Others are lost:
    /// those that no new connection reaches, and those that took back a page or lied. Those that refused because they were
    /// asked for what had moved meanwhile are `excused`.
    pub(super) fn judge(
        &self,
        troubles: &Troubles,
        excused: [bool; MAX_LENDERS],
        tries: &mut [u8; MAX_LENDERS],
    ) {
        let each = troubles.each.iter().zip(excused).zip(tries).zip(self.lenders.figures);
        for (((trouble, excused), tries), figures) in each {
            let Some(why) = trouble else { continue };
            if excused && matches!(why, LenderTrouble::Refused(_)) {
                continue;
            }
            *tries += 1;
            if *tries > 1 || !matches!(why, LenderTrouble::Gone(_) | LenderTrouble::Silent) {
                figures.set_state(LenderState::Lost);
            }
        }
    }
}

/// A request for pages: bytes of its entries, buffers with the first one that is the connection's, and bytes in the others.
struct Plan {
    entries: usize,
    buffers: usize,
    data: u64,
}

/// What went wrong with each lender in one round.
#[derive(Clone, Copy, Default)]
pub(super) struct Troubles {
    each: [Option<LenderTrouble>; MAX_LENDERS],
}

impl Troubles {
    pub(super) fn of(&self, lender: usize) -> Option<LenderTrouble> {
        self.each.get(lender).copied().flatten()
    }
}

/// Writes to a place that is there.
pub(super) fn set<T>(to: &mut [T], at: usize, value: T) {
    if let Some(place) = to.get_mut(at) {
        *place = value;
    }
}

/// The bits of the copies that there are.
pub(super) fn bits_of(copies: &Copies) -> u8 {
    copies.iter().zip([1, 2]).filter(|(copy, _)| **copy != Spot::NONE).map(|(_, bit)| bit).sum()
}
