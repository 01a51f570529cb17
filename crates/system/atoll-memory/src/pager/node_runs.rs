//! Copies of several neighbouring pages at once, as a node's agent changes them: write-protected, or read from where another node of
//! the same machine has them. One system call for a run of pages costs little more than for one of them.
//!
//! `node_copies` has what is done to single ones; `together` in the runtime gathers the runs.
//!
//! Rules: no access to paged memory but through the alias.

use std::ops::Range;

use super::executor::Executor;
use super::frames::CoreMap;
use super::node_rights::Right;
use super::page_word::{self, PageWord, State};
use super::{FaultError, Pager};
use crate::arena_files::ArenaFiles;
use crate::sys;

/// Pages that are changed at once at most.
pub const TOGETHER: usize = 64;

impl Pager {
    /// Takes the locks of [`TOGETHER`] pages at most. Whoever else takes several waits for none.
    fn hold_all(&self, pages: Range<u32>) -> [PageWord; TOGETHER] {
        let mut held = [PageWord::ABSENT; TOGETHER];
        for (page, held) in pages.zip(&mut held) {
            *held = self.pages.hold(page);
        }
        held
    }

    /// Takes from workers that they may write these copies, [`TOGETHER`] at most, one if near memory is limited; writes under way
    /// have ended then. Neighbours that the same page tables map cost little more than one of them.
    ///
    /// # Errors
    /// See [`FaultError`].
    pub fn protect_copies(&self, x: &mut Executor, pages: Range<u32>) -> Result<(), FaultError> {
        for page in pages.clone() {
            self.let_calls_end(page);
            self.set_right(page, Right::Read);
        }
        let mut held = self.hold_all(pages.clone());
        let mut result = Ok(());
        for (page, held) in pages.clone().zip(&mut held) {
            let now = self.bring(x, page, *held);
            *held = *now.as_ref().unwrap_or(held);
            result = result.and(now.map(drop));
        }
        if result.is_ok() {
            result = self.protect_held(pages.start, &held[..pages.len()]);
        }
        for (page, held) in pages.zip(held) {
            page_word::unlock(self.pages.word(page), held);
        }
        result
    }

    /// Write-protects locked pages from `first` on, wherever they are mapped.
    fn protect_held(&self, first: u32, held: &[PageWord]) -> Result<(), FaultError> {
        let map = |word: &PageWord| {
            let mut map = CoreMap::EMPTY;
            self.pages.frames.union_into(word.frame(), &mut map);
            map
        };
        let mut from = 0;
        for run in held.chunk_by(|a, b| map(a) == map(b)) {
            let mut at = first + from;
            from += run.len() as u32;
            while at < first + from {
                // What lies in another stretch has addresses of its own.
                let (address, end) = self.places.address_of(at);
                let left = (first + from - at) as usize * self.page_bytes();
                let len = left.min(end - address);
                self.tables.protect(&map(&run[0]), address, len).map_err(FaultError::Kernel)?;
                at += (len >> self.places.shift) as u32;
            }
        }
        held.iter().for_each(|word| self.pages.frames.set_clean(word.frame()));
        Ok(())
    }

    /// Puts copies in place that lie in another node's files: [`TOGETHER`] at most, which `buffer` holds.
    ///
    /// # Errors
    /// See [`FaultError`]; there are no copies then.
    pub fn install_from(
        &self,
        x: &mut Executor,
        pages: Range<u32>,
        files: ArenaFiles,
        writable: bool,
        buffer: &mut [u8],
    ) -> Result<(), FaultError> {
        let mut held = self.hold_all(pages.clone());
        let held = &mut held[..pages.len()];
        let (mut result, mut from) = (Ok(()), 0);
        while result.is_ok() && from < held.len() {
            let first = pages.start + from as u32;
            let stripe =
                (self.places.files.stripe_end(self.places.offset(first)) >> self.places.shift) as u32;
            let there = |word: &PageWord| word.state() == State::Resident;
            let end = held.len().min((stripe - pages.start) as usize);
            let run = held[from..end].chunk_by_mut(|a, b| there(a) == there(b)).next().unwrap_or_default();
            from += run.len();
            result = self.read_run(x, first, run, files, buffer);
        }
        for (page, held) in pages.clone().zip(held) {
            if result.is_ok() {
                self.pages.frames.mark_as(held.frame(), writable);
            }
            page_word::unlock(self.pages.word(page), *held);
        }
        result?;
        pages.for_each(|page| self.set_right(page, if writable { Right::Write } else { Right::Read }));
        Ok(())
    }

    /// Reads locked pages from `first` on from another node's files. They lie in one stripe, and are all near or all nowhere. Their
    /// words in `held` become what they are then.
    fn read_run(
        &self,
        x: &mut Executor,
        first: u32,
        held: &mut [PageWord],
        files: ArenaFiles,
        buffer: &mut [u8],
    ) -> Result<(), FaultError> {
        let (offset, len) = (self.places.offset(first), held.len() << self.places.shift);
        if held.first().is_none_or(|word| word.state() == State::Resident) {
            // SAFETY: the alias of pages that are near, which the agent alone uses.
            return unsafe { sys::pread_exact(files.file(offset), self.alias(first), len, offset) }
                .map_err(FaultError::Kernel);
        }
        self.make_room(x, held.len())?;
        let buffer = &mut buffer[..len];
        // SAFETY: the buffer is that long; the pages' stretch of the file is this agent's, as it holds the locks.
        unsafe {
            sys::pread_exact(files.file(offset), buffer.as_mut_ptr(), len, offset).and_then(|()| {
                sys::pwrite_exact(self.places.files.file(offset), buffer.as_ptr(), len, offset)
            })
        }
        .map_err(FaultError::Kernel)?;
        for (page, word) in (first..).zip(held) {
            *word = self.enter(x, page, *word, false);
        }
        Ok(())
    }
}
