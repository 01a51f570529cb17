//! The fault path: a worker touched a page its page table lacks, or wrote to one it may only read.
//!
//! Called from the SIGBUS handler, from handler threads and by `pin`; calls `evict` when room is short.
//!
//! Rules: no allocation, no locks the program could hold, no arena access, no printing.

use atoll_pages::{Event, pacing};

use super::executor::Executor;
use super::page_word::{self, PageWord, State};
use super::unmap;
use super::{FaultError, Pager};
use crate::control::Figures;
use crate::far::{Access, FarStore, Transfer};
use crate::spin::Backoff;
use crate::sys::{self, Errno};
use crate::uffd::Uffd;

/// What is known of a fault.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// The address touched.
    pub address: usize,
    /// Whether the access was a write.
    pub write: bool,
    /// Whether the page was mapped: the access is a write to a write-protected page.
    pub protection: bool,
    /// Number of the page table that lacks it.
    pub table: usize,
}

/// Pages fetched at once at most.
pub const WINDOW: usize = 64;

impl Pager {
    /// Resolves a fault: afterwards the instruction can go on.
    ///
    /// # Errors
    /// See [`FaultError`]; the page is as it was.
    pub fn fault(&self, x: &mut Executor, fault: Fault) -> Result<(), FaultError> {
        let page = self.page_at(fault.address).ok_or(FaultError::NotOurs)?;
        let begin = sys::ticks();
        self.drop_leaving(x);
        x.lately.note(page);
        let result = self.resolve(x, page, fault);
        Figures::add(&x.figures.fault_ticks, sys::ticks().wrapping_sub(begin));
        result
    }

    fn resolve(&self, x: &mut Executor, page: u32, fault: Fault) -> Result<(), FaultError> {
        let word = self.pages.word(page);
        let mut wait = Backoff::new();
        let mut waited = false;
        loop {
            let seen = page_word::load(word);
            if seen.state() == State::Busy {
                if !waited {
                    waited = true;
                    Figures::add(&x.figures.waits, 1);
                }
                wait.pause();
                continue;
            }
            if seen.is_covered()
                && let Some(result) = self.touch_covered(x, page, fault)
            {
                return result;
            }
            if !page_word::try_lock(word, seen) {
                continue;
            }
            // Rights hold as long as the page is locked: see `node_rights`.
            if !self.may(page, fault.write) {
                page_word::unlock(word, seen);
                if self.ask_node(page, fault.write) {
                    continue;
                }
                return Err(FaultError::Interrupted);
            }
            if seen.state() == State::Resident {
                let result = self.map_resident(x, page, seen, fault);
                page_word::unlock(word, *result.as_ref().unwrap_or(&seen));
                return result.map(drop);
            }
            return self.fetch(x, page, seen, fault);
        }
    }

    /// Maps a locked page that is near in the fault's page table, or allows the write. Returns the page's new word.
    fn map_resident(
        &self,
        x: &mut Executor,
        page: u32,
        seen: PageWord,
        fault: Fault,
    ) -> Result<PageWord, FaultError> {
        let frame = seen.frame();
        if self.huge.is_huge(page) {
            // Another thread brought the huge page meanwhile, which the kernel maps.
            return Ok(seen);
        }
        let (at, _) = self.places.address_of(page);
        let len = self.page_bytes();
        let uffd = self.tables.uffd(fault.table);
        self.pages.frames.set_used(frame);
        if self.tables.kernel_maps.is_some() && !fault.protection && !self.guards_far_pages() {
            // Another thread brought the page meanwhile. The kernel maps it, and a write to a clean page is a fault of its own.
            return Ok(seen);
        }
        let mapped = self.may_map(frame, fault.table);
        let mut now = seen;
        if fault.write {
            self.pages.frames.set_dirty(frame);
            now = PageWord::resident(frame, seen.habit().written(fault.protection));
        }
        if mapped && fault.protection {
            self.allow_writes_from(page, fault.table)?;
            Figures::add(&x.figures.write_faults, 1);
            return Ok(now);
        }
        let protect = !self.mark_if_writable(page, frame);
        if !mapped && self.map_around {
            self.map_neighbours(x, page, fault.table);
        }
        if let Err(e) = self.map_whole(uffd, at, len, protect, fault.write) {
            // A part may be mapped by now, and nothing may be written through a mapping that the core map does not have.
            let is_known = mapped || x.table == fault.table && unmap::unmap_here(at, len).is_ok();
            if !is_known {
                self.pages.frames.add_mapper(frame, fault.table);
            }
            return Err(e);
        }
        if !mapped {
            self.pages.frames.add_mapper(frame, fault.table);
            Figures::add(&x.figures.minor_faults, 1);
            if self.near.wants.mapped {
                self.note(x, Event::Mapped(frame, self.pages.frames.count(frame)));
            }
        }
        Ok(now)
    }

    /// Maps the pages at `at..at + len`, whose memory is in the arena's file, though a part of them may be mapped already. On failure a part
    /// may be mapped, too.
    pub(super) fn map_whole(
        &self,
        uffd: Uffd,
        at: usize,
        len: usize,
        protect: bool,
        write: bool,
    ) -> Result<(), FaultError> {
        loop {
            match uffd.continue_(at, len, protect) {
                Ok(()) => return Ok(()),
                // Another thread of this page table was first, or part of a 64K page is there.
                Err((done, Errno(libc::EEXIST))) if done < len => {
                    let any = map_rest(uffd, at + done, len - done, self.places.kernel_page(), protect)?;
                    // All there already: only the protection can be what was in the way.
                    if !any && write {
                        uffd.write_protect(at, len, false).map_err(FaultError::Kernel)?;
                    }
                    return Ok(());
                }
                Err((_, Errno(libc::EAGAIN | libc::EINTR))) => sys::yield_now(),
                Err((_, e)) => return Err(FaultError::Kernel(e)),
            }
        }
    }

    /// Notes an event, draining the logs first if this worker's is full.
    pub(super) fn note(&self, x: &mut Executor, event: Event) {
        if !self.limited() {
            return;
        }
        while !x.note(event) {
            let mut room = self.near.room.lock();
            self.drain_logs(&mut room);
        }
    }

    /// Brings a locked page that is far or was never touched, and what its stream will want next.
    fn fetch(&self, x: &mut Executor, page: u32, seen: PageWord, fault: Fault) -> Result<(), FaultError> {
        if seen.state() == State::Far
            && let Some(result) = self.fetch_huge(x, page, seen, fault.table)
        {
            return result;
        }
        if seen.state() == State::Absent
            && let Some(result) = self.begin_huge(x, page, fault.table)
        {
            return result;
        }
        let part = (fault.address & (self.page_bytes() - 1)) >> (self.places.shift - 12);
        let within = self.worth_fetching(page, seen.state());
        let window = x.streams.fault_at(u64::from(page), part as u32, within);
        if let Err(e) = self.make_room(x, 1) {
            page_word::unlock(self.pages.word(page), seen);
            return Err(e);
        }
        let mut batch = Batch::new();
        batch.push(self.item(x, page, seen, fault.write));
        self.lock_window(x, page, &window, seen.state(), &mut batch);
        let mut before = 0;
        let done = loop {
            let (done, e) = match self.fill(x, &batch, seen.state(), fault.table) {
                Ok(()) => break batch.len,
                Err(failed) => failed,
            };
            self.drop_part(batch.items[done].page);
            let is_here = batch.position(page) < done;
            let is_alone = batch.len - done == 1;
            for item in batch.items[done..batch.len].iter().filter(|item| is_here || item.page != page) {
                page_word::unlock(self.pages.word(item.page), item.seen);
            }
            if is_here {
                break done;
            }
            self.settle(x, &batch, done, page, fault.table);
            before += done;
            if is_alone {
                page_word::unlock(self.pages.word(page), seen);
                return Err(e);
            }
            // One page of the batch cannot be read, or a run of them lies in two mappings. That concerns this fault only if the page
            // that was asked for cannot come alone either.
            batch.keep_only(page);
        };
        self.settle(x, &batch, done, page, fault.table);
        let done = before + done;
        let f = x.figures;
        if seen.state() == State::Far {
            if let Some(last) = done.checked_sub(1) {
                self.huge.fetched(batch.items[0].page, batch.items[last].page, done as u32);
            }
            Figures::add(&f.major_faults, 1);
            Figures::add(&f.bytes_in, (done as u64) << self.places.shift);
        } else {
            self.huge.began(done);
            Figures::add(&f.first_faults, 1);
        }
        Figures::add(&f.prefetched, done as u64 - 1);
        Ok(())
    }

    /// The pages that may come with `page`: those of its stretch, fewer where it was never touched.
    fn worth_fetching(&self, page: u32, state: State) -> std::ops::RangeInclusive<u64> {
        let (at, end) = self.places.address_of(page);
        let last = u64::from(page) + ((end - at) >> self.places.shift) as u64 - 1;
        if state == State::Far
            && let Some(stretch) = self.huge.bounds(page)
        {
            return *stretch.start()..=last.min(*stretch.end());
        }
        pacing::worth_fetching(page.into(), state == State::Absent, last)
    }

    /// A locked page that is about to be brought.
    fn item(&self, x: &mut Executor, page: u32, seen: PageWord, write: bool) -> Item {
        let stayed = seen.state() == State::Far && self.far.is_in_place(page);
        // Of a page that stayed where it lies there is no copy, whose age would have to be known.
        let writable = stayed || self.writable(x, page, seen, write);
        Item { page, seen, writable, stayed }
    }

    /// Whether the page is mapped writable at once. What no fault asks for is so only if this node may write it.
    fn writable(&self, x: &mut Executor, page: u32, seen: PageWord, write: bool) -> bool {
        let is_new = seen.state() == State::Absent;
        x.guesses.is_writable(write, is_new, seen.habit()) && (write || is_new || self.may(page, true))
    }

    /// Locks the other pages of the window that are in the same state, as far as there is room for them.
    fn lock_window(
        &self,
        x: &mut Executor,
        page: u32,
        window: &atoll_pages::Window,
        state: State,
        batch: &mut Batch,
    ) {
        if window.count <= 1 {
            return;
        }
        let mut limit = self.scratch_pages(x).min(WINDOW).min(window.count as usize);
        if x.cached < limit {
            if self.limited() {
                limit = limit.min(self.worth_evicting());
            }
            // Where no room can be made, fewer pages come ahead.
            let _ = self.make_room(x, limit);
        }
        let limit = limit.min(x.cached);
        let end = self.places.address_of(page).1;
        // All are below the end of the stretch; backward ones may lie before its beginning.
        for candidate in window.pages().skip(1).map(|candidate| candidate as u32) {
            if batch.len >= limit {
                break;
            }
            if self.places.address_of(candidate).1 != end {
                continue;
            }
            let word = self.pages.word(candidate);
            let seen = page_word::load(word);
            if seen.state() == state && !seen.is_covered() && page_word::try_lock(word, seen) {
                // A page that never was anywhere is made to be written.
                if self.huge.is_huge(candidate) || !self.may(candidate, state == State::Absent) {
                    page_word::unlock(word, seen);
                    continue;
                }
                batch.push(self.item(x, candidate, seen, false));
            }
        }
        batch.sort();
    }

    /// Brings all pages of the batch, which are in `state`, and maps them in `table`. On failure says how many came before it.
    fn fill(
        &self,
        x: &mut Executor,
        batch: &Batch,
        state: State,
        table: usize,
    ) -> Result<(), (usize, FaultError)> {
        match state {
            State::Far => self.fill_far(x, batch, table),
            _ => self.fill_zero(batch, table),
        }
    }

    /// Bringing a locked page failed. Of a page that is several of the kernel's a part may be there, and must not be found, unless all of it
    /// was there before.
    fn drop_part(&self, page: u32) {
        if self.places.shift > 12 && !self.far.is_in_place(page) {
            let _ = self.punch_pages(page, 1);
        }
    }

    /// Fetches all pages of the batch from far memory and maps them in `table`. Those that stayed where they lie are only mapped.
    fn fill_far(&self, x: &mut Executor, batch: &Batch, table: usize) -> Result<(), (usize, FaultError)> {
        let uffd = self.tables.uffd(table);
        let items = &batch.items[..batch.len];
        let mut sources = [std::ptr::null_mut(); WINDOW];
        let mut staged = [Transfer::NONE; WINDOW];
        let mut count = 0;
        for (i, item) in items.iter().enumerate() {
            if item.stayed {
                continue;
            }
            let page = u64::from(item.page);
            sources[i] = match self
                .far
                .store
                .direct(&x.lane, page, Access::Load)
                .map_err(|e| (0, FaultError::Far(e)))?
            {
                Some(at) => at,
                None => {
                    // SAFETY: the scratch holds the window (limited when it was locked).
                    let memory = unsafe { x.scratch.add(i << self.places.shift) };
                    staged[count] = Transfer { page, memory };
                    count += 1;
                    memory
                }
            };
        }
        if count > 0 {
            self.far.store.load(&mut x.lane, &staged[..count]).map_err(|e| (0, FaultError::Far(e)))?;
        }
        let mut i = 0;
        while i < batch.len {
            let first = items[i];
            let end = (i + 1..batch.len).find(|&k| {
                items[k].page != items[k - 1].page + 1
                    || items[k].writable != first.writable
                    || items[k].stayed != first.stayed
                    || !first.stayed && sources[k] != sources[k - 1].wrapping_add(self.page_bytes())
            });
            let (run, source) = (end.unwrap_or(batch.len) - i, sources[i]);
            let (at, _) = self.places.address_of(first.page);
            let len = run << self.places.shift;
            if first.stayed {
                if let Err(e) = self.map_whole(uffd, at, len, false, true) {
                    // No part may be mapped that the core map does not have.
                    let _ = unmap::unmap_here(at, len);
                    return Err((i, e));
                }
                i += run;
                continue;
            }
            let mut done = 0;
            while done < len {
                // SAFETY: the source holds `run` pages: neighbours in far memory or in the scratch.
                match unsafe { uffd.copy(at + done, source.add(done), len - done, !first.writable) } {
                    Ok(()) => done = len,
                    Err((n, Errno(libc::EAGAIN | libc::EINTR))) => done += n,
                    Err((n, e)) => {
                        return Err((i + ((done + n) >> self.places.shift), FaultError::Kernel(e)));
                    }
                }
            }
            i += run;
        }
        Ok(())
    }

    /// Gives the batch's pages zeroed memory and maps them in `table`.
    fn fill_zero(&self, batch: &Batch, table: usize) -> Result<(), (usize, FaultError)> {
        let uffd = self.tables.uffd(table);
        let mut i = 0;
        while i < batch.len {
            let run = batch.run(i, |a, b| a.page + 1 == b.page);
            let (at, _) = self.places.address_of(batch.items[i].page);
            zero_run(uffd, at, run << self.places.shift, self.places.kernel_page())
                .map_err(|(n, e)| (i + (n >> self.places.shift), e))?;
            i += run;
        }
        Ok(())
    }

    /// Enters the first `done` pages of the batch, which are mapped, into the tables, and unlocks them.
    fn settle(&self, x: &mut Executor, batch: &Batch, done: usize, page: u32, table: usize) {
        for item in &batch.items[..done] {
            x.cached -= 1;
            let frame = x.cache[x.cached];
            let far = item.seen.state() == State::Far;
            let is_held = far && self.far.store.let_go(item.page.into());
            self.pages.frames.fill(frame, item.page, item.writable, is_held);
            self.pages.frames.add_mapper(frame, table);
            self.note(x, Event::arrived(frame, item.page == page, far.then(|| item.seen.token())));
            if item.stayed {
                self.far.store.take_from_place(item.page.into(), 1);
            }
            if !far {
                self.pages.touch(item.page, self.places.shift, &self.control.totals);
            }
            let habit = item.seen.habit();
            let habit = if item.writable { habit.mapped_writable() } else { habit };
            page_word::unlock(self.pages.word(item.page), PageWord::resident(frame, habit));
        }
    }
}

/// Maps what is not mapped yet of `at..at + len`, one of the kernel's pages of `step` bytes after the other; `false` if everything
/// was.
fn map_rest(uffd: Uffd, at: usize, len: usize, step: usize, protect: bool) -> Result<bool, FaultError> {
    let mut any = false;
    let mut here = at;
    while here < at + len {
        match uffd.continue_(here, step, protect) {
            Ok(()) => any = true,
            Err((_, Errno(libc::EEXIST))) => {}
            Err((_, Errno(libc::EAGAIN | libc::EINTR))) => continue,
            Err((_, e)) => return Err(FaultError::Kernel(e)),
        }
        here += step;
    }
    Ok(any)
}

/// Gives `at..at + len` zeroed memory in pages of the kernel of `step` bytes, mapped writable. On failure says how many bytes were
/// done.
fn zero_run(uffd: Uffd, at: usize, len: usize, step: usize) -> Result<(), (usize, FaultError)> {
    let mut done = 0;
    while done < len {
        let result = if step > 4096 {
            // The kernel has no UFFDIO_ZEROPAGE for huge pages.
            let source = crate::arena::zero_page();
            // SAFETY: the zero page is one huge page long.
            unsafe { uffd.copy(at + done, source, step, false) }.map(|()| step)
        } else {
            uffd.zero(at + done, len - done).map(|()| len - done)
        };
        match result {
            Ok(n) => done += n,
            Err((n, Errno(libc::EAGAIN | libc::EINTR))) => done += n,
            Err((n, e)) => return Err((done + n, FaultError::Kernel(e))),
        }
    }
    Ok(())
}

/// A page of a batch: locked, with the word it had.
#[derive(Clone, Copy)]
struct Item {
    page: u32,
    seen: PageWord,
    writable: bool,
    /// Whether the page is far and stayed where it lies.
    stayed: bool,
}

/// The pages one fault brings.
struct Batch {
    items: [Item; WINDOW],
    len: usize,
}

impl Batch {
    fn new() -> Batch {
        let none = Item { page: 0, seen: PageWord::ABSENT, writable: false, stayed: false };
        Batch { items: [none; WINDOW], len: 0 }
    }

    fn push(&mut self, item: Item) {
        self.items[self.len] = item;
        self.len += 1;
    }

    fn sort(&mut self) {
        self.items[..self.len].sort_unstable_by_key(|i| i.page);
    }

    fn position(&self, page: u32) -> usize {
        self.items[..self.len].iter().position(|i| i.page == page).unwrap_or(self.len)
    }

    /// Removes all pages but this one of them.
    fn keep_only(&mut self, page: u32) {
        self.items[0] = self.items[self.position(page)];
        self.len = 1;
    }

    /// How many pages from `i` on belong together.
    fn run(&self, i: usize, together: impl Fn(&Item, &Item) -> bool) -> usize {
        let mut n = 1;
        while i + n < self.len && together(&self.items[i + n - 1], &self.items[i + n]) {
            n += 1;
        }
        n
    }
}
