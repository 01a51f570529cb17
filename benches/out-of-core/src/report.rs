//! Prints tables, and writes CSV.

use std::fmt::Write as _;

use atoll_bench_common::{geometric_mean, table};

use crate::micro::Micro;
use crate::part::{Cell, Part};
use crate::sheet::{Sheet, mebibytes};
use crate::stats::Figure;
use crate::subject::Subject;

pub(crate) fn seconds(figure: &Figure) -> String {
    format!("{}{:.3}", if figure.cut { ">=" } else { "" }, figure.median)
}

fn times(figure: &Figure, native: Option<Figure>) -> String {
    native.map_or("-".to_owned(), |n| {
        format!("{}{:.2}", if figure.cut { ">=" } else { "" }, figure.median / n.median)
    })
}

const HEADS: [&str; 8] = ["", "median s", "least", "most", "x native", "near peak", "fetched", "runs"];

fn row(cell: &Cell, native: Option<Figure>) -> Vec<String> {
    let mut row = vec![cell.subject.to_string()];
    let Some(figure) = cell.figure() else {
        row.push(cell.out.clone().unwrap_or_else(|| "not run".to_owned()));
        return row;
    };
    // Where far memory is memory, the cgroup's peak counts it as well.
    let all_near = cell.subject.atoll().is_none_or(|a| !a.limited || a.far == Some("file"));
    let peak = cell.samples.iter().filter_map(|s| s.peak).max().filter(|_| all_near);
    let fetched = cell.samples.iter().map(|s| s.fetches).max().unwrap_or(0);
    row.extend([
        seconds(&figure),
        format!("{:.3}", figure.least),
        format!("{:.3}", figure.most),
        times(&figure, native),
        peak.map_or("-".to_owned(), mebibytes),
        if cell.subject.atoll().is_some() { fetched.to_string() } else { "-".to_owned() },
        figure.runs.to_string(),
    ]);
    row
}

/// Returns the table of one program, with all its memory or part of it.
pub(crate) fn part(title: &str, part: &Part) -> String {
    let native = part.median(&Subject::Native);
    // Sentences would widen the columns, so subjects that were not run follow below.
    let (run, not_run): (Vec<&Cell>, Vec<&Cell>) = part.cells.iter().partition(|c| !c.samples.is_empty());
    let mut rows = vec![HEADS.map(str::to_owned).to_vec()];
    rows.extend(run.iter().map(|cell| row(cell, native)));
    let mut out = format!("{title}\n{}", table(&rows));
    out.extend(run.into_iter().chain(not_run).filter_map(remark).map(|remark| format!("  {remark}\n")));
    out
}

/// Returns what there is to say of a subject beside its figures: runs that the kernel killed, or why there are none.
pub(crate) fn remark(cell: &Cell) -> Option<String> {
    let killed: u32 = cell.samples.iter().map(|s| s.killed).sum();
    let subject = &cell.subject;
    if cell.samples.is_empty() {
        return Some(format!("{subject}: {}", cell.out.as_deref().unwrap_or("not run")));
    }
    (killed > 0).then(|| format!("{subject}: the kernel killed {killed} more runs for lack of memory"))
}

pub(crate) fn sheet(sheet: &Sheet, percent: u32) -> String {
    let all = part(&format!("{}, all memory", sheet.all.words.join(" ")), &sheet.all);
    let near: Vec<String> =
        sheet.near.iter().map(|(page, near)| format!("{page} pages --near {}", mebibytes(*near))).collect();
    let near = if near.is_empty() { String::new() } else { format!(" (atoll: {})", near.join(", ")) };
    let title = format!(
        "{}, {percent}% of {}: {} near, all in{near}",
        sheet.limited.words.join(" "),
        mebibytes(sheet.footprint),
        mebibytes(sheet.limit),
    );
    format!("{all}\n{}", part(&title, &sheet.limited))
}

/// Returns times native, programs side by side; one row a subject.
pub(crate) fn overview(sheets: &[Sheet], pick: impl Fn(&Sheet) -> &Part) -> String {
    let Some(first) = sheets.first() else { return String::new() };
    let mut rows = vec![vec!["times native".to_owned()]];
    rows[0].extend(sheets.iter().map(|s| s.program.name.to_owned()));
    rows[0].push("mean".to_owned());
    for cell in &pick(first).cells {
        let values: Vec<Option<(f64, bool)>> = sheets
            .iter()
            .map(|s| {
                let (figure, native) = (pick(s).median(&cell.subject)?, pick(s).median(&Subject::Native)?);
                Some((figure.median / native.median, figure.cut))
            })
            .collect();
        let mut row = vec![cell.subject.to_string()];
        let text = |value: &Option<(f64, bool)>| {
            value.map_or("-".to_owned(), |(v, cut)| format!("{}{v:.2}", if cut { ">=" } else { "" }))
        };
        row.extend(values.iter().map(text));
        let all: Option<Vec<f64>> = values.iter().map(|v| v.map(|(v, _)| v)).collect();
        row.push(all.as_deref().and_then(geometric_mean).map_or("-".to_owned(), |mean| format!("{mean:.2}")));
        rows.push(row);
    }
    table(&rows)
}

pub(crate) fn micro(micro: &Micro) -> String {
    let mut rows =
        vec![["us a 4K page", "workers", "median", "least", "most", "fetched"].map(str::to_owned).to_vec()];
    let mut not_run = String::new();
    for cell in &micro.cells {
        let name = format!("{} {}", cell.pattern, cell.subject);
        let Some(figure) = cell.figure() else {
            let _ = writeln!(not_run, "  {name}: {}", cell.out.as_deref().unwrap_or("not run"));
            continue;
        };
        let us = |seconds: f64| format!("{:.2}", 1e6 * seconds);
        let median = format!("{}{}", if figure.cut { ">=" } else { "" }, us(figure.median));
        let fetched = cell.samples.iter().map(|s| s.fetches).max().unwrap_or(0);
        let fetched = if cell.subject.atoll().is_some() { fetched.to_string() } else { "-".to_owned() };
        rows.push(vec![name, cell.workers.to_string(), median, us(figure.least), us(figure.most), fetched]);
    }
    format!(
        "sweep, a table of {}M a worker, half of it near; sequential: a word of every cache line; random: \
         one word of every page, in a new order each pass\n{}{not_run}",
        micro.mebibytes,
        table(&rows)
    )
}

/// Returns every sample, one line each.
pub(crate) fn csv(sheets: &[Sheet], micro: Option<&Micro>) -> String {
    let mut out = "program,class,iterations,subject,footprint_bytes,limit_bytes,near_bytes,run,seconds,cut,\
                   peak_bytes,pages_fetched,waits,killed_before\n"
        .to_owned();
    let number = |n: Option<u64>| n.map_or(String::new(), |n| n.to_string());
    for sheet in sheets {
        for (part, limit) in [(&sheet.all, None), (&sheet.limited, Some(sheet.limit))] {
            for cell in &part.cells {
                for (run, s) in cell.samples.iter().enumerate() {
                    let _ = writeln!(
                        out,
                        "{},{},{},{},{},{},{},{run},{:.6},{},{},{},{},{}",
                        sheet.program.name,
                        sheet.program.class,
                        part.words[3],
                        cell.subject,
                        sheet.footprint,
                        number(limit.filter(|_| cell.subject != Subject::Native)),
                        number(s.near),
                        s.seconds,
                        s.cut,
                        number(s.peak),
                        s.fetches,
                        s.waits,
                        s.killed
                    );
                }
            }
        }
    }
    for cell in micro.iter().flat_map(|micro| &micro.cells) {
        for (run, s) in cell.samples.iter().enumerate() {
            let _ = writeln!(
                out,
                "sweep {} per page,{} workers,,{},,,{},{run},{:.9},{},{},{},{},{}",
                cell.pattern,
                cell.workers,
                cell.subject,
                number(s.near),
                s.seconds,
                s.cut,
                number(s.peak),
                s.fetches,
                s.waits,
                s.killed
            );
        }
    }
    out
}
