//! The tables of nodes and of regions in the summary.

use std::fmt::Write;

use atoll_record::figures::{Node, Region};

use super::summary::{bytes, count, head, many, write_aligned};

/// Writes what each node did; writes nothing where there is one.
pub(super) fn write_nodes(out: &mut String, nodes: &[Node]) -> std::fmt::Result {
    if nodes.is_empty() {
        return Ok(());
    }
    let heads = [
        "node", "reads", "writes", "waited", "sent", "inval", "batched", "twins", "diffs", "diffs", "ahead",
        "used", "stream", "barriers", "at them", "tasks", "messages", "sent",
    ];
    let units = [
        "", "faults", "faults", "s", "pages", "copies", "copies", "pages", "pages", "bytes", "pages",
        "pages", "pages", "", "s", "taken", "sent", "bytes",
    ];
    let mut rows = head(heads, units);
    for (number, n) in nodes.iter().enumerate() {
        rows.push(vec![
            number.to_string(),
            count(n.read_faults),
            count(n.write_faults),
            format!("{:.3}", n.fault_seconds),
            count(n.pages_sent),
            count(n.single_invalidations),
            count(n.batched_invalidations),
            count(n.twins),
            count(n.diffs),
            bytes(n.diff_bytes),
            count(n.ahead),
            count(n.ahead_used),
            count(n.streamed),
            count(n.barriers),
            format!("{:.3}", n.barrier_seconds),
            count(n.tasks),
            count(n.messages),
            bytes(n.message_bytes),
        ]);
    }
    write_aligned(out, &rows)
}

/// The most regions shown; all are in the record.
const REGIONS: usize = 10;

/// Writes what several nodes did for each region.
pub(super) fn write_spread(out: &mut String, regions: &[Region]) -> std::fmt::Result {
    let heads = [
        "region",
        "runs",
        "alone",
        "time",
        "reads",
        "writes",
        "inval",
        "batched",
        "saved",
        "diffs",
        "diffs",
        "used",
        "wasted",
        "at barriers",
        "writers: why",
    ];
    let units = [
        "",
        "",
        "runs",
        "s",
        "faults",
        "faults",
        "copies",
        "copies",
        "messages",
        "pages",
        "bytes",
        "pages",
        "pages",
        "s by node",
        "",
    ];
    let mut rows = head(heads, units);
    for (region, s) in regions.iter().filter_map(|r| Some((r, r.spread.as_ref()?))).take(REGIONS) {
        rows.push(vec![
            region.name.clone(),
            count(s.runs),
            count(s.alone_runs),
            format!("{:.3}", s.seconds),
            count(s.read_faults),
            count(s.write_faults),
            count(s.single_invalidations),
            count(s.batched_invalidations),
            count(s.saved_invalidations),
            count(s.diffs),
            bytes(s.diff_bytes),
            count(s.ahead_used),
            count(s.ahead_wasted),
            by_node(&s.barrier_seconds),
            format!("{}: {}", s.writers, s.why),
        ]);
    }
    if rows.len() == 2 {
        return Ok(());
    }
    write_aligned(out, &rows)?;
    if regions.len() > REGIONS {
        writeln!(out, "  and {}", many((regions.len() - REGIONS) as u64, "more region"))?;
    }
    Ok(())
}

/// Nodes whose seconds are all shown.
const SHOWN: usize = 8;

/// Each node's seconds, or where these are many the least, the median and the most.
fn by_node(seconds: &[f64]) -> String {
    if seconds.len() <= SHOWN {
        return seconds.iter().map(|s| format!("{s:.2}")).collect::<Vec<_>>().join(" ");
    }
    let mut sorted = seconds.to_vec();
    sorted.sort_by(f64::total_cmp);
    let [least, median, most] = [0, sorted.len() / 2, sorted.len() - 1].map(|at| sorted[at]);
    let who = seconds.iter().position(|s| *s == most).unwrap_or(0);
    format!("{least:.2} to {most:.2} (node {who}), median {median:.2}")
}

/// Writes the workers' counts by region, if there are any.
pub(super) fn write_regions(out: &mut String, regions: &[Region]) -> std::fmt::Result {
    if regions.iter().all(|region| region.entered == 0) {
        return Ok(());
    }
    let heads = ["region", "entered", "minor", "major", "first", "write", "prefetch", "in faults", "of it"];
    let units = ["", "times", "faults", "faults", "faults", "faults", "pages", "s", "%"];
    let mut rows = head(heads, units);
    for r in regions.iter().take(REGIONS) {
        let share = if r.worker_seconds > 0.0 { 100.0 * r.fault_seconds / r.worker_seconds } else { 0.0 };
        let counts =
            [r.entered, r.minor_faults, r.major_faults, r.first_faults, r.write_faults, r.prefetched_pages];
        let mut row = vec![r.name.clone()];
        row.extend(counts.map(count));
        row.extend([format!("{:.3}", r.fault_seconds), format!("{share:.1}")]);
        rows.push(row);
    }
    write_aligned(out, &rows)?;
    if regions.len() > REGIONS {
        writeln!(out, "  and {}", many((regions.len() - REGIONS) as u64, "more region"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::by_node;

    #[test]
    fn many_nodes_seconds_are_told_in_short() {
        assert_eq!(by_node(&[0.5, 0.25]), "0.50 0.25");
        let mut seconds = vec![0.1; 20];
        (seconds[3], seconds[7]) = (2.0, 0.0);
        assert_eq!(by_node(&seconds), "0.00 to 2.00 (node 3), median 0.10");
    }
}
