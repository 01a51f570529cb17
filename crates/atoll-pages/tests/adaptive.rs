//! What `adaptive` gains on sweeps and what it loses elsewhere, against the other policies and against MIN.

#![allow(clippy::unwrap_used, reason = "a test ends where something is missing")]

use atoll_pages::OwnedStorage;
use atoll_pages::replay::{Reference, Replay};

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

/// Belady's MIN, by the next use of every resident page in order.
fn min(frames: usize, pages: &[u64]) -> u64 {
    let mut later = std::collections::HashMap::new();
    let mut next = vec![usize::MAX; pages.len()];
    for (index, page) in pages.iter().enumerate().rev() {
        next[index] = later.insert(page, index).unwrap_or(usize::MAX);
    }
    let (mut resident, mut faults) = (std::collections::BTreeSet::new(), 0);
    for (index, &page) in pages.iter().enumerate() {
        if !resident.remove(&(index, page)) {
            faults += 1;
            if resident.len() == frames {
                resident.pop_last();
            }
        }
        // A page never used again takes a number of its own, so that both stay in the set.
        resident.insert((next[index], page));
    }
    faults
}

fn show(name: &str, frames: u32, pages: &[u64]) {
    print!("{name:28} min {:7}", min(frames as usize, pages));
    for spec in ["fifo", "lru", "cmcp", "adaptive"] {
        print!("  {spec} {:7}", faults(spec, frames, pages));
    }
    println!();
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

#[test]
fn explore() {
    for (n, c) in [(100, 80), (2000, 1600), (2000, 1000), (4000, 1000), (8000, 1000), (1100, 1000)] {
        show(&format!("cyclic {n}/{c}"), c, &cyclic(0, n, 20));
    }
    let phases: Vec<u64> = (0..6).flat_map(|phase| cyclic(phase % 3 * 10_000, 1500, 8)).collect();
    show("phases 1500/1000", 1000, &phases);
    let fits: Vec<u64> = (0..6).flat_map(|phase| cyclic(phase % 3 * 10_000, 900, 8)).collect();
    show("phases that fit 900/1000", 1000, &fits);
    let mut random = Lcg(42);
    let uniform: Vec<u64> = (0..60_000).map(|_| random.below(2000)).collect();
    show("uniform 2000/1000", 1000, &uniform);
    let zipf: Vec<u64> = (0..60_000)
        .map(|_| {
            let unit = random.below(1 << 15);
            ((unit * unit * unit >> 30) * 4000) >> 15
        })
        .collect();
    show("skewed 4000/1000", 1000, &zipf);
    let drift: Vec<u64> = (0..60_000_u64).map(|index| index / 10 + random.below(800)).collect();
    show("drift 800/1000", 1000, &drift);
    let drift: Vec<u64> = (0..60_000_u64).map(|index| index / 10 + random.below(1500)).collect();
    show("drift 1500/1000", 1000, &drift);
    let tiles: Vec<u64> = (0..4).flat_map(|_| (0..8).flat_map(|tile| cyclic(tile * 500, 500, 8))).collect();
    show("tiles 500 of 4000/1000", 1000, &tiles);
    let tiles: Vec<u64> = (0..4).flat_map(|_| (0..8).flat_map(|tile| cyclic(tile * 900, 900, 8))).collect();
    show("tiles 900 of 7200/1000", 1000, &tiles);
    let updown: Vec<u64> = (0..10).flat_map(|_| (0..2000).chain((0..2000).rev())).collect();
    show("up and down 2000/1000", 1000, &updown);
    let hot: Vec<u64> =
        (0..40_000_u64).map(|i| if i % 2 == 0 { 100_000 + (i / 2) % 300 } else { (i / 2) % 2000 }).collect();
    show("hot 300 and 2000/1000", 1000, &hot);
    show("once", 1000, &(0..30_000).collect::<Vec<_>>());
    let stencil: Vec<u64> = (0..20)
        .flat_map(|_| (1..399_u64).flat_map(|r| [r - 1, r, r + 1].into_iter().flat_map(|r| r * 5..r * 5 + 5)))
        .collect();
    show("stencil 2000/1000", 1000, &stencil);
}
