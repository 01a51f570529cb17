//! Pages that a node keeps for a moment though others want them, as it has only just been given them. Otherwise its worker would find
//! each gone before it was used once, and pages that several nodes write would do nothing but travel.
//!
//! `agent` asks before it does what a message says, and comes back to those that wait. A page's home serves one request of it at a
//! time, and a node that asks comes to no barrier before it is served, so nothing overtakes what is held.
//!
//! Source: the window of Mirage (Fleisch and Popek, "Mirage: a coherent distributed shared memory design", SOSP 1989).

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use atoll_coherence::merge::Page;

/// A worker that looks for its page keeps it for so long.
const WINDOW: Duration = Duration::from_micros(30);
/// A worker that sleeps takes so much longer to begin.
const WAKE: Duration = Duration::from_micros(70);

/// Pages that were given to workers, and messages (`M`) that would take them, with who sent them.
pub(crate) struct Hold<M> {
    /// The time until which each page is kept.
    until: HashMap<Page, Instant>,
    /// The same times and pages, in the order in which pages were given.
    given: VecDeque<(Instant, Page)>,
    waiting: VecDeque<(Page, u32, M)>,
}

impl<M> Hold<M> {
    pub(crate) fn new() -> Self {
        Self { until: HashMap::new(), given: VecDeque::new(), waiting: VecDeque::new() }
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

    /// `message` from node `from`, which would take `page`, waits.
    pub(crate) fn wait(&mut self, page: Page, from: u32, message: M) {
        self.waiting.push_back((page, from, message));
    }

    /// Does any message wait?
    pub(crate) fn waits(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// A message that need not wait any more; where `all` is true, no message need.
    pub(crate) fn take(&mut self, all: bool) -> Option<(u32, M)> {
        let at = self.waiting.iter().position(|(page, ..)| all || !self.keeps(*page))?;
        self.waiting.remove(at).map(|(_, from, message)| (from, message))
    }

    /// The time until a message need not wait any more; none if no message waits.
    pub(crate) fn longest_sleep(&self) -> Option<Duration> {
        let left = |page| {
            let until = self.until.get(page);
            until.map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()))
        };
        self.waiting.iter().map(|(page, ..)| left(page)).min()
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
        hold.wait(7, 1, "mine");
        assert!(hold.longest_sleep().is_some_and(|left| left > Duration::from_secs(30)));
        assert_eq!(hold.take(false), None);
        assert_eq!(hold.take(true), Some((1, "mine")));
        assert_eq!(hold.longest_sleep(), None);
    }

    #[test]
    fn windows_that_are_over_are_forgotten() {
        let mut hold = Hold::new();
        let then = Instant::now() - Duration::from_secs(1);
        (0..100).for_each(|page| hold.given(page, page % 2 == 0, then));
        hold.wait(7, 1, ());
        assert_eq!(hold.take(false), Some((1, ())));
        hold.given(1000, false, Instant::now());
        assert_eq!((hold.until.len(), hold.given.len()), (1, 1));
    }
}
