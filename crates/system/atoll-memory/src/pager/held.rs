//! Which parts of paged memory hold anything: what a copy of all of it has to hold.
//!
//! Called by whoever makes such a copy, for a process that the program forks; `page_word` says where a page is.

use super::executor::Executor;
use super::page_word::{self, State};
use super::{FaultError, Pager};
use crate::sys;

impl Pager {
    /// Copies `bytes` bytes of paged memory at `from`, by the arena's files, where the program forbids itself to read them. Each page comes near for it.
    ///
    /// # Safety
    /// `to` is valid for writes of `bytes`.
    ///
    /// # Errors
    /// As for [`pin`](Self::pin); [`FaultError::Kernel`] if the kernel cannot read the file.
    pub unsafe fn read_past_rights(
        &self,
        x: &mut Executor,
        table: usize,
        from: usize,
        to: *mut u8,
        bytes: usize,
    ) -> Result<(), FaultError> {
        let mut at = from;
        while at < from + bytes {
            let len = (self.page_bytes() - (at & (self.page_bytes() - 1))).min(from + bytes - at);
            let page = self.page_at(at).ok_or(FaultError::NotOurs)?;
            let offset = self.places.offset(page) + (at & (self.page_bytes() - 1)) as u64;
            self.pin(x, table, at, len, false)?;
            // SAFETY: within the caller's memory.
            let read =
                unsafe { sys::pread_exact(self.places.files.file(offset), to.add(at - from), len, offset) };
            self.unpin(at, len);
            read.map_err(FaultError::Kernel)?;
            at += len;
        }
        Ok(())
    }

    /// The first part of `from..to`, which lies in one stretch of paged memory, that does not read as zeros only because nobody
    /// has used it; `None` if there is none. Other threads may change it meanwhile.
    pub fn next_held(&self, from: usize, to: usize) -> Option<(usize, usize)> {
        let first = self.page_at(from)? as usize;
        let end = self.page_at(to - 1)? as usize + 1;
        let start = from & !(self.page_bytes() - 1);
        let address = |page: usize| (start + ((page - first) << self.places.shift)).clamp(from, to);
        let is_held = |page: usize| page_word::load(self.pages.word(page as u32)).state() != State::Absent;
        let mut page = first;
        while page < end {
            page = self.pages.next_touched(page, end)?;
            let chunk_end = (((page >> 9) + 1) << 9).min(end);
            if let Some(held) = (page..chunk_end).find(|page| is_held(*page)) {
                let last = (held..chunk_end).find(|page| !is_held(*page));
                return Some((address(held), address(last.unwrap_or(chunk_end))));
            }
            page = chunk_end;
        }
        None
    }
}
