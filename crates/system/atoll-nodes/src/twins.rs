//! The memory that a node's twins lie in.
//!
//! `memory` makes and drops them. Where near memory is limited they are the first process's own memory and not the runtime's, which is
//! pinned: all of that must be near, and a region with many twins would leave the program nothing. Only the agent's thread uses
//! them then; where workers step the agent, too (`duty`), near memory has no limit.

use atoll_memory::sys;

/// Memory is asked for so many twins at once.
const TOGETHER: usize = 64;

/// One page as it was.
pub(crate) enum Twin {
    Block(Vec<u8>),
    Stretch(&'static mut [u8]),
}

impl Twin {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Twin::Block(bytes) => bytes,
            Twin::Stretch(bytes) => bytes,
        }
    }
}

/// Memory for twins to come.
pub(crate) struct Room {
    page_bytes: usize,
    limited: bool,
    free: Vec<&'static mut [u8]>,
}

impl Room {
    /// Memory for twins of pages of `page_bytes` bytes; `limited`: near memory is.
    pub(crate) fn new(page_bytes: usize, limited: bool) -> Room {
        Room { page_bytes, limited, free: Vec::new() }
    }

    /// `content` as a twin.
    pub(crate) fn keep(&mut self, content: Vec<u8>) -> (Twin, Option<Vec<u8>>) {
        if self.limited && self.free.is_empty() {
            self.grow();
        }
        match self.free.pop().filter(|stretch| stretch.len() == content.len()) {
            Some(stretch) => {
                stretch.copy_from_slice(&content);
                (Twin::Stretch(stretch), Some(content))
            }
            None => (Twin::Block(content), None),
        }
    }

    /// Takes back a twin that is not needed any more; returns a buffer that may be used again.
    pub(crate) fn give_back(&mut self, twin: Twin) -> Option<Vec<u8>> {
        match twin {
            Twin::Block(block) => Some(block),
            Twin::Stretch(stretch) => {
                self.free.push(stretch);
                None
            }
        }
    }

    fn grow(&mut self) {
        let bytes = TOGETHER * self.page_bytes;
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: fresh memory, of this process alone, which is never unmapped.
        let Ok(at) = (unsafe { sys::mmap(0, bytes, protection, flags, -1, 0) }) else { return };
        // SAFETY: as above; zeros are bytes.
        let all = unsafe { std::slice::from_raw_parts_mut(at as *mut u8, bytes) };
        self.free.extend(all.chunks_mut(self.page_bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twins_keep_what_they_were_made_of() {
        for limited in [false, true] {
            let mut room = Room::new(4096, limited);
            let twins: Vec<Twin> = (0..100).map(|n| room.keep(vec![n; 4096]).0).collect();
            for (n, twin) in (0..).zip(&twins) {
                assert!(twin.bytes().iter().all(|byte| *byte == n));
                assert_eq!(matches!(twin, Twin::Stretch(_)), limited);
            }
            for twin in twins {
                assert_eq!(room.give_back(twin).is_none(), limited);
            }
            let free = room.free.len();
            let (twin, _) = room.keep(vec![7; 4096]);
            assert!(twin.bytes().iter().all(|byte| *byte == 7));
            assert_eq!(room.free.len(), free.saturating_sub(1));
        }
    }
}
