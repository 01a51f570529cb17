//! Counts misses of TLBs in a trace: `lru_misses FILE…` prints, for each file, how often workers miss in a fully associative
//! LRU TLB of 16 to 1024 entries of their own, and how fast the file was decoded. For an exact and a filtered trace of one run
//! the difference is the filter's error.
//! the difference is the filter's error.

use std::collections::HashMap;
use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

use atoll_record::trace::{Event, Reader};

const SIZES: [usize; 5] = [16, 32, 64, 256, 1024];

/// One worker's TLBs of all sizes: the pages in the order of their last use, and the misses.
#[derive(Default)]
struct Worker {
    /// The time of each page's last use.
    used: HashMap<u64, u64>,
    /// The pages by the time of their last use, the latest at the end; 0 where a page was used again since.
    stack: Vec<u64>,
    misses: [u64; SIZES.len()],
}

impl Worker {
    /// Notes a use. The page's distance is the number of pages used since its last use: a TLB of more entries hits.
    fn touch(&mut self, page: u64) {
        let page = page + 1;
        if self.stack.last() == Some(&page) {
            return;
        }
        let mut distance = usize::MAX;
        if let Some(&at) = self.used.get(&page) {
            let since = self.stack[at as usize + 1..].iter().filter(|&&page| page != 0);
            distance = since.take(SIZES[SIZES.len() - 1]).count();
            self.stack[at as usize] = 0;
        }
        for (misses, size) in self.misses.iter_mut().zip(SIZES) {
            *misses += u64::from(distance >= size);
        }
        self.used.insert(page, self.stack.len() as u64);
        self.stack.push(page);
        if self.stack.len() > 4096 + 2 * self.used.len() {
            self.stack.retain(|&page| page != 0);
            self.used = self.stack.iter().enumerate().map(|(at, &page)| (page, at as u64)).collect();
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    println!("{:40} {:>10} {:>9}  misses with {SIZES:?} entries", "", "accesses", "M/s");
    for name in std::env::args().skip(1) {
        let mut reader = Reader::open(Path::new(&name))?;
        let (mut workers, mut events) = (Vec::new(), Vec::new());
        let (mut decoding, mut total, mut accesses) = (Duration::ZERO, 0, 0u64);
        loop {
            let start = Instant::now();
            let more = reader.next_chunk(&mut events)?;
            decoding += start.elapsed();
            if !more {
                break;
            }
            total += events.len();
            for event in events.drain(..) {
                if let Event::Access { worker, page, .. } = event {
                    accesses += 1;
                    let worker = usize::from(worker);
                    if workers.len() <= worker {
                        workers.resize_with(worker + 1, Worker::default);
                    }
                    workers[worker].touch(page);
                }
            }
        }
        let mut misses = [0; SIZES.len()];
        for worker in &workers {
            for (sum, more) in misses.iter_mut().zip(worker.misses) {
                *sum += more;
            }
        }
        let speed = total as f64 / decoding.as_secs_f64() / 1e6;
        println!("{name:40} {accesses:>10} {speed:>9.1}  {misses:?}");
    }
    Ok(())
}
