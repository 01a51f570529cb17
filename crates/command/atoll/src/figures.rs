//! Makes the figures that are shown and recorded from the control block's counters. `regions` has those of regions, and `races`
//! the findings of `--check`.

mod races;
mod regions;

use std::sync::atomic::{AtomicU64, Ordering};

use atoll_memory::control::{self, Control, MAX_WORKERS, NodeCount, NodeFigures};
use atoll_memory::far::hosts::lenders::{LenderFigures, LenderSettings, LenderState};
use atoll_memory::segment::figures::NOT_COUNTED;
use atoll_record::figures::{Counters, Figures, Lender, Memory, Node, Worker};
use atoll_record::run::Settings;
use atoll_record::segment::{Segment, WorkerFaults};

pub(crate) use races::races;
pub(crate) use regions::regions;

/// Returns the counters now. `rate` is in ticks a second.
pub(crate) fn collect(control: &Control, program: &str, wall_seconds: f64, rate: f64) -> Figures {
    let count = (control.workers.load(Ordering::Acquire) as usize).min(MAX_WORKERS);
    let workers: Vec<Worker> = control.figures[..count]
        .iter()
        .enumerate()
        .map(|(index, figures)| Worker {
            index: index as u32,
            pid: figures.pid.load(Ordering::Relaxed),
            counters: counters(figures, rate),
        })
        .collect();
    let background = counters(&control.figures[MAX_WORKERS], rate);
    let total = workers.iter().fold(background, |sum, w| sum.combine(&w.counters, |a, b| a + b));
    let pid = control.program.load(Ordering::Relaxed);
    Figures {
        program: program.to_owned(),
        pid: (pid > 0).then_some(pid),
        managed: pid > 0,
        ending: None,
        settings: settings(control),
        wall_seconds,
        memory: memory(&control.totals),
        total,
        workers,
        background,
        pages_by_core_map_count: by_count(&control.totals.by_count),
        later_programs: control.later_programs.load(Ordering::Relaxed),
        kernel_tlb_shootdowns: None,
        nodes: nodes(control),
        regions: Vec::new(),
        lenders: lenders(control),
        pages_behind_lenders: get(&control.behind_lenders.pages_out),
        pages_from_behind_lenders: get(&control.behind_lenders.pages_in),
        segment: segment(control, rate),
        races: None,
        one_writer_regions: Vec::new(),
    }
}

/// Returns the counters of nodes; empty where there is one node.
fn nodes(control: &Control) -> Vec<Node> {
    let count = (control.settings.nodes as usize).min(control.nodes.len());
    let node = |figures: &NodeFigures| {
        let get = |count: NodeCount| figures.counts[count as usize].load(Ordering::Relaxed);
        Node {
            read_faults: get(NodeCount::Reads),
            write_faults: get(NodeCount::Writes),
            twins: get(NodeCount::Twins),
            pages_sent: get(NodeCount::Sent),
            single_invalidations: get(NodeCount::Single),
            batched_invalidations: get(NodeCount::Batched),
            diffs: get(NodeCount::Diffs),
            diff_bytes: get(NodeCount::DiffBytes),
            ahead: get(NodeCount::Ahead),
            ahead_used: get(NodeCount::AheadUsed),
            streamed: get(NodeCount::Streamed),
            fault_seconds: get(NodeCount::FaultNs) as f64 / 1e9,
            barriers: get(NodeCount::Barriers),
            barrier_seconds: get(NodeCount::BarrierNs) as f64 / 1e9,
            messages: get(NodeCount::Messages),
            message_bytes: get(NodeCount::MessageBytes),
            tasks: get(NodeCount::Tasks),
            saved_invalidations: get(NodeCount::Batched).saturating_sub(get(NodeCount::Batches)),
        }
    };
    if count > 1 { control.nodes[..count].iter().map(node).collect() } else { Vec::new() }
}

/// Returns whether a lender that is gone had all back before.
fn has_left(figures: &LenderFigures) -> bool {
    figures.leaves.load(Ordering::Relaxed) != 0 && figures.borrowed_bytes.load(Ordering::Relaxed) == 0
}

/// Returns the counters of lenders.
fn lenders(control: &Control) -> Vec<Lender> {
    let microseconds = |ns: u64| ns as f64 / 1e3;
    let lender = |(settings, figures): (&LenderSettings, &LenderFigures)| Lender {
        name: settings.label.to_string(),
        lost: figures.state() == LenderState::Lost && !has_left(figures),
        left: figures.state() == LenderState::Lost && has_left(figures),
        borrowed_bytes: get(&figures.borrowed_bytes),
        returned_bytes: get(&figures.returned_bytes),
        pages_moved: get(&figures.pages_moved),
        pages_held: get(&figures.pages_held),
        pages_in: get(&figures.pages_in),
        pages_out: get(&figures.pages_out),
        bytes_in: get(&figures.bytes_in),
        bytes_out: get(&figures.bytes_out),
        round_trip_us: microseconds(get(&figures.round_trip_ns)),
        read_median_us: figures.percentile(0.5).map(microseconds),
        read_99_us: figures.percentile(0.99).map(microseconds),
    };
    let all = control.settings.lenders.all().iter().chain(control.late_lenders.all());
    all.zip(&control.lenders).map(lender).collect()
}

/// Returns the segment's figures, if the program's memory is one.
fn segment(control: &Control, rate: f64) -> Option<Segment> {
    let s = &control.segment;
    let kind = s.page_kind()?;
    let counted = |counter: &AtomicU64| Some(get(counter)).filter(|&n| n != NOT_COUNTED);
    let told = |counter: &AtomicU64| Some(get(counter)).filter(|&n| n != 0);
    let ready = s.workers.iter().enumerate().filter(|(_, w)| w.ready.load(Ordering::Acquire) != 0);
    Some(Segment {
        pages: kind.word().to_owned(),
        bytes: get(&s.bytes),
        peak_bytes: get(&s.peak),
        globals_bytes: get(&s.globals),
        locked: s.locked.load(Ordering::Relaxed) != 0,
        physical_pieces: told(&s.pieces),
        largest_piece_bytes: told(&s.largest),
        set_up_seconds: if rate > 0.0 { get(&s.set_up_ticks) as f64 / rate } else { 0.0 },
        workers: ready
            .map(|(index, w)| WorkerFaults {
                index: index as u32,
                minor: counted(&w.minor),
                major: counted(&w.major),
                perf: counted(&w.perf),
            })
            .collect(),
    })
}

fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

fn counters(f: &control::Figures, rate: f64) -> Counters {
    let seconds = |ticks: &AtomicU64| if rate > 0.0 { get(ticks) as f64 / rate } else { 0.0 };
    Counters {
        minor_faults: get(&f.minor_faults),
        major_faults: get(&f.major_faults),
        first_faults: get(&f.first_faults),
        write_faults: get(&f.write_faults),
        prefetched_pages: get(&f.prefetched),
        evictions_clean: get(&f.evictions_clean),
        evictions_dirty: get(&f.evictions_dirty),
        bytes_in: get(&f.bytes_in),
        bytes_out: get(&f.bytes_out),
        remote_tlb_invalidations: get(&f.invalidations),
        scan_unmapped_pages: get(&f.scan_unmapped),
        fault_seconds: seconds(&f.fault_ticks),
        evict_seconds: seconds(&f.evict_ticks),
        waits: get(&f.waits),
        regions: get(&f.regions),
    }
}

fn memory(t: &control::Totals) -> Memory {
    let always = get(&t.pinned_bytes) + get(&t.table_bytes);
    let least = get(&t.touched_peak) + get(&t.pinned_peak) + get(&t.table_bytes);
    let footprint = Some(get(&t.footprint_peak)).filter(|&bytes| bytes > 0);
    Memory {
        footprint_bytes: get(&t.touched_bytes) + always,
        footprint_peak_bytes: footprint.unwrap_or(least),
        data_bytes: get(&t.touched_bytes),
        data_peak_bytes: get(&t.touched_peak),
        resident_bytes: get(&t.resident_bytes),
        resident_peak_bytes: get(&t.resident_peak),
        pinned_bytes: get(&t.pinned_bytes),
        pinned_peak_bytes: get(&t.pinned_peak),
        table_bytes: get(&t.table_bytes),
        far_bytes: get(&t.far_bytes),
        far_stored_bytes: get(&t.far_stored_bytes),
        far_plain_bytes: get(&t.far_plain_bytes),
        tried_bytes: get(&t.tried_bytes),
        tried_packed_bytes: get(&t.tried_packed_bytes),
        huge_pages: get(&t.huge_pages),
    }
}

fn by_count(counts: &[AtomicU64]) -> Vec<u64> {
    let mut counts: Vec<u64> = counts.iter().skip(1).map(get).collect();
    let used = counts.iter().rposition(|&n| n > 0).map_or(0, |last| last + 1);
    counts.truncate(used);
    counts
}

/// Returns the settings in the record's words.
pub(crate) fn settings(control: &Control) -> Settings {
    let s = &control.settings;
    let limit = |bytes| (bytes != u64::MAX).then_some(bytes);
    Settings {
        near_bytes: limit(control.near()),
        near_is_automatic: s.near_automatic != 0,
        page_bytes: 1_u64.checked_shl(s.page_shift).unwrap_or(0),
        page_tables: if s.shared_tables() { "shared" } else { "private" }.to_owned(),
        faults: if s.fault_thread() { "thread" } else { "self" }.to_owned(),
        workers: s.workers,
        policy: s.policy().to_owned(),
        far: s.far().to_owned(),
        far_limit_bytes: limit(s.far_bytes),
    }
}
