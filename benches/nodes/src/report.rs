//! Prints tables, and writes CSV.

use std::fmt::Write as _;

use atoll_bench_common::table;

use crate::links::{Links, SETTINGS};
use crate::micro::Micro;
use crate::paper::Paper;
use crate::prediction::Prediction;
use crate::setting::Setting;
use crate::sheet::{Cell, Counts, Sheet};
use crate::stats::percent;

fn or_dash(value: Option<String>) -> String {
    value.unwrap_or_else(|| "-".to_owned())
}

/// Returns a number with so many digits behind the point, or a dash.
pub(crate) fn number(value: Option<f64>, digits: usize) -> String {
    or_dash(value.map(|value| format!("{value:.digits$}")))
}

/// Returns the medians of all programs in all settings.
pub(crate) fn times(sheets: &[Sheet]) -> String {
    let mut rows =
        vec![std::iter::once(String::new()).chain(Setting::ALL.map(|s| s.to_string())).collect::<Vec<_>>()];
    for sheet in sheets {
        let mut row = vec![format!("{} {}", sheet.program.name, sheet.class)];
        row.extend(sheet.cells.iter().map(|cell| number(cell.seconds(), 3)));
        rows.push(row);
    }
    table(&rows)
}

const COUNTS: [&str; 12] = [
    "", "reads", "writes", "invalid.", "batched", "twins", "diffs", "ahead", "used", "streamed", "barriers",
    "us each",
];

fn counted(name: String, c: &Counts, nodes: u32) -> Vec<String> {
    let whole = c.single + c.batched;
    let share = |value: Option<f64>| or_dash(value.map(|p| format!("{p:.1}%")));
    let each = (c.barriers > 0)
        .then(|| format!("{:.1}", 1e6 * c.barrier_seconds / c.barriers as f64 / f64::from(nodes)));
    vec![
        name,
        c.reads.to_string(),
        c.writes.to_string(),
        whole.to_string(),
        share(percent(c.batched, whole)),
        c.twins.to_string(),
        c.diffs.to_string(),
        c.ahead.to_string(),
        share(percent(c.used, c.ahead)),
        c.streamed.to_string(),
        c.barriers.to_string(),
        or_dash(each),
    ]
}

/// Returns the counts of coherence in whole runs, all nodes together.
pub(crate) fn counts(sheets: &[Sheet], nodes: u32) -> String {
    let mut rows = vec![COUNTS.map(str::to_owned).to_vec()];
    for sheet in sheets {
        for cell in sheet.cells.iter().filter(|cell| cell.setting.several()) {
            let name = format!("{} {}", sheet.program.name, cell.setting);
            rows.extend(cell.counts().map(|counts| counted(name, &counts, nodes)));
        }
    }
    table(&rows)
}

/// Returns the measurements of the small programs.
pub(crate) fn steps(micro: &Micro) -> String {
    let mut rows = vec![["", "setting", "median", "least", "most"].map(str::to_owned).to_vec()];
    for (setting, name, values) in micro.all() {
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(0.0, f64::max);
        let middle = crate::stats::median(values.iter().copied()).unwrap_or(f64::NAN);
        let mut row = vec![name.to_owned(), setting.to_owned()];
        row.extend([middle, least, most].map(|v| format!("{v:.2}")));
        rows.push(row);
    }
    table(&rows)
}

/// Returns the simulator's predictions for these `nodes`: times as fast as one node, with smart + prefetch; and how much faster
/// than sc on two nodes.
pub(crate) fn predictions(predictions: &[Prediction], nodes: &[u32], paper: &Paper) -> String {
    let mut head: Vec<String> = vec![String::new()];
    head.extend(nodes[1..].iter().map(|n| format!("{n} nodes")));
    head.extend(["smart to sc", "with prefetch", "the paper"].map(str::to_owned));
    let (mut rows, mut out) = (vec![head], String::new());
    for prediction in predictions {
        let name = prediction.program.name;
        if let Some(why) = &prediction.missing {
            let _ = writeln!(out, "  {name}, {why}");
        }
        let one = prediction.seconds(1, "sc", false);
        let mut row = vec![name.to_owned()];
        row.extend(nodes[1..].iter().map(|&nodes| {
            let several = prediction.seconds(nodes, "smart", true);
            or_dash(one.zip(several).map(|(one, several)| format!("{:.2}", one / several)))
        }));
        for prefetch in [false, true] {
            let pair = prediction.seconds(2, "sc", false).zip(prediction.seconds(2, "smart", prefetch));
            row.push(or_dash(pair.map(|(sc, smart)| format!("{:+.0}%", 100.0 * (sc / smart - 1.0)))));
        }
        row.push(or_dash(paper.program(name).map(|p| p.said())));
        rows.push(row);
    }
    table(&rows) + &out
}

/// Returns the measurements over UCX: single steps, then programs beside their times on one node and on several with shared
/// memory.
pub(crate) fn links(links: &Links, sheets: &[Sheet]) -> String {
    let mut steps =
        vec![["", "remote read", "write upgrade", "UCX alone", "batched fetch"].map(str::to_owned).to_vec()];
    for route in &links.measured {
        let mut row = vec![route.name.clone()];
        row.extend([route.read, route.upgrade, Some(route.trip)].map(|us| number(us, 1)));
        row.push(number(route.fetch, 2));
        steps.push(row);
    }
    let shaped = || links.measured.iter().filter(|route| !route.programs.is_empty());
    let mut head: Vec<String> = ["", "one node", "smart+prefetch here"].map(str::to_owned).to_vec();
    head.extend(shaped().flat_map(|route| SETTINGS.map(|setting| format!("{setting}, {}", route.name))));
    let mut rows = vec![head];
    for (index, (name, _)) in shaped().next().into_iter().flat_map(|route| route.programs.iter().enumerate())
    {
        let sheet = sheets.iter().find(|sheet| sheet.program.name == *name);
        let here = |setting| number(sheet.and_then(|sheet| sheet.seconds(setting)), 3);
        let mut row = vec![(*name).to_owned(), here(Setting::One), here(Setting::SmartPrefetch)];
        row.extend(shaped().flat_map(|route| route.programs[index].1.map(|seconds| number(seconds, 3))));
        rows.push(row);
    }
    table(&steps) + "\n" + &table(&rows)
}

fn line(sheet: &Sheet, cell: &Cell, round: usize, seconds: f64, c: &Counts) -> String {
    format!(
        "{},{},{},{round},{seconds:.4},{},{},{},{},{},{},{},{},{},{},{},{},{},{:.6},{:.6}\n",
        sheet.program.name,
        sheet.class,
        cell.setting,
        c.reads,
        c.writes,
        c.single,
        c.batched,
        c.twins,
        c.diffs,
        c.ahead,
        c.used,
        c.streamed,
        c.sent,
        c.messages,
        c.message_bytes,
        c.barriers,
        c.barrier_seconds,
        c.fault_seconds,
    )
}

/// Returns every run and every measurement of the small programs.
pub(crate) fn csv(sheets: &[Sheet], micro: Option<&Micro>) -> String {
    let mut out = "program,class,setting,run,seconds,read_faults,write_faults,single_invalidations,batched_invalidations,\
                   twins,diffs,ahead,ahead_used,streamed,pages_sent,messages,message_bytes,barriers,barrier_seconds,\
                   fault_seconds\n"
        .to_owned();
    for sheet in sheets {
        for cell in &sheet.cells {
            for (round, sample) in cell.samples.iter().enumerate() {
                out += &line(sheet, cell, round, sample.seconds, &sample.counts);
            }
        }
    }
    for (setting, name, values) in micro.iter().flat_map(|micro| micro.all()) {
        for (round, value) in values.iter().enumerate() {
            let _ = writeln!(out, "{name},,{setting},{round},{value}");
        }
    }
    out
}
