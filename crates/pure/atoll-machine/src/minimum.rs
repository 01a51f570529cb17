//! Belady's MIN without the future: finds the uses of pages that the best of all policies would find resident.
//!
//! [`engine`](crate::engine) asks it where a policy would be asked for victims. The papers have no such bound; the idea is that
//! of Belady's intervals, as in Jain and Lin's OPTgen (ISCA'16).
//!
//! Between two uses of a page it is either kept or not. MIN keeps it if at no moment between them all frames but the one
//! of the page just then in use are taken by pages kept over that moment already: that takes the most intervals, since
//! they come in the order of their ends. So the decision is known at an interval's end, and one pass is enough.
//!
//! Moments are numbered, but only those matter that begin an interval still open: the last uses of pages. When the
//! numbers run out the others are merged into those before them, so memory is proportional to distinct pages. Each
//! interval reaches up to now, so one more kept page is a one added at its beginning to a sequence whose prefix sums are
//! the numbers of kept pages; a tree of sums and greatest prefix sums answers in O(log n).

/// What a use of a page is under MIN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// The first use of the page.
    First,
    /// The page was kept since its last use.
    Kept,
    /// The page was not kept.
    Lost,
}

const NONE: u32 = u32::MAX;

/// The kept pages over all moments since each page's last use.
#[derive(Debug)]
pub(crate) struct Minimum {
    /// The most pages kept at any moment beside the one in use.
    room: i64,
    /// The moment of each page's last use, by the page's number.
    last: Vec<u32>,
    /// The page whose last use each moment is.
    page: Vec<u32>,
    /// Sums and greatest prefix sums below each node. Leaf `leaves + m` is the number of pages kept over moment `m` less the
    /// number kept over the moment before.
    sum: Vec<i64>,
    most: Vec<i64>,
    leaves: usize,
    /// The number of pages kept over the present moment.
    total: i64,
}

impl Minimum {
    /// Makes an empty history for near memory of `frames` frames, at least one.
    pub(crate) fn new(frames: u64) -> Self {
        let mut new = Self {
            room: i64::try_from(frames.saturating_sub(1)).unwrap_or(i64::MAX),
            last: Vec::new(),
            page: Vec::new(),
            sum: Vec::new(),
            most: Vec::new(),
            leaves: 0,
            total: 0,
        };
        new.grow(1024);
        new
    }

    /// Notes a use of page `id`.
    pub(crate) fn touch(&mut self, id: u32) -> Use {
        if self.last.len() <= id as usize {
            self.last.resize(id as usize + 1, NONE);
        }
        let from = self.last[id as usize];
        if from != NONE && from as usize + 1 == self.page.len() {
            // No moment lies between the two uses.
            return Use::Kept;
        }
        let outcome = if from == NONE {
            Use::First
        } else if self.most_since(from) < self.room {
            self.add(from as usize + 1, 1);
            self.total += 1;
            Use::Kept
        } else {
            Use::Lost
        };
        self.use_now(id, from);
        outcome
    }

    /// Notes that the page is gone: its next use is its first.
    pub(crate) fn forget(&mut self, id: u32) {
        if let Some(last) = self.last.get_mut(id as usize)
            && *last != NONE
        {
            self.page[*last as usize] = NONE;
            *last = NONE;
        }
    }

    fn use_now(&mut self, id: u32, from: u32) {
        if from != NONE {
            self.page[from as usize] = NONE;
        }
        self.last[id as usize] = NONE;
        if self.page.len() == self.leaves {
            self.compact();
        }
        let now = self.page.len();
        self.page.push(id);
        self.last[id as usize] = now as u32;
        // No page is kept over this moment yet.
        self.add(now, -self.total);
        self.total = 0;
    }

    /// Returns the most pages kept at any moment behind `from`.
    fn most_since(&self, from: u32) -> i64 {
        let mut at = self.leaves + from as usize + 1;
        let mut most = self.most[at];
        let mut sum = self.sum[at];
        let mut before = 0;
        while at > 1 {
            if at & 1 == 0 {
                let right = at + 1;
                most = most.max(sum + self.most[right]);
                sum += self.sum[right];
            } else {
                before += self.sum[at - 1];
            }
            at /= 2;
        }
        before + most
    }

    fn add(&mut self, moment: usize, change: i64) {
        let mut at = self.leaves + moment;
        self.sum[at] += change;
        self.most[at] = self.sum[at];
        at /= 2;
        while at > 0 {
            let (left, right) = (2 * at, 2 * at + 1);
            self.sum[at] = self.sum[left] + self.sum[right];
            self.most[at] = self.most[left].max(self.sum[left] + self.most[right]);
            at /= 2;
        }
    }

    /// Makes the tree anew with `leaves` leaves, all unused.
    fn grow(&mut self, leaves: usize) {
        self.leaves = leaves;
        // An unused leaf has the prefix sum of the last moment, so it does not change the greatest.
        self.sum = vec![0; 2 * leaves];
        self.most = vec![0; 2 * leaves];
        self.page.clear();
    }

    /// Merges moments that begin no interval into the next that does: an interval that covers that one covers them, too.
    fn compact(&mut self) {
        let mut kept: Vec<(u32, i64)> = Vec::new();
        let mut count = 0;
        let mut merged: Option<i64> = None;
        for (moment, &page) in self.page.iter().enumerate() {
            count += self.sum[self.leaves + moment];
            let most = merged.map_or(count, |most| most.max(count));
            merged = (page == NONE).then_some(most);
            if page != NONE {
                kept.push((page, most));
            }
        }
        kept.extend(merged.map(|most| (NONE, most)));
        self.grow((kept.len() * 2 + 1024).next_power_of_two());
        let mut before = 0;
        for (page, count) in kept {
            let moment = self.page.len();
            self.page.push(page);
            if page != NONE {
                self.last[page as usize] = moment as u32;
            }
            self.sum[self.leaves + moment] = count - before;
            self.most[self.leaves + moment] = count - before;
            before = count;
        }
        self.total = before;
        for at in (1..self.leaves).rev() {
            self.sum[at] = self.sum[2 * at] + self.sum[2 * at + 1];
            self.most[at] = self.most[2 * at].max(self.sum[2 * at] + self.most[2 * at + 1]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts by the definition of Belady's MIN: evict the page that is used last.
    fn lost(pages: &[u32], frames: usize) -> usize {
        let mut resident: Vec<u32> = Vec::new();
        let mut faults = 0;
        for (index, page) in pages.iter().enumerate() {
            if resident.contains(page) {
                continue;
            }
            faults += 1;
            if resident.len() == frames {
                let next = |page: &u32| pages[index..].iter().position(|p| p == page).unwrap_or(usize::MAX);
                let last = (0..frames).max_by_key(|&slot| next(&resident[slot])).unwrap();
                resident.swap_remove(last);
            }
            resident.push(*page);
        }
        faults
    }

    #[test]
    fn as_many_faults_as_belady() {
        let mut random = 1_u64;
        let mut below = |bound: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (((random >> 33) * bound) >> 31) as u32
        };
        for round in 0..60 {
            let (frames, pages) = (1 + below(12) as usize, 2 + u64::from(below(30)));
            let trace: Vec<u32> = (0..if round == 0 { 5000 } else { 300 }).map(|_| below(pages)).collect();
            let mut minimum = Minimum::new(frames as u64);
            let faults = trace.iter().filter(|&&page| minimum.touch(page) != Use::Kept).count();
            assert_eq!(faults, lost(&trace, frames), "{frames} frames, {pages} pages");
        }
    }

    #[test]
    fn a_page_that_is_gone_comes_anew() {
        let mut minimum = Minimum::new(2);
        assert_eq!([0, 1, 0].map(|page| minimum.touch(page)), [Use::First, Use::First, Use::Kept]);
        minimum.forget(0);
        assert_eq!(
            [1, 0, 2, 0, 1].map(|page| minimum.touch(page)),
            [Use::Kept, Use::First, Use::First, Use::Kept, Use::Lost]
        );
    }
}
