//! Pages that a node keeps for a moment though others want them, as it has only just been given them. Otherwise its worker would find
//! each gone before it was used once, and pages that several nodes write would do nothing but travel.
//!
//! `agent` asks before it does what a message says, and comes back to those that wait. A page's home serves one request of it at a
//! time, and a node that asks comes to no barrier before it is served, so nothing overtakes what is held.
//!
//! Where the pages of a region go to and fro, the region is *calmed*: a node gives pages to nodes of higher numbers only a few at a
//! time, now and then, as long as a worker of its own runs, and to those of lower numbers as before. So the origin's workers have
//! their pages and go on nearly as if they were alone; the others' workers have theirs when the origin's are at the barrier.
//!
//! Source: the window of Mirage (Fleisch and Popek, "Mirage: a coherent distributed shared memory design", SOSP 1989).

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use atoll_coherence::merge::Page;

/// A worker that looks for its page keeps it for so long.
const WINDOW: Duration = Duration::from_micros(30);
/// A worker that sleeps takes so much longer to begin.
const WAKE: Duration = Duration::from_micros(70);

/// In a calmed region, nodes of higher numbers are given so many pages at once, and the time between two such times.
const FEW: u32 = 2;
const PERIOD: Duration = Duration::from_millis(5);

/// The pages that nodes of higher numbers may have in a calmed region.
#[derive(Clone, Copy)]
struct Calm {
    next: Instant,
    left: u32,
}

/// A message that waits.
struct Waiting<M> {
    page: Page,
    from: u32,
    message: M,
    /// It is of a node of a higher number, in a calmed region.
    calmed: bool,
}

/// Pages that were given to workers, and messages (`M`) that would take them, with who sent them.
pub(crate) struct Hold<M> {
    /// The time until which each page is kept.
    until: HashMap<Page, Instant>,
    /// The same times and pages, in the order in which pages were given.
    given: VecDeque<(Instant, Page)>,
    waiting: VecDeque<Waiting<M>>,
    calm: Option<Calm>,
}

impl<M> Hold<M> {
    pub(crate) fn new() -> Self {
        Self { until: HashMap::new(), given: VecDeque::new(), waiting: VecDeque::new(), calm: None }
    }

    /// A worker waited for `page`, which is here at `now`.
    pub(crate) fn given(&mut self, page: Page, asleep: bool, now: Instant) {
        let until = now + if asleep { WINDOW + WAKE } else { WINDOW };
        self.until.insert(page, until);
        self.given.push_back((until, page));
        while let Some((until, page)) = self.given.pop_front_if(|(until, _)| *until <= now) {
            if self.until.get(&page) == Some(&until) {
                self.until.remove(&page);
            }
        }
    }

    /// Is `page` kept, so that whoever would take it waits?
    pub(crate) fn keeps(&self, page: Page) -> bool {
        !self.until.is_empty() && self.until.get(&page).is_some_and(|until| *until > Instant::now())
    }

    /// The region is calmed from now on, or not any more.
    pub(crate) fn set_calm(&mut self, calm: bool) {
        if calm != self.is_calm() {
            self.calm = calm.then(|| Calm { next: Instant::now() + PERIOD, left: 0 });
        }
    }

    /// Is the region calmed?
    pub(crate) fn is_calm(&self) -> bool {
        self.calm.is_some()
    }

    /// `message` from node `from`, which would take `page`, waits; `calmed`: for a node of a higher number, in a calmed region.
    pub(crate) fn wait(&mut self, page: Page, from: u32, message: M, calmed: bool) {
        self.waiting.push_back(Waiting { page, from, message, calmed });
    }

    /// Does any message wait?
    pub(crate) fn waits(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// A message that need not wait any more. Where `all` is true, none need but those of a calmed region; where `over` is true,
    /// neither need these.
    pub(crate) fn take(&mut self, all: bool, over: bool) -> Option<(u32, M)> {
        let now = Instant::now();
        if let Some(calm) = self.calm.as_mut().filter(|calm| calm.next <= now) {
            *calm = Calm { next: now + PERIOD, left: FEW };
        }
        let left = self.calm.is_none_or(|calm| calm.left > 0);
        let goes = |waiting: &Waiting<M>| match waiting.calmed {
            true => over || left && !self.keeps(waiting.page),
            false => all || !self.keeps(waiting.page),
        };
        let at = self.waiting.iter().position(goes)?;
        let Waiting { from, message, calmed, .. } = self.waiting.remove(at)?;
        if let Some(calm) = self.calm.as_mut().filter(|_| calmed) {
            calm.left = calm.left.saturating_sub(1);
        }
        Some((from, message))
    }

    /// A message that waits for `page`, which a worker of this node wants now: it is not to wait for that one.
    pub(crate) fn take_of(&mut self, page: Page) -> Option<(u32, M)> {
        let at = self.waiting.iter().position(|waiting| waiting.page == page)?;
        self.waiting.remove(at).map(|waiting| (waiting.from, waiting.message))
    }

    /// The time until a message need not wait any more; none if no message waits.
    pub(crate) fn longest_sleep(&self) -> Option<Duration> {
        let now = Instant::now();
        let left = |waiting: &Waiting<M>| {
            let calm = self.calm.filter(|calm| waiting.calmed && calm.left == 0).map(|calm| calm.next);
            let until = self.until.get(&waiting.page).copied().max(calm);
            until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now))
        };
        self.waiting.iter().map(left).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_take_a_page_waits_until_its_window_is_over() {
        let mut hold = Hold::new();
        assert!(!hold.keeps(7) && hold.longest_sleep().is_none());
        hold.given(7, false, Instant::now() + Duration::from_secs(60));
        assert!(hold.keeps(7) && !hold.keeps(8));
        hold.wait(7, 1, "mine", false);
        assert!(hold.longest_sleep().is_some_and(|left| left > Duration::from_secs(30)));
        assert_eq!(hold.take(false, false), None);
        assert_eq!(hold.take(true, true), Some((1, "mine")));
        assert_eq!(hold.longest_sleep(), None);
    }

    #[test]
    fn a_calmed_region_gives_few_pages_to_nodes_of_higher_numbers() {
        let mut hold = Hold::new();
        hold.set_calm(true);
        (0..5).for_each(|page| hold.wait(page, 1, page, true));
        hold.wait(9, 0, 9, false);
        assert_eq!((hold.take(false, false), hold.take(false, false)), (Some((0, 9)), None));
        assert!(hold.longest_sleep().is_some_and(|left| left <= PERIOD));
        assert_eq!((hold.take_of(3), hold.take_of(3)), (Some((1, 3)), None));
        std::thread::sleep(PERIOD);
        assert_eq!(std::iter::from_fn(|| hold.take(false, false)).count(), FEW as usize);
        assert_eq!(std::iter::from_fn(|| hold.take(true, true)).count(), 2);
    }

    #[test]
    fn windows_that_are_over_are_forgotten() {
        let mut hold = Hold::new();
        let then = Instant::now() - Duration::from_secs(1);
        (0..100).for_each(|page| hold.given(page, page % 2 == 0, then));
        hold.wait(7, 1, (), false);
        assert_eq!(hold.take(false, false), Some((1, ())));
        hold.given(1000, false, Instant::now());
        assert_eq!((hold.until.len(), hold.given.len()), (1, 1));
    }
}
