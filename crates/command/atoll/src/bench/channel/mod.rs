//! `atoll bench channel`: measures round trips by placement, messages a second by size, and many channels in one set.
//!
//! `trips.rs`, `rates.rs` and `networks.rs` measure, and this file prints. Source: the barrelfish paper, section 5.5, table
//! 5.2, figures 5.7 to 5.9. There placements are of memory across PCI Express. Here they say which end makes the memory, which
//! matters between NUMA nodes.

mod networks;
mod rates;
mod trips;

use atoll_channel::{Placement, Settings};

use self::networks::Network;
use self::trips::Trip;
use super::output::{Output, held, verdict};
use super::pair::{Cpus, Other};
use super::perftest::{self, Over};
use super::statistics::middle;
use super::table::{Cell, Table};
use super::{BenchError, paper, pin};
use crate::cli::BenchArgs;
use crate::plot::{Bars, Figure, Scale, Series};

/// The target in nanoseconds one way for a message of 8 bytes.
const TARGET_NS: f64 = 200.0;
/// The target for the bytes of a channel's shared memory.
const TARGET_BYTES: u64 = 8 << 10;
/// The number of times that round trips of each placement are measured; the median of the medians counts.
const TURNS: usize = 5;
/// The number of times that transports are measured, beside UCX's own test.
const CROSSINGS: usize = 3;
const BOTH: [Placement; 2] = [Placement::Sender, Placement::Receiver];
/// The bytes of messages whose rates are measured.
const SIZES: [usize; 8] = [8, 56, 64, 256, 1 << 10, 4 << 10, 64 << 10, 1 << 20];

/// Makes an error for `map_err`, with what failed.
fn failed<E: std::error::Error + Send + Sync + 'static>(what: &'static str) -> impl Fn(E) -> BenchError {
    move |error| BenchError::Channel(what, Box::new(error))
}

/// Measures and prints.
pub(in crate::bench) fn bench(args: &BenchArgs) -> Result<(), BenchError> {
    let output = Output::new(args.output.as_deref())?;
    let cpus = Cpus::choose(args.cpus.as_deref())?;
    let ucx = perftest::installed();
    pin::pin(cpus.here);
    println!("two processes on CPUs {} and {}\n", cpus.here, cpus.there);
    let trips = round_trips(&output, cpus, ucx)?;
    throughput(&output, cpus, ucx)?;
    many(&output, cpus)?;
    let crossing = crossing(&output, cpus, ucx)?;
    end(&trips)?;
    over_tcp(&crossing);
    output.end();
    Ok(())
}

/// Returns the nanoseconds of a round trip with the default placement.
pub(in crate::bench) fn round_trip_ns(cpus: Cpus) -> Result<f64, BenchError> {
    Ok(trips::channel(cpus, Settings::default())?.median)
}

/// The results of round trips.
struct Trips {
    line: Trip,
    /// The results by the placements of the two rings.
    placed: Vec<(Placement, Placement, Trip)>,
}

fn name(placement: Placement) -> &'static str {
    match placement {
        Placement::Sender => "sender's",
        Placement::Receiver => "receiver's",
    }
}

fn round_trips(output: &Output<'_>, cpus: Cpus, ucx: bool) -> Result<Trips, BenchError> {
    let mut table = Table::new(["8 bytes, round trip, ns", "least", "median", "99 %", "one way, median"]);
    let mut bars = Vec::new();
    let mut row = |name: String, trip: Trip| {
        bars.push((name.clone(), trip.median));
        let Trip { least, median, late } = trip;
        let numbers = [least, median, late, median / 2.0].map(|ns| Cell::Number(ns, 0));
        table.row([name.into()].into_iter().chain(numbers).collect());
    };
    // The placements take turns, as the host may move its virtual CPUs at any time.
    let mut line = Vec::new();
    let mut placed: Vec<(Placement, Placement, Vec<Trip>)> =
        BOTH.iter().flat_map(|&out| BOTH.map(|back| (out, back, Vec::new()))).collect();
    for _ in 0..TURNS {
        line.push(trips::bare_line(cpus)?);
        for (outgoing, incoming, found) in &mut placed {
            let settings = Settings { outgoing: *outgoing, incoming: *incoming, ..Settings::default() };
            found.push(trips::channel(cpus, settings)?);
        }
    }
    let line = Trip::of(&line);
    row("bare cache line, stored and polled".into(), line);
    let placed: Vec<_> = placed
        .into_iter()
        .map(|(outgoing, incoming, found)| (outgoing, incoming, Trip::of(&found)))
        .collect();
    for &(outgoing, incoming, trip) in &placed {
        row(
            format!("outward ring in the {} memory, return ring in the {}", name(outgoing), name(incoming)),
            trip,
        );
    }
    if ucx {
        let found: Vec<f64> = (0..TURNS)
            .filter_map(|_| perftest::run(cpus, Over::Memory, "ucp_am_lat", 8, 200_000))
            .map(|found| found.us * 2e3)
            .collect();
        if !found.is_empty() {
            let median = middle(found);
            bars.push(("UCX, active message".into(), median));
            let mut cells = vec!["UCX, active message (ucx_perftest)".into(), Cell::Nothing];
            cells.extend([Cell::Number(median, 0), Cell::Nothing, Cell::Number(median / 2.0, 0)]);
            table.row(cells);
        }
    } else {
        println!("UCX is not measured beside: ucx_perftest is not installed (Debian: ucx-utils)\n");
    }
    output.table("channel-round-trips", &table)?;
    output.drawing("channel-round-trips", |path| {
        let title = "Round trip of 8 bytes by placement of the rings".to_owned();
        Bars { title, x: "nanoseconds", bars }.draw(path)
    })?;
    Ok(Trips { line, placed })
}

fn throughput(output: &Output<'_>, cpus: Cpus, ucx: bool) -> Result<(), BenchError> {
    let columns = [
        "bytes, one way",
        "sender's messages/s",
        "MB/s",
        "receiver's messages/s",
        "MB/s",
        "UCX messages/s",
        "MB/s",
    ];
    let mut table = Table::new(columns);
    let mut lines = ["in the sender's memory", "in the receiver's memory", "UCX, active messages"]
        .map(|name| Series { name: name.to_owned(), points: Vec::new() });
    for bytes in SIZES {
        let mut cells = vec![Cell::Number(bytes as f64, 0)];
        let mut add = |line: usize, rate: Option<f64>| {
            let mb = rate.map(|rate| rate * bytes as f64 / 1e6);
            cells.extend([Cell::number(rate, 0), Cell::number(mb, 1)]);
            lines[line].points.extend(mb.map(|mb| ((bytes as f64).log2(), mb)));
        };
        for (line, outgoing) in BOTH.into_iter().enumerate() {
            let settings = Settings { outgoing, ..Settings::default() };
            let runs = (0..TURNS).map(|_| rates::one_way(cpus, settings, bytes)).collect::<Result<_, _>>()?;
            add(line, Some(middle(runs)));
        }
        let count = rates::count(bytes);
        let theirs = ucx.then(|| perftest::run(cpus, Over::Memory, "ucp_am_bw", bytes, count)).flatten();
        add(2, theirs.map(|found| found.messages_per_s));
        table.row(cells);
    }
    output.table("channel-rates", &table)?;
    let drawn = lines.into_iter().filter(|line| !line.points.is_empty()).collect();
    output.drawing("channel-rates", |path| {
        let title = "Messages from one process to another".to_owned();
        let file = String::new();
        Figure { file, title, x: "bytes of a message", y: "MB/s", scale: Scale::Sizes, series: drawn }
            .draw(path)
    })
}

fn many(output: &Output<'_>, cpus: Cpus) -> Result<(), BenchError> {
    let mut table = Table::new(["channels in one wait set", "ns a message, each to one at random"]);
    for channels in [1, 100, 10_000] {
        table.row(vec![Cell::Number(channels.into(), 0), Cell::Number(rates::served(cpus, channels)?, 0)]);
    }
    output.table("channel-wait-set", &table)
}

/// A transport, its results, and the microseconds of UCX's own test of a message and a get of the same sizes.
type Crossing = (Network, networks::Found, [[Option<f64>; 2]; networks::SIZES.len()]);

fn crossing(output: &Output<'_>, cpus: Cpus, perftest: bool) -> Result<Vec<Crossing>, BenchError> {
    let there = networks::ucx();
    if let Err(why) = &there {
        println!("UCX as a transport is not measured: {why}\n");
    }
    let mut table = Table::new(["transport", "bytes", "message us", "UCX's own", "get us", "UCX's own"]);
    let mut found = Vec::new();
    for network in Network::ALL {
        if network != Network::Shm && there.is_err() {
            continue;
        }
        // The transports take turns, as the host may move its virtual CPUs at any time.
        let mut turns = Vec::new();
        for _ in 0..CROSSINGS {
            let ours = networks::measure(cpus, network)?;
            let theirs = networks::SIZES.map(|bytes| {
                let Network::Ucx(over) = network else { return [None; 2] };
                // A get over TCP waits until the target makes progress, which UCX's test does now and then.
                let count = if over == Over::Tcp { 2_000 } else { 20_000 };
                let of = |test| perftest::run(cpus, over, test, bytes, count).map(|found| found.us);
                if perftest { ["ucp_am_lat", "ucp_get"].map(of) } else { [None; 2] }
            });
            turns.push((ours, theirs));
        }
        let of =
            |get: &dyn Fn(&networks::Found) -> f64| middle(turns.iter().map(|(ours, _)| get(ours)).collect());
        let ours = networks::Found {
            message: std::array::from_fn(|index| of(&|found| found.message[index])),
            get: std::array::from_fn(|index| of(&|found| found.get[index])),
        };
        let theirs = std::array::from_fn(|size| {
            std::array::from_fn(|test| {
                let found: Vec<f64> = turns.iter().filter_map(|(_, theirs)| theirs[size][test]).collect();
                (!found.is_empty()).then(|| middle(found))
            })
        });
        for (index, bytes) in networks::SIZES.into_iter().enumerate() {
            table.row(vec![
                network.name().into(),
                Cell::Number(bytes as f64, 0),
                Cell::Number(ours.message[index], 2),
                Cell::number(theirs[index][0], 2),
                Cell::Number(ours.get[index], 2),
                Cell::number(theirs[index][1], 2),
            ]);
        }
        found.push((network, ours, theirs));
    }
    output.table("channel-transports", &table)?;
    Ok(found)
}

fn over_tcp(crossing: &[Crossing]) {
    for (network, ours, theirs) in crossing {
        if *network != Network::Ucx(Over::Tcp) {
            continue;
        }
        for (index, bytes) in networks::SIZES.into_iter().enumerate() {
            let Some(theirs) = theirs[index][0] else { continue };
            let ours = ours.message[index];
            println!(
                "  {bytes} bytes over TCP loopback {ours:.2} us, UCX's own test {theirs:.2} us, target within 10 %: {}",
                verdict(ours <= 1.1 * theirs)
            );
        }
    }
}

/// Prints the targets and the paper's conclusions.
fn end(trips: &Trips) -> Result<(), BenchError> {
    let paper = paper::paper().map_err(failed("the paper's numbers"))?;
    println!("the paper, {}:", paper.channel.about);
    for row in &paper.channel.rows {
        println!(
            "  {:<28} least {:>5.0}  median {:>5.0}  99 % {:>5.0}",
            row.location, row.least, row.median, row.late
        );
    }
    let Some(&(outgoing, incoming, best)) =
        trips.placed.iter().min_by(|a, b| a.2.median.total_cmp(&b.2.median))
    else {
        return Ok(());
    };
    let default = |&(out, back, _): &(Placement, Placement, Trip)| {
        (out, back) == (Settings::default().outgoing, Settings::default().incoming)
    };
    let ours = trips.placed.iter().copied().find(default).map_or(best, |(_, _, trip)| trip);
    println!("\nwhat the paper concludes (section 5.5.4), here:");
    println!(
        "  polling the sender's memory is fastest: {:.0} ns, the best here {:.0} ns (outward ring in the {}, return ring in the {}): {}",
        ours.median,
        best.median,
        name(outgoing),
        name(incoming),
        held(ours.median <= best.median * 1.1)
    );
    println!("\ntargets:");
    println!(
        "  8 bytes one way {:.0} ns (bare line {:.0} ns), target {TARGET_NS:.0} ns: {}",
        ours.median / 2.0,
        trips.line.median / 2.0,
        verdict(ours.median / 2.0 <= TARGET_NS)
    );
    let bytes = 2 * Settings::default().ring_bytes() as u64;
    println!(
        "  a channel's shared memory {bytes} bytes, target {TARGET_BYTES} bytes: {}",
        verdict(bytes <= TARGET_BYTES)
    );
    Ok(())
}

/// Makes a channel to a process on the other CPU that does `work` with its end.
fn with_other(
    cpus: Cpus,
    settings: Settings,
    work: impl FnOnce(atoll_channel::Channel) -> Result<(), BenchError>,
) -> Result<(Other, atoll_channel::Channel), BenchError> {
    use std::os::unix::net::UnixStream;

    use atoll_channel::Channel;

    let (here, there) = UnixStream::pair().map_err(failed("a pair of sockets"))?;
    let other = Other::start(cpus.there, || {
        work(
            Channel::connect(&there, settings.mirrored(), None, trips::PATIENCE)
                .map_err(failed("connecting"))?,
        )
    })?;
    let channel = Channel::connect(&here, settings, None, trips::PATIENCE).map_err(failed("connecting"))?;
    Ok((other, channel))
}
