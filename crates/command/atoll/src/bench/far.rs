//! `atoll bench far`: measures what a page costs on its way to and from each far store, beside memcpy, a bare request over TCP, and UCX.
//!
//! The lender of `hosts` is a process on the other CPU, over the loopback interface; lenders that are at work in other hosts are
//! measured besides, one by one. The stores are those of a run (`far/` of `atoll-memory`).
//!
//! Source: the CMCP paper, section 5.1 (pages between near and far memory), for what is measured; it has no network.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use atoll_lend::{Control, Directory, Lender, Secret, Terms};
use atoll_memory::far::hosts::lenders::{LenderSettings, Lenders, LendersSettings};
use atoll_memory::far::{AnyFar, FarConfig, FarSpec, FarStore, Lane, Transfer};
use atoll_transport::memory_file::Mapping;

use super::output::{Output, verdict};
use super::pair::{Cpus, Other};
use super::perftest::{self, Over};
use super::statistics::{middle, percentile};
use super::table::{Cell, Table};
use super::{BenchError, pin};
use crate::cli::BenchArgs;

/// Bytes of a page.
const PAGE: usize = 4096;
/// Pages that each store has.
const PAGES: usize = 8192;
/// Pages of a batch.
const BATCH: usize = 64;
/// Calls of one page, and of a batch.
const CALLS: usize = 4000;
const BATCHES: usize = 400;
/// What a page of one request may cost at most, in requests of UCX; and the least share of UCX's bandwidth for a batch.
const MOST_TIMES: f64 = 1.3;
const LEAST_SHARE: f64 = 0.9;
/// Processor time of a lender for a page at most, in microseconds.
const MOST_LENDER_US: f64 = 0.5;
const PATIENCE: Duration = Duration::from_secs(10);

fn failed<E: std::error::Error + Send + Sync + 'static>(what: &'static str) -> impl Fn(E) -> BenchError {
    move |error| BenchError::Channel(what, Box::new(error))
}

/// What was measured of a store, in microseconds.
struct Row {
    name: String,
    load: f64,
    load_late: f64,
    store: f64,
    /// By page, in batches.
    batch_load: f64,
    batch_store: f64,
    /// Processor time of the lender by page loaded in batches.
    lender: Option<f64>,
}

impl Row {
    fn cells(&self) -> Vec<Cell> {
        let batch_rate = PAGE as f64 / self.batch_load / 1e3;
        // There are no stores of bare requests.
        let number = |value: f64| if value.is_nan() { Cell::Nothing } else { Cell::Number(value, 2) };
        vec![
            self.name.clone().into(),
            number(self.load),
            number(self.load_late),
            number(self.store),
            number(self.batch_load),
            number(self.batch_store),
            number(batch_rate),
            Cell::number(self.lender, 2),
        ]
    }
}

/// Near memory of all pages.
struct Near {
    memory: Mapping,
}

impl Near {
    fn new() -> Result<Near, BenchError> {
        let bytes = PAGES * PAGE;
        let file = atoll_transport::memory_file::create("atoll-bench", bytes as u64)
            .map_err(failed("near memory"))?;
        Ok(Near { memory: Mapping::of(&file, bytes, true).map_err(failed("near memory"))? })
    }

    fn transfer(&self, page: usize) -> Transfer {
        // SAFETY: inside the mapping, aligned, and used by one call at a time.
        unsafe { Transfer::new(page as u64, self.memory.base().as_ptr().add(page * PAGE)) }
    }

    /// Fills all pages so that they differ from those of another fill and compress by about a half.
    fn fill(&self, change: u64) {
        let mut state = 0x9e37_79b9_7f4a_7c15 ^ change;
        for word in 0..PAGES * PAGE / 8 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let value = if word % 2 == 0 { state } else { change };
            // SAFETY: inside the mapping.
            unsafe { self.memory.base().as_ptr().cast::<u64>().add(word).write(value) };
        }
    }
}

/// All pages in an order without neighbours.
fn shuffled() -> Vec<usize> {
    let mut order: Vec<usize> = (0..PAGES).collect();
    let mut state = 88_172_645_463_325_252_u64;
    for at in (1..PAGES).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        order.swap(at, (state >> 33) as usize % (at + 1));
    }
    order
}

/// Microseconds of each call on `pages` at a time.
fn times(
    near: &Near,
    order: &[usize],
    pages: usize,
    calls: usize,
    mut call: impl FnMut(&[Transfer]) -> Result<(), BenchError>,
) -> Result<Vec<f64>, BenchError> {
    let mut all = Vec::with_capacity(calls);
    for batch in order.chunks_exact(pages).cycle().take(calls) {
        let transfers: Vec<Transfer> = batch.iter().map(|page| near.transfer(*page)).collect();
        let began = Instant::now();
        call(&transfers)?;
        all.push(began.elapsed().as_secs_f64() * 1e6);
    }
    Ok(all)
}

/// Measures one store.
fn measure(
    name: String,
    spec: &FarSpec,
    lenders: Option<Lenders>,
    lender: Option<u32>,
) -> Result<Row, BenchError> {
    let config = FarConfig {
        page_size: PAGE,
        pages: PAGES as u64,
        lanes: 1,
        limit_bytes: None,
        memory_bytes: u64::MAX,
        counts_as_near: false,
        lenders,
    };
    let far = AnyFar::new(spec, &config).map_err(failed("a far store"))?;
    let mut lane: Lane = far.lane(0).map_err(failed("a far store"))?;
    lane.attach().map_err(failed("a far store"))?;
    let (near, order) = (Near::new()?, shuffled());
    let failed = failed("a far store");
    near.fill(1);
    // Every page has its place before anything is measured.
    times(&near, &order, BATCH, PAGES / BATCH, |pages| far.store(&mut lane, pages).map_err(&failed))?;
    let load = times(&near, &order, 1, CALLS, |pages| far.load(&mut lane, pages).map_err(&failed))?;
    let before = lender.map(processor_time);
    let batch_load =
        times(&near, &order, BATCH, BATCHES, |pages| far.load(&mut lane, pages).map_err(&failed))?;
    let spent = lender.zip(before).map(|(lender, before)| processor_time(lender).saturating_sub(before));
    near.fill(2);
    let store = times(&near, &order, 1, CALLS, |pages| far.store(&mut lane, pages).map_err(&failed))?;
    near.fill(3);
    let most = PAGES / BATCH;
    let batch_store =
        times(&near, &order, BATCH, most, |pages| far.store(&mut lane, pages).map_err(&failed))?;
    let by_page = |times: Vec<f64>| middle(times) / BATCH as f64;
    Ok(Row {
        name,
        load_late: percentile(load.clone(), 99),
        load: middle(load),
        store: middle(store),
        batch_load: by_page(batch_load),
        batch_store: by_page(batch_store),
        lender: spent.map(|ns| ns as f64 / 1e3 / (BATCHES * BATCH) as f64),
    })
}

/// Nanoseconds of processor time that all threads of a process have had.
fn processor_time(process: u32) -> u64 {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{process}/task")) else { return 0 };
    let time = |task: std::fs::DirEntry| -> Option<u64> {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse().ok()
    };
    tasks.flatten().filter_map(time).sum()
}

/// Copies between two mappings: what no store can be faster than.
fn copies() -> Result<Row, BenchError> {
    let (near, far, order) = (Near::new()?, Near::new()?, shuffled());
    near.fill(1);
    far.fill(2);
    let copy = |from: &Near, to: &Near, pages: usize, calls: usize| {
        let mut all = Vec::with_capacity(calls);
        for batch in order.chunks_exact(pages).cycle().take(calls) {
            let began = Instant::now();
            for page in batch {
                // SAFETY: inside both mappings, which do not overlap.
                unsafe {
                    let at = |near: &Near| near.memory.base().as_ptr().add(page * PAGE);
                    std::ptr::copy_nonoverlapping(at(from), at(to), PAGE);
                }
            }
            all.push(began.elapsed().as_secs_f64() * 1e6);
        }
        all
    };
    let load = copy(&far, &near, 1, CALLS);
    Ok(Row {
        name: "memcpy".into(),
        load_late: percentile(load.clone(), 99),
        load: middle(load),
        store: middle(copy(&near, &far, 1, CALLS)),
        batch_load: middle(copy(&far, &near, BATCH, BATCHES)) / BATCH as f64,
        batch_store: middle(copy(&near, &far, BATCH, BATCHES)) / BATCH as f64,
        lender: None,
    })
}

/// The other process: a lender, and a server of bare requests. It tells where they listen, and stays until it is killed.
fn serve(mut tell: impl Write, key: [u8; 32]) -> Result<(), BenchError> {
    let terms = Terms::new("bench", 512 << 20, key);
    let local = SocketAddr::from(([127, 0, 0, 1], 0));
    let lender = Lender::start(terms, local).map_err(failed("a lender"))?;
    let bare = TcpListener::bind(local).map_err(failed("a socket"))?;
    let ports = [lender.address().port(), bare.local_addr().map_err(failed("a socket"))?.port()];
    for port in ports {
        tell.write_all(&port.to_le_bytes()).map_err(failed("a pipe"))?;
    }
    std::thread::spawn(move || {
        for stream in bare.incoming().flatten() {
            let _ = answer(stream);
        }
    });
    loop {
        std::thread::park();
    }
}

/// Answers each request of 64 bytes, which begin with a number, by as many bytes.
fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut request, data) = ([0; 64], vec![7; BATCH * PAGE]);
    loop {
        stream.read_exact(&mut request)?;
        let bytes = u32::from_le_bytes([request[0], request[1], request[2], request[3]]) as usize;
        stream.write_all(&data[..bytes.min(data.len())])?;
    }
}

/// Bare requests over TCP for a page and for a batch: what a request costs at least where both ends sleep.
fn bare(port: u16) -> Result<Row, BenchError> {
    let failed = failed("a socket");
    let mut stream = TcpStream::connect(("127.0.0.1", port)).map_err(&failed)?;
    stream.set_nodelay(true).map_err(&failed)?;
    let mut ask = |pages: usize, calls: usize| {
        let (mut request, mut data) = ([0; 64], vec![0; pages * PAGE]);
        request[..4].copy_from_slice(&((pages * PAGE) as u32).to_le_bytes());
        let once = |_| {
            let began = Instant::now();
            stream.write_all(&request)?;
            stream.read_exact(&mut data)?;
            Ok(began.elapsed().as_secs_f64() * 1e6)
        };
        (0..calls).map(once).collect::<std::io::Result<Vec<f64>>>()
    };
    let load = ask(1, CALLS).map_err(&failed)?;
    let batch = middle(ask(BATCH, BATCHES).map_err(&failed)?) / BATCH as f64;
    Ok(Row {
        name: "a bare request over TCP".into(),
        load_late: percentile(load.clone(), 99),
        load: middle(load),
        store: f64::NAN,
        batch_load: batch,
        batch_store: f64::NAN,
        lender: None,
    })
}

/// A lender as that of a run with this session.
fn borrowed(name: &str, address: SocketAddr, control: &Control) -> Result<Lenders, BenchError> {
    let mut settings = LendersSettings { count: 1, ..LendersSettings::NONE };
    settings.each[0] =
        LenderSettings::new(name, address, control.session(), control.key(), control.piece_bytes());
    let lenders = Lenders::alone(settings).map_err(failed("memory"))?;
    lenders.figures[0].free_bytes.store(u64::MAX, std::sync::atomic::Ordering::Relaxed);
    Ok(lenders)
}

/// Measures the lenders that are at work.
fn others() -> Result<Vec<Row>, BenchError> {
    let Ok(directory) = Directory::open() else { return Ok(Vec::new()) };
    let (Ok(key), Ok(cards)) = (directory.secret(), directory.cards()) else { return Ok(Vec::new()) };
    let mut rows = Vec::new();
    for card in cards {
        let Ok((mut control, address)) = card.open(&key.key()) else { continue };
        let _ = control.introduce("atoll bench far");
        let lenders = borrowed(&card.label(), address, &control)?;
        rows.push(measure(format!("hosts ({})", card.label()), &FarSpec::Hosts, Some(lenders), None)?);
    }
    Ok(rows)
}

/// Measures and prints.
pub(super) fn bench(args: &BenchArgs) -> Result<(), BenchError> {
    let output = Output::new(args.output.as_deref())?;
    let cpus = Cpus::choose(args.cpus.as_deref())?;
    let key = Secret::random().map_err(failed("getrandom"))?.key();
    let (mut told, tell) = std::io::pipe().map_err(failed("a pipe"))?;
    let other = Other::start(cpus.there, move || serve(tell, key))?;
    pin::pin(cpus.here);
    let mut ports = [0; 4];
    told.read_exact(&mut ports).map_err(failed("a pipe"))?;
    let [lender_port, bare_port] = [[ports[0], ports[1]], [ports[2], ports[3]]].map(u16::from_le_bytes);
    println!(
        "pages of 4K in random order on CPU {}, the lender on CPU {} over loopback\n",
        cpus.here, cpus.there
    );
    let mut rows = vec![copies()?];
    for spec in [FarSpec::Ram, FarSpec::Lz4, FarSpec::Zstd, FarSpec::File(None)] {
        rows.push(measure(spec.to_string(), &spec, None, None)?);
    }
    let address = SocketAddr::from(([127, 0, 0, 1], lender_port));
    let control = Control::open(address, &key, PATIENCE).map_err(failed("a lender"))?;
    let lenders = borrowed("bench", address, &control)?;
    let hosts = measure("hosts (loopback)".into(), &FarSpec::Hosts, Some(lenders), Some(other.pid()))?;
    let bare = bare(bare_port)?;
    drop(control);
    drop(other);
    let ucx = perftest::installed().then(|| {
        let once = perftest::run(cpus, Over::Tcp, "ucp_get", PAGE, 5000)?;
        let many = perftest::run(cpus, Over::Tcp, "ucp_get", BATCH * PAGE, 1000)?;
        Some((once.us, BATCH as f64 * PAGE as f64 / many.us / 1e3))
    });
    let ucx = ucx.flatten();
    let (page, rate) = (hosts.load, PAGE as f64 / hosts.batch_load / 1e3);
    let lender_us = hosts.lender.unwrap_or(f64::NAN);
    let bare_figures = (bare.load, PAGE as f64 / bare.batch_load / 1e3);
    rows.extend([bare, hosts]);
    rows.extend(others()?);
    let mut table = Table::new([
        "us",
        "load 4K",
        "99%",
        "store 4K",
        "load, 64",
        "store, 64",
        "GB/s loads, 64",
        "lender's CPU, 64",
    ]);
    rows.iter().for_each(|row| table.row(row.cells()));
    output.table("far", &table)?;
    println!(
        "64: by page, in batches of {BATCH}; the lender's CPU has its looking for the next request in it\n"
    );
    let (what, page_before, rate_before) = match ucx {
        Some((us, rate)) => ("UCX's get", us, rate),
        None => {
            println!(
                "ucx_perftest is not installed (apt-get install ucx-utils): a bare request over TCP stands for it"
            );
            ("the bare request", bare_figures.0, bare_figures.1)
        }
    };
    let times = page / page_before;
    println!(
        "a page takes {times:.2} times {what}; target: at most {MOST_TIMES}: {}",
        verdict(times <= MOST_TIMES)
    );
    let share = rate / rate_before;
    println!(
        "a batch has {share:.2} of the bandwidth of {what}; target: at least {LEAST_SHARE}: {}",
        verdict(share >= LEAST_SHARE)
    );
    println!(
        "the lender spends {lender_us:.2} us on a page; target: at most {MOST_LENDER_US}: {}",
        verdict(lender_us <= MOST_LENDER_US)
    );
    output.end();
    Ok(())
}
