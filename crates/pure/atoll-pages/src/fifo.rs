//! First in, first out: the victim is the page that has been resident longest, whatever its use.
//!
//! The baseline the other policies are judged against, and what CMCP becomes at p = 0 (`papers/cmcp.txt`, section 3).

use core::fmt;

use crate::links::Links;
use crate::policy::{Policy, Wants};
use crate::spec::{Options, SpecError};
use crate::storage::Storage;

/// Options of [`Fifo`]: none.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct FifoOptions;

impl Options for FifoOptions {
    type Policy<'a> = Fifo<'a>;
    const NAME: &'static str = "fifo";
    const DEFAULT: Self = Self;
    const LISTS: usize = 1;
    const TAGGED: bool = false;
    const WANTS: Wants = Wants::NOTHING;

    fn set(&mut self, _key: &str, _value: &str) -> Result<(), SpecError> {
        Err(SpecError::UnknownOption { policy: Self::NAME, known: "none" })
    }

    fn build(self, storage: Storage<'_>) -> Fifo<'_> {
        Fifo { links: Links::new(storage.next, storage.prev, storage.frames), len: 0 }
    }
}

impl fmt::Display for FifoOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::NAME)
    }
}

const QUEUE: u32 = 0;

/// The FIFO policy; 8 bytes a frame. A restored victim joins the queue anew.
#[derive(Debug)]
pub struct Fifo<'a> {
    links: Links<'a>,
    len: u32,
}

impl Policy for Fifo<'_> {
    fn insert(&mut self, frame: u32, _mappers: u32) {
        if !self.links.is_linked(frame) {
            self.links.push_back(QUEUE, frame);
            self.len += 1;
        }
    }

    fn mapped(&mut self, _frame: u32, _mappers: u32) {}

    fn peek(&self) -> Option<u32> {
        self.links.front(QUEUE)
    }

    fn evict(&mut self) -> Option<u32> {
        let victim = self.peek()?;
        self.remove(victim);
        Some(victim)
    }

    fn remove(&mut self, frame: u32) {
        if self.links.is_linked(frame) {
            self.links.unlink(frame);
            self.len -= 1;
        }
    }

    fn scan(&mut self, _unmap: &mut dyn FnMut(u32)) {}

    fn len(&self) -> usize {
        self.len as usize
    }

    fn contains(&self, frame: u32) -> bool {
        self.links.is_linked(frame)
    }

    fn name(&self) -> &'static str {
        FifoOptions::NAME
    }
}
