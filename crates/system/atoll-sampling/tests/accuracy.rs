//! Compares the timer sampler with counts that are known by construction: arrays that are read in powers of two.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::hint::black_box;

use atoll_sampling::Sampler;
use atoll_sampling::code::Code;
use atoll_sampling::sampler::Knobs;
use atoll_sampling::timer::Timer;

const ARRAYS: usize = 6;
const WORDS: usize = 8192;

/// Reads an array. All arrays are read by the same code, like those in one loop of a program.
#[inline(never)]
fn read(array: &[u64]) -> u64 {
    array.iter().fold(0u64, |sum, word| black_box(sum.wrapping_add(*word)))
}

#[test]
fn the_hottest_arrays_are_in_their_order() {
    let knobs = Knobs { period: 100_000, buffer_bytes: 1 << 20, harvest_thread: false };
    let mut timer = match Timer::new(knobs, 0.0) {
        Ok(timer) => timer,
        Err(error) => atoll_skips::skip!("{error}"),
    };
    let arrays: Vec<Vec<u64>> = (0..ARRAYS).map(|i| vec![i as u64; WORDS]).collect();
    // SAFETY: no pointers.
    let tid = unsafe { libc::gettid() } as u32;
    timer.attach(std::process::id(), tid, false).unwrap();
    let (mut found, mut code) = (Vec::new(), Code::default());
    // This goes on until there are enough samples, however slow the machine is. The last array has one in 30 of those that count, and the
    // system may stop this thread for a while wherever it is.
    while found.len() < 60_000 {
        for round in 0..1 << ARRAYS {
            // Array i is read in one of 2^i rounds.
            for (i, array) in arrays.iter().enumerate() {
                if round % (1 << i) == 0 {
                    black_box(read(array));
                }
            }
        }
        timer.harvest(&mut code, &mut found);
    }
    timer.detach(tid);
    let inside = |array: &Vec<u64>| {
        let start = array.as_ptr() as u64;
        found.iter().filter(|f| (start..start + 8 * WORDS as u64).contains(&f.address)).count()
    };
    let counts: Vec<usize> = arrays.iter().map(inside).collect();
    println!("{counts:?} of {}", found.len());
    assert!(counts.is_sorted_by(|a, b| a > b), "{counts:?}");
    // The other samples are of the loop's own variable, written and read for each word.
    assert!(counts.iter().sum::<usize>() * 6 > found.len(), "{counts:?} of {}", found.len());
}
