//! What `adaptive` gains on sweeps and what it loses elsewhere, against the other policies and against MIN.

#![allow(clippy::unwrap_used, reason = "a test ends where something is missing")]

use std::collections::{BTreeSet, HashMap};

use atoll_pages::OwnedStorage;
use atoll_pages::replay::{Reference, Replay};

const FRAMES: u32 = 1000;

/// Major faults of one worker who uses these pages, with a tick in every 1000 references.
fn faults(spec: &str, frames: u32, pages: &[u64]) -> u64 {
    let mut storage = OwnedStorage::new(spec.parse().unwrap(), frames);
    let mut replay = Replay::new(storage.policy(), frames);
    for (index, &page) in pages.iter().enumerate() {
        replay.reference(Reference { worker: 0, page, write: false });
        if index % 1000 == 0 {
            replay.tick();
        }
    }
    replay.counts().major
}

/// The faults of Belady's MIN, which evicts the page whose next use is farthest.
fn min(frames: usize, pages: &[u64]) -> u64 {
    let mut later = HashMap::new();
    let mut next = vec![usize::MAX; pages.len()];
    for (index, page) in pages.iter().enumerate().rev() {
        next[index] = later.insert(page, index).unwrap_or(usize::MAX);
    }
    let (mut resident, mut faults) = (BTreeSet::new(), 0);
    for (index, &page) in pages.iter().enumerate() {
        if !resident.remove(&(index, page)) {
            faults += 1;
            if resident.len() == frames {
                resident.pop_last();
            }
        }
        resident.insert((next[index], page));
    }
    faults
}

/// The faults of MIN, FIFO, LRU, CMCP and the adaptive policy.
fn all(frames: u32, pages: &[u64]) -> [u64; 5] {
    let of = |spec| faults(spec, frames, pages);
    [min(frames as usize, pages), of("fifo"), of("lru"), of("cmcp"), of("adaptive")]
}

struct Lcg(u64);

impl Lcg {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) * bound) >> 31
    }
}

fn cyclic(first: u64, pages: u64, rounds: u64) -> Vec<u64> {
    (0..rounds * pages).map(|index| first + index % pages).collect()
}

/// Three regions in turn, each sweeping its own pages eight times whenever it runs.
fn regions(pages: u64) -> Vec<u64> {
    (0..6).flat_map(|region| cyclic(region % 3 * 10_000, pages, 8)).collect()
}

/// Four rounds over eight tiles, each swept eight times before the next.
fn tiles(pages: u64) -> Vec<u64> {
    (0..4).flat_map(|_| (0..8).flat_map(move |tile| cyclic(tile * pages, pages, 8))).collect()
}

/// Random uses of a range of pages that moves on.
fn drift(width: u64) -> Vec<u64> {
    let mut random = Lcg(7);
    (0..60_000).map(|index| index / 10 + random.below(width)).collect()
}

/// Twenty sweeps over rows of five pages, each row read with its two neighbours.
fn stencil() -> Vec<u64> {
    let rows = |row: u64| [row - 1, row, row + 1].into_iter().flat_map(|row| row * 5..row * 5 + 5);
    (0..20).flat_map(|_| (1..399).flat_map(rows)).collect()
}

fn up_and_down() -> Vec<u64> {
    (0..10).flat_map(|_| (0..2000).chain((0..2000).rev())).collect()
}

fn uniform() -> Vec<u64> {
    let mut random = Lcg(42);
    (0..60_000).map(|_| random.below(2000)).collect()
}

fn skewed() -> Vec<u64> {
    let mut random = Lcg(42);
    let mut one = || {
        let unit = random.below(1 << 15);
        (((unit * unit * unit) >> 30) * 4000) >> 15
    };
    (0..60_000).map(|_| one()).collect()
}

/// A table of 300 pages used in turn with a sweep over 2000.
fn hot() -> Vec<u64> {
    (0..20_000).flat_map(|index| [100_000 + index % 300, index % 2000]).collect()
}

#[test]
fn sweeps_come_near_min() {
    let table = [
        ("1100 pages", cyclic(0, 1100, 20), [3000, 22000, 22000, 12500, 6646]),
        ("1250 pages", cyclic(0, 1250, 20), [6000, 25000, 25000, 15500, 9388]),
        ("2000 pages", cyclic(0, 2000, 20), [21000, 40000, 40000, 30500, 24141]),
        ("4000 pages", cyclic(0, 4000, 20), [61000, 80000, 80000, 70500, 64220]),
        ("8000 pages", cyclic(0, 8000, 20), [141000, 160000, 160000, 150524, 144337]),
        ("stencil of 2000 pages", stencil(), [21000, 40000, 33525, 30436, 24035]),
    ];
    for (name, pages, expected) in table {
        let counts @ [min, fifo, _, _, adaptive] = all(FRAMES, &pages);
        assert_eq!(counts, expected, "{name}");
        assert!((fifo - adaptive) * 4 >= (fifo - min) * 3, "{name}: three quarters of what can be saved are");
    }
}

#[test]
fn elsewhere_it_is_fifo_but_for_a_fifth() {
    let table = [
        ("pages used once", cyclic(0, 30_000, 1), [30000, 30000, 30000, 30000, 30000]),
        ("regions that sweep more than fits", regions(1500), [30000, 72000, 72000, 64150, 50819]),
        ("regions that sweep what fits", regions(900), [5200, 5400, 30100, 30100, 5692]),
        ("tiles of half the frames", tiles(500), [14000, 16000, 16000, 14500, 16347]),
        ("tiles of nearly all frames", tiles(900), [28400, 28800, 203700, 207510, 31979]),
        ("up and down", up_and_down(), [21000, 21000, 25491, 21000, 22677]),
        ("tiles of four fifths of the frames", tiles(800), [24800, 25600, 180900, 183435, 28603]),
        ("regions that just fit", regions(950), [5600, 5700, 31800, 31800, 6069]),
        ("a range that fits and moves", drift(800), [6623, 6757, 7689, 23633, 6757]),
        ("a wider range that moves", drift(1500), [9380, 23745, 31815, 38423, 24418]),
        ("random", uniform(), [12347, 30269, 30399, 30366, 30166]),
        ("skewed", skewed(), [15210, 31580, 28010, 30171, 31445]),
        ("a table and a sweep", hot(), [14000, 26800, 20300, 19450, 25958]),
    ];
    for (name, pages, expected) in table {
        let counts @ [_, fifo, _, _, adaptive] = all(FRAMES, &pages);
        assert_eq!(counts, expected, "{name}");
        assert!(adaptive * 5 <= fifo * 6, "{name}");
    }
}

#[test]
fn few_frames_are_no_trap() {
    for frames in 1..40 {
        let pages = cyclic(0, 20, 50);
        let [min, fifo, .., adaptive] = all(frames, &pages);
        assert!(min <= adaptive && adaptive <= fifo + fifo / 5, "{frames} frames: {adaptive} to {fifo}");
    }
}
