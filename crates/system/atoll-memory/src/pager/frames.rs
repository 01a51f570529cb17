//! What is known of each resident page, by frame: which page it holds, its core map, whether it was written.
//!
//! Used by the pager's paths. A frame is a place in the near budget, not an address: the kernel chooses physical
//! memory. An entry is changed only by the holder of the page lock of the page it holds.
//!
//! Rules: no allocation, no locks, no arena access.

use super::sync::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

const DIRTY: u32 = 1;
const FAR_COPY: u32 = 2;
const LEAVING: u32 = 4;
/// An entry of the queue of pages that are about to leave is this page's.
const QUEUED: u32 = 16;
/// The page was found pinned as a victim, and the policy does not hold it.
const ASIDE: u32 = 8;
const PIN: u32 = 1 << 8;

/// The frame table: `capacity` entries of page, flags and core map.
///
/// A core map has a bit for each page table, in words of 64. The first words of all frames lie together, then the second words, and
/// so on: a team of 64 workers or fewer touches the memory of the first words alone.
pub struct Frames {
    page: &'static [AtomicU32],
    flags: &'static [AtomicU32],
    /// `most_words` times `capacity` words.
    maps: &'static [AtomicU64],
    /// Words of a core map that are in use: those of the page tables there have been.
    words: AtomicUsize,
    most_words: usize,
}

impl Frames {
    /// Bytes of address space an entry takes where `tables` page tables may map a page.
    pub const fn bytes_per_frame(tables: usize) -> usize {
        8 + 8 * tables.div_ceil(64)
    }

    /// A table over zeroed memory at `at` of `capacity × bytes_per_frame(tables)` bytes, 8-aligned.
    ///
    /// # Safety
    /// The memory must be valid for ever, zeroed, shared by all workers and used for nothing else.
    pub unsafe fn new(at: *mut u8, capacity: usize, tables: usize) -> Frames {
        let most_words = tables.div_ceil(64);
        // SAFETY: the caller's memory holds the three arrays one after the other; atomics are valid when zero.
        unsafe {
            let page = at.cast::<AtomicU32>();
            let flags = page.add(capacity);
            let maps = flags.add(capacity).cast::<AtomicU64>();
            Frames {
                page: std::slice::from_raw_parts(page, capacity),
                flags: std::slice::from_raw_parts(flags, capacity),
                maps: std::slice::from_raw_parts(maps, capacity * most_words),
                words: AtomicUsize::new(1),
                most_words,
            }
        }
    }

    /// A table over memory of the model checker's.
    #[cfg(all(test, loom))]
    pub(super) fn of_model(capacity: usize) -> Frames {
        let words = || (0..capacity).map(|_| AtomicU32::new(0)).collect::<Vec<_>>().leak();
        Frames {
            page: words(),
            flags: words(),
            maps: (0..capacity).map(|_| AtomicU64::new(0)).collect::<Vec<_>>().leak(),
            words: AtomicUsize::new(1),
            most_words: 1,
        }
    }

    /// Core maps have room for page table `table` from now on; `false` if the table has none.
    pub fn make_room_for(&self, table: usize) -> bool {
        let words = table / 64 + 1;
        // The new words are zero, as nobody has written to them: a reader of either number of words sees the same set.
        let fits = words <= self.most_words;
        if fits {
            self.words.fetch_max(words, Ordering::Relaxed);
        }
        fits
    }

    /// The page in `frame`.
    #[inline]
    pub fn page(&self, frame: u32) -> u32 {
        self.page[frame as usize].load(Ordering::Relaxed)
    }

    /// `page` comes into `frame`, mapped by nobody yet. `far_copy`: far memory holds it as it is, until it is written.
    #[inline]
    pub fn fill(&self, frame: u32, page: u32, dirty: bool, far_copy: bool) {
        self.page[frame as usize].store(page, Ordering::Relaxed);
        // Never both: what is clean later was written meanwhile.
        let flags = match (dirty, far_copy) {
            (true, _) => DIRTY,
            (false, true) => FAR_COPY,
            (false, false) => 0,
        };
        self.flags[frame as usize].store(flags, Ordering::Relaxed);
        for word in self.map_words(frame) {
            word.store(0, Ordering::Relaxed);
        }
    }

    /// Whether anybody mapped the page writable since it came.
    #[inline]
    pub fn dirty(&self, frame: u32) -> bool {
        self.flags[frame as usize].load(Ordering::Relaxed) & DIRTY != 0
    }

    /// Notes that somebody is about to map the page writable.
    #[inline]
    pub fn set_dirty(&self, frame: u32) {
        let flags = &self.flags[frame as usize];
        flags.store((flags.load(Ordering::Relaxed) | DIRTY) & !FAR_COPY, Ordering::Relaxed);
    }

    /// Notes that nobody maps the page writable any more. What far memory holds is not its content, if it was dirty.
    #[inline]
    pub fn set_clean(&self, frame: u32) {
        let flags = &self.flags[frame as usize];
        flags.store(flags.load(Ordering::Relaxed) & !DIRTY, Ordering::Relaxed);
    }

    /// A copy of another node's page was put in place, to be written or only to be read: far memory does not hold it.
    pub(super) fn mark_as(&self, frame: u32, is_writable: bool) {
        self.set_dirty(frame);
        if !is_writable {
            self.set_clean(frame);
        }
    }

    /// Whether what far memory holds is still the page's content.
    #[inline]
    pub fn far_copy(&self, frame: u32) -> bool {
        self.flags[frame as usize].load(Ordering::Relaxed) & FAR_COPY != 0
    }

    /// Whether the page is about to leave, and unused since that was decided.
    #[inline]
    pub fn leaving(&self, frame: u32) -> bool {
        self.flags[frame as usize].load(Ordering::Relaxed) & LEAVING != 0
    }

    /// Notes that the page is about to leave, and has an entry in the queue of such pages.
    #[inline]
    pub fn set_leaving(&self, frame: u32) {
        let flags = &self.flags[frame as usize];
        flags.store(flags.load(Ordering::Relaxed) | LEAVING | QUEUED, Ordering::Relaxed);
    }

    /// Whether the page has an entry in the queue of pages that are about to leave. An entry of a page that left in another way, as by being freed, is not
    /// the next one's that comes into the frame.
    #[inline]
    pub(super) fn queued(&self, frame: u32) -> bool {
        self.flags[frame as usize].load(Ordering::Relaxed) & QUEUED != 0
    }

    /// Notes that the page's entry is taken from the queue, and the page stays.
    #[inline]
    pub(super) fn unqueue(&self, frame: u32) {
        let flags = &self.flags[frame as usize];
        flags.store(flags.load(Ordering::Relaxed) & !(LEAVING | QUEUED), Ordering::Relaxed);
    }

    /// Notes that the page was used.
    #[inline]
    pub fn set_used(&self, frame: u32) {
        let flags = &self.flags[frame as usize];
        let now = flags.load(Ordering::Relaxed);
        if now & LEAVING != 0 {
            flags.store(now & !LEAVING, Ordering::Relaxed);
        }
    }

    /// Whether the page is kept near for a system call.
    #[inline]
    pub fn pinned(&self, frame: u32) -> bool {
        self.flags[frame as usize].load(Ordering::Relaxed) >= PIN
    }

    /// Notes that the policy does not hold the page, as it is pinned.
    #[inline]
    pub(super) fn set_aside(&self, frame: u32) {
        let flags = &self.flags[frame as usize];
        flags.store(flags.load(Ordering::Relaxed) | ASIDE, Ordering::Relaxed);
    }

    /// Notes that the policy is to hold the page again. Returns whether it does not yet.
    #[inline]
    pub(super) fn take_back(&self, frame: u32) -> bool {
        let flags = &self.flags[frame as usize];
        let now = flags.load(Ordering::Relaxed);
        if now & ASIDE != 0 {
            flags.store(now & !ASIDE, Ordering::Relaxed);
        }
        now & ASIDE != 0
    }

    /// Adds one reason to keep the page near.
    #[inline]
    pub fn pin(&self, frame: u32) {
        let flags = &self.flags[frame as usize];
        flags.store(flags.load(Ordering::Relaxed) + PIN, Ordering::Relaxed);
    }

    /// Takes one reason to keep the page near away.
    #[inline]
    pub fn unpin(&self, frame: u32) {
        let flags = &self.flags[frame as usize];
        let now = flags.load(Ordering::Relaxed);
        if now >= PIN {
            flags.store(now - PIN, Ordering::Relaxed);
        }
    }

    /// The word of a frame's core map that has page table `table`.
    #[inline]
    fn map_word(&self, frame: u32, table: usize) -> &'static AtomicU64 {
        &self.maps[table / 64 * self.page.len() + frame as usize]
    }

    /// All words of a frame's core map that are in use.
    #[inline]
    fn map_words(&self, frame: u32) -> impl Iterator<Item = &'static AtomicU64> {
        let words = self.words.load(Ordering::Relaxed);
        (0..words).map(move |word| &self.maps[word * self.page.len() + frame as usize])
    }

    /// Whether the page is mapped in page table `table`.
    #[inline]
    pub fn mapped_by(&self, frame: u32, table: usize) -> bool {
        self.map_word(frame, table).load(Ordering::Relaxed) >> (table % 64) & 1 != 0
    }

    /// Page table `table` maps the page from now on.
    #[inline]
    pub fn add_mapper(&self, frame: u32, table: usize) {
        let word = self.map_word(frame, table);
        word.store(word.load(Ordering::Relaxed) | 1 << (table % 64), Ordering::Relaxed);
    }

    /// Page table `table` maps the page no more.
    #[inline]
    pub fn remove_mapper(&self, frame: u32, table: usize) {
        let word = self.map_word(frame, table);
        word.store(word.load(Ordering::Relaxed) & !(1 << (table % 64)), Ordering::Relaxed);
    }

    /// The number of page tables that map the page: its core-map count.
    #[inline]
    pub fn count(&self, frame: u32) -> u32 {
        self.map_words(frame).map(|w| w.load(Ordering::Relaxed).count_ones()).sum()
    }

    /// Adds the page's core map to `to`.
    #[inline]
    pub fn union_into(&self, frame: u32, to: &mut CoreMap) {
        for (to, word) in to.words.iter_mut().zip(self.map_words(frame)) {
            *to |= word.load(Ordering::Relaxed);
        }
    }
}

/// A set of page tables, on the stack.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct CoreMap {
    words: [u64; crate::control::MAX_WORKERS.div_ceil(64)],
}

impl CoreMap {
    /// The empty set.
    pub const EMPTY: CoreMap = CoreMap { words: [0; crate::control::MAX_WORKERS.div_ceil(64)] };

    /// Puts page table `table` into the set.
    #[inline]
    pub fn insert(&mut self, table: usize) {
        self.words[table / 64] |= 1 << (table % 64);
    }

    /// Takes page table `table` out of the set.
    #[inline]
    pub fn remove(&mut self, table: usize) {
        self.words[table / 64] &= !(1 << (table % 64));
    }

    /// Whether the set is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|&word| word == 0)
    }

    /// Calls `each` with every page table of the set, ascending.
    #[inline]
    pub fn for_each(&self, mut each: impl FnMut(usize)) {
        for (i, &word) in self.words.iter().enumerate() {
            let mut rest = word;
            while rest != 0 {
                each(i * 64 + rest.trailing_zeros() as usize);
                rest &= rest - 1;
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_worker_beyond_the_first_64_that_comes_late_is_counted() {
        let words = vec![0u64; 3 * Frames::bytes_per_frame(128) / 8].leak();
        // SAFETY: zeroed memory of that size, never freed.
        let frames = unsafe { Frames::new(words.as_mut_ptr().cast(), 3, 128) };
        frames.fill(1, 7, false, false);
        frames.add_mapper(1, 3);
        assert!(frames.make_room_for(100) && !frames.make_room_for(128));
        frames.add_mapper(1, 100);
        assert_eq!((frames.count(0), frames.count(1), frames.count(2)), (0, 2, 0));
        let mut map = CoreMap::EMPTY;
        frames.union_into(1, &mut map);
        let mut members = Vec::new();
        map.for_each(|table| members.push(table));
        assert_eq!(members, [3, 100]);
        frames.fill(1, 8, false, false);
        assert_eq!(frames.count(1), 0);
    }

    fn frames() -> Frames {
        let words = vec![0u64; Frames::bytes_per_frame(1) / 8].leak();
        // SAFETY: zeroed memory of that size, never freed.
        unsafe { Frames::new(words.as_mut_ptr().cast(), 1, 1) }
    }

    #[test]
    fn a_page_that_came_back_writable_and_is_clean_again_is_not_what_far_memory_holds() {
        let frames = frames();
        frames.fill(0, 7, true, true);
        frames.set_clean(0);
        assert!(!frames.far_copy(0));
        frames.fill(0, 7, false, true);
        assert!(frames.far_copy(0));
        frames.set_dirty(0);
        frames.set_clean(0);
        assert!(!frames.far_copy(0));
    }

    /// A page that was freed while it was about to leave kept its entry in the queue. A page that came into the same frame was taken for it: the policy got
    /// a frame twice, or one inside a huge page, which could then neither leave nor become single pages.
    #[test]
    fn an_entry_of_a_freed_page_was_taken_for_the_next_page_in_its_frame() {
        let frames = frames();
        frames.fill(0, 10, true, false);
        frames.set_leaving(0);
        frames.set_used(0);
        assert!(frames.queued(0) && !frames.leaving(0), "a use does not take it from the queue");
        frames.fill(0, 11, true, false);
        assert!(!frames.queued(0));
        frames.set_leaving(0);
        frames.unqueue(0);
        assert!(!frames.queued(0) && !frames.leaving(0));
    }
}
