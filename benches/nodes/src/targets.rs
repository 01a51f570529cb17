//! Prints each target and its measurement in a line, which ends in `met` or `not met`.

use atoll_bench_common::geometric_mean;

use crate::links::Links;
use crate::message::Trips;
use crate::micro::Micro;
use crate::paper::Paper;
use crate::setting::Setting;
use crate::sheet::Sheet;
use crate::stats::percent;

const BARRIER_TO_MESSAGE: f64 = 2.0;
const BARRIER_TO_PAGES: f64 = 3.2;
const BARRIER_US: f64 = 10.0;
const READ_US: f64 = 5.0;
const READ_TO_TRIP: f64 = 1.5;
const UPGRADE_US: f64 = 8.0;
const FETCH_GB_S: f64 = 1.5;
const BATCHED_PERCENT: f64 = 98.6;
const REMOVED_PERCENT: f64 = 84.0;
const FASTER: f64 = 1.11;
pub(crate) const SLOWER: f64 = 0.98;
const USED_PERCENT: f64 = 96.0;
const COVERED_PERCENT: f64 = 79.0;

pub(crate) fn line(target: &str, figure: Option<String>, met: bool) -> String {
    let figure = figure.unwrap_or_else(|| "not measured".to_owned());
    format!("{target}: {figure}  {}", if met { "met" } else { "not met" })
}

/// Returns the lines of single steps.
pub(crate) fn steps(micro: &Micro, trips: Option<Trips>, paper: &Paper) -> Vec<String> {
    let best = Setting::SmartPrefetch;
    let barrier = micro.get(best, "barrier_us");
    let pages = micro.get(best, "flag_barrier_us");
    let times = barrier.zip(pages).map(|(barrier, pages)| pages / barrier);
    let to_message =
        barrier.zip(trips).map(|(barrier, trips)| (barrier / trips.looking, barrier / trips.sleeping));
    let most = |what: &str, value: Option<f64>, most: f64, more: String| {
        let target = format!("{what}: at most {most} us");
        line(&target, value.map(|v| format!("{v:.2} us{more}")), value.is_some_and(|v| v <= most))
    };
    let row = |name| micro.get(Setting::Sc, name).map_or(String::new(), |us| format!("; in a row {us:.2}"));
    let fetch = micro.get(best, "fetch_gb_s");
    vec![
        line(
            &format!(
                "barrier by messages: at least {BARRIER_TO_PAGES} times faster than through coherent pages (paper: {})",
                paper.barrier.times_faster
            ),
            times.map(|t| format!("{t:.2} times, {:.1} us", pages.unwrap_or(f64::NAN))),
            times.is_some_and(|t| t >= BARRIER_TO_PAGES),
        ),
        line(
            &format!("barrier: at most {BARRIER_TO_MESSAGE} times a bare message's round trip"),
            to_message.zip(trips).map(|((looking, sleeping), trips)| {
                format!(
                    "{looking:.2} times {:.2} us; {sleeping:.2} times {:.2} us where nodes sleep between messages",
                    trips.looking, trips.sleeping
                )
            }),
            to_message.is_some_and(|(looking, _)| looking <= BARRIER_TO_MESSAGE),
        ),
        most("clean barrier of local nodes", barrier, BARRIER_US, String::new()),
        most("remote 4K read fault", micro.get(Setting::Sc, "read_single_us"), READ_US, row("read_stream_us")),
        most("write upgrade", micro.get(Setting::Sc, "upgrade_single_us"), UPGRADE_US, row("upgrade_stream_us")),
        line(
            &format!("batched fetch: at least {FETCH_GB_S} GB/s"),
            fetch.map(|f| {
                let alone = micro.get(Setting::Smart, "fetch_gb_s").unwrap_or(f64::NAN);
                format!("{f:.2} GB/s; by faults in a row {alone:.2}")
            }),
            fetch.is_some_and(|f| f >= FETCH_GB_S),
        ),
    ]
}

/// Returns each program's value, and the least of them; `None` if one is missing.
fn every(sheets: &[&Sheet], value: impl Fn(&Sheet) -> Option<f64>) -> Option<(Vec<f64>, f64)> {
    let values: Vec<f64> = sheets.iter().map(|sheet| value(sheet)).collect::<Option<_>>()?;
    let least = values.iter().copied().min_by(f64::total_cmp)?;
    Some((values, least))
}

fn named(sheets: &[&Sheet], values: &[f64], digits: usize) -> String {
    let each = sheets.iter().zip(values).map(|(sheet, v)| format!("{} {v:.digits$}", sheet.program.name));
    each.collect::<Vec<_>>().join(", ")
}

/// Returns the lines of programs.
pub(crate) fn programs(sheets: &[Sheet]) -> Vec<String> {
    let all: Vec<&Sheet> = sheets.iter().collect();
    let claimed: Vec<&Sheet> = sheets.iter().filter(|sheet| sheet.program.claimed).collect();
    let nas: Vec<&Sheet> = sheets.iter().filter(|sheet| sheet.program.nas).collect();
    let later = |sheet: &Sheet, setting| sheet.cell(setting)?.later();
    let best = Setting::SmartPrefetch;
    let least = |target: String, sheets: &[&Sheet], aim: f64, value: &dyn Fn(&Sheet) -> Option<f64>| {
        let found = every(sheets, value);
        let figure = found.as_ref().map(|(values, _)| named(sheets, values, 1));
        line(&target, figure, found.is_some_and(|(_, least)| least >= aim))
    };
    let faster = every(&all, |sheet| Some(sheet.seconds(Setting::Sc)? / sheet.seconds(best)?));
    let mean = faster.as_ref().and_then(|(values, _)| geometric_mean(values));
    // Where nothing was to be done, nothing is missing.
    let share = |part, whole| Some(percent(part, whole).unwrap_or(100.0));
    vec![
        least(
            format!("invalidations batched after the first runs, smart: at least {BATCHED_PERCENT} %"),
            &claimed,
            BATCHED_PERCENT,
            &|sheet| later(sheet, best).and_then(|c| share(c.batched, c.batched + c.single)),
        ),
        least(
            format!(
                "read faults removed after the first runs, smart + prefetch against sc: at least {REMOVED_PERCENT} %"
            ),
            &claimed,
            REMOVED_PERCENT,
            &|sheet| {
                let (sc, smart) = (later(sheet, Setting::Sc)?, later(sheet, best)?);
                Some(100.0 - percent(smart.reads, sc.reads).unwrap_or(0.0))
            },
        ),
        line(
            &format!("smart + prefetch: at least {FASTER} times as fast as sc, geometric mean"),
            faster
                .as_ref()
                .zip(mean)
                .map(|((values, _), mean)| format!("{mean:.2} ({})", named(&all, values, 2))),
            mean.is_some_and(|mean| mean >= FASTER),
        ),
        line(
            &format!("the same: no program less than {SLOWER} times as fast"),
            faster.as_ref().map(|(_, least)| format!("least {least:.2}")),
            faster.as_ref().is_some_and(|(_, least)| *least >= SLOWER),
        ),
        least(
            format!("pages fetched ahead that are used, NAS programs: at least {USED_PERCENT} %"),
            &nas,
            USED_PERCENT,
            &|sheet| later(sheet, best).and_then(|c| share(c.used, c.ahead)),
        ),
        least(
            format!("misses covered by pages fetched ahead, NAS programs: at least {COVERED_PERCENT} %"),
            &nas,
            COVERED_PERCENT,
            &|sheet| later(sheet, best).and_then(|c| share(c.used, c.used + c.reads)),
        ),
    ]
}

/// Returns the lines that only UCX and shaped links can show.
pub(crate) fn links(links: &Links) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    if let Some(loopback) = links.measured.first() {
        let times = loopback.read.map(|read| read / loopback.trip);
        let figure = times
            .zip(loopback.read)
            .map(|(times, read)| format!("{times:.2} times, {read:.1} us; UCX {:.1} us", loopback.trip));
        lines.push(line(
            &format!("remote 4K read over TCP loopback: at most {READ_TO_TRIP} times UCX's own round trip for the page"),
            figure,
            times.is_some_and(|times| times <= READ_TO_TRIP),
        ));
    }
    lines.extend(links.skipped.iter().map(|why| format!("skipped: {why}")));
    lines
}
