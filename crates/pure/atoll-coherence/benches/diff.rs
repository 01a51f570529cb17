//! Measures how fast diffs of 4K pages are made and merged: `cargo bench -p atoll-coherence`.
//!
//! The pages are as programs leave them: unchanged; with a few stores; with every other integer written, as where two nodes
//! deal out elements; with doubles that changed in their lower bytes; completely written.

use std::hint::black_box;
use std::time::Instant;

use atoll_coherence::diff;

const PAGE: usize = 4096;
/// The number of pages of each kind: more than the caches nearest to a core hold.
const PAGES: usize = 512;
const RUNS: usize = 41;

/// The next random number of the splitmix64 generator.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut x = *state;
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

type Change = fn(&mut [u8], &mut u64);

const KINDS: [(&str, Change); 5] = [
    ("unchanged", |_, _| {}),
    ("8 stores of 8 bytes", |page, state| {
        for _ in 0..8 {
            let at = random(state) as usize % (PAGE / 8) * 8;
            page[at..at + 8].copy_from_slice(&random(state).to_le_bytes());
        }
    }),
    ("every other integer", |page, state| {
        for at in (0..PAGE).step_by(8) {
            page[at..at + 4].copy_from_slice(&(random(state) as u32).to_le_bytes());
        }
    }),
    ("doubles, lower 6 bytes", |page, state| {
        for at in (0..PAGE).step_by(8) {
            page[at..at + 6].copy_from_slice(&random(state).to_le_bytes()[..6]);
        }
    }),
    ("every byte", |page, _| page.iter_mut().for_each(|byte| *byte = !*byte)),
];

/// The median of the times that `work` takes for a page, in nanoseconds.
fn median(mut work: impl FnMut()) -> f64 {
    let mut times: Vec<f64> = (0..RUNS)
        .map(|_| {
            let began = Instant::now();
            work();
            began.elapsed().as_nanos() as f64 / PAGES as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[RUNS / 2]
}

fn main() {
    println!("{:<24}{:>12}{:>12}{:>12}{:>14}", "page", "make ns", "GB/s", "merge ns", "bytes of diff");
    for (name, change) in KINDS {
        let mut state = 1;
        let twins: Vec<u8> = (0..PAGES * PAGE).map(|_| random(&mut state) as u8).collect();
        let mut pages = twins.clone();
        pages.chunks_mut(PAGE).for_each(|page| change(page, &mut state));
        let each = || twins.chunks(PAGE).zip(pages.chunks(PAGE));
        let mut out = Vec::with_capacity(3 * PAGE);
        let make = median(|| {
            for (twin, page) in each() {
                out.clear();
                diff::encode(black_box(twin), black_box(page), &mut out);
                black_box(&out);
            }
        });
        let diffs: Vec<Vec<u8>> = each()
            .map(|(twin, page)| {
                let mut out = Vec::new();
                diff::encode(twin, page, &mut out);
                out
            })
            .collect();
        let mut merged = twins.clone();
        let merge = median(|| {
            for (page, diff) in merged.chunks_mut(PAGE).zip(&diffs) {
                if diff::apply(black_box(diff), black_box(page)).is_err() {
                    std::process::abort();
                }
            }
        });
        let bytes = diffs.iter().map(Vec::len).sum::<usize>() / PAGES;
        println!("{name:<24}{make:>12.0}{:>12.2}{merge:>12.0}{bytes:>14}", PAGE as f64 / make);
    }
}
