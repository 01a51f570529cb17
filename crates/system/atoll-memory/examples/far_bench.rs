//! What a page costs on its way to and from each far store: microseconds per 4K.
//!
//! `cargo run --release -p atoll-memory --example far_bench [STORE...]`

#![allow(clippy::unwrap_used, reason = "a measurement has nobody to report an error to")]

use std::time::{Duration, Instant};

use atoll_memory::far::{AnyFar, FarConfig, FarSpec, FarStore, Lane, Transfer};

/// Data per measurement, and the time after which one is cut short.
const BYTES: usize = 64 << 20;
const TIME: Duration = Duration::from_millis(400);
/// Pages a call where neighbours go together.
const BATCH: usize = 16;

struct Near {
    base: *mut u8,
    page_size: usize,
}

impl Near {
    fn new(page_size: usize) -> Self {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping.
        let base = unsafe {
            libc::mmap(std::ptr::null_mut(), BYTES, access, libc::MAP_SHARED | libc::MAP_ANONYMOUS, -1, 0)
        };
        assert_ne!(base, libc::MAP_FAILED);
        Self { base: base.cast(), page_size }
    }

    fn transfer(&self, page: usize) -> Transfer {
        assert!((page + 1) * self.page_size <= BYTES);
        // SAFETY: the page is in the mapping, and aligned since its size is.
        unsafe { Transfer::new(page as u64, self.base.add(page * self.page_size)) }
    }

    /// `change` makes all pages differ from those of another fill.
    fn fill(&self, compressible: bool, change: u64) {
        let mut state = 0x9e37_79b9_7f4a_7c15 ^ change;
        for i in 0..BYTES / 8 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            // A grid of 512 by 512 columns of a smooth field, to six decimal digits as a simulation's input has
            // them; or noise.
            let (x, y) = ((i % 512) as f64 / 512.0, (i / 512 % 512) as f64 / 512.0);
            let smooth = (x * 3.0 + change as f64).sin() * (y * 2.0).cos();
            let word =
                if compressible { ((smooth * 1048576.0).round() / 1048576.0).to_bits() } else { state };
            // SAFETY: i is below the words of the mapping.
            unsafe { self.base.cast::<u64>().add(i).write(word) };
        }
    }
}

/// Microseconds per 4K of a call on `order`, `batch` pages at a time.
fn time(near: &Near, order: &[usize], batch: usize, mut call: impl FnMut(&[Transfer])) -> f64 {
    let mut transfers = Vec::with_capacity(batch);
    let (began, mut spent, mut bytes) = (Instant::now(), Duration::ZERO, 0);
    for pages in order.chunks(batch) {
        transfers.clear();
        transfers.extend(pages.iter().map(|page| near.transfer(*page)));
        let start = Instant::now();
        call(&transfers);
        spent += start.elapsed();
        bytes += pages.len() * near.page_size;
        if began.elapsed() > TIME {
            break;
        }
    }
    spent.as_secs_f64() * 1e6 / (bytes as f64 / 4096.0)
}

fn measure(spec: &FarSpec, page_size: usize, compressible: bool) {
    let pages = BYTES / page_size;
    let config = FarConfig {
        page_size,
        pages: pages as u64,
        lanes: 1,
        limit_bytes: None,
        memory_bytes: u64::MAX,
        counts_as_near: false,
        lenders: None,
    };
    let store = match AnyFar::new(spec, &config) {
        Ok(store) => store,
        Err(error) => return println!("{spec}: {error}"),
    };
    let mut lane: Lane = store.lane(0).unwrap();
    lane.attach().unwrap();
    let near = Near::new(page_size);
    near.fill(compressible, 0);
    let forward: Vec<_> = (0..pages).collect();
    let mut random = forward.clone();
    let mut state = 88_172_645_463_325_252_u64;
    for i in (1..pages).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        random.swap(i, (state >> 33) as usize % (i + 1));
    }
    // Every page has its place before anything is measured.
    for page in &forward {
        store.store(&mut lane, &[near.transfer(*page)]).unwrap();
    }
    let usage = store.usage();
    let ratio = usage.bytes_before as f64 / usage.bytes_after.max(1) as f64;
    let reserved = usage.bytes_before as f64 / usage.bytes_reserved.max(1) as f64;
    near.fill(compressible, 1);
    let store_runs = time(&near, &forward, BATCH, |t| store.store(&mut lane, t).unwrap());
    let load_runs = time(&near, &forward, BATCH, |t| store.load(&mut lane, t).unwrap());
    near.fill(compressible, 2);
    let store_random = time(&near, &random, 1, |t| store.store(&mut lane, t).unwrap());
    let load_random = time(&near, &random, 1, |t| store.load(&mut lane, t).unwrap());
    near.fill(compressible, 3);
    let store_scattered = time(&near, &random, BATCH, |t| store.store(&mut lane, t).unwrap());
    let load_scattered = time(&near, &random, BATCH, |t| store.load(&mut lane, t).unwrap());
    println!(
        "{:<5} {:>4}K {:<6} {store_runs:>7.2} {load_runs:>7.2} {store_scattered:>7.2} {load_scattered:>7.2} \
         {store_random:>7.2} {load_random:>7.2} {ratio:>8.2} {reserved:>8.2}",
        spec.to_string(),
        page_size >> 10,
        if compressible { "smooth" } else { "noise" },
    );
    // SAFETY: our mapping, no longer used.
    unsafe { libc::munmap(near.base.cast(), BYTES) };
}

fn main() {
    let named: Vec<FarSpec> = std::env::args().skip(1).map(|name| name.parse().unwrap()).collect();
    let all = [FarSpec::Ram, FarSpec::Lz4, FarSpec::Zstd, FarSpec::File(None)];
    println!(
        "µs per 4K, store and load; runs: {BATCH} neighbours a call, scattered: {BATCH} random pages a call,"
    );
    println!("random: one page a call; ratio: of data, of memory taken");
    println!("{:<18} {:>15} {:>15} {:>15} {:>17}", "far   page data", "runs", "scattered", "random", "ratio");
    for spec in if named.is_empty() { all.to_vec() } else { named } {
        for page_size in [4 << 10, 64 << 10, 2 << 20] {
            for compressible in [true, false] {
                measure(&spec, page_size, compressible);
            }
        }
    }
}
