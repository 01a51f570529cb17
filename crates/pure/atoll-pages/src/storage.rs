//! The memory a policy keeps its order in: three arrays of words that the caller gives.
//!
//! `spec` says how many words each policy needs; the policies take the arrays apart. In a run they lie in shared
//! memory, in tests and simulators in an `OwnedStorage`.

use crate::spec::PolicySpec;

/// The arrays of one policy, at most 12 bytes a frame and one pair of words a list.
#[derive(Debug)]
pub struct Storage<'a> {
    pub(crate) next: &'a mut [u32],
    pub(crate) prev: &'a mut [u32],
    pub(crate) tag: &'a mut [u32],
    pub(crate) frames: u32,
}

impl<'a> Storage<'a> {
    /// Divides `words`, which are all zero, into the arrays that `spec` needs for `frames` frames. A policy touches the words
    /// of frames that are used, and no others. `None` when there are fewer than [`PolicySpec::words`]; words beyond them stay
    /// unused.
    pub fn new(spec: &PolicySpec, frames: u32, words: &'a mut [u32]) -> Option<Self> {
        let nodes = (frames as usize).checked_add(spec.lists())?;
        if words.len() < spec.words(frames) || nodes > u32::MAX as usize {
            return None;
        }
        let (next, rest) = words.split_at_mut(nodes);
        let (prev, rest) = rest.split_at_mut(nodes);
        let tag = &mut rest[..if spec.is_tagged() { frames as usize } else { 0 }];
        Some(Self { next, prev, tag, frames })
    }
}

/// Storage that owns its memory, for tests and simulators.
#[cfg(feature = "alloc")]
#[derive(Debug)]
pub struct OwnedStorage {
    spec: PolicySpec,
    frames: u32,
    words: alloc::vec::Vec<u32>,
}

#[cfg(feature = "alloc")]
impl OwnedStorage {
    /// Memory for one policy over `frames` frames. At most `u32::MAX - 2048` frames are of use.
    pub fn new(spec: PolicySpec, frames: u32) -> Self {
        Self { spec, frames, words: alloc::vec![0; spec.words(frames)] }
    }

    /// An empty policy in this memory.
    pub fn policy(&mut self) -> crate::spec::AnyPolicy<'_> {
        self.words.fill(0);
        match Storage::new(&self.spec, self.frames, &mut self.words) {
            Some(storage) => crate::spec::AnyPolicy::new(self.spec, storage),
            None => panic!("{} frames are more than a policy can number", self.frames),
        }
    }
}
