//! A profile beside the exact trace of the same program: how well the samples tell the truth.
//!
//! Only the program's globals are compared, as blocks lie elsewhere in another run; the two runs' addresses are brought together by a
//! region that both name.

use std::collections::HashMap;
use std::path::Path;

use atoll_record::profile::{Event, Kind, Profile, ProfileError};
use atoll_record::trace::{self, Reader, TraceError};

use super::{open, plain};

/// Why nothing can be compared.
#[derive(thiserror::Error, Debug)]
pub(super) enum AgainstError {
    /// The profile.
    #[error("{0}: {1}")]
    Profile(String, ProfileError),
    /// The trace.
    #[error("{0}: {1}")]
    Trace(String, TraceError),
    /// It left accesses out.
    #[error("{0} is not exact: make it with atoll trace --exact")]
    Filtered(String),
    /// Nothing brings them together.
    #[error("trace and profile have no region in common: are they of the same program?")]
    Apart,
}

/// Hottest variables whose order is looked at.
const HOTTEST: usize = 10;

/// Compares and prints.
///
/// # Errors
/// See [`AgainstError`].
pub(super) fn against(file: &Path, trace: &Path) -> Result<(), AgainstError> {
    let profile = open(file).map_err(|e| AgainstError::Profile(file.display().to_string(), e))?;
    let truth = read(trace)?;
    let shift = shift(&profile, &truth.names).ok_or(AgainstError::Apart)?;
    let sampled = sampled(&profile).map_err(|e| AgainstError::Profile(file.display().to_string(), e))?;
    // Pages of globals, by the address of this run: what the trace counts, what was sampled.
    let (mut pages, mut variables) = (HashMap::new(), HashMap::new());
    for span in &profile.spans {
        let variable = &profile.variables[span.variable as usize];
        if variable.kind != Kind::Global || variable.module != profile.header.program || span.bytes < 4096 {
            continue;
        }
        let last = span.start.saturating_add(span.bytes) >> 12;
        // Pages at the ends may be shared with neighbours.
        for page in (span.start.div_ceil(4096)..last).take(1 << 24) {
            let true_count = truth.pages.get(&(page.wrapping_add(shift))).copied().unwrap_or(0);
            let count = sampled.get(&page).copied().unwrap_or(0);
            pages.insert(page, (true_count, count));
            let sums: &mut (u64, u64) = variables.entry(span.variable).or_default();
            sums.0 += true_count;
            sums.1 += count;
        }
    }
    print!("{}", text(&profile, &pages, &variables));
    Ok(())
}

struct Truth {
    pages: HashMap<u64, u64>,
    names: HashMap<String, u64>,
}

fn read(path: &Path) -> Result<Truth, AgainstError> {
    let failed = |e| AgainstError::Trace(path.display().to_string(), e);
    let mut reader = Reader::open(path).map_err(failed)?;
    if !reader.header().exact {
        return Err(AgainstError::Filtered(path.display().to_string()));
    }
    let (mut events, mut pages) = (Vec::new(), HashMap::new());
    while reader.next_chunk(&mut events).map_err(failed)? {
        for event in events.drain(..) {
            if let trace::Event::Access { page, .. } = event {
                *pages.entry(page).or_default() += 1;
            }
        }
    }
    let names = reader.trailer().map(|t| t.names.iter().map(|(at, name)| (name.clone(), *at)).collect());
    Ok(Truth { pages, names: names.unwrap_or_default() })
}

/// Pages that the trace's addresses lie above the profile's, by a region that both have.
fn shift(profile: &Profile, names: &HashMap<String, u64>) -> Option<u64> {
    let functions = profile.events.iter().filter_map(|event| match *event {
        Event::RegionBegin { function, .. } => Some(function),
        _ => None,
    });
    // Phases come in the order of their events.
    let mut phases = profile.phases.iter();
    functions.zip(phases.by_ref()).find_map(|(function, phase)| {
        let name = &profile.regions[phase.region as usize].name;
        names.get(name).map(|there| ((there.wrapping_sub(function) as i64) >> 12) as u64)
    })
}

/// Samples by page.
fn sampled(profile: &Profile) -> Result<HashMap<u64, u64>, ProfileError> {
    let mut pages = HashMap::new();
    for batch in profile.batches()? {
        for sample in &batch?.samples {
            *pages.entry(sample.address >> 12).or_default() += 1;
        }
    }
    Ok(pages)
}

fn text(profile: &Profile, pages: &HashMap<u64, (u64, u64)>, variables: &HashMap<u32, (u64, u64)>) -> String {
    let touched: Vec<(u64, u64)> = pages.values().copied().filter(|(truth, _)| *truth > 0).collect();
    let seen = touched.iter().filter(|(_, count)| *count > 0).count();
    let samples: u64 = pages.values().map(|(_, count)| count).sum();
    let by_page: Vec<(f64, f64)> = touched.iter().map(|&(t, s)| (t as f64, s as f64)).collect();
    let mut order: Vec<(u32, (u64, u64))> =
        variables.iter().map(|(v, sums)| (*v, *sums)).filter(|(_, (truth, _))| *truth > 0).collect();
    order.sort_by_key(|(v, (truth, _))| (std::cmp::Reverse(*truth), *v));
    let by_variable: Vec<(f64, f64)> = order.iter().map(|(_, (t, s))| (*t as f64, *s as f64)).collect();
    let truths: u64 = order.iter().map(|(_, (truth, _))| truth).sum();
    let mut out = format!(
        "  {samples} samples in globals; {seen} of {} pages touched were seen ({:.1}%)\n  rank correlation of counts: {:.3} by page, {:.3} by variable\n",
        touched.len(),
        100.0 * seen as f64 / touched.len().max(1) as f64,
        rank_correlation(&by_page),
        rank_correlation(&by_variable)
    );
    out += &format!("\n  {:>8} {:>8}  variable\n", "truth", "samples");
    order.truncate(HOTTEST);
    for (variable, (truth, count)) in &order {
        out += &format!(
            "  {:>7.2}% {:>7.2}%  {}\n",
            100.0 * *truth as f64 / truths.max(1) as f64,
            100.0 * *count as f64 / samples.max(1) as f64,
            plain(&profile.variables[*variable as usize].name)
        );
    }
    let sorted = order.is_sorted_by(|a, b| a.1.1 >= b.1.1);
    let verdict = if sorted { "" } else { "not " };
    out + &format!("  the {} hottest are {verdict}in their order\n", order.len())
}

/// Spearman's: the correlation of ranks, equal values sharing theirs. Not a number for fewer than two, or where all are equal.
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
}
