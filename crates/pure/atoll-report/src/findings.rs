//! The report's first words: the program, the cost of sampling, and the three most important findings, with their numbers.
//!
//! They are made from the counts of the other modules.

use atoll_record::profile::Profile;

use crate::analysis::Analysis;
use crate::pages::Page;
use crate::placement::Shares;
use crate::tables::{RegionRow, VariableRow};
use crate::text::{bytes, count, many, percent, share};

/// The counts that findings are made from.
pub(crate) struct Known<'a> {
    pub(crate) profile: &'a Profile,
    pub(crate) analysis: &'a Analysis,
    pub(crate) variables: &'a [VariableRow],
    pub(crate) regions: &'a [RegionRow],
    pub(crate) pages: &'a [Page],
    pub(crate) hottest_pages: &'a Shares,
}

/// Returns a paragraph on the program, its machine and its time, and one on the sampler, the reason for it, and its cost.
pub(crate) fn summary(known: &Known) -> Vec<String> {
    let (profile, analysis) = (known.profile, known.analysis);
    let header = &profile.header;
    let machine = &header.machine;
    let ending = profile.trailer.as_ref().map_or_else(
        || "how it ended is not known, as the record was cut off".to_owned(),
        |t| match (t.ending.status, t.ending.signal) {
            (Some(status), _) => format!("it ended with exit status {status}"),
            (_, Some(signal)) => format!("it was ended by signal {signal}"),
            _ => "how it ended is not known".to_owned(),
        },
    );
    let mut lines = vec![format!(
        "It ran {:.3} s on {} ({}, {} of {} CPUs, {} of memory, Linux {}); {ending}.",
        profile.seconds(),
        machine.host,
        machine.cpu,
        machine.cpus_usable,
        machine.cpus_online,
        bytes(machine.memory_bytes),
        machine.kernel
    )];
    if let Some(s) = &header.settings {
        lines.push(format!(
            "It ran under atoll's runtime: {}near memory {}, far memory {}, pages of {}, policy {}.",
            if s.workers == 0 {
                String::new()
            } else {
                format!("{}, ", many(u64::from(s.workers), "worker"))
            },
            s.near_bytes.map_or("without limit".into(), bytes),
            s.far,
            bytes(s.page_bytes),
            s.policy
        ));
    }
    if let Some(info) = header.samplers.get(analysis.first) {
        let reason = if header.choice.is_empty() { String::new() } else { format!(": {}", header.choice) };
        lines.push(format!(
            "Sampler {}, every {} {}{reason}. A sample is {}.",
            info.name,
            count(info.period),
            info.period_unit,
            info.meaning
        ));
    }
    let totals =
        profile.trailer.as_ref().and_then(|t| t.samplers.get(analysis.first)).cloned().unwrap_or_default();
    let cost = profile.trailer.as_ref().map_or("What sampling cost is not known".to_owned(), |t| {
        format!(
            "Sampling cost {:.2}% of the program's own {:.3} s of processor time",
            100.0 * t.overhead(),
            t.own_seconds()
        )
    });
    lines.push(format!(
        "{cost}. {} of memory accesses on {}; {} lost, {} dropped, {} without a known address.",
        many(analysis.all.total(), "sample"),
        many(known.pages.len() as u64, "page"),
        count(totals.lost),
        count(totals.dropped),
        count(totals.foreign)
    ));
    if analysis.all.total() < 200 {
        lines.push(
            "So few samples say little: record with a higher --overhead, a smaller --reset, or a longer run."
                .into(),
        );
    }
    if let Some(cut) = &profile.cut {
        lines.push(format!("The record is not whole: {cut}. What follows covers the part that was read."));
    }
    if analysis.cells.block_bytes > u64::from(header.page_bytes.max(1)) {
        lines.push(format!(
            "There is so much memory that pages are joined to blocks of {} in what follows.",
            bytes(analysis.cells.block_bytes)
        ));
    }
    lines
}

/// Returns at most three findings, the most important first.
pub(crate) fn findings(known: &Known) -> Vec<String> {
    let analysis = known.analysis;
    let mut list: Vec<String> = Vec::new();
    list.extend(hottest(known));
    list.extend(concentration(known));
    let mut others: Vec<(f64, String)> = Vec::new();
    others.extend(paging(known));
    others.extend(waiting(analysis));
    others.extend(sharing(known));
    others.extend(imbalance(analysis));
    others.extend(region(known));
    others.sort_by(|a, b| b.0.total_cmp(&a.0));
    list.extend(others.into_iter().map(|(_, text)| text));
    list.truncate(3);
    list
}

fn hottest(known: &Known) -> Option<String> {
    let row = known.variables.first()?;
    let place = if row.place.is_empty() { String::new() } else { format!(" at {}", row.place) };
    let size = row.bytes.map_or(String::new(), |b| format!(", {}", bytes(b)));
    let region = if row.region.is_empty() {
        String::new()
    } else {
        format!(", {} of them from {}", percent(row.region_share), row.region)
    };
    // Memory without a name is called by its kind.
    let kind = if row.name.contains(row.kind) { "" } else { row.kind };
    let what = format!("{kind}{place}{size}");
    let what =
        if what.is_empty() { what } else { format!(" ({})", what.trim_start_matches(", ").trim_start()) };
    Some(format!(
        "{}{what} is hottest: {} of all accesses{region}, by {}; {} of them write.",
        row.name,
        percent(row.share),
        many(u64::from(row.workers), "worker"),
        percent(row.writes)
    ))
}

fn concentration(known: &Known) -> Option<String> {
    let coverage = &known.analysis.coverage;
    if !coverage.tells() {
        return unknown(known);
    }
    // The pages that were seen have this share of the accesses; the number of unseen pages is Chao's estimate.
    let seen = 1.0 - coverage.unseen;
    let all = known.hottest_pages.bytes.last().copied().unwrap_or(0.0);
    let more = (coverage.pages / coverage.seen.max(1.0)).max(1.0);
    let most = known.hottest_pages.bytes_for((0.9 / seen).min(1.0))? * more;
    let all = all * more;
    (all > 0.0).then(|| {
        format!(
            "90% of the accesses fall on about {} of the {} that are touched, {} of it: near memory of that size, with the hottest \
             pages in it, would serve them.",
            bytes(most as u64),
            bytes(all as u64),
            percent(most / all)
        )
    })
}

/// Returns a finding that nothing can be said of sizes by page, and what can be said of sizes of variables.
fn unknown(known: &Known) -> Option<String> {
    let coverage = &known.analysis.coverage;
    if known.analysis.all.total() == 0 {
        return None;
    }
    let sized: u64 = known.variables.iter().filter_map(|row| row.bytes).sum();
    let footprint = if sized > 0 {
        format!(" The variables that were touched have {} together.", bytes(sized))
    } else {
        String::new()
    };
    let pages = (coverage.pages * known.analysis.cells.block_bytes as f64) as u64;
    Some(format!(
        "There are too few samples to say how much near memory would serve the accesses: about {} of these go to pages that no sample \
         saw, and at least {} are touched.{footprint}",
        percent(coverage.unseen),
        bytes(pages)
    ))
}

/// Returns the share of time in which the program's accesses faulted, and the variable that faulted most.
fn paging(known: &Known) -> Option<(f64, String)> {
    let sampled = known.analysis.part(known.analysis.paging);
    // The runtime also counts the time that faults take within the kernel, where there are few samples or none.
    let counted = known.profile.figures.as_ref().map(|figures| {
        let all = figures.wall_seconds * figures.workers.len().max(1) as f64;
        if all > 0.0 { figures.total.fault_seconds / all } else { 0.0 }
    });
    let part = counted.unwrap_or(sampled);
    let most =
        known.variables.iter().max_by(|a, b| a.paging.unwrap_or(0.0).total_cmp(&b.paging.unwrap_or(0.0)));
    let whose = most.and_then(|row| Some((&row.name, row.paging.filter(|part| *part > 0.0)?)));
    let whose = whose.map_or(String::new(), |(name, part)| format!(", {} of that for {name}", percent(part)));
    (part >= 0.1).then(|| {
        (
            1.0 + part,
            format!(
                "{} of the {} while accesses of the program faulted and atoll brought their pages{whose}: more near memory would save of \
                 that time.",
                percent(part),
                if counted.is_some() { "workers' time passed" } else { "samples were taken" }
            ),
        )
    })
}

fn waiting(analysis: &Analysis) -> Option<(f64, String)> {
    let part = analysis.part(analysis.waiting);
    (part >= 0.1).then(|| {
        (
            part,
            format!(
                "{} of the samples were of OpenMP's own code, most of it waiting; they are left out below.",
                percent(part)
            ),
        )
    })
}

fn sharing(known: &Known) -> Option<(f64, String)> {
    let workers = known.analysis.workers.iter().filter(|c| c.total() > 0).count();
    let all: u64 = known.pages.iter().map(|p| p.accesses).sum();
    if workers < 2 || all == 0 {
        return None;
    }
    let alone: u64 = known.pages.iter().filter(|p| p.workers == 1).map(|p| p.accesses).sum();
    let part = share(alone, all);
    Some((
        0.3 + (part - 0.5).abs() * 0.6,
        format!(
            "{} of the accesses are to pages that one worker alone was seen to touch, of {workers} workers.",
            percent(part)
        ),
    ))
}

fn imbalance(analysis: &Analysis) -> Option<(f64, String)> {
    let busy: Vec<u64> = analysis.workers.iter().map(|c| c.total()).filter(|n| *n > 0).collect();
    let most = busy.iter().copied().max()?;
    let mean = busy.iter().sum::<u64>() as f64 / busy.len() as f64;
    let over = most as f64 / mean - 1.0;
    (busy.len() > 1 && over > 0.2).then(|| {
        (
            over.min(0.9),
            format!(
                "The busiest of {} workers has {} more accesses than the mean.",
                busy.len(),
                percent(over)
            ),
        )
    })
}

fn region(known: &Known) -> Option<(f64, String)> {
    let row = known.regions.iter().max_by_key(|r| r.accesses).filter(|r| r.accesses > 0)?;
    let what =
        if row.variable.is_empty() { String::new() } else { format!(", {} most of all", row.variable) };
    Some((
        0.35,
        format!(
            "Region {} makes {} of the accesses in {:.3} s{what}.",
            row.name,
            percent(row.share),
            row.seconds
        ),
    ))
}
