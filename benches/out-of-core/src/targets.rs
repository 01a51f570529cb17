//! Prints each target and its measurement in a line, which ends in `met` or `not met`.

use atoll_bench_common::geometric_mean;

use crate::micro::{self, Micro, PATTERNS, SHARED};
use crate::plan::{self, PAGES};
use crate::sheet::{KILLED, Sheet, mebibytes};
use crate::stats::Figure;
use crate::subject::{Atoll, Device, Subject};

const SLOWER_ALL_NEAR: f64 = 1.05;
const FASTER_THAN_SWAP: f64 = 3.0;
const DEFAULTS_FASTER_THAN_SWAP: f64 = 5.0;
const DEFAULTS_NEVER_BELOW_SWAP: f64 = 0.95;
const DEFAULTS_OVER_HAND: f64 = 1.05;
const DEFAULTS_ALL_NEAR: f64 = 1.03;
const SEQUENTIAL_4K: f64 = 6.0;
const RANDOM_4K: f64 = 12.0;
const SEQUENTIAL_64K: f64 = 2.0;
const TWO_WORKERS: f64 = 1.15;
const MEMORY_SHARE: f64 = 0.03;
const MEMORY_MORE: u64 = 16 << 20;

/// Returns the lines of all targets.
pub(crate) fn lines(sheets: &[Sheet], micro: Option<&Micro>, percent: u32) -> Vec<String> {
    let mut lines = vec![all_near(sheets)];
    lines.extend(against_swap(sheets, percent));
    if let Some(micro) = micro {
        lines.extend(costs(micro));
        lines.extend(two_workers(micro));
        lines.extend(shared(micro));
    }
    lines.push(memory(sheets));
    lines
}

fn line(target: &str, figure: Option<String>, met: bool) -> String {
    let figure = figure.unwrap_or_else(|| "not measured".to_owned());
    format!("{target}: {figure}  {}", if met { "met" } else { "not met" })
}

/// Returns each program's share of a geometric mean, or `None` if one is missing.
fn every(sheets: &[Sheet], value: impl Fn(&Sheet) -> Option<f64>) -> Option<Vec<f64>> {
    let values: Option<Vec<f64>> = sheets.iter().map(value).collect();
    values.filter(|values| !values.is_empty())
}

fn named(sheets: &[Sheet], values: &[f64]) -> String {
    let each: Vec<String> =
        sheets.iter().zip(values).map(|(s, v)| format!("{} {v:.2}", s.program.name)).collect();
    each.join(", ")
}

fn all_near(sheets: &[Sheet]) -> String {
    let default = Subject::Atoll(Atoll::default());
    let values = every(sheets, |sheet| {
        Some(sheet.all.median(&default)?.median / sheet.all.median(&Subject::Native)?.median)
    });
    let mean = values.as_deref().and_then(geometric_mean);
    let figure =
        values.zip(mean).map(|(values, mean)| format!("{mean:.3} times ({})", named(sheets, &values)));
    let target =
        format!("all data near, atoll's defaults: at most {SLOWER_ALL_NEAR} times native, geometric mean");
    line(&target, figure, mean.is_some_and(|mean| mean <= SLOWER_ALL_NEAR))
}

/// Returns the seconds with the page size that is best for the program.
fn best_page(sheet: &Sheet, far: &'static str) -> Option<f64> {
    let seconds = PAGES.iter().filter_map(|&page| {
        let subject =
            Subject::Atoll(Atoll { limited: true, far: Some(far), page: Some(page), ..Atoll::default() });
        sheet.limited.median(&subject).filter(|f| !f.cut).map(|f| f.median)
    });
    seconds.min_by(f64::total_cmp)
}

fn swap(sheet: &Sheet, device: Device) -> Option<f64> {
    sheet.limited.median(&Subject::Swap(device)).map(|f| f.median)
}

fn better(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    [a, b].into_iter().flatten().min_by(f64::total_cmp)
}

fn against_swap(sheets: &[Sheet], percent: u32) -> Vec<String> {
    let compare = |name: &str, value: &dyn Fn(&Sheet) -> Option<f64>| {
        let values = every(sheets, value);
        let mean = values.as_deref().and_then(geometric_mean);
        let least = values.as_deref().and_then(|v| v.iter().copied().min_by(f64::total_cmp));
        let met =
            mean.is_some_and(|mean| mean >= FASTER_THAN_SWAP) && least.is_some_and(|least| least >= 1.0);
        let figure =
            values.zip(mean).map(|(values, mean)| format!("{mean:.2} times ({})", named(sheets, &values)));
        let target = format!(
            "{percent}% near, best page size, {name}: at least {FASTER_THAN_SWAP} times faster, geometric mean, none slower"
        );
        line(&target, figure, met)
    };
    let pair = |sheet: &Sheet, device, far| Some(swap(sheet, device)? / best_page(sheet, far)?);
    vec![
        compare("lz4 against zram", &|s| pair(s, Device::Zram, "lz4")),
        compare("file against swap file", &|s| pair(s, Device::File, "file")),
        compare("the better of lz4 and file against the better Linux swap", &|s| {
            let linux = better(swap(s, Device::Zram), swap(s, Device::File))?;
            Some(linux / better(best_page(s, "lz4"), best_page(s, "file"))?)
        }),
    ]
}

fn costs(micro: &Micro) -> Vec<String> {
    let cost = |what: &str, pattern, page, most: f64| {
        let cost = micro.cost(pattern, 1, &micro::atoll(page));
        let target = format!("{what}, far ram, one worker: at most {most} us a 4K page");
        line(&target, cost.map(|c| format!("{c:.2} us")), cost.is_some_and(|c| c <= most))
    };
    vec![
        cost("4K pages, sequential read-modify-write", "sequential", "4K", SEQUENTIAL_4K),
        cost("4K pages, random read-modify-write", "random", "4K", RANDOM_4K),
        cost("64K pages, sequential read-modify-write", "sequential", "64K", SEQUENTIAL_64K),
    ]
}

fn two_workers(micro: &Micro) -> Vec<String> {
    let subject = micro::atoll("4K");
    let lines = PATTERNS.iter().map(|pattern| {
        let times = micro.two_workers(pattern, &subject);
        let native = micro.two_workers(pattern, &Subject::Native).unwrap_or(f64::NAN);
        let samples = micro.cell(pattern, 2, &subject).map(|cell| cell.samples.as_slice()).unwrap_or_default();
        let waits: u64 = samples.iter().map(|s| s.waits).sum();
        let fetches: u64 = samples.iter().map(|s| s.fetches).sum();
        let figure = times.map(|times| {
            format!("{times:.2} times, natively {native:.2}; {waits} waits in {fetches} pages fetched")
        });
        let target = format!(
            "two workers on different pages, {pattern}: at most {TWO_WORKERS} times what one takes for its half"
        );
        line(&target, figure, times.is_some_and(|times| times <= TWO_WORKERS))
    });
    lines.collect()
}

fn shared(micro: &Micro) -> Vec<String> {
    let lines = SHARED.iter().map(|pattern| {
        let cost = |subject: &Subject| micro.cost(pattern, 2, subject);
        let (ours, zram) = (cost(&micro::compressing()), cost(&Subject::Swap(Device::Zram)));
        let ratio = zram.zip(ours).map(|(zram, ours)| zram / ours);
        let figure = ratio.zip(ours).map(|(ratio, ours)| format!("{ratio:.2} times; {ours:.2} us a visit"));
        let target = format!(
            "random visits of one table by two workers, {pattern}, lz4: at least 1.05 times as fast as zram"
        );
        line(&target, figure, ratio.is_some_and(|ratio| ratio >= 1.05))
    });
    lines.collect()
}

/// Returns the line about memory. Where far memory is a file, everything that the cgroup counts is near.
fn memory(sheets: &[Sheet]) -> String {
    let mut worst: Option<(f64, String)> = None;
    for sheet in sheets {
        for cell in &sheet.limited.cells {
            if cell.subject.atoll().is_none_or(|atoll| atoll.far != Some("file")) {
                continue;
            }
            for (peak, near) in cell.samples.iter().filter_map(|s| s.peak.zip(s.near)) {
                let allowed = near + (near as f64 * MEMORY_SHARE) as u64 + MEMORY_MORE;
                let share = peak as f64 / allowed as f64;
                if worst.as_ref().is_none_or(|(w, _)| share > *w) {
                    let (peak, near, allowed) = (mebibytes(peak), mebibytes(near), mebibytes(allowed));
                    let name = sheet.program.name;
                    let what = format!("{peak} of {allowed} with --near {near} ({name}, {})", cell.subject);
                    worst = Some((share, what));
                }
            }
        }
    }
    let met = worst.as_ref().is_some_and(|(share, _)| *share <= 1.0);
    let target = "memory: arena, metadata, runtime and private memory at most near limit + 3% + 16M";
    line(target, worst.map(|(_, what)| what), met)
}

/// How many times one time is another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Ratio {
    pub(crate) times: f64,
    /// Whether the first time was cut, so that it would be more.
    pub(crate) at_least: bool,
}

impl Ratio {
    /// Returns the ratio; `None` if the second run was cut, as it says nothing then.
    fn of(first: Figure, second: Figure) -> Option<Ratio> {
        (!second.cut).then(|| Ratio { times: first.median / second.median, at_least: first.cut })
    }
}

/// Returns the time under the better Linux swap over that of atoll's defaults.
pub(crate) fn swap_over_defaults(sheet: &Sheet) -> Option<Ratio> {
    let swaps = [Device::Zram, Device::File].map(|device| sheet.limited.median(&Subject::Swap(device)));
    let better = swaps.into_iter().flatten().min_by(|a, b| a.median.total_cmp(&b.median))?;
    Ratio::of(better, sheet.limited.median(&Subject::Atoll(plan::DEFAULTS))?)
}

/// Whether there is no time under Linux swap because the kernel killed the program.
fn swap_is_killed(sheet: &Sheet) -> bool {
    let cells = [Device::Zram, Device::File].map(|device| sheet.limited.cell(&Subject::Swap(device)));
    let mut cells = cells.into_iter().flatten();
    cells.clone().all(|cell| cell.samples.is_empty()) && cells.any(|cell| cell.out.as_deref() == Some(KILLED))
}

/// Returns the fastest of the flags tried by hand, and its time.
pub(crate) fn best_by_hand(sheet: &Sheet) -> Option<(Subject, Figure)> {
    let tried = plan::by_hand().into_iter().filter_map(|subject| {
        let figure = sheet.limited.median(&subject).filter(|figure| !figure.cut)?;
        Some((subject, figure))
    });
    tried.min_by(|a, b| a.1.median.total_cmp(&b.1.median))
}

/// What a target is about, of all programs' ratios.
#[derive(Clone, Copy)]
enum Of {
    Mean,
    Least,
    Greatest,
}

impl Of {
    fn pick(self, ratios: &[Ratio]) -> Option<Ratio> {
        let by_size = |a: &&Ratio, b: &&Ratio| a.times.total_cmp(&b.times);
        match self {
            Of::Least => ratios.iter().min_by(by_size).copied(),
            Of::Greatest => ratios.iter().max_by(by_size).copied(),
            Of::Mean => {
                let all: Vec<f64> = ratios.iter().map(|ratio| ratio.times).collect();
                let at_least = ratios.iter().any(|ratio| ratio.at_least);
                geometric_mean(&all).map(|times| Ratio { times, at_least })
            }
        }
    }

    fn name(self) -> &'static str {
        match self {
            Of::Mean => "geometric mean",
            Of::Least => "least",
            Of::Greatest => "greatest",
        }
    }
}

/// Returns the line of a target about ratios. A program without a ratio is named, and the target is not met.
fn judged(
    target: &str,
    ratios: &[(&str, Option<Ratio>)],
    of: Of,
    met: impl Fn(f64) -> bool,
    remark: &str,
) -> String {
    let measured: Vec<Ratio> = ratios.iter().filter_map(|(_, ratio)| *ratio).collect();
    let text = |ratio: Ratio| format!("{}{:.2}", if ratio.at_least { ">=" } else { "" }, ratio.times);
    let each: Vec<String> = ratios
        .iter()
        .map(|(name, ratio)| format!("{name} {}", ratio.map_or("not measured".to_owned(), text)))
        .collect();
    let picked = of.pick(&measured);
    let figure =
        picked.map(|ratio| format!("{} {} times ({}){remark}", of.name(), text(ratio), each.join(", ")));
    let met = measured.len() == ratios.len() && picked.is_some_and(|ratio| met(ratio.times));
    line(target, figure, met)
}

/// Returns each program's ratio.
fn ratios<'a>(
    sheets: &[&'a Sheet],
    value: impl Fn(&Sheet) -> Option<Ratio>,
) -> Vec<(&'a str, Option<Ratio>)> {
    sheets.iter().map(|sheet| (sheet.program.name, value(sheet))).collect()
}

/// Returns the lines of the targets for atoll with no flag but `--near`.
pub(crate) fn no_flags(sheets: &[Sheet], percent: u32) -> Vec<String> {
    let sheets: Vec<&Sheet> = sheets.iter().collect();
    let mut lines = defaults_against_swap(&sheets, percent);
    let over_hand = ratios(&sheets, |sheet| {
        let defaults = sheet.limited.median(&Subject::Atoll(plan::DEFAULTS))?;
        Ratio::of(defaults, best_by_hand(sheet)?.1)
    });
    let target = format!(
        "{percent}% near, defaults take at most {DEFAULTS_OVER_HAND} times as long as the best flags found by hand, each program"
    );
    lines.push(judged(&target, &over_hand, Of::Greatest, |times| times <= DEFAULTS_OVER_HAND, ""));

    let over_native = |subject: &Subject| {
        ratios(&sheets, |s| Ratio::of(s.all.median(subject)?, s.all.median(&Subject::Native)?))
    };
    let target = format!("all near, no flag: at most {DEFAULTS_ALL_NEAR} times native, geometric mean");
    let all_near = over_native(&Subject::Atoll(Atoll::default()));
    lines.push(judged(&target, &all_near, Of::Mean, |times| times <= DEFAULTS_ALL_NEAR, ""));
    lines.extend(plan::NEARLY_ALL.map(|(percent, most)| {
        let target = format!("{percent}% near, defaults: at most {most} times native, each program");
        judged(&target, &over_native(&plan::nearly_all(percent)), Of::Greatest, |times| times <= most, "")
    }));
    lines
}

/// Returns the lines of the targets that compare with Linux swap. Programs that swap does not run at all are named in them.
fn defaults_against_swap(sheets: &[&Sheet], percent: u32) -> Vec<String> {
    let (killed, swapped): (Vec<&Sheet>, Vec<&Sheet>) = sheets.iter().partition(|s| swap_is_killed(s));
    let names: Vec<&str> = killed.iter().map(|sheet| sheet.program.name).collect();
    let remark = if names.is_empty() {
        String::new()
    } else {
        format!("; without {}, which the kernel kills under swap", names.join(", "))
    };
    let over_swap = ratios(&swapped, swap_over_defaults);
    let mean = format!(
        "{percent}% near, defaults, the better Linux swap takes at least {DEFAULTS_FASTER_THAN_SWAP} times as long, geometric mean"
    );
    let least = format!("the same, each program at least {DEFAULTS_NEVER_BELOW_SWAP} times");
    vec![
        judged(&mean, &over_swap, Of::Mean, |times| times >= DEFAULTS_FASTER_THAN_SWAP, &remark),
        judged(&least, &over_swap, Of::Least, |times| times >= DEFAULTS_NEVER_BELOW_SWAP, &remark),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ratio(times: f64, at_least: bool) -> Option<Ratio> {
        Some(Ratio { times, at_least })
    }

    #[test]
    fn a_program_that_was_not_measured_does_not_meet_a_target() {
        let met = |times| times >= 2.0;
        let both = [("cg", ratio(2.0, false)), ("lu", ratio(8.0, true))];
        let line = judged("target", &both, Of::Mean, met, "");
        assert_eq!(line, "target: geometric mean >=4.00 times (cg 2.00, lu >=8.00)  met");
        let line = judged("target", &both, Of::Least, met, "; remark");
        assert_eq!(line, "target: least 2.00 times (cg 2.00, lu >=8.00); remark  met");
        let line = judged("target", &[both[0], ("lu", None)], Of::Mean, met, "");
        assert_eq!(line, "target: geometric mean 2.00 times (cg 2.00, lu not measured)  not met");
        assert_eq!(judged("target", &[], Of::Mean, met, ""), "target: not measured  not met");
    }

    #[test]
    fn a_ratio_to_a_run_that_was_cut_says_nothing() {
        let figure = |median, cut| Figure { median, least: median, most: median, cut, runs: 1 };
        assert_eq!(Ratio::of(figure(6.0, true), figure(2.0, false)), ratio(3.0, true));
        assert_eq!(Ratio::of(figure(6.0, false), figure(2.0, true)), None);
    }
}
