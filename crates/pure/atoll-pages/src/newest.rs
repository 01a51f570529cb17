//! Newest first: the victim is the page that came last, so that what is resident stays.
//!
//! The worked example of `docs/add-a-policy.md`. Right for a sweep over more than near memory again and again, and wrong for nearly
//! everything else.

use core::fmt;

use crate::links::Links;
use crate::policy::{Policy, Wants};
use crate::spec::{Options, SpecError};
use crate::storage::Storage;

/// Options of [`Newest`]: none.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct NewestOptions;

impl Options for NewestOptions {
    type Policy<'a> = Newest<'a>;
    const NAME: &'static str = "newest";
    const DEFAULT: Self = Self;
    const LISTS: usize = 1;
    const TAGGED: bool = false;
    const WANTS: Wants = Wants::NOTHING;

    fn set(&mut self, _key: &str, _value: &str) -> Result<(), SpecError> {
        Err(SpecError::UnknownOption { policy: Self::NAME, known: "none" })
    }

    fn build(self, storage: Storage<'_>) -> Newest<'_> {
        Newest { links: Links::new(storage.next, storage.prev, storage.frames), len: 0 }
    }
}

impl fmt::Display for NewestOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::NAME)
    }
}

const STACK: u32 = 0;

/// The policy; 8 bytes a frame.
#[derive(Debug)]
pub struct Newest<'a> {
    links: Links<'a>,
    len: u32,
}

impl Policy for Newest<'_> {
    fn insert(&mut self, frame: u32, _mappers: u32) {
        if !self.links.is_linked(frame) {
            self.links.push_back(STACK, frame);
            self.len += 1;
        }
    }

    fn mapped(&mut self, _frame: u32, _mappers: u32) {}

    fn peek(&self) -> Option<u32> {
        self.links.back(STACK)
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
        NewestOptions::NAME
    }
}

#[cfg(all(test, feature = "alloc"))]
mod tests {
    use super::*;
    use crate::replay::{Reference, Replay};

    #[test]
    fn the_guide_shows_this_file() {
        let guide = include_str!("../../../../docs/add-a-policy.md");
        assert!(guide.contains(include_str!("newest.rs")), "docs/add-a-policy.md is behind its example");
    }

    #[test]
    fn a_sweep_keeps_what_fits() {
        let (mut next, mut prev) = ([0; 81], [0; 81]);
        let storage = Storage { next: &mut next, prev: &mut prev, tag: &mut [], frames: 80 };
        let mut replay = Replay::new(NewestOptions.build(storage), 80);
        for index in 0..1000 {
            replay.reference(Reference { worker: 0, page: index % 100, write: false });
        }
        // First all 100; then in each round the 20 that do not fit, and one that had to go for them.
        assert_eq!(replay.counts().major, 100 + 9 * 21);
    }
}
