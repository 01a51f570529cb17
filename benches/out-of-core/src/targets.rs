//! Prints each target and its measurement in a line, which ends in `met` or `not met`.

use atoll_bench_common::geometric_mean;

use crate::micro::{self, Micro, PATTERNS, SHARED};
use crate::plan::PAGES;
use crate::sheet::{Sheet, mebibytes};
use crate::subject::{Atoll, Device, Subject};

const SLOWER_ALL_NEAR: f64 = 1.05;
const FASTER_THAN_SWAP: f64 = 3.0;
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
        let subject = Subject::Atoll(Atoll { limited: true, far: Some(far), page: Some(page), policy: None });
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
