//! Measures how fast pages are copied from far memory that is memory.

use std::time::Instant;

/// The bytes of the far memory: more than a cache holds.
const FAR: usize = 256 << 20;
const PAGE: usize = 4096;

/// Returns the bytes copied in a nanosecond: random pages, one after the other.
pub(super) fn gb_per_s(far: &[u8]) -> f64 {
    let mut near = vec![0_u8; 64 * PAGE];
    let pages = far.len() / PAGE;
    let count = 16_384;
    let begin = Instant::now();
    let mut at = 1_u64;
    for i in 0..count {
        at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let from = (at >> 33) as usize % pages * PAGE;
        let to = i % 64 * PAGE;
        near[to..to + PAGE].copy_from_slice(&far[from..from + PAGE]);
        std::hint::black_box(&mut near);
    }
    (count * PAGE) as f64 / begin.elapsed().as_secs_f64() / 1e9
}

/// Returns far memory with data in it.
pub(super) fn far() -> Vec<u8> {
    vec![1; FAR]
}
