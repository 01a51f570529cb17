//! One suite for every far store and page size, written against the trait.
//!
//! `pages` has memory to store, `allocations` counts what is allocated below Rust, `stores` tests what single stores promise besides.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod allocations;
mod pages;
mod stores;

use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use atoll_lend::{Control, Lender, Secret, Terms};
use atoll_memory::far::hosts::lenders::{LenderSettings, Lenders, LendersSettings};
use atoll_memory::far::{AnyFar, FarConfig, FarError, FarSpec, FarStore, Lane, Transfer};

use allocations::{ALLOCATIONS, WATCHED};
use pages::{KINDS, Near, mix};

const FILE: &str = "file:/var/tmp";
/// The store `auto` with a lender.
const AUTO_LENDER: &str = "auto and a lender";

fn config(page_size: usize) -> FarConfig {
    FarConfig {
        page_size,
        pages: (8 << 40) / page_size as u64,
        lanes: 8,
        limit_bytes: None,
        memory_bytes: (1 << 20).max(2 * page_size as u64),
        counts_as_near: false,
        lenders: None,
    }
}

fn make(spec: &str, config: &FarConfig) -> AnyFar {
    let lenders = ["hosts", AUTO_LENDER].contains(&spec).then(borrowed);
    let spec = if spec == AUTO_LENDER { "auto" } else { spec };
    AnyFar::new(&spec.parse::<FarSpec>().unwrap(), &FarConfig { lenders, ..*config }).unwrap()
}

/// A lender of this process, which lends to all tests, and a session there that lasts as long as the process.
fn borrowed() -> Lenders {
    static LENDER: OnceLock<(Lender, [u8; 32])> = OnceLock::new();
    let (lender, key) = LENDER.get_or_init(|| {
        let key = Secret::random().unwrap().key();
        let terms = Terms::new("suite", 4 << 30, key);
        (Lender::start(terms, "127.0.0.1:0".parse().unwrap()).unwrap(), key)
    });
    let control = Control::open(lender.address(), key, Duration::from_secs(5)).unwrap();
    let (session, key) = (control.session(), control.key());
    let one = LenderSettings::new("suite", lender.address(), session, key, control.piece_bytes());
    let mut settings = LendersSettings { count: 1, ..LendersSettings::NONE };
    settings.each[0] = one;
    let lenders = Lenders::alone(settings).unwrap();
    lenders.figures[0].free_bytes.store(u64::MAX, Relaxed);
    std::mem::forget(control);
    lenders
}

fn attached(store: &AnyFar, index: u32) -> Lane {
    let mut lane = store.lane(index).unwrap();
    lane.attach().unwrap();
    lane
}

fn put(
    store: &AnyFar,
    lane: &mut Lane,
    near: &Near,
    page: u64,
    kind: u64,
    seed: u64,
) -> Result<(), FarError> {
    near.fill(0, kind, seed);
    store.store(lane, &[near.transfer(page, 0)])
}

fn expect(store: &AnyFar, lane: &mut Lane, near: &Near, page: u64, kind: u64, seed: u64) {
    near.fill(0, 3, !seed);
    assert_eq!(store.load(lane, &[near.transfer(page, 0)]), Ok(()));
    assert!(near.is(0, kind, seed), "page {page} of kind {kind} came back different");
}

fn round_trips(spec: &str, page_size: usize) {
    let store = make(spec, &config(page_size));
    let mut lane = attached(&store, 0);
    let near = Near::new(1, page_size);
    let last = config(page_size).pages - 1;
    let pages = [0, 1, 2, 77, 5000, last / 2, last];
    for (round, salt) in [(0, 0), (1, 1000), (5, 2000)] {
        for page in pages {
            put(&store, &mut lane, &near, page, page + round, page % 1000 + salt).unwrap();
        }
        for page in pages {
            expect(&store, &mut lane, &near, page, page + round, page % 1000 + salt);
        }
    }
    assert_eq!(store.usage().pages_held, pages.len() as u64);
    assert_eq!(store.usage().bytes_before, (pages.len() * page_size) as u64);

    store.discard(1, 1);
    let absent = |lane: &mut Lane, page| {
        assert_eq!(store.load(lane, &[near.transfer(page, 0)]), Err(FarError::NotStored { page }));
    };
    absent(&mut lane, 1);
    absent(&mut lane, 3);
    expect(&store, &mut lane, &near, 2, 7, 2002);
    put(&store, &mut lane, &near, 1, 3, 9).unwrap();
    expect(&store, &mut lane, &near, 1, 3, 9);

    let began = Instant::now();
    store.discard(0, u64::MAX);
    assert!(began.elapsed().as_secs() < 2, "discarding a sparse arena takes long");
    pages.into_iter().for_each(|page| absent(&mut lane, page));
    let usage = store.usage();
    assert_eq!((usage.pages_held, usage.bytes_after), (0, 0));
    assert!(usage.bytes_reserved <= 4 << 20, "{usage:?}");
    let beyond = Err(FarError::OutOfRange { page: last + 1 });
    assert_eq!(store.load(&mut lane, &[near.transfer(last + 1, 0)]), beyond);
    assert_eq!(store.store(&mut lane, &[near.transfer(last + 1, 0)]), beyond);
}

fn batches(spec: &str, page_size: usize) {
    let store = make(spec, &config(page_size));
    let mut lane = attached(&store, 3);
    let count = if page_size > 65536 { 12 } else { 300 };
    let near = Near::new(count, page_size);
    // Runs of neighbours with gaps between them.
    let all: Vec<_> = (0..count).map(|i| near.transfer((i + i / 5 * 3) as u64 + 100, i)).collect();
    for salt in [0, 5000] {
        (0..count).for_each(|i| near.fill(i, i as u64, i as u64 + salt));
        assert_eq!(store.store(&mut lane, &all), Ok(()));
        (0..count).for_each(|i| near.fill(i, 3, 1 << 40));
        assert_eq!(store.load(&mut lane, &all), Ok(()));
        assert!((0..count).all(|i| near.is(i, i as u64, i as u64 + salt)));
    }
    let usage = store.usage();
    assert_eq!((usage.pages_held, usage.bytes_loaded), (count as u64, (2 * count * page_size) as u64));
    if matches!(spec, "lz4" | "zstd") {
        // One kind of six does not compress: half at most.
        assert!(usage.bytes_after * 2 < usage.bytes_before, "{usage:?}");
        assert!(usage.bytes_reserved < usage.bytes_before + (8 << 20), "{usage:?}");
    }
}

/// Forks. The child's verdict is its exit status; it must not unwind into the parent's tests.
fn child(work: impl FnOnce() -> bool) -> i32 {
    // SAFETY: the child runs `work` and leaves at once, without the parent's destructors. (A panic aborts it.)
    match unsafe { libc::fork() } {
        -1 => panic!("fork: {}", std::io::Error::last_os_error()),
        0 => {
            let good = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).unwrap_or(false);
            // SAFETY: leaves at once.
            unsafe { libc::_exit(i32::from(!good)) }
        }
        pid => pid,
    }
}

fn succeeded(pid: i32) -> bool {
    let mut status = 0;
    // SAFETY: status is ours.
    while unsafe { libc::waitpid(pid, &raw mut status, 0) } == -1 {}
    status == 0
}

fn processes(spec: &str, page_size: usize) {
    let store = make(spec, &config(page_size));
    let rounds = if page_size > 65536 { 3 } else { 40 };
    let (workers, each) = (8_u64, 6_u64);
    let near: Vec<_> = (0..workers).map(|_| Near::new(each as usize, page_size)).collect();
    let pids: Vec<_> = (0..workers)
        .map(|w| {
            let (store, near) = (&store, &near[w as usize]);
            child(move || {
                let mut lane = store.lane(w as u32).unwrap();
                lane.attach().unwrap();
                // Pages of different workers are neighbours: they share table words and chunks.
                let page = |i: u64| i * workers + w;
                let all: [Transfer; 6] = std::array::from_fn(|i| near.transfer(page(i as u64), i));
                let good = (0..rounds).all(|round| {
                    let seed = |i: u64| round * 100 + page(i) + 1;
                    (0..each).for_each(|i| near.fill(i as usize, i + round, seed(i)));
                    let stored = store.store(&mut lane, &all).is_ok();
                    (0..each).for_each(|i| near.fill(i as usize, 3, 1 << 40));
                    let loaded = store.load(&mut lane, &all).is_ok();
                    let same = (0..each).all(|i| near.is(i as usize, i + round, seed(i)));
                    if round % 3 == 1 {
                        store.discard(page(0), 1);
                    }
                    stored && loaded && same
                });
                std::mem::forget(lane);
                good
            })
        })
        .collect();
    let verdicts: Vec<_> = pids.into_iter().map(succeeded).collect();
    assert!(verdicts.iter().all(|good| *good), "{verdicts:?}");
    // What the workers stored last is here for everybody; this lane's last owner died attached.
    let mut lane = attached(&store, 7);
    let last = rounds - 1;
    for (w, i) in (0..workers).flat_map(|w| (1..each).map(move |i| (w, i))) {
        let page = i * workers + w;
        expect(&store, &mut lane, &near[0], page, i + last, last * 100 + page + 1);
    }
    store.discard(0, u64::MAX);
    assert_eq!((store.usage().pages_held, store.usage().bytes_after), (0, 0));
}

fn space_does_not_grow(spec: &str, page_size: usize) {
    let cycles = match (spec, page_size) {
        (FILE, _) => 300,
        ("hosts" | AUTO_LENDER, 4096) => 5000,
        ("hosts" | AUTO_LENDER, 65536) => 1000,
        (_, 4096) => 100_000,
        (_, 65536) => 10_000,
        _ => 300,
    };
    let pages = if page_size > 65536 { 4 } else { 64 };
    let store = make(spec, &config(page_size));
    let mut lane = attached(&store, 0);
    let near = Near::new(1, page_size);
    let mut worst = 0;
    for cycle in 0..cycles {
        // Long stretches of one kind, and mixtures.
        let kind = if cycle / 1000 % 2 == 0 { cycle / 2000 } else { mix(cycle + 1) };
        put(&store, &mut lane, &near, mix(cycle) % pages, kind, cycle).unwrap();
        if cycle % 16 == 0 {
            worst = worst.max(store.usage().bytes_reserved);
        }
    }
    // Incompressible pages need this; a chunk for each class in use and the warm ones may come on top.
    let slack = 16 * page_size.min(65536) as u64 * 24;
    assert!(worst <= pages * page_size as u64 + slack, "{worst} bytes reserved for {pages} pages");
    store.discard(0, pages);
    assert_eq!(store.usage().bytes_after, 0);
}

fn a_full_store_says_so(spec: &str, page_size: usize) {
    let limit = (4 << 20).max(4 * page_size as u64);
    let store = make(spec, &FarConfig { limit_bytes: Some(limit), ..config(page_size) });
    let mut lane = attached(&store, 0);
    let near = Near::new(1, page_size);
    let mut stored = 0;
    let error = loop {
        assert!(stored <= limit / page_size as u64, "the limit does not hold");
        match put(&store, &mut lane, &near, stored, 3, stored) {
            Ok(()) => stored += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error, FarError::Full);
    assert_eq!(stored, limit / page_size as u64);
    assert_eq!(store.usage().pages_held, stored);
    // A file system adds blocks of its own.
    assert!(store.usage().bytes_reserved <= limit + (64 << 10), "{:?}", store.usage());
    (0..stored).for_each(|page| expect(&store, &mut lane, &near, page, 3, page));
    store.discard(0, 1);
    put(&store, &mut lane, &near, 1 << 20, 3, 5).unwrap();
    expect(&store, &mut lane, &near, 1 << 20, 3, 5);
}

fn nothing_allocates(spec: &str, page_size: usize) {
    let limit = (8 << 20).max(24 * page_size as u64);
    let store = make(spec, &FarConfig { limit_bytes: Some(limit), ..config(page_size) });
    let near = Near::new(16, page_size);
    // A child has one thread, and tests beside this one do not disturb its counter.
    let pid = child(|| {
        let mut lane = attached(&store, 1);
        // SAFETY: no arguments.
        WATCHED.store(unsafe { libc::gettid() }, Relaxed);
        drop(std::hint::black_box(Box::new(1)));
        let mut good = ALLOCATIONS.swap(0, Relaxed) > 0;
        let all: [Transfer; 16] = std::array::from_fn(|i| near.transfer(i as u64 + i as u64 / 4, i));
        for round in 0..KINDS {
            (0..16).for_each(|i| near.fill(i, i as u64 + round, i as u64 + round));
            good &= store.store(&mut lane, &all).is_ok() && store.load(&mut lane, &all).is_ok();
            good &= store.load(&mut lane, &[near.transfer(1 << 20, 0)]).is_err();
            good &= store.usage().pages_held > 0;
            store.discard(round, 3);
        }
        near.fill(0, 3, 3);
        good &= (0..3000).any(|page| store.store(&mut lane, &[near.transfer(page, 0)]).is_err());
        good && ALLOCATIONS.load(Relaxed) == 0
    });
    assert!(succeeded(pid));
}

fn lanes_are_exclusive(spec: &str, page_size: usize) {
    let store = make(spec, &config(page_size));
    let near = Near::new(1, page_size);
    let mut lane = store.lane(0).unwrap();
    assert!(matches!(store.load(&mut lane, &[near.transfer(0, 0)]), Err(FarError::Unavailable(_))));
    lane.attach().unwrap();
    lane.attach().unwrap();
    let elsewhere = || std::thread::scope(|s| s.spawn(|| store.lane(0).unwrap().attach()).join().unwrap());
    assert!(matches!(elsewhere(), Err(FarError::Unavailable(_))));
    assert!(store.lane(8).is_err());
    let other = make("ram", &config(page_size));
    assert!(matches!(other.store(&mut lane, &[near.transfer(0, 0)]), Err(FarError::Unavailable(_))));
    drop(lane);
    elsewhere().unwrap();
}

fn a_small_stack_suffices(spec: &str, page_size: usize) {
    // The handler's stack; the thread's own block takes some of it here.
    let store = make(spec, &config(page_size));
    let near = Near::new(4, page_size);
    let (store, near) = (&store, &near);
    std::thread::scope(|s| {
        let work = move || {
            let mut lane = attached(store, 0);
            let all: [Transfer; 4] = std::array::from_fn(|i| near.transfer(i as u64, i));
            (0..4).for_each(|i| near.fill(i, i as u64 + 1, 7));
            store.store(&mut lane, &all).unwrap();
            store.load(&mut lane, &all).unwrap();
            assert!((0..4).all(|i| near.is(i, i as u64 + 1, 7)));
        };
        std::thread::Builder::new().stack_size(64 << 10).spawn_scoped(s, work).unwrap().join().unwrap();
    });
}

macro_rules! suite {
    ($($name:ident: $spec:expr, $page_size:expr;)*) => { $(
        mod $name {
            #[test] fn round_trips() { super::round_trips($spec, $page_size); }
            #[test] fn batches() { super::batches($spec, $page_size); }
            #[test] fn processes() { super::processes($spec, $page_size); }
            #[test] fn space_does_not_grow() { super::space_does_not_grow($spec, $page_size); }
            #[test] fn a_full_store_says_so() { super::a_full_store_says_so($spec, $page_size); }
            #[test] fn nothing_allocates() { super::nothing_allocates($spec, $page_size); }
            #[test] fn a_small_stack_suffices() { super::a_small_stack_suffices($spec, $page_size); }
            #[test] fn lanes_are_exclusive() { super::lanes_are_exclusive($spec, $page_size); }
        }
    )* };
}

suite! {
    ram_4k: "ram", 4 << 10;
    ram_64k: "ram", 64 << 10;
    ram_2m: "ram", 2 << 20;
    lz4_4k: "lz4", 4 << 10;
    lz4_64k: "lz4", 64 << 10;
    lz4_2m: "lz4", 2 << 20;
    zstd_4k: "zstd", 4 << 10;
    zstd_64k: "zstd", 64 << 10;
    zstd_2m: "zstd", 2 << 20;
    file_4k: super::FILE, 4 << 10;
    file_64k: super::FILE, 64 << 10;
    file_2m: super::FILE, 2 << 20;
    auto_4k: "auto", 4 << 10;
    auto_64k: "auto", 64 << 10;
    auto_2m: "auto", 2 << 20;
    auto_lender_4k: super::AUTO_LENDER, 4 << 10;
    auto_lender_64k: super::AUTO_LENDER, 64 << 10;
    auto_lender_2m: super::AUTO_LENDER, 2 << 20;
    hosts_4k: "hosts", 4 << 10;
    hosts_64k: "hosts", 64 << 10;
    hosts_2m: "hosts", 2 << 20;
}
