//! What a page costs on its way to and from one far store, one by one and in batches.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::Ordering;
use std::time::Instant;

use atoll_lend::Control;
use atoll_memory::far::hosts::lenders::{LenderSettings, Lenders, LendersSettings};
use atoll_memory::far::{AnyFar, FarConfig, FarSpec, FarStore, Lane, Transfer};
use atoll_transport::memory_file::Mapping;

use super::peer::Peer;
use super::{BATCH, PAGE, PATIENCE, failed};
use crate::bench::BenchError;
use crate::bench::statistics::{middle, percentile};
use crate::bench::table::{Cell, Table};

/// Pages that each store has.
const PAGES: usize = 8192;
/// Calls of one page, and of a batch.
const CALLS: usize = 4000;
const BATCHES: usize = 400;
/// Bytes by which the bandwidth of a stream is measured.
const STREAM: u32 = 256 << 20;

/// What was measured of a store, in microseconds.
#[derive(Clone)]
pub(super) struct Row {
    name: String,
    pub(super) load: f64,
    load_late: f64,
    store: f64,
    /// By page, in batches.
    pub(super) batch_load: f64,
    batch_store: f64,
    /// Processor time of the lender by page loaded in batches: to serve it, and to look for the next request.
    pub(super) lender: Option<[f64; 2]>,
}

/// A table of rows.
pub(super) fn table(rows: &[Row]) -> Table {
    let mut table = Table::new([
        "us",
        "load 4K",
        "99%",
        "store 4K",
        "load, 64",
        "store, 64",
        "GB/s loads, 64",
        "lender serves",
        "lender looks",
    ]);
    rows.iter().for_each(|row| table.row(row.cells()));
    table
}

impl Row {
    /// GB/s of pages loaded in batches.
    pub(super) fn rate(&self) -> f64 {
        PAGE as f64 / self.batch_load / 1e3
    }

    fn cells(&self) -> Vec<Cell> {
        // There are no stores of bare requests.
        let number = |value: f64| if value.is_nan() { Cell::Nothing } else { Cell::Number(value, 2) };
        vec![
            self.name.clone().into(),
            number(self.load),
            number(self.load_late),
            number(self.store),
            number(self.batch_load),
            number(self.batch_store),
            number(self.rate()),
            Cell::number(self.lender.map(|us| us[0]), 2),
            Cell::number(self.lender.map(|us| us[1]), 2),
        ]
    }
}

/// What pages hold.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    /// Numbers of which every second one is the same: compression saves about a half.
    Half,
    /// Random numbers, which do not compress.
    Random,
}

/// Near memory of all pages.
struct Near {
    memory: Mapping,
    content: Content,
}

impl Near {
    fn new(content: Content) -> Result<Near, BenchError> {
        let bytes = PAGES * PAGE;
        let file = atoll_transport::memory_file::create("atoll-bench", bytes as u64)
            .map_err(failed("near memory"))?;
        Ok(Near { memory: Mapping::of(&file, bytes, true).map_err(failed("near memory"))?, content })
    }

    fn transfer(&self, page: usize) -> Transfer {
        // SAFETY: inside the mapping, aligned, and used by one call at a time.
        unsafe { Transfer::new(page as u64, self.memory.base().as_ptr().add(page * PAGE)) }
    }

    /// Fills all pages so that they differ from those of another fill.
    fn fill(&self, change: u64) {
        let mut state = 0x9e37_79b9_7f4a_7c15 ^ change;
        for word in 0..PAGES * PAGE / 8 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let is_random = self.content == Content::Random || word % 2 == 0;
            let value = if is_random { state } else { change };
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

/// Measures one store, and what its lender spends.
pub(super) fn measure(
    name: String,
    spec: &FarSpec,
    lenders: Option<Lenders>,
    mut peer: Option<&mut Peer>,
    content: Content,
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
    let (near, order) = (Near::new(content)?, shuffled());
    let failed = failed("a far store");
    near.fill(1);
    // Every page has its place before anything is measured.
    times(&near, &order, BATCH, PAGES / BATCH, |pages| far.store(&mut lane, pages).map_err(&failed))?;
    let load = times(&near, &order, 1, CALLS, |pages| far.load(&mut lane, pages).map_err(&failed))?;
    let before = peer.as_deref_mut().map(Peer::spent).transpose()?;
    let batch_load =
        times(&near, &order, BATCH, BATCHES, |pages| far.load(&mut lane, pages).map_err(&failed))?;
    let after = peer.map(Peer::spent).transpose()?;
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
        lender: after.zip(before).map(|(after, before)| after.since(before, BATCHES * BATCH)),
    })
}

/// Copies between two mappings: what no store can be faster than.
pub(super) fn copies() -> Result<Row, BenchError> {
    let (near, far, order) = (Near::new(Content::Half)?, Near::new(Content::Half)?, shuffled());
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

/// Bare requests over TCP for a page and for a batch: what a request costs at least where both ends sleep.
pub(super) fn bare(address: SocketAddr) -> Result<Row, BenchError> {
    let failed = failed("a socket");
    let mut stream = TcpStream::connect(address).map_err(&failed)?;
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
pub(super) fn borrowed(name: &str, address: SocketAddr, control: &Control) -> Result<Lenders, BenchError> {
    let mut settings = LendersSettings { count: 1, ..LendersSettings::NONE };
    settings.each[0] =
        LenderSettings::new(name, address, control.session(), control.key(), control.piece_bytes());
    let lenders = Lenders::alone(settings).map_err(failed("memory"))?;
    lenders.figures[0].free_bytes.store(u64::MAX, Ordering::Relaxed);
    Ok(lenders)
}

/// The bandwidth of a stream, in GB/s: what moves in one direction when nothing is waited for.
pub(super) fn stream(address: SocketAddr) -> Result<f64, BenchError> {
    let failed = failed("a socket");
    let mut stream = TcpStream::connect(address).map_err(&failed)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(&failed)?;
    let (mut request, mut data) = ([0; 64], vec![0; BATCH * PAGE]);
    request[..4].copy_from_slice(&STREAM.to_le_bytes());
    let began = Instant::now();
    stream.write_all(&request).map_err(&failed)?;
    let mut left = STREAM as usize;
    while left > 0 {
        let part = left.min(data.len());
        stream.read_exact(&mut data[..part]).map_err(&failed)?;
        left -= part;
    }
    Ok(f64::from(STREAM) / began.elapsed().as_secs_f64() / 1e9)
}

/// Measures the store of the lender of `peer`.
pub(super) fn hosts(
    name: &str,
    peer: &mut Peer,
    key: &[u8; 32],
    content: Content,
) -> Result<Row, BenchError> {
    let control = Control::open(peer.lender, key, PATIENCE).map_err(failed("a lender"))?;
    let lenders = borrowed("bench", peer.lender, &control)?;
    measure(name.to_owned(), &FarSpec::Hosts, Some(lenders), Some(peer), content)
}
