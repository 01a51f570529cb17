//! Computes how well a profile's samples agree with an exact trace, by pages and by variables.
//!
//! The program's globals are compared, and blocks on its heap. Their addresses in another run follow from a region that both
//! name, and from where the heap begins. Other blocks lie elsewhere in each run and are left out.

use std::collections::HashMap;
use std::fmt::Write as _;

use atoll_record::profile::{Event, Kind, Profile, ProfileError};

use super::plain;
use super::truth::{Accesses, Truth};

/// The number of hottest variables whose order is compared.
pub(crate) const HOTTEST: usize = 10;
/// Variables whose true counts differ by less than this share have no order.
const TIE: f64 = 0.10;

/// A variable's counts.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Counted {
    pub(crate) name: String,
    pub(crate) truth: f64,
    pub(crate) samples: u64,
}

/// The agreement of samples with the truth.
#[derive(Debug)]
pub(crate) struct Agreement {
    /// The number of samples in what is compared.
    pub(crate) samples: u64,
    /// The number of pages that were touched, and the number of these that were seen.
    pub(crate) touched: usize,
    pub(crate) seen: usize,
    /// The rank correlation of counts, by page.
    pub(crate) by_page: f64,
    pub(crate) by_variable: f64,
    /// The variables, the truly hottest first.
    pub(crate) variables: Vec<Counted>,
}

impl Agreement {
    /// Compares; returns `None` where nothing brings the two runs' addresses together. For a sampler that sees writes only,
    /// writes are compared.
    ///
    /// # Errors
    /// The profile cannot be read.
    pub(crate) fn of(profile: &Profile, truth: &Truth) -> Result<Option<Self>, ProfileError> {
        let Some(globals) = shift(profile, &truth.names) else { return Ok(None) };
        let heap = heap_shift(profile, truth, globals);
        let sampled = sampled(profile)?;
        let reads = profile.header.samplers.iter().any(|sampler| sampler.reads);
        let count = |a: &Accesses| if reads { a.reads + a.writes } else { a.writes };
        // Pages of one variable only, by this run's address.
        let mut owners: HashMap<u64, Option<usize>> = HashMap::new();
        let mut items: Vec<Counted> = Vec::new();
        let mut known: HashMap<(u64, u64), usize> = HashMap::new();
        let mut shifts = Vec::new();
        for span in &profile.spans {
            let variable = &profile.variables[span.variable as usize];
            let shift = match variable.kind {
                Kind::Global if variable.module == profile.program() => Some(globals),
                Kind::Heap => heap.as_ref().and_then(|heap| heap.shift_of(span.start)),
                _ => continue,
            };
            let last = span.start.saturating_add(span.bytes) >> 12;
            // Pages at the ends may be shared with neighbours.
            let pages = span.start.div_ceil(4096)..last;
            let Some(shift) = shift.filter(|_| !pages.is_empty()) else { continue };
            let item = *known.entry((span.start, span.bytes)).or_insert_with(|| {
                items.push(Counted { name: variable.name.clone(), truth: 0.0, samples: 0 });
                shifts.push(shift);
                items.len() - 1
            });
            for page in pages.take(1 << 24) {
                let owner = owners.entry(page).or_insert(Some(item));
                if *owner != Some(item) {
                    *owner = None;
                }
            }
        }
        let mut pages = Vec::new();
        for (page, owner) in &owners {
            let Some(item) = *owner else { continue };
            let there = truth.pages.get(&page.wrapping_add(shifts[item])).map_or(0.0, &count);
            let here = sampled.get(page).copied().unwrap_or(0);
            items[item].truth += there;
            items[item].samples += here;
            if there > 0.0 {
                pages.push((there, here as f64));
            }
        }
        items.retain(|item| item.truth > 0.0);
        items.sort_by(|a, b| b.truth.total_cmp(&a.truth).then_with(|| a.name.cmp(&b.name)));
        let by_variable: Vec<_> = items.iter().map(|item| (item.truth, item.samples as f64)).collect();
        Ok(Some(Self {
            samples: items.iter().map(|item| item.samples).sum(),
            touched: pages.len(),
            seen: pages.iter().filter(|(_, here)| *here > 0.0).count(),
            by_page: rank_correlation(&pages),
            by_variable: rank_correlation(&by_variable),
            variables: items,
        }))
    }

    /// Returns the share of touched pages that were seen.
    pub(crate) fn coverage(&self) -> f64 {
        self.seen as f64 / self.touched.max(1) as f64
    }

    /// Returns the number of pairs among the hottest that have an order, and the number of these that the samples have the
    /// other way round.
    pub(crate) fn pairs(&self) -> (usize, usize) {
        let hottest = &self.variables[..self.variables.len().min(HOTTEST)];
        let (mut pairs, mut wrong) = (0, 0);
        for (i, hotter) in hottest.iter().enumerate() {
            for other in hottest[i + 1..].iter().filter(|other| hotter.truth > other.truth * (1.0 + TIE)) {
                pairs += 1;
                wrong += usize::from(hotter.samples <= other.samples);
            }
        }
        (pairs, wrong)
    }

    /// Whether the hottest are in their order.
    pub(crate) fn in_order(&self) -> bool {
        !self.variables.is_empty() && self.pairs().1 == 0
    }

    /// Returns the agreement in words.
    pub(crate) fn text(&self) -> String {
        let mut out = format!(
            "  {} samples in what is compared; {} of {} pages touched were seen ({:.1}%)\n  rank correlation of counts: {:.3} by page, {:.3} by variable\n",
            self.samples,
            self.seen,
            self.touched,
            100.0 * self.coverage(),
            self.by_page,
            self.by_variable
        );
        let truths: f64 = self.variables.iter().map(|v| v.truth).sum();
        // Writing to a string does not fail.
        let _ = writeln!(out, "\n  {:>8} {:>8}  variable", "truth", "samples");
        let hottest = &self.variables[..self.variables.len().min(HOTTEST)];
        for Counted { name, truth, samples } in hottest {
            let _ = writeln!(
                out,
                "  {:>7.2}% {:>7.2}%  {}",
                100.0 * truth / truths.max(1.0),
                100.0 * *samples as f64 / self.samples.max(1) as f64,
                plain(name)
            );
        }
        let (pairs, wrong) = self.pairs();
        let verdict = if wrong == 0 { "in their order" } else { "not in their order" };
        let _ = writeln!(
            out,
            "  the {} hottest are {verdict} ({wrong} of {pairs} pairs the other way round; counts within {:.0}% have none)",
            hottest.len(),
            100.0 * TIE
        );
        out
    }
}

/// Returns the number of pages by which the trace's addresses lie above the profile's, from a region that both have.
fn shift(profile: &Profile, names: &HashMap<String, u64>) -> Option<u64> {
    let functions = profile.events.iter().filter_map(|event| match *event {
        Event::RegionBegin { function, .. } => Some(function),
        _ => None,
    });
    // Phases come in the order of their events.
    functions.zip(&profile.phases).find_map(|(function, phase)| {
        let name = &profile.regions[phase.region as usize].name;
        names.get(name).map(|there| ((there.wrapping_sub(function) as i64) >> 12) as u64)
    })
}

/// The place of the heap in the profile, and its distance from the heap in the trace.
struct Heap {
    start: u64,
    end: u64,
    shift: u64,
}

impl Heap {
    fn shift_of(&self, address: u64) -> Option<u64> {
        (self.start..self.end).contains(&address).then_some(self.shift)
    }
}

fn heap_shift(profile: &Profile, truth: &Truth, globals: u64) -> Option<Heap> {
    let (mut start, mut end) = (u64::MAX, 0);
    for event in &profile.events {
        if let Event::Map { start: from, bytes, path, .. } = event
            && path == "[heap]"
        {
            start = start.min(*from);
            end = end.max(from.saturating_add(*bytes));
        }
    }
    // The heap is the first memory that was mapped behind the program itself.
    let own = |span: &&atoll_record::profile::Span| {
        let variable = &profile.variables[span.variable as usize];
        variable.kind == Kind::Global && variable.module == profile.program()
    };
    let image = profile.spans.iter().filter(own).map(|span| span.start.saturating_add(span.bytes)).max()?;
    let behind = (image >> 12).wrapping_add(globals);
    let there = truth.maps.iter().copied().filter(|first| *first >= behind).min()?;
    (start < end).then(|| Heap { start, end, shift: there.wrapping_sub(start >> 12) })
}

/// Returns the number of samples by page.
fn sampled(profile: &Profile) -> Result<HashMap<u64, u64>, ProfileError> {
    let mut pages = HashMap::new();
    for batch in profile.batches()? {
        for sample in batch?.samples.iter().filter(|sample| !sample.is_paging()) {
            *pages.entry(sample.address >> 12).or_default() += 1;
        }
    }
    Ok(pages)
}

/// Returns Spearman's correlation of ranks, where equal values share theirs. It is not a number for fewer than two values, or
/// where all are equal.
fn rank_correlation(pairs: &[(f64, f64)]) -> f64 {
    let a = ranks(pairs.iter().map(|p| p.0).collect());
    let b = ranks(pairs.iter().map(|p| p.1).collect());
    let n = pairs.len() as f64;
    let mean = (n + 1.0) / 2.0;
    let sum = |f: &dyn Fn(f64, f64) -> f64| a.iter().zip(&b).map(|(x, y)| f(x - mean, y - mean)).sum::<f64>();
    sum(&|x, y| x * y) / (sum(&|x, _| x * x) * sum(&|_, y| y * y)).sqrt()
}

fn ranks(values: Vec<f64>) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&i, &j| values[i].total_cmp(&values[j]));
    let mut ranks = vec![0.0; values.len()];
    let mut at = 0;
    while at < order.len() {
        let same = order[at..].iter().take_while(|&&i| values[i] == values[order[at]]).count();
        for &i in &order[at..at + same] {
            ranks[i] = at as f64 + (same as f64 + 1.0) / 2.0;
        }
        at += same;
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_correlate_as_spearman_says() {
        assert_eq!(ranks(vec![3.0, 1.0, 3.0, 2.0]), [3.5, 1.0, 3.5, 2.0]);
        assert_eq!(rank_correlation(&[(1.0, 10.0), (2.0, 20.0), (3.0, 90.0)]), 1.0);
        assert_eq!(rank_correlation(&[(1.0, 3.0), (2.0, 2.0), (3.0, 1.0)]), -1.0);
        // A known example: 1 - 6 * 194 / (10 * 99).
        let iq = [86, 97, 99, 100, 101, 103, 106, 110, 112, 113];
        let hours = [2, 20, 28, 27, 50, 29, 7, 17, 6, 12];
        let pairs: Vec<_> = iq.iter().zip(hours).map(|(&a, b)| (f64::from(a), f64::from(b))).collect();
        assert!((rank_correlation(&pairs) + 29.0 / 165.0).abs() < 1e-12);
        assert!(rank_correlation(&[]).is_nan());
    }

    #[test]
    fn what_is_nearly_the_same_has_no_order() {
        let of = |counts: &[(f64, u64)]| Agreement {
            samples: 0,
            touched: 0,
            seen: 0,
            by_page: 0.0,
            by_variable: 0.0,
            variables: counts
                .iter()
                .map(|&(truth, samples)| Counted { name: String::new(), truth, samples })
                .collect(),
        };
        assert_eq!(of(&[(100.0, 5), (95.0, 6), (50.0, 3)]).pairs(), (2, 0));
        assert_eq!(of(&[(100.0, 3), (50.0, 3)]).pairs(), (1, 1));
    }
}
