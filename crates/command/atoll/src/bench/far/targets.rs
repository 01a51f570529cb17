//! A page and a batch of pages of a lender at the other end of a link, beside UCX over the same link, and whether targets are met.
//!
//! Each round measures everything once, so that what is compared is close together in time. Medians of the rounds count, and the
//! best bandwidths.

use super::link::{Link, LinkError};
use super::peer::Peer;
use super::stores::{self, Content, Row};
use super::{BATCH, PAGE};
use crate::bench::BenchError;
use crate::bench::output::{Output, verdict};
use crate::bench::pair::Cpus;
use crate::bench::perftest::{self, Over};
use crate::bench::statistics::middle;
use crate::bench::table::{Cell, Table};

/// What a page of one request may cost at most, in requests of UCX; and the least share of UCX's bandwidth for a batch.
const MOST_TIMES: f64 = 1.3;
const LEAST_SHARE: f64 = 0.9;
/// Processor time of a lender for a page at most, in microseconds.
const MOST_LENDER_US: f64 = 0.5;
const ROUNDS: usize = 3;

/// What UCX takes over the link: microseconds of a request of 64 bytes that is answered by a page, of a get of a page, and GB/s.
#[derive(Clone, Copy)]
struct Ucx {
    request: f64,
    get: f64,
    rate: f64,
}

fn ucx(cpus: Cpus, over: Over) -> Option<Ucx> {
    let us = |test, bytes, count| Some(perftest::run(cpus, over, test, bytes, count)?.us);
    // What UCX calls latency of messages is half a round trip.
    let request = us("ucp_am_lat", 64, 3000)? + us("ucp_am_lat", PAGE, 3000)?;
    let get = us("ucp_get", PAGE, 300)?;
    let rate = perftest::run(cpus, over, "ucp_am_bw", BATCH * PAGE, 1000)?.mb_per_s / 1e3;
    Some(Ucx { request, get, rate })
}

/// The best of the rounds: a bandwidth is less where a receiver was woken late.
fn best<T>(of: &[T], value: impl Fn(&T) -> f64) -> f64 {
    of.iter().map(value).fold(0.0, f64::max)
}

fn median<T>(of: &[T], value: impl Fn(&T) -> f64) -> f64 {
    middle(of.iter().map(value).collect())
}

/// Measures over a link of so many Gbit/s, and prints a table and the targets. Inside: why there is no link.
pub(super) fn over_link(
    output: &Output<'_>,
    cpus: Cpus,
    gigabits: u32,
    key: [u8; 32],
) -> Result<Result<(), LinkError>, BenchError> {
    let link = match Link::new() {
        Ok(link) => link,
        Err(why) => return Ok(Err(why)),
    };
    let mut peer = Peer::over(&link, gigabits, cpus, key)?;
    let has_ucx = perftest::installed();
    let mut measured = Measured::default();
    for _ in 0..ROUNDS {
        measured.streams.push(stores::stream(peer.bare)?);
        measured.bares.push(stores::bare(peer.bare)?);
        measured.theirs.extend(has_ucx.then(|| ucx(cpus, Over::Link(peer.pid()))).flatten());
        measured.rows.push(stores::hosts("hosts", &mut peer, &key, Content::Random)?);
        measured.halves.push(stores::hosts("hosts", &mut peer, &key, Content::Half)?);
    }
    drop(peer);
    drop(link);
    print(output, gigabits, &measured)?;
    Ok(Ok(()))
}

/// What was measured over one link, an entry for each round.
#[derive(Default)]
struct Measured {
    /// The bandwidth of a stream over TCP, in GB/s.
    streams: Vec<f64>,
    bares: Vec<Row>,
    /// The lender, with pages that do not compress.
    rows: Vec<Row>,
    /// The lender, with pages that compress to a half.
    halves: Vec<Row>,
    /// Empty where UCX's test is not installed.
    theirs: Vec<Ucx>,
}

fn print(output: &Output<'_>, gigabits: u32, measured: &Measured) -> Result<(), BenchError> {
    let Measured { streams, bares, rows, halves, theirs } = measured;
    let stream = best(streams, |rate| *rate);
    println!(
        "a link of {gigabits} Gbit/s between two namespaces; medians of {ROUNDS} rounds, the best of bandwidths\n"
    );
    let (page, batch) = (median(rows, |row| row.load), best(rows, Row::rate));
    let mut table = Table::new(["", "us a page", "GB/s, 64"]);
    let mut row = |name: &str, us: Option<f64>, rate: Option<f64>| {
        table.row(vec![name.into(), Cell::number(us, 2), Cell::number(rate, 2)]);
    };
    row("a stream over TCP", None, Some(stream));
    row("a bare request over TCP", Some(median(bares, |row| row.load)), Some(best(bares, Row::rate)));
    let has_ucx = !theirs.is_empty();
    let ucx = |value: fn(&Ucx) -> f64| has_ucx.then(|| median(theirs, value));
    let ucx_rate = has_ucx.then(|| best(theirs, |ucx| ucx.rate));
    if has_ucx {
        row("UCX, messages", ucx(|ucx| ucx.request), ucx_rate);
        row("UCX, get", ucx(|ucx| ucx.get), None);
    }
    row("hosts", Some(page), Some(batch));
    let half = best(halves, Row::rate);
    row("hosts, pages that shrink by half", Some(median(halves, |row| row.load)), Some(half));
    output.table(&format!("far-{gigabits}"), &table)?;
    if stream.max(ucx_rate.unwrap_or(0.0)) * 8.0 < f64::from(gigabits) * 0.8 {
        println!(
            "this machine's CPUs move {:.1} Gbit/s over the link, not {gigabits}: bandwidth is compared with what TCP and UCX reach",
            stream.max(ucx_rate.unwrap_or(0.0)) * 8.0
        );
    }
    if !has_ucx {
        println!(
            "ucx_perftest is not installed (apt-get install ucx-utils) or fails: a bare request and a stream over TCP stand for it"
        );
    }
    let (what, before) = match (ucx(|ucx| ucx.request), ucx(|ucx| ucx.get)) {
        (Some(request), Some(get)) if request <= get => ("UCX's request", request),
        (_, Some(get)) => ("UCX's get", get),
        _ => ("a bare request", median(bares, |row| row.load)),
    };
    let times = page / before;
    println!(
        "a page takes {page:.1} us, {what} {before:.1}: {times:.2} times; target: at most {MOST_TIMES}: {}",
        verdict(times <= MOST_TIMES)
    );
    // The more of the two: both need a receiver that is woken in time, which a machine of few CPUs does not always do.
    let (full, whose) = match ucx_rate {
        Some(rate) if rate > stream => (rate, "UCX's messages"),
        _ => (stream, "a stream"),
    };
    let share = batch / full;
    println!(
        "a batch of {BATCH} has {share:.2} of the bandwidth of {whose}, {full:.2} GB/s; target: at least {LEAST_SHARE}: {}",
        verdict(share >= LEAST_SHARE)
    );
    println!(
        "batches of pages that shrink by half move {:.2} times as fast as those of pages that do not, as far as they are packed on the way",
        half / batch
    );
    let lender = |part: usize| median(rows, |row| row.lender.map_or(f64::NAN, |us| us[part]));
    println!(
        "the lender spends {:.2} us on a page, the borrower's network included, and looks for requests for {:.2} us besides; target: at most {MOST_LENDER_US}: {}\n",
        lender(0),
        lender(1),
        verdict(lender(0) <= MOST_LENDER_US)
    );
    Ok(())
}
