//! Linked lists to walk through memory. Each load needs the one before, so the walk measures their latency.
//!
//! `latency.rs` puts them into every kind of memory. Source: the barrelfish paper, appendix A.2, listings A.1 and A.2.

use std::time::Instant;

/// The bytes of an element of a list in random order: a cache line.
const LINE: usize = 64;

/// The order of a list's elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Order {
    /// Pointers side by side: what the paper calls cache friendly.
    Sequential,
    /// Elements of a cache line each, in random order.
    Random,
}

/// A circular list that lies in borrowed memory.
pub(super) struct List<'a> {
    memory: &'a mut [u8],
    start: usize,
    elements: usize,
}

impl<'a> List<'a> {
    /// Links all of `memory`, which must be aligned to a cache line and hold two of them.
    pub(super) fn new(memory: &'a mut [u8], order: Order) -> Self {
        let stride = if order == Order::Random { LINE } else { size_of::<usize>() };
        let elements = memory.len() / stride;
        let start = memory.as_ptr() as usize;
        let at = |index: u32| start + index as usize * stride;
        let mut link = |from: u32, to: u32| {
            let begin = from as usize * stride;
            memory[begin..begin + size_of::<usize>()].copy_from_slice(&at(to).to_ne_bytes());
        };
        let count = elements as u32;
        match order {
            Order::Sequential => (0..count).for_each(|index| link(index, (index + 1) % count)),
            Order::Random => {
                let mut order: Vec<u32> = (0..count).collect();
                shuffle(&mut order);
                (0..elements).for_each(|index| link(order[index], order[(index + 1) % elements]));
            }
        }
        Self { memory, start, elements }
    }

    /// Returns the nanoseconds that a load takes, on a walk of at least `loads`.
    pub(super) fn walk_ns(&self, loads: usize) -> f64 {
        debug_assert_eq!(self.memory.as_ptr() as usize, self.start);
        // The first round brings what fits into a cache.
        let mut at = self.walk(self.start, self.elements.min(loads) / STEPS + 1);
        let turns = loads.div_ceil(STEPS);
        let begin = Instant::now();
        at = self.walk(at, turns);
        let elapsed = begin.elapsed();
        std::hint::black_box(at);
        elapsed.as_secs_f64() * 1e9 / (turns * STEPS) as f64
    }

    /// Does `turns` times [`STEPS`] loads from the element at `at` on; returns where it ends.
    fn walk(&self, mut at: usize, turns: usize) -> usize {
        for _ in 0..turns {
            for _ in 0..STEPS {
                // SAFETY: every element holds the address of an element, all of them in the memory that is borrowed.
                at = unsafe { (at as *const usize).read_volatile() };
            }
        }
        at
    }
}

/// The number of loads without a look at the counter: the compiler unrolls the inner loop.
const STEPS: usize = 64;

/// Shuffles by Knuth's algorithm, in the same way every time.
fn shuffle(order: &mut [u32]) {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for last in (1..order.len()).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        order.swap(last, ((state >> 33) % (last as u64 + 1)) as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(align(64))]
    struct Lines([u8; 64 * 100]);

    #[test]
    fn a_list_leads_through_all_of_its_elements_and_back() {
        for (order, elements) in [(Order::Sequential, 800), (Order::Random, 100)] {
            let mut lines = Lines([0; 6400]);
            let list = List::new(&mut lines.0, order);
            assert_eq!(list.elements, elements);
            let mut seen = std::collections::HashSet::new();
            let mut at = list.start;
            for _ in 0..elements {
                assert!(seen.insert(at), "{order:?} comes back too early");
                // SAFETY: an element of the list.
                at = unsafe { (at as *const usize).read() };
            }
            assert_eq!(at, list.start, "{order:?}");
        }
    }
}
