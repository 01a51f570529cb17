//! Keeping pages near and mapped while the kernel reads or writes them for a system call.
//!
//! Called by the libc wrappers; stands on the fault path. The caller blocks signals: a handler of this worker
//! must not fault while its executor is in use.
//!
//! Rules: no allocation, no arena access.

use atoll_pages::Policy;

use super::executor::Executor;
use super::fault::Fault;
use super::page_word::{self, State};
use super::{FaultError, Pager};
use crate::spin::Backoff;

impl Pager {
    /// Brings every page of `start..start + len` (one stretch) near, maps it in `table`, writable if `write`, and
    /// keeps it so until [`unpin`](Self::unpin).
    ///
    /// # Errors
    /// See [`FaultError`]; nothing stays pinned.
    pub fn pin(
        &self,
        x: &mut Executor,
        table: usize,
        start: usize,
        len: usize,
        write: bool,
    ) -> Result<(), FaultError> {
        let bytes = self.page_bytes();
        let mut address = start & !(bytes - 1);
        while address < start + len {
            if let Err(e) = self.pin_page(x, table, address, write) {
                if address > start {
                    self.unpin(start, address - start);
                }
                return Err(e);
            }
            address += bytes;
        }
        Ok(())
    }

    fn pin_page(
        &self,
        x: &mut Executor,
        table: usize,
        address: usize,
        write: bool,
    ) -> Result<(), FaultError> {
        let page = self.page_at(address).ok_or(FaultError::NotOurs)?;
        let word = self.pages.word(page);
        let mut wait = Backoff::new();
        loop {
            let seen = page_word::load(word);
            if seen.state() == State::Resident && page_word::try_lock(word, seen) {
                let frame = seen.frame();
                let mapped = self.may_map(frame, table);
                let ready = mapped && (!write || self.pages.frames.dirty(frame));
                if ready {
                    self.pages.frames.pin(frame);
                }
                page_word::unlock(word, seen);
                if ready {
                    // Dirty says that somebody maps it writable; make sure that this table does. Where there is only one, that
                    // would do harm: the kernel takes the mapping away for a moment, while another thread's call may need it.
                    return if write && !self.control.settings.shared_tables() {
                        self.fault(x, Fault { address, write, protection: true, table })
                    } else {
                        Ok(())
                    };
                }
                self.fault(x, Fault { address, write, protection: mapped, table })?;
            } else if seen.is_covered() {
                return Ok(());
            } else if seen.state() == State::Busy {
                wait.pause();
            } else {
                self.fault(x, Fault { address, write, protection: false, table })?;
            }
        }
    }

    /// Whether `more` bytes can stay near for long beside the `kept` that do so already: near memory then still has enough for all else.
    /// Without asking, whoever pins what does not fit waits for room that nobody makes.
    pub fn has_room_for_long(&self, kept: usize, more: usize) -> bool {
        if !self.limited() {
            return true;
        }
        let target = self.frame_target();
        let for_others = self.least_frames().max(target / 4);
        (kept + more) as u64 >> self.places.shift < u64::from(target.saturating_sub(for_others))
    }

    /// Lets the pages go again.
    pub fn unpin(&self, start: usize, len: usize) {
        let bytes = self.page_bytes();
        let mut address = start & !(bytes - 1);
        while address < start + len {
            if let Some(page) = self.page_at(address) {
                let word = self.pages.word(page);
                let mut wait = Backoff::new();
                loop {
                    let seen = page_word::load(word);
                    if seen.state() == State::Resident && page_word::try_lock(word, seen) {
                        self.let_go(seen.frame());
                        page_word::unlock(word, seen);
                        break;
                    }
                    if seen.state() != State::Busy && seen.state() != State::Resident {
                        break;
                    }
                    wait.pause();
                }
            }
            address += bytes;
        }
    }

    /// Takes one reason to keep the locked page in `frame` near away. The policy gets it back if it was set aside.
    fn let_go(&self, frame: u32) {
        let frames = &self.pages.frames;
        frames.unpin(frame);
        if !frames.pinned(frame) && frames.take_back(frame) {
            // Whoever holds this lock only tries to lock pages.
            self.near.room.lock().policy.restore(frame, frames.count(frame));
        }
    }
}
