//! The origin hands out what constructs of all nodes need: loops' iterations, `single` constructs, threads, room in pools.
//!
//! Workers ask through their node's agent (`ask`); the origin's agent has the answer from here (`start::program` passes it on).
//!
//! Rules: as for the agent, which calls it.

use std::time::Duration;

use atoll_nodes::program::Who;
use atoll_nodes::region::has_thrashed;
use atoll_nodes::{ORIGIN, clock};

use super::chunks::{Chunks, Wish};
use super::pools;
use super::singles::Singles;
use crate::omp::contention;
use crate::omp::pools::Pools;

/// A service, by the number as which it travels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum Service {
    /// Number of the share, how many chunks are wanted in 16 bits, and one bit whether guided; iterations of the loop; of a
    /// chunk. Answers: from, to.
    Chunk,
    /// Threads wanted, how many there may be, threads given back. Answer: how many of those wanted it may have.
    Threads,
    /// The number of a `single` construct, at which the worker is its node's first. Answer: 1 if it has it.
    Single,
    /// The questions of `pools`.
    Pool,
}

const SERVICES: [Service; 4] = [Service::Chunk, Service::Threads, Service::Single, Service::Pool];

/// Asks the origin.
pub(super) fn ask(service: Service, words: [u64; 3]) -> [u64; 2] {
    atoll_nodes::ask::program(service as u8, words)
}

/// The origin's tables.
pub(crate) struct Served {
    nodes: u32,
    chunks: Chunks,
    singles: Singles,
    pools: Pools,
    /// Threads of the program in the region and in regions within it, besides the first.
    more_threads: u32,
}

impl Served {
    /// Empty tables for `nodes` nodes.
    pub(crate) fn new(nodes: u32) -> Served {
        let (chunks, singles) = (Chunks::default(), Singles::default());
        Served { nodes, chunks, singles, pools: Pools::new(), more_threads: 0 }
    }

    /// A region of `threads` threads begins.
    pub(crate) fn begin_region(&mut self, threads: u32) {
        self.chunks.restart();
        self.singles.restart();
        self.more_threads = threads.saturating_sub(1);
    }

    /// A worker asks. None: `late` has the answer once it is known.
    pub(crate) fn serve(&mut self, what: u8, words: [u64; 3], who: Who) -> Option<[u64; 2]> {
        let Some(service) = SERVICES.get(what as usize) else { return Some([0; 2]) };
        match service {
            Service::Chunk => {
                let (chunks, guided) = ((words[0] >> 1) as u16, words[0] & 1 != 0);
                let wish = Wish { count: words[1], chunk: words[2], chunks, guided };
                // Where pages go to and fro the origin does what is left.
                if who.0 != ORIGIN && has_thrashed() {
                    return Some([0; 2]);
                }
                let now = Duration::from_nanos(clock::now());
                let (from, to) = self.chunks.take(words[0] >> 17, wish, (who.0, self.nodes), now);
                Some([from, to])
            }
            Service::Threads => {
                let [wanted, limit, back] = words.map(|word| word as u32);
                self.more_threads = self.more_threads.saturating_sub(back);
                let threads = contention::room(self.more_threads, wanted, limit);
                self.more_threads += threads;
                Some([threads.into(), 0])
            }
            Service::Single => {
                let has = self.singles.take(words[0], who, who.0 == ORIGIN)?;
                Some([has.into(), 0])
            }
            Service::Pool => Some([pools::serve(&mut self.pools, words), 0]),
        }
    }

    /// An answer that can be given now to somebody who waits.
    pub(crate) fn late(&mut self) -> Option<(Who, [u64; 2])> {
        let (who, has) = self.singles.answer()?;
        Some((who, [has.into(), 0]))
    }

    /// The time until such an answer can be given; none if nobody waits.
    pub(crate) fn next_time(&self) -> Option<Duration> {
        self.singles.longest_sleep()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_are_found_by_their_numbers_and_nothing_else_is() {
        for (number, service) in SERVICES.iter().enumerate() {
            assert_eq!(*service as usize, number);
        }
        let mut served = Served::new(2);
        served.begin_region(3);
        assert_eq!(served.serve(99, [1; 3], (1, 7)), Some([0; 2]));
        assert_eq!(served.serve(Service::Threads as u8, [5, 6, 0], (1, 7)), Some([3, 0]));
        assert_eq!(served.serve(Service::Threads as u8, [5, 6, 2], (1, 7)), Some([2, 0]));
        assert_eq!(served.serve(Service::Chunk as u8, [4 << 1, 10, 100], (1, 7)), Some([0, 10]));
        assert_eq!(served.serve(Service::Single as u8, [0; 3], (1, 7)), None);
        assert_eq!(served.serve(Service::Single as u8, [0; 3], (0, 1)), Some([1, 0]));
        assert_eq!((served.late(), served.late()), (Some(((1, 7), [0, 0])), None));
    }
}
