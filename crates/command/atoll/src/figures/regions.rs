//! The counts by region, with the names in the program's symbols.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use atoll_memory::control::{Control, NodeCount};
use atoll_memory::region_counts::{self, Key};
use atoll_memory::region_spread::{self, RunReason, Writers};
use atoll_record::figures::{Region, Spread};

use crate::names::Names;

/// Returns the counts by region. On one node the region with most time in faults comes first, on several nodes the one with
/// most time; the list is empty where regions were not counted. `program` is the file that names the regions' functions.
pub(crate) fn regions(control: &Control, program: &Path, rate: f64) -> Vec<Region> {
    let mut names = Names::default();
    names.loaded(control.program_bias.load(Ordering::Relaxed), program.to_owned());
    let nodes = if control.settings.several_nodes() { control.settings.nodes as usize } else { 0 };
    let mut regions: Vec<Region> = control
        .regions
        .all
        .iter()
        .filter_map(|counted| Some(region(counted, counted.key()?, &mut names, nodes, rate)))
        .collect();
    let time = |region: &Region| match &region.spread {
        Some(spread) => spread.seconds,
        None => region.fault_seconds,
    };
    regions.sort_by(|a, b| time(b).total_cmp(&time(a)));
    regions
}

fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

fn region(counted: &region_counts::Region, key: Key, names: &mut Names, nodes: usize, rate: f64) -> Region {
    let [minor, major, first, write, prefetched, fault_ticks, ticks] = counted.counts.each_ref().map(get);
    let seconds = |ticks: u64| if rate > 0.0 { ticks as f64 / rate } else { 0.0 };
    Region {
        name: names.function(key.function).map_or_else(|| format!("{:#x}", key.function), str::to_owned),
        call_site: (key.call_site != 0).then(|| place(key.call_site, names)),
        extent: (key.extent != 0).then(|| extent(key.extent)),
        spread: (nodes > 0).then(|| spread(&counted.spread, names, nodes)),
        entered: get(&counted.entered),
        minor_faults: minor,
        major_faults: major,
        first_faults: first,
        write_faults: write,
        prefetched_pages: prefetched,
        fault_seconds: seconds(fault_ticks),
        worker_seconds: seconds(ticks),
    }
}

/// Returns an address as a function and the distance from its begin.
fn place(address: u64, names: &mut Names) -> String {
    match names.place(address) {
        Some((name, offset)) => format!("{name}+{offset:#x}"),
        None => format!("{address:#x}"),
    }
}

/// Returns a loop in words: see `Key::extent`, which `omp::parallel` in the runtime makes.
fn extent(extent: u64) -> String {
    let deal = ["static", "static in chunks", "dynamic", "guided"][((extent - 1) & 3) as usize];
    match ((extent - 1) >> 2).min(64) {
        0 => format!("no iterations, {deal}"),
        bits => format!("{} iterations or more, {deal}", 1_u64 << (bits - 1)),
    }
}

fn spread(counted: &region_spread::Spread, names: &mut Names, nodes: usize) -> Spread {
    let count = |count: NodeCount| get(&counted.counts[count as usize]);
    let by_node = |of: &[AtomicU64]| of.iter().take(nodes).map(|ns| get(ns) as f64 / 1e9).collect();
    let (writers, why) = counted.went();
    let writers = match writers {
        Writers::Alone => "alone",
        Writers::One => "one",
        Writers::Many => "many",
    };
    Spread {
        runs: get(&counted.runs),
        alone_runs: get(&counted.alone),
        seconds: get(&counted.ns) as f64 / 1e9,
        alone_seconds: get(&counted.alone_ns) as f64 / 1e9,
        writers: writers.to_owned(),
        why: reason(counted, why, names),
        read_faults: count(NodeCount::Reads),
        write_faults: count(NodeCount::Writes),
        twins: count(NodeCount::Twins),
        pages_sent: count(NodeCount::Sent),
        single_invalidations: count(NodeCount::Single),
        batched_invalidations: count(NodeCount::Batched),
        saved_invalidations: count(NodeCount::Batched).saturating_sub(count(NodeCount::Batches)),
        diffs: count(NodeCount::Diffs),
        diff_bytes: count(NodeCount::DiffBytes),
        ahead_used: count(NodeCount::AheadUsed),
        ahead_wasted: count(NodeCount::Ahead).saturating_sub(count(NodeCount::AheadUsed)),
        streamed: count(NodeCount::Streamed),
        fault_seconds: count(NodeCount::FaultNs) as f64 / 1e9,
        messages: count(NodeCount::Messages),
        barrier_seconds: by_node(&counted.waited),
        work_seconds: by_node(&counted.worked),
        threads: counted.threads.iter().take(nodes).map(|n| n.load(Ordering::Relaxed)).collect(),
    }
}

fn reason(counted: &region_spread::Spread, why: RunReason, names: &mut Names) -> String {
    let text = counted.text.get();
    match why {
        RunReason::Unknown => String::new(),
        RunReason::Construct => format!("{text} cannot be spread"),
        RunReason::Small => "fewer threads than nodes".to_owned(),
        RunReason::Library => "a library was loaded on this node".to_owned(),
        RunReason::NoCpus => "other nodes bring no CPUs for it".to_owned(),
        RunReason::AtHome => "its code synchronises: first runs".to_owned(),
        RunReason::Thrashed => "its pages went to and fro".to_owned(),
        RunReason::OnOrigin => "measured: takes less time".to_owned(),
        RunReason::TryOrigin => "to measure it".to_owned(),
        RunReason::Code => format!("code not safe: {text} at {}", place(get(&counted.address), names)),
        RunReason::Call => format!("code not safe: {text}"),
        RunReason::User => "--consistency".to_owned(),
        RunReason::FellBack => "invalidations below threshold".to_owned(),
        RunReason::New => "new".to_owned(),
        RunReason::Pays => "saves invalidations".to_owned(),
        RunReason::Probation => "invalidations recently below threshold".to_owned(),
        RunReason::Twins => "its twins take too much of near memory".to_owned(),
        RunReason::Races => "--check races".to_owned(),
        RunReason::CameBack => "many invalidations again".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loops_are_told_by_size_and_schedule() {
        assert_eq!(extent(1), "no iterations, static");
        assert_eq!(extent(1 + (11 << 2 | 2)), "1024 iterations or more, dynamic");
        assert_eq!(extent(u64::MAX), "9223372036854775808 iterations or more, dynamic");
    }
}
