//! The summary of a run whose memory was a segment: its pages, and its number of faults.
//!
//! `summary` calls it behind the program's name and time.

use std::fmt::Write;

use atoll_record::Figures;
use atoll_record::segment::Segment;

use super::summary::{bytes, count, many, write_aligned};

/// Writes the end of the first line, and the lines below it.
pub(super) fn write(out: &mut String, f: &Figures, s: &Segment) -> std::fmt::Result {
    let pages = match s.pages.as_str() {
        "thp" => "transparent huge",
        word => word,
    };
    writeln!(
        out,
        "{}, direct segment of {} in {pages} pages",
        many(f.workers.len().max(1) as u64, "worker"),
        bytes(s.bytes)
    )?;
    write!(out, "  segment: in use at most {}", bytes(s.peak_bytes))?;
    if s.globals_bytes > 0 {
        write!(out, "  globals and main stack on huge pages beside it {}", bytes(s.globals_bytes))?;
    }
    match (s.physical_pieces, s.largest_piece_bytes) {
        (Some(1), _) => write!(out, "  contiguous in physical memory")?,
        (Some(pieces), Some(largest)) => {
            write!(out, "  in {} physical pieces, the largest {}", count(pieces), bytes(largest))?;
        }
        _ => write!(out, "  physical pieces not known (only root can see them)")?,
    }
    writeln!(
        out,
        "  {}  set up in {:.3} s",
        if s.locked { "locked" } else { "not locked (ulimit -l)" },
        s.set_up_seconds
    )?;
    let number = |n: Option<u64>| n.map_or_else(|| "-".to_owned(), |n| n.to_string());
    let mut rows =
        vec![["page faults after start: worker", "minor", "major", "perf"].map(str::to_owned).to_vec()];
    for w in &s.workers {
        rows.push(vec![w.index.to_string(), number(w.minor), number(w.major), number(w.perf)]);
    }
    write_aligned(out, &rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_record::segment::WorkerFaults;

    #[test]
    fn what_is_not_known_is_said() {
        let worker = WorkerFaults { index: 0, minor: Some(0), major: Some(0), perf: None };
        let mut segment =
            Segment { pages: "2M".into(), bytes: 1 << 30, workers: vec![worker], ..Segment::default() };
        let text = |s: &Segment| {
            let mut out = String::new();
            write(&mut out, &Figures::default(), s).unwrap();
            out
        };
        let first = text(&segment);
        assert!(first.contains("direct segment of 1G in 2M pages"), "{first}");
        assert!(first.contains("not known") && first.contains("not locked"), "{first}");
        assert!(first.lines().last().unwrap().trim_end().ends_with('-'), "{first}");
        segment.physical_pieces = Some(1);
        assert!(text(&segment).contains("contiguous in physical memory"));
    }
}
