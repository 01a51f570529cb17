//! The summary that a run prints at its end, and that `atoll show` prints again.

use std::fmt::Write;

use atoll_record::figures::{Counters, Figures, Lender, Races};
use atoll_record::run::Ending;

use super::shown::{counts_in_lines, shown};
use super::signals::signal_text;
use super::summary_nodes::{write_nodes, write_regions, write_spread};
use super::{advice, segment};

/// The longest bar of the distribution by core-map count, in characters.
const BAR: usize = 32;

/// Returns the summary as text, each line ended.
pub(crate) fn text(figures: &Figures) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = write_text(&mut out, figures);
    out
}

fn write_text(out: &mut String, f: &Figures) -> std::fmt::Result {
    let s = &f.settings;
    write!(out, "atoll: {}  {:.3} s  ", f.program, f.wall_seconds)?;
    if let Some(ending) = f.ending.filter(|&e| e != Ending { status: Some(0), signal: None }) {
        write!(out, "{}  ", ending_text(ending))?;
    }
    if let Some(segment) = &f.segment {
        return segment::write(out, f, segment);
    }
    writeln!(
        out,
        "{}, {} page tables, {} pages, {}, far {}, faults by {}",
        many(f.workers.len().max(1) as u64, "worker"),
        s.page_tables,
        bytes(s.page_bytes),
        s.policy,
        s.far,
        s.faults
    )?;
    if !f.managed {
        return writeln!(out, "  nothing was managed");
    }
    write_memory(out, f)?;
    write_table(out, f)?;
    write_lenders(out, f)?;
    write_nodes(out, &f.nodes)?;
    for region in &f.one_writer_regions {
        writeln!(out, "  {region} keeps to one writer of a page: near memory is too small for its twins")?;
    }
    if let Some(races) = &f.races {
        write_races(out, races)?;
    }
    write_counts(out, &f.pages_by_core_map_count)?;
    if f.later_programs > 0 {
        writeln!(
            out,
            "  later programs of the run, each with the same limit and without a summary: {}",
            f.later_programs
        )?;
    }
    if let Some(n) = f.kernel_tlb_shootdowns {
        writeln!(out, "  TLB shootdowns counted by the kernel, all programs: {}", count(n))?;
    }
    write_spread(out, &f.regions)?;
    write_regions(out, &f.regions)?;
    advice::of(f).map_or(Ok(()), |advice| writeln!(out, "atoll: {advice}"))
}

/// Writes what the program needs, what it may have near, and where it is. Records of an older atoll have no footprints.
fn write_memory(out: &mut String, f: &Figures) -> std::fmt::Result {
    let m = &f.memory;
    let footprint = m.footprint_peak_bytes;
    let parts = m.data_peak_bytes + m.pinned_peak_bytes;
    let by = if f.settings.near_is_automatic { " (what the machine could give)" } else { "" };
    match f.settings.near_bytes {
        Some(near) if near >= footprint => {
            write!(
                out,
                "  memory: near limit {}{by}, no less than its footprint {}",
                bytes(near),
                bytes(footprint)
            )?;
        }
        Some(near) => write!(
            out,
            "  memory: near limit {}{by}, {:.0}% of its footprint {}",
            bytes(near),
            100.0 * near as f64 / footprint as f64,
            bytes(footprint)
        )?,
        None => write!(out, "  memory: no near limit; footprint {}", bytes(footprint))?,
    }
    if m.data_peak_bytes > 0 {
        let rest = footprint.saturating_sub(parts);
        write!(
            out,
            " (data {}, pinned {}, tables and spare pages {})",
            bytes(m.data_peak_bytes),
            bytes(m.pinned_peak_bytes),
            bytes(rest)
        )?;
    }
    write!(out, "  resident at most {}", bytes(m.resident_peak_bytes))?;
    if m.far_bytes > 0 {
        write!(out, "  far {} held in {}", bytes(m.far_bytes), bytes(m.far_stored_bytes))?;
    }
    if m.huge_pages > 0 {
        write!(out, "  pages of 2M came {} times", count(m.huge_pages))?;
    }
    writeln!(out)
}

/// Writes a table of the lenders, and what they wanted back.
fn write_lenders(out: &mut String, f: &Figures) -> std::fmt::Result {
    let lenders = &f.lenders;
    // `auto` may have needed none of those that it found.
    if lenders.is_empty() || f.settings.far == "auto" && lenders.iter().all(|lender| lender.pages_out == 0) {
        return Ok(());
    }
    let names =
        ["lender", "borrowed", "pages in", "pages out", "in", "out", "round trip", "read 50%", "read 99%"];
    let units = ["", "bytes", "", "", "bytes", "bytes", "us", "us", "us"];
    let mut rows = head(names, units);
    let time = |us: Option<f64>| us.map_or_else(|| "-".to_owned(), |us| format!("{us:.0}"));
    for lender in lenders {
        rows.push(vec![
            match lender {
                Lender { lost: true, name, .. } => format!("{name} (lost)"),
                Lender { left: true, name, .. } => format!("{name} (left)"),
                Lender { name, .. } => name.clone(),
            },
            bytes(lender.borrowed_bytes),
            count(lender.pages_in),
            count(lender.pages_out),
            bytes(lender.bytes_in),
            bytes(lender.bytes_out),
            time(Some(lender.round_trip_us)),
            time(lender.read_median_us),
            time(lender.read_99_us),
        ]);
    }
    write_aligned(out, &rows)?;
    for Lender { name, returned_bytes, pages_moved, .. } in lenders.iter().filter(|l| l.returned_bytes > 0) {
        writeln!(
            out,
            "  {name} wanted memory back: {} were returned, for which {} pages moved elsewhere",
            bytes(*returned_bytes),
            count(*pages_moved)
        )?;
    }
    if f.pages_behind_lenders > 0 {
        writeln!(
            out,
            "  {} pages went to a file as no lender had room, and {} came from there",
            count(f.pages_behind_lenders),
            count(f.pages_from_behind_lenders)
        )?;
    }
    Ok(())
}

/// The number of races that are printed; the JSON has all of them.
const RACES: usize = 20;

fn write_races(out: &mut String, races: &Races) -> std::fmt::Result {
    let words: u64 = races.words.iter().map(|race| race.words).sum();
    writeln!(
        out,
        "  races (this took time): {} words written by two nodes in one region, of {} runs of regions; {} more could not be checked, as \
         they synchronise by instructions of their own",
        count(words),
        count(races.checked_regions),
        count(races.unchecked_regions)
    )?;
    let mut rows = vec![["region", "variable", "words", "nodes", "times"].map(str::to_owned).to_vec()];
    for race in races.words.iter().take(RACES) {
        let variable = match (race.variable.as_str(), race.offset) {
            ("", _) => format!("{:#x}", race.address),
            ("heap" | "stack", _) => format!("{} {:#x}", race.variable, race.address),
            (name, 0) => name.to_owned(),
            (name, offset) => format!("{name}+{offset}"),
        };
        let nodes: Vec<String> = race.nodes.iter().map(u32::to_string).collect();
        rows.push(vec![race.region.clone(), variable, count(race.words), nodes.join(" "), count(race.count)]);
    }
    if rows.len() > 1 {
        write_aligned_behind(out, "    ", &rows)?;
    }
    let hidden = races.words.len().saturating_sub(RACES);
    if hidden > 0 || races.lost > 0 {
        writeln!(out, "    and {hidden} more; {} finds had no place", races.lost)?;
    }
    Ok(())
}

const HEADS: [&str; 14] = [
    "worker",
    "minor",
    "major",
    "first",
    "write",
    "prefetch",
    "clean",
    "dirty",
    "in",
    "out",
    "inval",
    "waits",
    "in faults",
    "of wall",
];

const UNITS: [&str; 14] = [
    "", "faults", "faults", "faults", "faults", "pages", "evicted", "evicted", "bytes", "bytes", "TLBs",
    "faults", "s", "%",
];

/// Returns the head of a table: the names of the columns, and below them what is counted.
pub(crate) fn head<const N: usize>(names: [&str; N], units: [&str; N]) -> Vec<Vec<String>> {
    [names, units].map(|row| row.map(str::to_owned).to_vec()).into()
}

fn row(name: String, c: &Counters, wall: f64, workers: usize) -> Vec<String> {
    vec![
        name,
        count(c.minor_faults),
        count(c.major_faults),
        count(c.first_faults),
        count(c.write_faults),
        count(c.prefetched_pages),
        count(c.evictions_clean),
        count(c.evictions_dirty),
        bytes(c.bytes_in),
        bytes(c.bytes_out),
        count(c.remote_tlb_invalidations),
        count(c.waits),
        format!("{:.3}", c.fault_seconds),
        if wall > 0.0 {
            format!("{:.1}", 100.0 * c.fault_seconds / wall / workers as f64)
        } else {
            "-".into()
        },
    ]
}

fn write_table(out: &mut String, f: &Figures) -> std::fmt::Result {
    let mut rows = head(HEADS, UNITS);
    let shown = shown(&f.workers);
    for worker in &shown.workers {
        rows.push(row(worker.index.to_string(), &worker.counters, f.wall_seconds, 1));
    }
    if f.background != Counters::default() {
        rows.push(row("background".into(), &f.background, f.wall_seconds, 1));
    }
    rows.push(row("total".into(), &f.total, f.wall_seconds, f.workers.len().max(1)));
    write_aligned(out, &rows)?;
    if let Some(note) = shown.note() {
        writeln!(out, "  {note}")?;
    }
    let whose = if f.workers.len() > 1 { "; of the total all workers' together" } else { "" };
    writeln!(out, "  wall: the {:.3} s from start to end{whose}", f.wall_seconds)?;
    if f.total.scan_unmapped_pages > 0 {
        let pages = many(f.total.scan_unmapped_pages, "page");
        writeln!(out, "  unmapped only to see use (LRU's scan): {pages}")?;
    }
    Ok(())
}

/// Writes rows in columns, the first to the left, the others to the right.
pub(crate) fn write_aligned(out: &mut String, rows: &[Vec<String>]) -> std::fmt::Result {
    write_aligned_behind(out, "  ", rows)
}

/// Writes rows in columns, with `indent` at the beginning of each line.
pub(crate) fn write_aligned_behind(out: &mut String, indent: &str, rows: &[Vec<String>]) -> std::fmt::Result {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |i: usize| rows.iter().filter_map(|r| r.get(i)).map(|c| c.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for row in rows {
        for (i, cell) in row.iter().enumerate() {
            let width = widths[i];
            if i == 0 { write!(out, "{indent}{cell:<width$}")? } else { write!(out, "  {cell:>width$}")? }
        }
        writeln!(out)?;
    }
    Ok(())
}

fn write_counts(out: &mut String, counts: &[u64]) -> std::fmt::Result {
    let total: u64 = counts.iter().sum();
    let lines = counts_in_lines(counts);
    let Some(most) = lines.iter().map(|(_, n)| *n).max() else { return Ok(()) };
    writeln!(out, "  pages by core-map count (how many workers map them):")?;
    let names = lines.iter().map(|(range, _)| match (range.start(), range.end()) {
        (from, to) if from == to => from.to_string(),
        (from, to) => format!("{from}-{to}"),
    });
    let names: Vec<String> = names.collect();
    let width = names.iter().map(String::len).max().unwrap_or(0).max(5);
    for (name, (_, n)) in names.iter().zip(lines) {
        let bar = "#".repeat(((n as f64 / most as f64) * BAR as f64).ceil() as usize);
        writeln!(
            out,
            "  {name:>width$}  {bar:<BAR$}  {:>5.1}%  {}",
            100.0 * n as f64 / total as f64,
            count(n)
        )?;
    }
    Ok(())
}

/// Returns a number with its noun.
pub(crate) fn many(n: u64, one: &str) -> String {
    format!("{} {one}{}", count(n), if n == 1 { "" } else { "s" })
}

/// Returns a program's ending in words.
pub(crate) fn ending_text(ending: Ending) -> String {
    match ending {
        Ending { signal: Some(signal), .. } => format!("killed by signal {signal} ({})", signal_text(signal)),
        Ending { status: Some(status), .. } => format!("exit status {status}"),
        _ => "running".to_owned(),
    }
}

/// Returns a number in about six characters at most: 98765, 1.23M.
pub(crate) fn count(n: u64) -> String {
    scaled(n, 1000.0, ["", "k", "M", "G", "T", "P"], 100_000)
}

/// Returns bytes in powers of 1024: 64K, 1.53G.
pub(crate) fn bytes(n: u64) -> String {
    scaled(n, 1024.0, ["", "K", "M", "G", "T", "P"], 1024)
}

fn scaled(n: u64, step: f64, units: [&str; 6], plain: u64) -> String {
    if n < plain {
        return n.to_string();
    }
    let (mut value, mut unit) = (n as f64, 0);
    while value >= step && unit + 1 < units.len() {
        value /= step;
        unit += 1;
    }
    let digits = if value >= 100.0 {
        0
    } else if value >= 10.0 {
        1
    } else {
        2
    };
    let text = format!("{value:.digits$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{}", units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_record::figures::Worker;

    #[test]
    fn numbers_are_short() {
        let counts = [0, 99_999, 123_456, 12_345_678].map(count);
        assert_eq!(counts, ["0", "99999", "123k", "12.3M"]);
        assert_eq!(
            [0, 1023, 4096, 1_610_612_736, u64::MAX].map(bytes),
            ["0", "1023", "4K", "1.5G", "16384P"]
        );
    }

    #[test]
    fn the_table_has_a_row_for_every_worker_and_a_bar_for_every_count() {
        let counters = Counters { major_faults: 10, fault_seconds: 0.5, ..Counters::default() };
        let workers = (0..2).map(|index| Worker { index, pid: 1, counters }).collect();
        let figures = Figures {
            program: "cg".into(),
            managed: true,
            wall_seconds: 1.0,
            total: counters.combine(&counters, |a, b| a + b),
            workers,
            pages_by_core_map_count: vec![30, 0, 10],
            ..Figures::default()
        };
        let text = text(&figures);
        let line = |start: &str| text.lines().find(|l| l.trim_start().starts_with(start)).unwrap().to_owned();
        assert_eq!(
            line("total").split_whitespace().rev().take(2).collect::<Vec<_>>(),
            ["50.0", "1.000"],
            "{text}"
        );
        assert!(line("1 ").contains(" 10 "), "{text}");
        assert!(line("3 ").contains("25.0%"), "{text}");
    }

    /// A thousand workers filled a thousand lines, and as many lines of core-map counts.
    #[test]
    fn the_summary_of_a_thousand_workers_was_a_thousand_lines() {
        let counters = Counters { major_faults: 10, fault_seconds: 0.5, ..Counters::default() };
        let mut workers: Vec<Worker> = (0..1000).map(|index| Worker { index, pid: 1, counters }).collect();
        workers[777].counters.fault_seconds = 0.75;
        let figures = Figures {
            program: "cg".into(),
            managed: true,
            wall_seconds: 1.0,
            total: counters,
            workers,
            pages_by_core_map_count: vec![1; 1000],
            ..Figures::default()
        };
        let text = text(&figures);
        assert!(text.lines().count() < 45, "{text}");
        for start in ["0 ", "3 ", "777 ", "total ", "of 1000 workers", "513-1000 "] {
            assert!(text.lines().any(|line| line.trim_start().starts_with(start)), "{start}: {text}");
        }
    }
}
