//! A node's copies of pages, as its agent changes them: put in place, protected, taken away, read, changed.
//!
//! Called by the node's agent, a thread of the node's first process that never touches paged memory itself but sees it
//! through a second mapping of the arena's files; workers that run meanwhile fault on what they no longer may
//! (`node_rights`, `fault`). The protocol that decides is `atoll-coherence`'s.
//!
//! Rules: no access to paged memory but through the alias.

use std::time::{Duration, Instant};

use atoll_pages::{Event, Habit};

use super::executor::Executor;
use super::frames::CoreMap;
use super::node_rights::Right;
use super::page_word::{self, PageWord, State};
use super::unmap;
use super::{FaultError, Pager};
use crate::far::{Access, FarStore, Transfer};
use crate::sys;

/// How long a system call may keep its page from another node.
const CALL: Duration = Duration::from_micros(500);

impl Pager {
    /// Gives a system call of a worker that the page is pinned for time to end: the kernel would find the page gone. Not for long,
    /// as there are calls that last until another node has done something.
    pub(super) fn let_calls_end(&self, page: u32) {
        let word = self.pages.word(page);
        let is_pinned = || {
            let seen = page_word::load(word);
            seen.state() == State::Resident && self.pages.frames.pinned(seen.frame())
        };
        if !is_pinned() {
            return;
        }
        let end = Instant::now() + CALL;
        while is_pinned() && Instant::now() < end {
            sys::yield_now();
        }
    }

    pub(super) fn set_right(&self, page: u32, right: Right) {
        if let Some(rights) = self.rights() {
            rights.set(page, right);
        }
    }

    /// Brings a locked page near: its content is behind the alias then. Returns its new word.
    pub(super) fn bring(&self, x: &mut Executor, page: u32, seen: PageWord) -> Result<PageWord, FaultError> {
        if seen.state() == State::Resident {
            return Ok(seen);
        }
        self.make_room(x, 1)?;
        let at = self.alias(page);
        if seen.state() == State::Far {
            match self.far.store.direct(&x.lane, page.into(), Access::Load).map_err(FaultError::Far)? {
                // SAFETY: a page in far memory, and the alias of a page that nobody has mapped.
                Some(from) => unsafe { std::ptr::copy_nonoverlapping(from, at, self.page_bytes()) },
                None => self
                    .far
                    .store
                    .load(&mut x.lane, &[Transfer { page: page.into(), memory: at }])
                    .map_err(FaultError::Far)?,
            }
        } else {
            self.fill_holes(page);
        }
        Ok(self.enter(x, page, seen, false))
    }

    /// The content of a locked page, which was `seen` and was not near, is behind the alias now, and there is room: gives it a
    /// frame. Returns its new word.
    pub(super) fn enter(&self, x: &mut Executor, page: u32, seen: PageWord, dirty: bool) -> PageWord {
        x.cached -= 1;
        let frame = x.cache[x.cached];
        let far = seen.state() == State::Far;
        self.pages.frames.fill(frame, page, dirty, far);
        self.note(x, Event::arrived(frame, false, far.then(|| seen.token())));
        if !far {
            self.pages.touch(page, self.places.shift, &self.control.totals);
        }
        PageWord::resident(frame, if dirty { Habit::Written } else { seen.habit() })
    }

    /// Makes a locked page that is nowhere from `content`: written to its file, which neither clears it first nor faults. Returns
    /// its new word.
    fn make(
        &self,
        x: &mut Executor,
        page: u32,
        seen: PageWord,
        content: &[u8],
    ) -> Result<PageWord, FaultError> {
        self.make_room(x, 1)?;
        let offset = self.places.offset(page);
        // SAFETY: the content is as long as it says, and the page's stretch of the file is this agent's, as it holds the lock.
        unsafe { sys::pwrite_exact(self.places.files.file(offset), content.as_ptr(), content.len(), offset) }
            .map_err(FaultError::Kernel)?;
        Ok(self.enter(x, page, seen, false))
    }

    /// Fills with zeros what was never used of a page: a hole in its file, which no worker can map.
    fn fill_holes(&self, page: u32) {
        let at = self.alias(page);
        for offset in (0..self.page_bytes()).step_by(self.places.kernel_page()) {
            // SAFETY: within the alias of a page of ours that is locked; a read makes the kernel's page.
            unsafe { at.add(offset).read_volatile() };
        }
    }

    /// Runs `change` on the locked page's content, near.
    fn with_content(
        &self,
        x: &mut Executor,
        page: u32,
        change: impl FnOnce(&mut [u8], u32),
    ) -> Result<(), FaultError> {
        let seen = self.pages.hold(page);
        self.with_held(x, page, seen, change)
    }

    /// Runs `change` on the content of a page that is locked already and was `seen`; unlocks it.
    fn with_held(
        &self,
        x: &mut Executor,
        page: u32,
        seen: PageWord,
        change: impl FnOnce(&mut [u8], u32),
    ) -> Result<(), FaultError> {
        let now = self.bring(x, page, seen);
        if let Ok(now) = now {
            // SAFETY: the alias of a page that is near; the agent alone uses aliases. Workers may write the same bytes only
            // where the program has a race.
            let content = unsafe { std::slice::from_raw_parts_mut(self.alias(page), self.page_bytes()) };
            change(content, now.frame());
        }
        page_word::unlock(self.pages.word(page), *now.as_ref().unwrap_or(&seen));
        now.map(drop)
    }

    /// Puts a copy in place: `content`, or zeros.
    ///
    /// # Errors
    /// See [`FaultError`]; there is no copy then.
    pub fn install_copy(
        &self,
        x: &mut Executor,
        page: u32,
        content: Option<&[u8]>,
        writable: bool,
    ) -> Result<(), FaultError> {
        let seen = self.pages.hold(page);
        match (seen.state(), content) {
            // The worker that uses it first makes it, as on a machine of its own, and maps it to be written.
            (State::Absent, None) if writable => page_word::unlock(self.pages.word(page), seen),
            (State::Absent, Some(content)) => {
                let made = self
                    .make(x, page, seen, content)
                    .inspect(|now| self.pages.frames.mark_as(now.frame(), writable));
                page_word::unlock(self.pages.word(page), *made.as_ref().unwrap_or(&seen));
                made?;
            }
            _ => self.with_held(x, page, seen, |to, frame| {
                match content {
                    Some(content) => to.copy_from_slice(content),
                    None => to.fill(0),
                }
                self.pages.frames.mark_as(frame, writable);
            })?,
        }
        self.set_right(page, if writable { Right::Write } else { Right::Read });
        Ok(())
    }

    /// Lets workers write the copy.
    pub fn allow_writes(&self, page: u32) {
        self.set_right(page, Right::Write);
    }

    /// Is the page nowhere, so that all of it is zeros? It stays so if no worker may use it.
    fn is_nowhere(&self, page: u32) -> bool {
        if page_word::load(self.pages.word(page)).state() != State::Absent {
            return false;
        }
        // A worker that began to make the page before has its lock.
        let seen = self.pages.hold(page);
        page_word::unlock(self.pages.word(page), seen);
        seen.state() == State::Absent
    }

    /// Takes the page away if no worker has used it yet; `false`: one has, and nothing has changed.
    pub fn seize_untouched(&self, page: u32) -> bool {
        if page_word::load(self.pages.word(page)).state() != State::Absent {
            return false;
        }
        let before = self.rights().map_or(Right::Write, |rights| rights.get(page));
        self.set_right(page, Right::Nothing);
        let untouched = self.is_nowhere(page);
        if !untouched {
            self.set_right(page, before);
        }
        untouched
    }

    /// Takes the copy away, and frees its memory.
    pub fn remove_copy(&self, x: &Executor, page: u32) {
        self.let_calls_end(page);
        self.set_right(page, Right::Nothing);
        self.release_page(x, page);
    }

    /// Takes the copy away and keeps its memory with what it held, until the next copy or [`free_kept`](Self::free_kept): to make it
    /// again costs more than all else that a copy does. `false`: it is there as it was, as near memory is limited, or a page table maps
    /// it that is neither parked nor the caller's own, number `table`.
    pub fn unmap_copy(&self, page: u32, table: usize) -> bool {
        if self.limited() {
            return false;
        }
        self.let_calls_end(page);
        let before = self.rights().map_or(Right::Write, |rights| rights.get(page));
        self.set_right(page, Right::Nothing);
        let seen = self.pages.hold(page);
        let unmapped = seen.state() == State::Resident && self.unmap_everywhere(page, seen.frame(), table);
        page_word::unlock(self.pages.word(page), seen);
        if !unmapped {
            self.set_right(page, before);
        }
        unmapped
    }

    /// Frees the memory of a copy that was taken away, if there is none again.
    pub fn free_kept(&self, x: &Executor, page: u32) {
        if self.rights().is_some_and(|rights| rights.get(page) == Right::Nothing) {
            self.release_page(x, page);
        }
    }

    fn release_page(&self, x: &Executor, page: u32) {
        let at = self.places.address_of(page).0;
        self.release(at, at + self.page_bytes(), x.figures);
    }

    /// Nothing that runs has the locked page, in `frame`, mapped then; `false` if that cannot be without freeing it. `here`: the
    /// caller's page table.
    fn unmap_everywhere(&self, page: u32, frame: u32, here: usize) -> bool {
        let mut map = CoreMap::EMPTY;
        self.pages.frames.union_into(frame, &mut map);
        let mut all = true;
        map.for_each(|table| {
            let now = || {
                table == here && unmap::unmap_here(self.places.address_of(page).0, self.page_bytes()).is_ok()
            };
            if all && (self.unmap_later(page, table) || now()) {
                self.pages.frames.remove_mapper(frame, table);
            } else {
                all = false;
            }
        });
        all
    }

    /// Copies the page's content to `out`, which has its size; `false` if it is all zeros that were never written.
    ///
    /// # Errors
    /// See [`FaultError`].
    pub fn read_copy(&self, x: &mut Executor, page: u32, out: &mut [u8]) -> Result<bool, FaultError> {
        // Nobody makes it meanwhile: workers that may not write wait, and others were not asked to stop.
        if self.is_nowhere(page) {
            return Ok(false);
        }
        self.with_content(x, page, |content, _| out.copy_from_slice(content))?;
        Ok(true)
    }

    /// Whether the page's content is in the arena's files, and stays there as long as the page has a copy here.
    pub fn lies_in_file(&self, page: u32) -> bool {
        !self.limited() && page_word::load(self.pages.word(page)).state() == State::Resident
    }

    /// Whether a worker has the page mapped.
    pub fn is_used(&self, page: u32) -> bool {
        let seen = page_word::load(self.pages.word(page));
        seen.state() == State::Resident && self.pages.frames.count(seen.frame()) > 0
    }

    /// Changes the page's content in place.
    ///
    /// # Errors
    /// See [`FaultError`].
    pub fn change_copy(
        &self,
        x: &mut Executor,
        page: u32,
        change: impl FnOnce(&mut [u8]),
    ) -> Result<(), FaultError> {
        self.with_content(x, page, |content, frame| {
            change(content);
            self.pages.frames.set_dirty(frame);
        })
    }

    /// The pages of `start..end` are in the arena's files already, though no fault brought them: they are near from now on,
    /// and mapped nowhere. For memory that was moved there while it was in use.
    ///
    /// # Errors
    /// See [`FaultError`].
    pub fn adopt(&self, x: &mut Executor, start: usize, end: usize) -> Result<(), FaultError> {
        // One stretch: its pages follow each other, wherever in the first one it begins.
        let (Some(first), Some(last)) = (self.page_at(start), self.page_at(end - 1)) else { return Ok(()) };
        for page in first..=last {
            let seen = self.pages.hold(page);
            let room = if seen.state() == State::Absent { self.make_room(x, 1) } else { Ok(()) };
            let mut now = seen;
            if seen.state() == State::Absent && room.is_ok() {
                self.fill_holes(page);
                now = self.enter(x, page, seen, true);
            }
            page_word::unlock(self.pages.word(page), now);
            room?;
        }
        Ok(())
    }
}
