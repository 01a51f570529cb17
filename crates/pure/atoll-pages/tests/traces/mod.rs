//! Fixed traces: the same references on every machine and in every version.

use atoll_pages::replay::Reference;

fn reference(worker: usize, page: u64, write: bool) -> Reference {
    Reference { worker, page, write }
}

/// One worker reads these pages.
pub(crate) fn pages(pages: &[u64]) -> Vec<Reference> {
    pages.iter().map(|&page| reference(0, page, false)).collect()
}

/// One worker writes pages 0 to `pages` in order, `rounds` times.
pub(crate) fn cyclic(pages: u64, rounds: u64) -> Vec<Reference> {
    (0..rounds * pages).map(|index| reference(0, index % pages, true)).collect()
}

/// Workers that own `own` pages each and sweep them in turn, page by page; after every sweep all read the `halo`
/// pages, which lie between the first two workers' pages.
pub(crate) fn halo(workers: u64, own: u64, halo: u64, rounds: u64) -> Vec<Reference> {
    let mut trace = Vec::new();
    for _ in 0..rounds {
        for index in 0..own {
            trace.extend((0..workers).map(|worker| reference(worker as usize, worker * 1000 + index, true)));
        }
        for index in 0..halo {
            trace.extend((0..workers).map(|worker| reference(worker as usize, 500 + index, worker == 0)));
        }
    }
    trace
}

/// Numbers below 2^31 from Knuth's MMIX generator.
pub(crate) struct Lcg(u64);

impl Lcg {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) * bound) >> 31
    }
}

/// Skewed use of `pages` pages by `workers` workers: page n is used roughly in proportion to 1 / n^(2/3).
pub(crate) fn skewed(workers: u64, pages: u64, references: usize) -> Vec<Reference> {
    let mut random = Lcg(42);
    let cube = |unit: u64| (unit * unit * unit) >> 30;
    let mut one = || {
        let page = (cube(random.below(1 << 15)) * pages) >> 15;
        reference(random.below(workers) as usize, page, random.below(4) == 0)
    };
    (0..references).map(|_| one()).collect()
}
