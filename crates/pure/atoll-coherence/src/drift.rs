//! Predicts pages that a region reads anew in each run and that move along from run to run, as in a decomposition that works on
//! the next rows each time.
//!
//! `plan` adds the prediction to the pages that stay the same. Not in the paper.

use crate::merge::Page;

/// The least number of pages that count as a group; fewer may lie so by chance.
const LEAST: usize = 3;
/// The distance in pages from which pages move independently.
const APART: u64 = 16;
/// The most comparisons of a run, which take about a millisecond. Reads in more places than that do not move along.
const MOST: usize = 1 << 15;
/// The number of runs that are remembered: twice two, as pages that two nodes share may move in every second run only.
const RUNS: usize = 4;

/// The pages that were new in the last runs of a region at one node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Drift {
    /// The new pages of the present run.
    now: Vec<Page>,
    /// The new pages of the runs before, the last run first; ascending.
    runs: [Vec<Page>; RUNS],
}

/// The pages expected in the next run.
#[derive(Debug, PartialEq, Eq, Default)]
pub(crate) struct Expected {
    /// Pages that will be new.
    pub(crate) next: Vec<Page>,
    /// Pages of the run that is over, which the region leaves behind.
    pub(crate) gone: Vec<Page>,
}

impl Drift {
    /// Notes that `page` is read in this run and was not in those before.
    pub(crate) fn is_new(&mut self, page: Page) {
        self.now.push(page);
    }

    /// Ends the run; returns the prediction for the next one.
    pub(crate) fn ended(&mut self) -> Expected {
        self.runs.rotate_right(1);
        self.runs[0] = std::mem::take(&mut self.now);
        self.runs[0].sort_unstable();
        self.runs[0].dedup();
        let [last, second, third, fourth] = &self.runs;
        let mut expected = Expected::default();
        let (from_second, from_third) = (within_reason(last, second), within_reason(last, third));
        for group in groups(last) {
            let one = step(group, from_second);
            expected.next.extend(one.into_iter().flat_map(|step| moved(group, step)));
            if one.or_else(|| step(group, from_third)).is_some() {
                expected.gone.extend(group);
            }
        }
        let (from_third, from_fourth) = (within_reason(second, third), within_reason(second, fourth));
        for group in groups(second).filter(|group| step(group, from_third).is_none()) {
            let two = step(group, from_fourth);
            expected.next.extend(two.into_iter().flat_map(|step| moved(group, step)));
        }
        expected
    }
}

/// Splits pages into groups that move together.
fn groups(pages: &[Page]) -> impl Iterator<Item = &[Page]> {
    pages.chunk_by(|a, b| b - a < APART)
}

/// The run `before`, or nothing if it is too large to be compared with `pages`.
fn within_reason<'a>(pages: &[Page], before: &'a [Page]) -> &'a [Page] {
    if pages.len().saturating_mul(groups(before).count()) <= MOST { before } else { &[] }
}

fn moved(group: &[Page], step: i64) -> impl Iterator<Item = Page> {
    group.iter().filter_map(move |page| page.checked_add_signed(step))
}

/// The shortest distance by which most pages of a group of the run `before` moved to become `group`.
fn step(group: &[Page], before: &[Page]) -> Option<i64> {
    let (first, last) = (*group.first()?, *group.last()?);
    let steps = groups(before).flat_map(|old| {
        let ends = [(first, old.first()), (last, old.last())];
        let steps = ends.map(|(new, old)| old.map_or(0, |old| new.wrapping_sub(*old) as i64));
        steps.into_iter().filter(|step| {
            let known = |page: &&Page| old.binary_search(&page.wrapping_add_signed(-step)).is_ok();
            let moved = group.iter().filter(known).count();
            *step != 0 && moved >= LEAST && moved * 4 >= group.len() * 3
        })
    });
    steps.min_by_key(|step| step.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(drift: &mut Drift, pages: impl IntoIterator<Item = Page>) -> Expected {
        pages.into_iter().for_each(|page| drift.is_new(page));
        drift.ended()
    }

    fn pages(pages: std::ops::Range<Page>) -> Vec<Page> {
        pages.collect()
    }

    #[test]
    fn what_moves_along_is_told_from_the_second_run_on() {
        let mut drift = Drift::default();
        assert_eq!(run(&mut drift, 100..108), Expected::default());
        let expected = Expected { next: pages(148..156), gone: pages(124..132) };
        assert_eq!(run(&mut drift, (124..132).rev()), expected);
        // The group may move back, and shrink.
        assert_eq!(run(&mut drift, 120..127), Expected { next: pages(116..123), gone: pages(120..127) });
    }

    #[test]
    fn what_moves_in_every_second_run_is_told_beside_what_moves_in_each() {
        let mut drift = Drift::default();
        let mut each = |turn: u64| {
            let always = 1000 + 10 * turn;
            let sometimes = 24 * (turn / 2);
            let second = (sometimes..sometimes + 12).filter(|_| turn.is_multiple_of(2));
            run(&mut drift, (always..always + 5).chain(second))
        };
        let told: Vec<_> = (0..6).map(&mut each).collect();
        assert_eq!(
            told[2],
            Expected { next: pages(1030..1035), gone: [pages(24..36), pages(1020..1025)].concat() }
        );
        assert_eq!(
            told[3],
            Expected { next: [pages(1040..1045), pages(48..60)].concat(), gone: pages(1030..1035) }
        );
        assert_eq!(told[4].next, pages(1050..1055));
    }

    #[test]
    fn what_comes_anywhere_is_not_told() {
        let mut drift = Drift::default();
        for pages in [[1, 50, 90], [7, 12, 300], [1000, 1001, 1002], [5, 9, 2000]] {
            assert_eq!(run(&mut drift, pages), Expected::default());
        }
        // In turn: too many places, too few pages, and pages that stay.
        let mut scattered = |turn: u64| run(&mut drift, (0..1000).map(|place| 100 * place + turn));
        assert_eq!(
            [0, 4, 8].map(&mut scattered),
            [const { Expected { next: Vec::new(), gone: Vec::new() } }; 3]
        );
        for pages in [vec![1, 2], vec![3, 4], vec![21, 22, 23], vec![21, 22, 23]] {
            assert_eq!(run(&mut drift, pages), Expected::default());
        }
    }
}
