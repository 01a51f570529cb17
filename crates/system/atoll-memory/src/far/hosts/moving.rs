//! Moving pages away from lenders that want their memory back: to other lenders, otherwise to the file behind them.
//!
//! One thread of the run does this, by [`FarStore::give_back`](crate::far::FarStore::give_back); the launcher notes in the lenders'
//! figures how much the run may keep of each (`atoll-lend`'s `keeper`). Pieces are closed, their pages move while workers go on
//! loading them, and a piece without pages goes back. `held` says how moves and workers keep out of each other's way.
//!
//! Rules: no allocation, no arena access.
//!
//! Source: the barrelfish paper, section 6.6.2: a capability's owner revokes it, and whoever holds a part of it gives it up first.

use std::sync::atomic::Ordering::Relaxed;

use rustix::io_uring::iovec;

use super::asking::{BATCH, Round, set};
use super::held::{COPIES, Copies, Seal, Spot};
use super::lenders::LenderState;
use super::wire::{Entry, Handle, Verb};
use super::{HOSTS, HostsStore};
use crate::far::lane::Lane;
use crate::far::rest::Rest;
use crate::far::{FarError, FarStore, Transfer};

/// Pages that are to be moved, up to a round's.
struct Pages {
    numbers: [u64; BATCH],
    count: usize,
}

impl HostsStore {
    /// Closes pieces of each lender until the run keeps no more than it may; whether any piece is closed.
    fn close(&self) -> bool {
        let mut any = false;
        for (room, (settings, figures)) in self.rooms.iter().zip(self.lenders.all()) {
            if figures.state() == LenderState::Lost {
                continue;
            }
            if let Some(keep) = figures.keep_bytes() {
                let over = figures.borrowed_bytes.load(Relaxed).saturating_sub(keep);
                // Without another place only memory without pages can go back.
                let quarters = if self.behind.is_some() || self.lenders.count() > 1 { 4 } else { 0 };
                room.close(over.div_ceil(settings.piece_bytes), quarters);
            }
            any |= room.closing() > 0;
        }
        any
    }

    /// One pass over all pages, which moves those that lie in closed pieces, and gives back the pieces that are empty. Whether pages
    /// moved or memory went back.
    pub(super) fn give_back_once(&self, lane: &mut Lane) -> Result<bool, FarError> {
        if !self.close() {
            return Ok(false);
        }
        let (mut moved, mut pages) = (0, Pages { numbers: [0; BATCH], count: 0 });
        let batch = self.batch;
        let (mut result, scratch) = (Ok(()), self.round(lane)?);
        self.held.visit(0..self.pages, |page| {
            if self.held.look(page).1.iter().any(|copy| self.is_closed(*copy)) {
                set(&mut pages.numbers, pages.count, page);
                pages.count += 1;
            }
            if pages.count == batch && result.is_ok() {
                // SAFETY: the lane's own scratch memory, and nobody else has this lane.
                let round = unsafe { &mut *scratch };
                result = self.move_pages(lane, round, &pages).map(|count| moved += count);
                pages.count = 0;
            }
        });
        result?;
        // SAFETY: as above.
        moved += self.move_pages(lane, unsafe { &mut *scratch }, &pages)?;
        let mut gone = 0;
        for (lender, room) in self.rooms.iter().enumerate().filter(|(_, room)| room.closing() > 0) {
            room.sweep(|handle| {
                self.return_piece(lane, lender, handle);
                gone += 1;
            });
        }
        if moved == 0 && gone == 0 {
            self.moving.release(0, usize::MAX);
        }
        Ok(moved > 0 || gone > 0)
    }

    /// Gives a piece back. The lender takes all of them when the connection is gone, so an answer is only waited for.
    fn return_piece(&self, lane: &mut Lane, lender: usize, handle: Handle) {
        let (Some(to), Some(connection)) = (self.to(lender), lane.connections.each.get_mut(lender)) else {
            return;
        };
        // A lender that leaves may end as soon as it has the last piece.
        to.figures.borrowed_bytes.fetch_sub(to.settings.piece_bytes, Relaxed);
        to.figures.returned_bytes.fetch_add(to.settings.piece_bytes, Relaxed);
        let entry = Entry { handle, offset: 0, length: to.settings.piece_bytes }.encode();
        let mut head = [iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }];
        // SAFETY: the buffer is the connection's to fill, and the reply has no data.
        let given = unsafe {
            connection
                .send(to, (Verb::GiveBack, 0), &entry, &mut head)
                .and_then(|()| connection.receive(to, &mut [], &mut |_| {}))
        };
        if given.is_err() {
            connection.close();
        }
    }

    /// Moves these pages; how many of them are in no closed piece any more.
    fn move_pages(&self, lane: &mut Lane, round: &mut Round, pages: &Pages) -> Result<u64, FarError> {
        let mut transfers = [Transfer::NONE; BATCH];
        for (at, (transfer, page)) in transfers.iter_mut().zip(pages.numbers).enumerate() {
            // SAFETY: the mapping has room for a round of pages, and there are no more.
            let memory = unsafe { self.moving.base().add(at % self.batch * self.page_size) };
            *transfer = Transfer { page, memory };
        }
        let all = transfers.get(..pages.count).unwrap_or_default();
        match self.load_round(lane, round, all) {
            // One that is not held any more spoils the whole round.
            Err(FarError::NotStored { .. }) if all.len() > 1 => {
                let mut moved = 0;
                for number in pages.numbers.into_iter().take(pages.count) {
                    let mut one = Pages { numbers: [0; BATCH], count: 1 };
                    set(&mut one.numbers, 0, number);
                    moved += self.move_pages(lane, round, &one)?;
                }
                Ok(moved)
            }
            Err(FarError::NotStored { .. }) => Ok(0),
            Err(error) => Err(error),
            Ok(()) => self.write_elsewhere(lane, round, all),
        }
    }

    /// Takes other places for the copies that lie in closed pieces, as far as there are any; `None` where a page is to go to the
    /// file, as it would have no place at all, or fewer than it should.
    fn other_places(&self, lane: &mut Lane, copies: Copies) -> Option<Copies> {
        let mut new = copies;
        for at in 0..COPIES {
            let (Some(copy), Some(other)) = (copies.get(at).copied(), new.get(1 - at).copied()) else {
                continue;
            };
            if !self.is_closed(copy) {
                continue;
            }
            let taken = self.take(&mut lane.connections, other);
            set(&mut new, at, taken);
            if taken == Spot::NONE {
                // What was taken for the other copy is free again.
                let taken = new.iter().zip(copies).filter(|(new, old)| **new != *old);
                taken.for_each(|(new, _)| self.free(*new));
                return None;
            }
        }
        Some(new)
    }

    /// Writes a round of pages that was read to other places, and frees those that they had.
    fn write_elsewhere(
        &self,
        lane: &mut Lane,
        round: &mut Round,
        pages: &[Transfer],
    ) -> Result<u64, FarError> {
        let old = round.copies;
        round.clear();
        let (mut writing, mut rest, mut moved) = ([false; BATCH], Rest::new(), 0);
        for (at, t) in pages.iter().enumerate() {
            let (Some(copies), Some(seal)) = (old.get(at).copied(), round.seals.get(at).copied()) else {
                break;
            };
            // It came from the file, or was stored elsewhere since it was looked for.
            if !copies.iter().any(|copy| self.is_closed(*copy)) {
                continue;
            }
            let new = self.other_places(lane, copies);
            if (new.is_none() && self.behind.is_none()) || !self.held.begin_move(t.page, seal, copies) {
                self.free_others(new.unwrap_or(copies), copies);
                continue;
            }
            match new {
                Some(new) => {
                    let due = new.iter().zip(copies).zip([1, 2]);
                    let due = due.filter(|((new, old), _)| **new != *old).map(|(_, bit)| bit).sum();
                    set(&mut round.copies, at, new);
                    set(&mut round.due, at, due);
                    set(&mut writing, at, true);
                }
                None => rest.push(*t),
            }
        }
        // A page that went nowhere stays where it was.
        let _ = self.write(lane, round, pages, &writing);
        for (at, t) in pages.iter().enumerate() {
            let (Some(true), Some(old), Some(new), Some(seal)) =
                (writing.get(at), old.get(at), round.copies.get(at), round.seals.get(at))
            else {
                continue;
            };
            let stays = |copy: &Spot| *copy != Spot::NONE && !self.is_closed(*copy);
            if new.iter().any(stays) && round.due.get(at) == Some(&0) {
                self.held.end_move(t.page, *seal, *new);
                self.free_others(*old, *new);
                moved += 1;
            } else {
                self.held.end_move(t.page, *seal, *old);
                self.free_others(*new, *old);
            }
        }
        if let Some(file) = self.behind.as_ref().filter(|_| !rest.pages().is_empty()) {
            let stored = file.store(lane, rest.pages());
            for (at, t) in pages.iter().enumerate() {
                let (Some(copies), Some(seal)) = (old.get(at).copied(), round.seals.get(at).copied()) else {
                    break;
                };
                if !rest.pages().iter().any(|other| other.page == t.page) {
                    continue;
                }
                match stored {
                    Ok(()) => {
                        self.held.end_move(t.page, Seal::NONE, [Spot::NONE; COPIES]);
                        self.lanes.drop_held(HOSTS, 1);
                        self.free_others(copies, [Spot::NONE; COPIES]);
                        moved += 1;
                    }
                    Err(_) => {
                        file.forget(t.page);
                        self.held.end_move(t.page, seal, copies);
                    }
                }
            }
            if stored.is_ok() {
                self.lenders.behind.pages_out.fetch_add(rest.pages().len() as u64, Relaxed);
            }
            stored?;
        }
        Ok(moved)
    }

    /// Frees the places of `copies` that are not also in `kept`, which have left their lenders.
    fn free_others(&self, copies: Copies, kept: Copies) {
        for copy in copies.into_iter().filter(|copy| !kept.contains(copy)) {
            if let Some(figures) = copy.lender().and_then(|lender| self.lenders.figures.get(lender))
                && self.is_closed(copy)
            {
                figures.pages_moved.fetch_add(1, Relaxed);
            }
            self.free(copy);
        }
    }
}
