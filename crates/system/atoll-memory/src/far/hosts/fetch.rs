//! Loading pages: from which copy, again where they have moved meanwhile, and from the file behind the lenders.
//!
//! Fault path: no allocation, no lock the program could hold, no arena access, no panic.

use std::sync::atomic::Ordering::Relaxed;

use super::asking::{BATCH, Round, set};
use super::held::{COPIES, Seal, Spot};
use super::lenders::{LenderState, MAX_LENDERS};
use super::wire::Verb;
use super::{HostsStore, LenderTrouble};
use crate::far::lane::Lane;
use crate::far::rest::Rest;
use crate::far::{FarError, FarStore, Transfer};

impl HostsStore {
    /// Decides from which copy each page of the round comes: one that is well before one that is slow. `None`: there is no other
    /// than those of the mask `not`.
    fn choose(&self, copies: &[Spot; COPIES], not: u8) -> Option<u8> {
        [LenderState::Well, LenderState::Slow].into_iter().find_map(|state| {
            copies.iter().zip([1, 2]).find_map(|(copy, bit)| {
                (bit & not == 0 && self.state(copy.lender()?) == state).then_some(bit)
            })
        })
    }

    /// Looks where a page of the round is, and from which copy it is to come. A page in the file has no copies in the round.
    fn find(&self, round: &mut Round, at: usize, t: &Transfer, rest: &mut Rest) -> Result<(), FarError> {
        loop {
            let (seal, copies) = self.held.look(t.page);
            if seal == Seal::NONE {
                if self.behind.as_ref().is_none_or(|file| !file.holds(t.page)) {
                    return Err(FarError::NotStored { page: t.page });
                }
                rest.push(*t);
                set(&mut round.copies, at, [Spot::NONE; COPIES]);
                set(&mut round.due, at, 0);
                return Ok(());
            }
            if let Some(due) = self.choose(&copies, 0) {
                set(&mut round.copies, at, copies);
                set(&mut round.seals, at, seal);
                set(&mut round.due, at, due);
                set(&mut round.done, at, 0);
                return Ok(());
            }
            // Between the two looks it may have moved.
            if copies != [Spot::NONE; COPIES] && self.held.look(t.page) == (seal, copies) {
                return Err(self.nowhere(&copies, LenderTrouble::Lost));
            }
            rustix::thread::sched_yield();
        }
    }

    /// Loads a round of pages. Afterwards the round has their seals and copies as they were read, and no copies of those that
    /// came from the file.
    pub(super) fn load_round(
        &self,
        lane: &mut Lane,
        round: &mut Round,
        pages: &[Transfer],
    ) -> Result<(), FarError> {
        round.clear();
        let mut rest = Rest::new();
        for (at, t) in pages.iter().enumerate() {
            self.find(round, at, t, &mut rest)?;
        }
        let mut tries = [0; MAX_LENDERS];
        while round.due != [0; BATCH] {
            let troubles = self.ask(lane, round, pages, Verb::Read)?;
            let (mut failed, mut excused) = ([None; BATCH], [false; MAX_LENDERS]);
            for (at, t) in pages.iter().enumerate() {
                let (Some(due), Some(copies), Some(seal)) =
                    (round.due.get_mut(at), round.copies.get(at), round.seals.get(at))
                else {
                    break;
                };
                let Some(lender) =
                    copies.get(usize::from(*due == 2)).and_then(|copy| copy.lender()).filter(|_| *due != 0)
                else {
                    continue;
                };
                let why = match troubles.of(lender) {
                    None if round.came.get(at) == Some(&seal.checksum()) => {
                        *due = 0;
                        continue;
                    }
                    None => LenderTrouble::Damaged,
                    Some(why) => why,
                };
                let has_moved = self.held.look(t.page) != (*seal, *copies);
                if has_moved {
                    set(&mut excused, lender, true);
                }
                set(&mut failed, at, Some((lender, why, has_moved)));
            }
            self.judge(&troubles, excused, &mut tries);
            for (at, t) in pages.iter().enumerate() {
                let Some((lender, why, has_moved)) = failed.get(at).copied().flatten() else { continue };
                if !has_moved && self.look_elsewhere(round, at, why) {
                    continue;
                }
                // A lender may have left between the look above and now, after the page had.
                let seen = round.seals.get(at).copied().zip(round.copies.get(at).copied());
                if !has_moved && Some(self.held.look(t.page)) == seen {
                    return Err(self.trouble(lender, why));
                }
                self.find(round, at, t, &mut rest)?;
            }
        }
        lane.counters().bytes_loaded.fetch_add((pages.len() * self.page_size) as u64, Relaxed);
        if let Some(file) = self.behind.as_ref().filter(|_| !rest.pages().is_empty()) {
            self.lenders.behind.pages_in.fetch_add(rest.pages().len() as u64, Relaxed);
            file.load(lane, rest.pages())?;
        }
        Ok(())
    }

    /// Chooses a copy anew of a page that did not come; `false`: there is none.
    fn look_elsewhere(&self, round: &mut Round, at: usize, why: LenderTrouble) -> bool {
        let (Some(due), Some(bad), Some(copies)) =
            (round.due.get_mut(at), round.done.get_mut(at), round.copies.get(at))
        else {
            return false;
        };
        if why == LenderTrouble::Damaged {
            *bad |= *due;
        }
        let chosen = self.choose(copies, *bad);
        *due = chosen.unwrap_or(*due);
        chosen.is_some()
    }

    /// Why a page cannot be had: the lender that had it.
    fn nowhere(&self, copies: &[Spot; COPIES], why: LenderTrouble) -> FarError {
        self.trouble(copies.iter().find_map(|copy| copy.lender()).unwrap_or(0), why)
    }
}
