//! Storing pages: where their copies go, and what becomes of those that no lender has room for.
//!
//! `held` notes what was stored; `moving` writes pages by the same way that leave a lender.
//!
//! Fault path: no allocation, no lock the program could hold, no arena access, no panic.

use std::sync::atomic::Ordering::Relaxed;

use super::asking::{BATCH, Round, bits_of, set};
use super::held::{COPIES, Copies, PARTS, Seal, Spot};
use super::lenders::{LenderState, MAX_LENDERS};
use super::wire::Verb;
use super::{HOSTS, HostsStore, LenderTrouble};
use crate::far::lane::Lane;
use crate::far::rest::Rest;
use crate::far::{FarError, FarStore, Transfer};

/// Where a page goes that is stored.
enum Goes {
    /// It is there already.
    Nowhere,
    /// To these places.
    To(Copies),
    /// To the file, as no lender has room.
    Behind,
}

impl HostsStore {
    /// Readies a page to be stored: where its copies go.
    fn ready(&self, lane: &mut Lane, t: &Transfer, sum: u64) -> Result<Goes, FarError> {
        let (held, copies) = self.held.look(t.page);
        let is_there = |copy: &&Spot| copy.lender().is_some_and(|at| self.state(at) != LenderState::Lost);
        let in_file = self.behind.as_ref().is_some_and(|file| held == Seal::NONE && file.holds(t.page));
        if held.checksum() == sum && copies.iter().filter(is_there).count() >= self.copies
            || in_file && self.behind.as_ref().is_some_and(|file| file.has(t))
        {
            lane.counters().writes_avoided.fetch_add(1, Relaxed);
            return Ok(Goes::Nowhere);
        }
        // Until the write is done the page is not held.
        let (old, mut copies) = self.held.claim(t.page);
        for copy in &mut copies {
            // What lies on a lost lender is gone. What lies on a slow one is left alone, and given up where it is no longer right, as
            // is what lies in a piece that the lender wants back.
            if let Some(lender) = copy.lender()
                && (self.is_closed(*copy)
                    || match self.state(lender) {
                        LenderState::Well => false,
                        LenderState::Slow => old.checksum() != sum,
                        LenderState::Lost => true,
                    })
            {
                self.free(std::mem::replace(copy, Spot::NONE));
            }
        }
        if old == Seal::NONE {
            // A page of the file is counted there.
            let here = self.limit_pages.saturating_sub(self.pages_behind()).saturating_add(in_file.into());
            self.lanes.hold(HOSTS, 1, here)?;
        }
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
        if first != Spot::NONE {
            return Ok(Goes::To([first, second]));
        }
        self.held.place(t.page, [Spot::NONE; COPIES]);
        self.lanes.drop_held(HOSTS, 1);
        if self.behind.is_some() { Ok(Goes::Behind) } else { Err(self.no_room()) }
    }

    /// Why no lender has a place.
    fn no_room(&self) -> FarError {
        match self.lenders.all().position(|(_, figures)| figures.state() != LenderState::Lost) {
            None => self.trouble(0, LenderTrouble::Lost),
            Some(_) => FarError::LendersFull,
        }
    }

    /// Packs a page that goes to these places, if that pays on the way to one of them; the seal of what is to be sent.
    fn pack(&self, lane: &mut Lane, at: usize, t: &Transfer, (seal, copies): (Seal, Copies)) -> Seal {
        let links = copies.iter().filter_map(|copy| self.to(copy.lender()?));
        let slowest = links.map(|to| to.figures.wire_ns.load(Relaxed)).max().unwrap_or(0);
        let wire_ns = slowest.saturating_mul(self.page_size as u64 / 1024);
        if !lane.connections.packing.is_worth_it(wire_ns) {
            return seal;
        }
        let Ok(packed) = self.packed(lane) else { return seal };
        // SAFETY: the page is valid by the contract of `store`.
        let parts = unsafe { lane.connections.packing.pack(&packed, at, t.memory) };
        if u32::from(parts) < PARTS { seal.packed(parts) } else { seal }
    }

    pub(super) fn store_round(
        &self,
        lane: &mut Lane,
        round: &mut Round,
        pages: &[Transfer],
    ) -> Result<(), FarError> {
        round.clear();
        lane.connections.turn = lane.connections.turn.wrapping_add(1);
        let mut result = Ok(());
        // Pages of this round that are to be written, and those that go to the file.
        let (mut writing, mut rest) = ([false; BATCH], Rest::new());
        for (at, t) in pages.iter().enumerate() {
            let seal = self.seal(t.memory);
            match self.ready(lane, t, seal.checksum()) {
                Ok(Goes::To(copies)) => {
                    let seal = self.pack(lane, at, t, (seal, copies));
                    set(&mut round.seals, at, seal);
                    set(&mut round.copies, at, copies);
                    set(&mut round.due, at, bits_of(&copies));
                    set(&mut writing, at, true);
                }
                Ok(Goes::Behind) => rest.push(*t),
                Ok(Goes::Nowhere) => {}
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
        let wrote = self.write(lane, round, pages, &writing);
        let (mut held, mut lost) = (0, 0);
        let written = pages.iter().enumerate().filter(|(at, _)| writing.get(*at) == Some(&true));
        for (at, t) in written {
            let done = round.done.get(at).copied().unwrap_or(0);
            let copies = round.copies.get(at).copied().filter(|_| done != 0);
            self.held.place(t.page, copies.unwrap_or([Spot::NONE; COPIES]));
            if copies.is_some() {
                self.held.hold(t.page, round.seals.get(at).copied().unwrap_or(Seal::NONE));
                if let Some(file) = &self.behind {
                    file.forget(t.page);
                }
                held += 1;
            } else {
                rest.push(*t);
                lost += 1;
            }
        }
        self.lanes.drop_held(HOSTS, lost);
        lane.counters().bytes_stored.fetch_add(held * self.page_size as u64, Relaxed);
        if let Some(file) = &self.behind {
            self.lenders.behind.pages_out.fetch_add(rest.pages().len() as u64, Relaxed);
            file.store(lane, rest.pages())?;
            return result;
        }
        if lost > 0 { wrote.and(result) } else { result }
    }

    /// Writes all that is due, elsewhere where a lender is lost; the round's copies say where. An error is the reason why a page is
    /// nowhere.
    pub(super) fn write(
        &self,
        lane: &mut Lane,
        round: &mut Round,
        pages: &[Transfer],
        writing: &[bool; BATCH],
    ) -> Result<(), FarError> {
        let (mut tries, mut result) = ([0; MAX_LENDERS], Ok(()));
        while round.due != [0; BATCH] {
            let troubles = self.ask(lane, round, pages, Verb::Write)?;
            self.judge(&troubles, [false; MAX_LENDERS], &mut tries);
            for at in (0..pages.len()).filter(|at| writing.get(*at) == Some(&true)) {
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
            }
        }
        result
    }
}
