//! The ready set: a bitmap of two levels in shared memory that tells which of many rings have something to read.
//!
//! A producer that finds its ring's bell armed (`producer.rs`) sets its seat's bit here and wakes the set's owner;
//! `wait_set.rs` collects the bits. Finding the ready ones among n seats takes n/4096 loads, and 10,000 idle channels cost
//! nothing.
//!
//! Source: the barrelfish paper, section 6.7.2 (`struct waitset`), where a set polls each of its channels in turn; here the
//! producers notify the set.

use std::any::Any;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::ring::bell::{ASLEEP, Bell};
use crate::ring::sync::{AtomicU32, AtomicU64, Ordering};

/// The start of a set's memory, which the words of the summary and then those of the leaves follow.
#[repr(C)]
pub(crate) struct SetControl {
    pub(crate) identity: SetIdentity,
    pub(crate) owner: Owner,
}

/// The identity of a set, which an attaching process checks; written once, before any other process can see it.
#[repr(C, align(64))]
pub(crate) struct SetIdentity {
    pub(crate) magic: AtomicU64,
    pub(crate) version: AtomicU32,
    pub(crate) seats: AtomicU32,
}

/// The words by which the set's owner sleeps and is woken.
#[repr(C, align(64))]
pub(crate) struct Owner {
    pub(crate) bell: Bell,
    /// 1 if somebody wants the owner to stop waiting.
    pub(crate) interrupted: AtomicU32,
}

/// The greatest number of seats of a set: 64 words of summary.
pub(crate) const MOST_SEATS: u32 = 64 * 64 * 64;

/// The number of words of the leaves, which have a bit for each seat.
pub(crate) fn leaf_words(seats: u32) -> usize {
    seats.div_ceil(64) as usize
}

/// The number of words of the summary, which has a bit for each word of the leaves.
pub(crate) fn summary_words(seats: u32) -> usize {
    leaf_words(seats).div_ceil(64)
}

/// A set in memory that its owner and all its producers see.
#[derive(Clone)]
pub(crate) struct ReadySet {
    control: NonNull<SetControl>,
    /// The words of the summary, with those of the leaves right behind them.
    words: NonNull<AtomicU64>,
    /// The number of seats; this process's own copy.
    seats: u32,
    _keep: Arc<dyn Any + Send + Sync>,
}

// SAFETY: all memory behind the pointers is atomics, and `_keep` holds it as long as any copy lives.
unsafe impl Send for ReadySet {}
// SAFETY: as above; a set has no state but what is shared.
unsafe impl Sync for ReadySet {}

impl ReadySet {
    /// A set of `seats` seats in memory that `keep` holds.
    ///
    /// # Safety
    /// `control` and the words of summary and leaves from `words` on must be valid, aligned and written by
    /// nothing but atomics as long as `keep` lives.
    pub(crate) unsafe fn new(
        control: NonNull<SetControl>,
        words: NonNull<AtomicU64>,
        seats: u32,
        keep: Arc<dyn Any + Send + Sync>,
    ) -> ReadySet {
        ReadySet { control, words, seats, _keep: keep }
    }

    fn control(&self) -> &SetControl {
        // SAFETY: valid as `new` was promised, and held by `_keep`.
        unsafe { self.control.as_ref() }
    }

    /// The words of the summary and those of the leaves.
    fn words(&self) -> (&[AtomicU64], &[AtomicU64]) {
        let summary = summary_words(self.seats);
        let all = summary + leaf_words(self.seats);
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr(), all) }.split_at(summary)
    }

    /// The number of seats.
    pub(crate) fn seats(&self) -> u32 {
        self.seats
    }

    /// The bell at which the owner waits.
    pub(crate) fn bell(&self) -> &Bell {
        &self.control().owner.bell
    }

    /// A producer's side: marks that the ring at `seat`, which is below `seats`, has something to read, and wakes the owner.
    #[cold]
    pub(crate) fn ring(&self, seat: u32) {
        let (summary, leaves) = self.words();
        let leaf = (seat / 64) as usize;
        // Release: pairs with the Acquire in `collect`. The leaf is set before the summary, as `collect` reads them in the
        // other order.
        leaves[leaf].fetch_or(1 << (seat % 64), Ordering::Release);
        // Done even if the leaf had bits already: the producer that set them may have died before it came to this line.
        summary[leaf / 64].fetch_or(1 << (leaf % 64), Ordering::Release);
        if self.bell().answer() == ASLEEP {
            self.bell().wake();
        }
    }

    /// Any side: ends the owner's wait, the present one or the next. Takes no lock and allocates nothing, so a signal handler
    /// may call it.
    pub(crate) fn interrupt(&self) {
        // Release: pairs with the Acquire in `take_interrupt`.
        self.control().owner.interrupted.store(1, Ordering::Release);
        if self.bell().answer() == ASLEEP {
            self.bell().wake();
        }
    }

    /// The owner's side: whether it was interrupted since the last call.
    pub(crate) fn take_interrupt(&self) -> bool {
        self.is_interrupted() && self.control().owner.interrupted.swap(0, Ordering::Acquire) != 0
    }

    /// The owner's side: whether `take_interrupt` would return true.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.control().owner.interrupted.load(Ordering::Relaxed) != 0
    }

    /// The owner's side: whether `collect` would find a seat.
    pub(crate) fn any(&self) -> bool {
        self.words().0.iter().any(|word| word.load(Ordering::Relaxed) != 0)
    }

    /// The owner's side: passes each seat whose bit is set to `seen`, and clears the bits. Seats beyond the last are ignored,
    /// since a hostile producer may set any bit.
    pub(crate) fn collect(&self, mut seen: impl FnMut(u32)) {
        let (summary, leaves) = self.words();
        for (i, word) in summary.iter().enumerate() {
            if word.load(Ordering::Relaxed) == 0 {
                continue;
            }
            // The summary is cleared before the leaf is read: a bit that is set between is then in the leaf, or its summary is
            // set again. Acquire: pairs with the Release in `ring`, here and below.
            let mut full = word.swap(0, Ordering::Acquire);
            while full != 0 {
                let leaf = i * 64 + full.trailing_zeros() as usize;
                full &= full - 1;
                let Some(word) = leaves.get(leaf) else { continue };
                let mut bits = word.swap(0, Ordering::Acquire);
                while bits != 0 {
                    let seat = leaf as u32 * 64 + bits.trailing_zeros();
                    bits &= bits - 1;
                    if seat < self.seats {
                        seen(seat);
                    }
                }
            }
        }
    }
}

/// Sets on the heap, for one process: used by the model checker and by tests.
#[cfg(any(test, loom))]
pub(crate) mod heap {
    use super::*;

    struct Heap {
        control: SetControl,
        words: Vec<AtomicU64>,
    }

    pub(crate) fn set(seats: u32) -> ReadySet {
        let identity =
            SetIdentity { magic: AtomicU64::new(0), version: AtomicU32::new(0), seats: AtomicU32::new(0) };
        let words = summary_words(seats) + leaf_words(seats);
        let heap = Arc::new(Heap {
            control: SetControl {
                identity,
                owner: Owner { bell: Bell::new(), interrupted: AtomicU32::new(0) },
            },
            words: (0..words).map(|_| AtomicU64::new(0)).collect(),
        });
        let words = NonNull::from(heap.words.as_slice()).cast();
        // SAFETY: both parts are the heap's, which the set holds.
        unsafe { ReadySet::new(NonNull::from(&heap.control), words, seats, heap.clone()) }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_was_rung_is_collected_once() {
        for seats in [1, 63, 64, 65, 4096, 4097, 10_000] {
            let set = heap::set(seats);
            assert!(!set.any());
            let rung: Vec<u32> = (0..seats).filter(|seat| seat % 37 == 0 || seat + 1 == seats).collect();
            rung.iter().rev().for_each(|seat| set.ring(*seat));
            assert!(set.any());
            let mut seen = Vec::new();
            set.collect(|seat| seen.push(seat));
            assert_eq!(seen, rung);
            set.collect(|_| panic!("collected twice"));
        }
    }

    #[test]
    fn bits_of_no_seat_are_left_out() {
        let set = heap::set(70);
        let (summary, leaves) = set.words();
        summary[0].store(!0, Ordering::Relaxed);
        leaves[1].store(!0, Ordering::Relaxed);
        let mut seen = Vec::new();
        set.collect(|seat| seen.push(seat));
        assert_eq!(seen, (64..70).collect::<Vec<_>>());
    }
}
