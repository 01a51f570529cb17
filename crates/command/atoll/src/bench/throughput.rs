//! `atoll bench throughput`: measures how fast every engine copies, by direction and size, and what the manager chooses.
//!
//! Source: the barrelfish paper, section 5.4, figures 5.3 to 5.6, and appendix A.5. There engines are DMA controllers across PCI
//! Express; here they are copying loops, the kernel's copies between processes, and io_uring.

use std::os::fd::AsFd;
use std::time::Instant;

use atoll_channel::bulk::{Access, Manager, Memory, Transfer, Writers};
use atoll_channel::{Peer, bulk};

use super::output::{Output, held, verdict};
use super::pair::{Cpus, Other};
use super::perftest::{self, Over};
use super::statistics::middle;
use super::table::{Cell, Table};
use super::{BenchError, paper, pin};
use crate::cli::BenchArgs;
use crate::plot::{Figure, Scale, Series};

/// The sizes of transfers: every fourth of the paper's.
const SIZES: [u64; 12] = [
    64,
    256,
    1 << 10,
    4 << 10,
    16 << 10,
    64 << 10,
    256 << 10,
    1 << 20,
    2 << 20,
    8 << 20,
    32 << 20,
    128 << 20,
];
const MOST: u64 = 128 << 20;
/// The number of measurements; the median counts.
const ROUNDS: usize = 5;
/// The seconds that the copies of one measurement take, approximately.
const TIME: f64 = 0.01;
/// The manager's name in tables.
const MANAGER: &str = "manager";

/// Makes an error for `map_err`, with what failed.
fn failed<E: std::error::Error + Send + Sync + 'static>(what: &'static str) -> impl Fn(E) -> BenchError {
    move |error| BenchError::Channel(what, Box::new(error))
}

/// One direction of copying.
struct Direction {
    name: &'static str,
    /// The name in files.
    file: &'static str,
    to: Memory,
    from: Memory,
    /// The corresponding test of UCX.
    ucx: Option<&'static str>,
}

/// The microseconds of one copy, by engine and size.
struct Measured {
    /// The engines, each with its times by the index of the size.
    engines: Vec<(String, Vec<Option<f64>>)>,
}

impl Measured {
    fn of(&self, engine: &str, size: usize) -> Option<f64> {
        self.engines.iter().find(|(name, _)| name == engine)?.1.get(size).copied().flatten()
    }
}

/// Measures and prints.
pub(super) fn bench(args: &BenchArgs) -> Result<(), BenchError> {
    let output = Output::new(args.output.as_deref())?;
    let cpus = Cpus::choose(args.cpus.as_deref())?;
    let ucx = perftest::installed();
    pin::pin(cpus.here);
    println!(
        "copies by a process on CPU {}, medians of {ROUNDS}; GB/s are 10^9 bytes of data a second\n",
        cpus.here
    );
    // This is another process with memory of its own and memory that both map: its pages are touched, and it sleeps.
    let theirs = Memory::new(MOST).map_err(failed("memory"))?;
    fill(&theirs)?;
    let (written, shared) = Memory::shared(MOST, Writers::Everyone).map_err(failed("shared memory"))?;
    let shared = Memory::attach(shared.as_fd(), Access::READ_WRITE).map_err(failed("shared memory"))?;
    let (other, process) = sleeper(cpus, &written)?;
    let address = theirs.mapped_at().map_or(0, |at| at.as_ptr() as u64);
    let there = Memory::of_process(&process, address, MOST, Access::READ_WRITE)
        .map_err(failed("memory of the other process"))?;
    let new = || {
        let memory = Memory::new(MOST).map_err(failed("memory"))?;
        fill(&memory)?;
        Ok::<_, BenchError>(memory)
    };
    let (near, far) = (new()?, new()?);
    let file = tempfile::tempfile().map_err(failed("a temporary file"))?;
    file.set_len(MOST).map_err(failed("a temporary file"))?;
    let file = Memory::of_file(file, 0, MOST, Access::READ_WRITE).map_err(failed("a temporary file"))?;
    let mut manager = Manager::new();
    // Measurements that an earlier start made on a busy machine must not decide here.
    manager.measure_again();
    let copy =
        |manager: &mut Manager| manager.copy(&file, 0, &far, 0, MOST).map_err(failed("filling the file"));
    copy(&mut manager)?;

    let direction = |name, file, to: &Memory, from: &Memory, ucx| Direction {
        name,
        file,
        to: to.clone(),
        from: from.clone(),
        ucx,
    };
    let directions = [
        direction("within a process", "local", &near, &far, None),
        direction("from memory another process maps too", "shared", &near, &shared, Some("ucp_get")),
        direction("from another process's own memory", "get", &near, &there, Some("ucp_get")),
        direction("to another process's own memory", "put", &there, &far, Some("ucp_put_bw")),
        direction("from a file in the page cache", "read", &near, &file, None),
        direction("to a file in the page cache", "write", &file, &far, None),
    ];
    let mut all = Vec::new();
    for direction in &directions {
        all.push(one(&output, &mut manager, direction, ucx.then_some(cpus))?);
    }
    implications(&all, cpus)?;
    targets(&all);
    drop(other);
    output.end();
    Ok(())
}

/// Writes to every page, so that copies find it in memory.
fn fill(memory: &Memory) -> Result<(), BenchError> {
    let piece = [1_u8; 4096];
    (0..memory.bytes() / 4096)
        .try_for_each(|page| memory.write(page * 4096, &piece))
        .map_err(failed("memory"))
}

/// Forks a process that writes to the shared memory, and waits to be ended.
fn sleeper(cpus: Cpus, shared: &Memory) -> Result<(Other, Peer), BenchError> {
    let other = Other::start(cpus.there, || {
        fill(shared)?;
        loop {
            std::thread::sleep(std::time::Duration::from_secs(10));
        }
    })?;
    let process = Peer::process(other.pid()).map_err(failed("looking at the other process"))?;
    Ok((other, process))
}

fn one(
    output: &Output<'_>,
    manager: &mut Manager,
    direction: &Direction,
    ucx: Option<Cpus>,
) -> Result<Measured, BenchError> {
    let names: Vec<&'static str> = manager.engines().collect();
    let mut engines = Vec::new();
    for name in names {
        let Some(engine) = manager.engine(name) else { continue };
        if !engine.reaches(&direction.to, &direction.from) {
            continue;
        }
        let mut times = Vec::new();
        for &bytes in &SIZES {
            times.push(Some(median_us(|| {
                let transfer = Transfer::new(&direction.to, 0, &direction.from, 0, bytes)?;
                engine.copy(&transfer)
            })?));
        }
        engines.push((name.to_owned(), times));
    }
    let mut times = Vec::new();
    for &bytes in &SIZES {
        times.push(Some(median_us(|| manager.copy(&direction.to, 0, &direction.from, 0, bytes))?));
    }
    engines.push((MANAGER.to_owned(), times));
    if let (Some(cpus), Some(test)) = (ucx, direction.ucx) {
        let time = |&bytes: &u64| {
            let count = (2_000_000_000 / (bytes + 10_000)).clamp(20, 100_000) as usize;
            let found = perftest::run(cpus, Over::Memory, test, bytes as usize, count)?;
            Some(bytes as f64 / found.mb_per_s)
        };
        engines.push(("UCX".to_owned(), SIZES.iter().map(time).collect()));
    }

    let mut table = Table::new(
        std::iter::once(format!("{}, GB/s", direction.name))
            .chain(engines.iter().map(|(name, _)| name.clone()))
            .chain(["the manager took".to_owned()]),
    );
    let rate = |bytes: u64, us: f64| bytes as f64 / us / 1e3;
    for (size, &bytes) in SIZES.iter().enumerate() {
        let mut cells: Vec<Cell> = vec![atoll_pages::Size(bytes).to_string().into()];
        cells.extend(engines.iter().map(|(_, times)| Cell::number(times[size].map(|us| rate(bytes, us)), 2)));
        let choice =
            manager.why(&direction.to, &direction.from, bytes).map_err(failed("choosing an engine"))?;
        cells.push(choice.engine.into());
        table.row(cells);
    }
    let name = format!("throughput-{}", direction.file);
    output.table(&name, &table)?;
    output.drawing(&name, |path| {
        let series = engines.iter().map(|(name, times)| {
            let point = |(size, us): (usize, &Option<f64>)| {
                Some(((SIZES[size] as f64).log2(), rate(SIZES[size], (*us)?)))
            };
            Series { name: name.clone(), points: times.iter().enumerate().filter_map(point).collect() }
        });
        let series = series.filter(|series| !series.points.is_empty()).collect();
        let (file, title) = (String::new(), format!("Copies {}", direction.name));
        Figure { file, title, x: "bytes of a copy", y: "GB/s", scale: Scale::Sizes, series }.draw(path)
    })?;
    Ok(Measured { engines })
}

/// Returns the microseconds of a copy: the median of several rounds, each with enough copies to take some time.
fn median_us(mut copy: impl FnMut() -> Result<(), bulk::CopyError>) -> Result<f64, BenchError> {
    let failed = failed("copying");
    let mut time = |count: u32| {
        let begin = Instant::now();
        for _ in 0..count {
            copy().map_err(&failed)?;
        }
        Ok::<_, BenchError>(begin.elapsed().as_secs_f64() / f64::from(count))
    };
    // The first copy brings the data into the caches where it fits.
    let once = time(1)?.min(time(1)?);
    let count = (TIME / once.max(1e-9)).clamp(1.0, 200_000.0) as u32;
    let rounds = (0..ROUNDS).map(|_| time(count)).collect::<Result<Vec<_>, _>>()?;
    Ok(middle(rounds) * 1e6)
}

/// Prints the paper's conclusions in section 5.4.6 and appendix A.5.
fn implications(all: &[Measured], cpus: Cpus) -> Result<(), BenchError> {
    let paper = paper::paper().map_err(failed("the paper's numbers"))?.throughput;
    println!("what the paper concludes (sections 5.4.2 and 5.4.6, appendix A.5), here:");
    if let Some(local) = all.first() {
        let faster = |size: &usize| {
            let plain = local.of("memcpy", *size);
            let others =
                local.engines.iter().filter(|(name, _)| !["memcpy", MANAGER].contains(&name.as_str()));
            let best = others.filter_map(|(_, times)| times[*size]).min_by(f64::total_cmp);
            matches!((plain, best), (Some(plain), Some(best)) if best < 0.95 * plain)
        };
        let from = (0..SIZES.len()).find(|size| (*size..SIZES.len()).all(|size| faster(&size)));
        let text = from.map_or_else(
            || "at no size".to_owned(),
            |size| format!("from {} on", atoll_pages::Size(SIZES[size])),
        );
        println!(
            "  another engine than memcpy is worth it for large local copies: {text} (in the paper from {} on): {}",
            atoll_pages::Size(paper.dma_from_bytes),
            held(from.is_some())
        );
    }
    if let (Some(get), Some(put)) = (all.get(2), all.get(3)) {
        let at = SIZES.iter().position(|bytes| *bytes == 2 << 20).unwrap_or(0);
        if let (Some(get), Some(put)) = (get.of(MANAGER, at), put.of(MANAGER, at)) {
            println!(
                "  reading and writing across the boundary differ little (in the paper with DMA): 2M in {get:.0} and {put:.0} us: {}",
                held(get.max(put) < 1.25 * get.min(put))
            );
        }
    }
    let service = service_us(cpus)?;
    let hidden = all.first().and_then(|local| {
        let beside = |size: &usize| local.of(MANAGER, *size).is_some_and(|us| service < 0.1 * us);
        (0..SIZES.len()).find(|size| (*size..SIZES.len()).all(|size| beside(&size)))
    });
    println!(
        "  going through a service costs a round trip, {service:.2} us (in the paper {:.0} us), a tenth of a local copy from {} on (in the paper \
         hidden from {} on): {}",
        paper.service_cycles / 2500.0,
        hidden.map_or_else(|| "no size".to_owned(), |size| atoll_pages::Size(SIZES[size]).to_string()),
        atoll_pages::Size(paper.service_hidden_bytes),
        held(hidden.is_some_and(|size| SIZES[size] <= paper.service_hidden_bytes))
    );
    Ok(())
}

/// Returns the microseconds of asking another process for a copy instead of making it: a message and its answer.
fn service_us(cpus: Cpus) -> Result<f64, BenchError> {
    let trip = super::channel::round_trip_ns(cpus)?;
    Ok(trip / 1e3)
}

/// Prints the targets of pages fetched from another process.
fn targets(all: &[Measured]) {
    let Some(shared) = all.get(1) else { return };
    println!("\ntargets, of pages fetched from memory that another process maps too:");
    for (size, bytes) in SIZES.iter().enumerate() {
        if ![4 << 10, 64 << 10, 2 << 20].contains(bytes) {
            continue;
        }
        let (Some(ours), Some(plain)) = (shared.of(MANAGER, size), shared.of("memcpy", size)) else {
            continue;
        };
        let name = atoll_pages::Size(*bytes);
        println!(
            "  {name} in {ours:.3} us, plain memcpy {plain:.3} us, target 1.2 times that: {}",
            verdict(ours <= 1.2 * plain)
        );
        if let Some(theirs) = shared.of("UCX", size) {
            let what = if *bytes == 2 << 20 { "UCX's bandwidth" } else { "no slower than UCX" };
            println!(
                "  {name} in {ours:.3} us, UCX {theirs:.3} us, target {what}: {}",
                verdict(ours <= theirs)
            );
        } else {
            println!("  {name} beside UCX: not measured, ucx_perftest is not installed (Debian: ucx-utils)");
        }
    }
}
