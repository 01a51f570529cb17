//! One suite for every far store and page size, written against the trait.
//!
//! That nothing allocates is checked below Rust: this binary defines `malloc` and its kin, which the linker
//! then uses for Rust's allocator and for the C code of LZ4 and zstd alike, and counts calls of one thread.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::ffi::c_void;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use atoll_lend::{Control, Lender, Secret, Terms};
use atoll_memory::far::hosts::lenders::{LenderSettings, Lenders, LendersSettings};
use atoll_memory::far::{Access, AnyFar, FarConfig, FarError, FarOp, FarSpec, FarStore, Lane, Transfer};

const KINDS: u64 = 6;
const FILE: &str = "file:/var/tmp";

/// Page-aligned memory of a number of pages, shared with forked children.
struct Near {
    base: *mut u8,
    page_size: usize,
    pages: usize,
}

// SAFETY: an address range; tests give each page to one thread or child at a time.
unsafe impl Sync for Near {}

impl Near {
    fn new(pages: usize, page_size: usize) -> Self {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), pages * page_size, access, flags, -1, 0) };
        assert_ne!(base, libc::MAP_FAILED);
        Self { base: base.cast(), page_size, pages }
    }

    fn at(&self, i: usize) -> *mut u8 {
        assert!(i < self.pages);
        // SAFETY: inside the mapping.
        unsafe { self.base.add(i * self.page_size) }
    }

    fn word(&self, i: usize, n: usize) -> *mut u64 {
        assert!(n < self.page_size / 8);
        // SAFETY: inside page i.
        unsafe { self.at(i).cast::<u64>().add(n) }
    }

    fn transfer(&self, page: u64, i: usize) -> Transfer {
        // SAFETY: page i of the mapping is aligned and valid.
        unsafe { Transfer::new(page, self.at(i)) }
    }

    fn fill(&self, i: usize, kind: u64, seed: u64) {
        for n in 0..self.page_size / 8 {
            // SAFETY: a word of a page that one test or child uses at a time.
            unsafe { self.word(i, n).write(word(kind, seed, n as u64)) };
        }
    }

    fn is(&self, i: usize, kind: u64, seed: u64) -> bool {
        // SAFETY: as above.
        (0..self.page_size / 8).all(|n| unsafe { self.word(i, n).read() } == word(kind, seed, n as u64))
    }
}

impl Drop for Near {
    fn drop(&mut self) {
        // SAFETY: our mapping.
        unsafe { libc::munmap(self.base.cast(), self.pages * self.page_size) };
    }
}

fn mix(seed: u64) -> u64 {
    let x = (seed ^ seed >> 30).wrapping_add(0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

/// Word `i` of a page of one of the kinds; pages of different seeds differ unless they are zero.
fn word(kind: u64, seed: u64, i: u64) -> u64 {
    match kind % KINDS {
        0 => 0,
        1 => seed + 1,
        2 => (1.0 + seed as f64 + (i / 8) as f64 / 4096.0).to_bits(),
        3 => mix(mix(seed) ^ i),
        4 if i.is_multiple_of(2) => mix(mix(seed) ^ i) & 0xff,
        4 => seed,
        _ => (seed << 32) | (i / 7),
    }
}

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
    let lenders = (spec == "hosts").then(borrowed);
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
        ("hosts", 4096) => 5000,
        ("hosts", 65536) => 1000,
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

static WATCHED: AtomicI32 = AtomicI32::new(0);
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

fn count_allocation() {
    let watched = WATCHED.load(Relaxed);
    // SAFETY: no arguments.
    if watched != 0 && watched == unsafe { libc::gettid() } {
        ALLOCATIONS.fetch_add(1, Relaxed);
    }
}

// The C library's own functions do the work, so its `free` takes what they give.
unsafe extern "C" {
    fn __libc_malloc(bytes: usize) -> *mut c_void;
    fn __libc_calloc(count: usize, bytes: usize) -> *mut c_void;
    fn __libc_realloc(old: *mut c_void, bytes: usize) -> *mut c_void;
    fn __libc_memalign(align: usize, bytes: usize) -> *mut c_void;
}

#[unsafe(no_mangle)]
extern "C" fn malloc(bytes: usize) -> *mut c_void {
    count_allocation();
    // SAFETY: the same function by its other name.
    unsafe { __libc_malloc(bytes) }
}

#[unsafe(no_mangle)]
extern "C" fn calloc(count: usize, bytes: usize) -> *mut c_void {
    count_allocation();
    // SAFETY: the same function by its other name.
    unsafe { __libc_calloc(count, bytes) }
}

/// # Safety
/// As in C.
#[unsafe(no_mangle)]
unsafe extern "C" fn realloc(old: *mut c_void, bytes: usize) -> *mut c_void {
    count_allocation();
    // SAFETY: the same function by its other name.
    unsafe { __libc_realloc(old, bytes) }
}

/// # Safety
/// As in C.
#[unsafe(no_mangle)]
unsafe extern "C" fn posix_memalign(to: *mut *mut c_void, align: usize, bytes: usize) -> i32 {
    count_allocation();
    // SAFETY: `to` is the caller's.
    unsafe {
        *to = __libc_memalign(align, bytes);
        if (*to).is_null() { libc::ENOMEM } else { 0 }
    }
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
    hosts_4k: "hosts", 4 << 10;
    hosts_64k: "hosts", 64 << 10;
    hosts_2m: "hosts", 2 << 20;
}

/// The store's file, by a descriptor through the page cache.
fn reopened(store: &AnyFar) -> std::fs::File {
    let AnyFar::File(inner) = store else { panic!("not a file store") };
    let name = format!("/proc/self/fd/{}", inner.as_fd().as_raw_fd());
    std::fs::File::options().read(true).write(true).open(name).unwrap()
}

#[test]
fn a_damaged_byte_in_the_file_is_found() {
    for page_size in [4 << 10, 64 << 10, 2 << 20] {
        let store = make(FILE, &config(page_size));
        let mut lane = attached(&store, 0);
        let near = Near::new(4, page_size);
        let all: Vec<_> = (0..4).map(|i| near.transfer(i as u64, i)).collect();
        (0..4).for_each(|i| near.fill(i, 3, i as u64));
        store.store(&mut lane, &all).unwrap();
        let at = 2 * page_size as u64 + 1234;
        let mut byte = [0];
        let file = reopened(&store);
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
        file.sync_all().unwrap();
        assert_eq!(store.load(&mut lane, &all), Err(FarError::Damaged { page: 2 }));
        assert_eq!(store.load(&mut lane, &all[..2]), Ok(()));
        assert_eq!(store.load(&mut lane, &all[3..]), Ok(()));
        // A store heals it.
        near.fill(2, 3, 99);
        store.store(&mut lane, &all[2..3]).unwrap();
        store.load(&mut lane, &all).unwrap();
        assert!(near.is(2, 3, 99));
    }
}

/// Forbids io_uring to this process as a container does: the call fails with EPERM.
fn forbid_rings() {
    let step = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let setup = libc::SYS_io_uring_setup as u32;
    let mut filter = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, setup),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the program is valid during the call and concerns this process alone.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program), 0);
    }
}

#[test]
fn without_io_uring_the_file_serves_all_the_same() {
    for page_size in [4 << 10, 64 << 10, 2 << 20] {
        let store = make(FILE, &config(page_size));
        let near = Near::new(12, page_size);
        let pid = child(|| {
            forbid_rings();
            let mut lane = attached(&store, 0);
            assert!(!lane.has_ring());
            let all: [Transfer; 12] = std::array::from_fn(|i| near.transfer((i + i / 4) as u64, i));
            (0..12).for_each(|i| near.fill(i, 3, i as u64));
            store.store(&mut lane, &all).unwrap();
            (0..12).for_each(|i| near.fill(i, 0, 0));
            store.load(&mut lane, &all).unwrap();
            (0..12).all(|i| near.is(i, 3, i as u64))
        });
        assert!(succeeded(pid), "{page_size}");
    }
}

#[test]
fn unchanged_pages_are_not_written_again() {
    let store = make(FILE, &config(4096));
    let mut lane = attached(&store, 0);
    let near = Near::new(8, 4096);
    let all: Vec<_> = (0..8).map(|i| near.transfer(i as u64, i)).collect();
    (0..8).for_each(|i| near.fill(i, 3, i as u64));
    store.store(&mut lane, &all).unwrap();
    store.load(&mut lane, &all).unwrap();
    near.fill(3, 3, 33);
    store.store(&mut lane, &all).unwrap();
    let usage = store.usage();
    assert_eq!((usage.writes_avoided, usage.bytes_stored), (7, 9 * 4096));
    near.fill(3, 0, 0);
    store.load(&mut lane, &all).unwrap();
    assert!(near.is(3, 3, 33) && near.is(4, 3, 4));
}

#[test]
fn what_memory_has_no_room_for_goes_to_the_file_and_comes_back() {
    for page_size in [4 << 10, 64 << 10] {
        let store = make("auto", &config(page_size));
        let mut lane = attached(&store, 0);
        let near = Near::new(1, page_size);
        let pages = 3 * (1 << 20) / page_size as u64;
        for round in 0..3 {
            // Pages that shrink and pages that do not change places from one round to the next.
            for page in 0..pages {
                put(&store, &mut lane, &near, page, page + round, page + 1000 * round).unwrap();
            }
            for page in 0..pages {
                expect(&store, &mut lane, &near, page, page + round, page + 1000 * round);
            }
            let usage = store.usage();
            assert_eq!(usage.pages_held, pages);
            assert!(usage.bytes_after <= usage.bytes_before, "{usage:?}");
        }
        store.discard(0, pages);
        assert_eq!((store.usage().pages_held, store.usage().bytes_after), (0, 0));
    }
}

/// Where far memory counts as near, a page that lies in memory as it is would take the place of the page that it made room for.
#[test]
fn memory_that_counts_as_near_holds_what_shrinks() {
    for page_size in [4 << 10, 64 << 10] {
        let pages = (4 << 20) / page_size as u64;
        let config = FarConfig { counts_as_near: true, memory_bytes: 16 << 20, ..config(page_size) };
        // Equal words and random ones.
        for (kind, most) in [(1, 1 << 20), (3, 1 << 20)] {
            let store = make("auto", &config);
            let mut lane = attached(&store, 0);
            let near = Near::new(1, page_size);
            for page in 0..pages {
                put(&store, &mut lane, &near, page, kind, page).unwrap();
            }
            let memory = store.memory_bytes();
            assert!(memory <= most, "kind {kind}: {memory} of {} bytes", pages * page_size as u64);
            for page in 0..pages {
                expect(&store, &mut lane, &near, page, kind, page);
            }
        }
    }
}

#[test]
fn a_file_that_may_grow_no_further_fails_and_loses_nothing() {
    let store = make(FILE, &config(4096));
    let near = Near::new(16, 4096);
    let pid = child(|| {
        let mut lane = attached(&store, 0);
        let all: [Transfer; 16] = std::array::from_fn(|i| near.transfer(i as u64, i));
        (0..16).for_each(|i| near.fill(i, 3, i as u64));
        let limit = libc::rlimit { rlim_cur: 8 * 4096, rlim_max: 8 * 4096 };
        // SAFETY: settings of this child alone.
        unsafe {
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit);
        }
        let error = store.store(&mut lane, &all);
        assert_eq!(error, Err(FarError::Io { errno: libc::EFBIG, op: FarOp::Write }));
        assert_eq!(store.usage().pages_held, 8);
        store.load(&mut lane, &all[..8]).unwrap();
        assert_eq!(store.load(&mut lane, &all[8..9]), Err(FarError::NotStored { page: 8 }));
        (0..16).all(|i| near.is(i, 3, i as u64))
    });
    assert!(succeeded(pid));
}

#[test]
fn a_full_disk_fails_and_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let near = Near::new(64, 65536);
    let pid = child(|| {
        let target = std::ffi::CString::new(dir.path().to_str().unwrap()).unwrap();
        let (none, private) = (std::ptr::null(), libc::MS_REC | libc::MS_PRIVATE);
        let size = c"size=2M".as_ptr().cast();
        // SAFETY: strings end in 0; the mount is in a namespace of this child's own and ends with it.
        let mounted = unsafe {
            libc::unshare(libc::CLONE_NEWNS) == 0
                && libc::mount(none, c"/".as_ptr(), none, private, none.cast()) == 0
                && libc::mount(c"far".as_ptr(), target.as_ptr(), c"tmpfs".as_ptr(), 0, size) == 0
        };
        if !mounted {
            atoll_skips::whole(format_args!("mounting a small disk needs root"));
            return true;
        }
        let store = make(&format!("file:{}", dir.path().display()), &config(65536));
        let mut lane = attached(&store, 0);
        let all: [Transfer; 64] = std::array::from_fn(|i| near.transfer(2 * i as u64, i));
        (0..64).for_each(|i| near.fill(i, 3, i as u64));
        let error = store.store(&mut lane, &all);
        assert_eq!(error, Err(FarError::Io { errno: libc::ENOSPC, op: FarOp::Write }));
        let held = store.usage().pages_held;
        assert!((20..=32).contains(&held), "{held} pages");
        let there = all.iter().filter(|t| store.load(&mut lane, std::slice::from_ref(t)).is_ok()).count();
        assert_eq!(there as u64, held);
        // Room returns by a discard.
        store.discard(0, 40);
        store.store(&mut lane, &all[..4]).unwrap();
        store.load(&mut lane, &all[..4]).unwrap();
        (0..64).all(|i| near.is(i, 3, i as u64))
    });
    assert!(succeeded(pid));
}

/// A page that did not shrink lies in compressed memory as it is, and is packed again once it does shrink.
#[test]
fn pages_that_do_not_shrink_are_shown_directly() {
    for spec in ["lz4", "zstd"] {
        let store = make(spec, &config(65536));
        let mut lane = attached(&store, 0);
        let near = Near::new(2, 65536);
        for (kind, plain) in [(3, true), (3, true), (5, false), (1, false), (3, true)] {
            near.fill(0, kind, 4);
            store.store(&mut lane, &[near.transfer(9, 0)]).unwrap();
            let shown = store.direct(&lane, 9, Access::Load).unwrap();
            assert_eq!(shown.is_some(), plain, "{spec}, kind {kind}");
            if let Some(far) = shown {
                // SAFETY: both hold a page.
                unsafe { std::ptr::copy_nonoverlapping(far, near.at(1), 65536) };
                assert!(near.is(1, kind, 4), "{spec}");
            }
            expect(&store, &mut lane, &near, 9, kind, 4);
        }
    }
}

#[test]
fn plain_memory_is_shown_directly() {
    let store = make("ram", &config(65536));
    let mut lane = attached(&store, 0);
    let near = Near::new(1, 65536);
    assert_eq!(store.direct(&lane, 9, Access::Load), Err(FarError::NotStored { page: 9 }));
    let far = store.direct(&lane, 9, Access::Store).unwrap().unwrap();
    near.fill(0, 3, 4);
    // SAFETY: both hold a page.
    unsafe { std::ptr::copy_nonoverlapping(near.at(0), far, 65536) };
    expect(&store, &mut lane, &near, 9, 3, 4);
    assert_eq!(store.direct(&lane, 9, Access::Load), Ok(Some(far)));
    for spec in ["lz4", "zstd", FILE, "hosts"] {
        assert_eq!(make(spec, &config(65536)).direct(&lane, 9, Access::Load), Ok(None));
    }
}

#[test]
fn wrong_settings_are_refused_in_words() {
    let refused = |spec: &str, config| {
        let error = AnyFar::new(&spec.parse().unwrap(), &config).err().expect("refused");
        error.to_string()
    };
    let odd = FarConfig { page_size: 12288, ..config(4096) };
    assert!(refused("lz4", odd).contains("power of two"));
    assert!(refused("ram", FarConfig { lanes: 0, ..config(4096) }).contains("lane"));
    assert!(refused("hosts", config(4096)).contains("atoll lend SIZE"));
    let text = refused("file:/var/tmp/no/such/place", config(4096));
    assert!(text.contains("No such file") && text.contains("--far file:DIR"), "{text}");
}
