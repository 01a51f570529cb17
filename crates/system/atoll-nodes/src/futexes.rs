//! Sleeping on words of the program's memory, on several nodes: the kernel's futexes know only the memory of one.
//!
//! The origin's agent keeps who sleeps, by address. A thread is entered first, looks at the word once more, which whoever changes it
//! does before waking anybody, and then sleeps or leaves. What the runtime puts in the
//! place of pthread's objects and of the program's own futex calls stands on it.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::mail::{self, Kind, Service};
use crate::program::Who;

/// A question, which travels in the upper bits of the first word, above an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ask {
    /// The thread looks at the word once more, with a mask: from now on a wake counts.
    Enter,
    /// The thread does not sleep after all. Answer: 1 if it was woken meanwhile.
    Leave,
    /// The thread sleeps, for so many nanoseconds at most. Answer: 1 if it was woken.
    Sleep,
    /// So many threads are woken whose masks share a bit with this one. Answer: how many were.
    Wake,
}

const ASKS: [Ask; 4] = [Ask::Enter, Ask::Leave, Ask::Sleep, Ask::Wake];
const SHIFT: u32 = 60;

/// The meaning of a question's first word.
pub(crate) fn parse(word: u64) -> Option<(Ask, u64)> {
    let ask = ASKS.get((word >> SHIFT) as usize)?;
    Some((*ask, word & ((1 << SHIFT) - 1)))
}

#[derive(Debug)]
struct Sleeper {
    who: Who,
    mask: u32,
    woken: bool,
    /// The thread sleeps, until this time if that comes first.
    asleep: Option<Option<Instant>>,
}

/// The origin's table.
#[derive(Default)]
pub(crate) struct Futexes {
    sleepers: HashMap<u64, VecDeque<Sleeper>>,
    /// Sleepers that wake by themselves.
    timed: usize,
}

impl Futexes {
    pub(crate) fn enter(&mut self, address: u64, who: Who, mask: u32) {
        let sleeper = Sleeper { who, mask, woken: false, asleep: None };
        self.sleepers.entry(address).or_default().push_back(sleeper);
    }

    fn remove(&mut self, address: u64, at: usize) -> Option<Sleeper> {
        let all = self.sleepers.get_mut(&address)?;
        let gone = all.remove(at)?;
        if all.is_empty() {
            self.sleepers.remove(&address);
        }
        self.timed -= usize::from(matches!(gone.asleep, Some(Some(_))));
        Some(gone)
    }

    fn position(&self, address: u64, who: Who) -> Option<usize> {
        self.sleepers.get(&address)?.iter().position(|sleeper| sleeper.who == who)
    }

    /// `who` does not sleep after all; returns whether it was woken.
    pub(crate) fn leave(&mut self, address: u64, who: Who) -> bool {
        let at = self.position(address, who);
        at.and_then(|at| self.remove(address, at)).is_some_and(|gone| gone.woken)
    }

    /// `who` sleeps from now on; true if it was woken before.
    pub(crate) fn sleep(&mut self, address: u64, who: Who, limit: Option<Duration>) -> bool {
        let Some(at) = self.position(address, who) else { return true };
        let sleeper = &mut self.sleepers.entry(address).or_default()[at];
        if sleeper.woken {
            self.remove(address, at);
            return true;
        }
        sleeper.asleep = Some(limit.and_then(|limit| Instant::now().checked_add(limit)));
        self.timed += usize::from(matches!(sleeper.asleep, Some(Some(_))));
        false
    }

    /// Wakes up to `count` threads; returns how many that were, and those of them who slept.
    pub(crate) fn wake(&mut self, address: u64, count: u32, mask: u32) -> (u32, Vec<Who>) {
        let (mut woken, mut slept, mut at) = (0, Vec::new(), 0);
        while woken < count {
            let Some(sleeper) = self.sleepers.get_mut(&address).and_then(|all| all.get_mut(at)) else {
                break;
            };
            if sleeper.woken || sleeper.mask & mask == 0 {
                at += 1;
                continue;
            }
            woken += 1;
            if sleeper.asleep.is_some() {
                slept.extend(self.remove(address, at).map(|gone| gone.who));
            } else {
                sleeper.woken = true;
                at += 1;
            }
        }
        (woken, slept)
    }

    /// Takes out the sleepers whose time is over.
    pub(crate) fn over(&mut self) -> Vec<Who> {
        if self.timed == 0 {
            return Vec::new();
        }
        let now = Instant::now();
        let is_over = |sleeper: &Sleeper| matches!(sleeper.asleep, Some(Some(until)) if until <= now);
        let found = self.sleepers.iter().flat_map(|(address, all)| {
            all.iter().filter(|sleeper| is_over(sleeper)).map(|sleeper| (*address, sleeper.who))
        });
        let found: Vec<_> = found.collect();
        for (address, who) in &found {
            self.leave(*address, *who);
        }
        found.into_iter().map(|(_, who)| who).collect()
    }

    /// The time until a sleeper's time is over; none if nobody's is limited.
    pub(crate) fn longest_sleep(&self) -> Option<Duration> {
        if self.timed == 0 {
            return None;
        }
        let until = self.sleepers.values().flatten().filter_map(|sleeper| sleeper.asleep.flatten());
        until.map(|until| until.saturating_duration_since(Instant::now())).min()
    }
}

fn post(ask: Ask, address: usize, words: [u64; 2]) -> u64 {
    mail::post(Kind::Origin(Service::Futex), [(ask as u64) << SHIFT | address as u64, words[0], words[1]])[0]
}

/// The way in which a sleep ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Slept {
    /// Somebody woke the sleeper.
    Woken,
    /// The word was another one.
    Changed,
    /// The time for which it was to sleep went by.
    TimeOver,
}

/// Sleeps while `word` is `expected`, until somebody wakes it with a mask that shares a bit with this one.
pub fn wait(word: &AtomicU32, expected: u32, mask: u32, limit: Option<Duration>) -> Slept {
    let address = word.as_ptr() as usize;
    if word.load(Ordering::Acquire) != expected {
        return Slept::Changed;
    }
    post(Ask::Enter, address, [mask.into(), 0]);
    // Other side: whoever changes the word does so before it asks the origin to wake somebody.
    if word.load(Ordering::Acquire) != expected {
        return if post(Ask::Leave, address, [0; 2]) != 0 { Slept::Woken } else { Slept::Changed };
    }
    let limit = limit.map_or(u64::MAX, |limit| u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX));
    if post(Ask::Sleep, address, [limit, 0]) != 0 { Slept::Woken } else { Slept::TimeOver }
}

/// Wakes up to `count` that sleep on `word`; returns how many.
pub fn wake(word: &AtomicU32, count: u32, mask: u32) -> u32 {
    post(Ask::Wake, word.as_ptr() as usize, [count.into(), mask.into()]) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wake_between_entering_and_sleeping_is_not_lost() {
        let mut futexes = Futexes::default();
        futexes.enter(8, (1, 2), u32::MAX);
        futexes.enter(8, (0, 3), u32::MAX);
        assert_eq!(futexes.wake(8, 1, 1), (1, vec![]));
        assert!(futexes.sleep(8, (1, 2), None));
        assert!(!futexes.sleep(8, (0, 3), None));
        assert_eq!(futexes.wake(8, 5, 1), (1, vec![(0, 3)]));
        assert_eq!(futexes.wake(8, 5, 1), (0, vec![]));
        futexes.enter(8, (1, 2), 4);
        assert_eq!(futexes.wake(8, 5, 3), (0, vec![]));
        assert!(!futexes.leave(8, (1, 2)) && futexes.sleepers.is_empty());
    }

    #[test]
    fn time_goes_by() {
        let mut futexes = Futexes::default();
        futexes.enter(8, (1, 2), 1);
        assert!(!futexes.sleep(8, (1, 2), Some(Duration::ZERO)));
        assert_eq!(futexes.longest_sleep(), Some(Duration::ZERO));
        assert_eq!((futexes.over(), futexes.over()), (vec![(1, 2)], vec![]));
        assert_eq!((futexes.longest_sleep(), futexes.timed), (None, 0));
    }
}
