//! The plain program: regions are functions that every node runs on its part of an array, and what its node asks of it is little.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use atoll_memory::control::Control;
use atoll_memory::futex::Lock;
use atoll_memory::layout;
use atoll_memory::pager::node_rights::LARGE_BYTES;
use atoll_nodes::calls::{CarryOut, Reply};
use atoll_nodes::files::Mapped;
use atoll_nodes::program::{End, Program, Tell, Who};
use atoll_nodes::region::{self, Calming, Region, SinglePhases};
use atoll_nodes::{ORIGIN, ask};

/// What a node does in a region: its part of it, by a seed.
pub(crate) type Part = fn(&Node, u64);

/// A region for all nodes.
#[derive(Clone, Copy)]
pub(crate) struct Loop {
    pub(crate) part: Part,
    pub(crate) seed: u64,
    /// Do many nodes write a page at once?
    pub(crate) many: bool,
    /// Phases that have one writer nevertheless, and others: the barrier's site, and whether.
    pub(crate) phases: SinglePhases,
}

/// One node of the program.
pub(crate) struct Node {
    pub(crate) me: u32,
    pub(crate) nodes: u32,
    pub(crate) control: &'static Control,
    regions: Cell<u32>,
    ended: Cell<bool>,
}

/// Words of a page.
pub(crate) const PAGE: usize = 512;

impl Node {
    pub(crate) fn new(me: u32, nodes: u32, control: &'static Control) -> Node {
        Node { me, nodes, control, regions: Cell::new(0), ended: Cell::new(false) }
    }

    /// The program's memory: `words` words, the first half of which node 0 has first, and the other half node 1.
    pub(crate) fn array(&self, words: usize) -> Array {
        Array { half: words / 2, other: layout::ARENA + layout::part(LARGE_BYTES, 1, self.nodes).0 }
    }

    /// On the origin: all nodes run a region.
    pub(crate) fn region(&self, region: Loop) {
        let key = u64::from(self.regions.get() % 3) + 1;
        self.regions.set(self.regions.get() + 1);
        let code = region.part as usize as u64;
        let order = [code.to_le_bytes(), region.seed.to_le_bytes()].concat();
        let (many, phases, calming) = (region.many, region.phases, Calming::Watched);
        *NEXT.lock() = Some(Region { key, code, many, phases, calming, order });
        ask::begin_region();
        self.take_part(region.part, region.seed);
    }

    /// On the origin: the program ends, once. What all nodes counted is in the control block then.
    pub(crate) fn end(&self) {
        if !self.ended.replace(true) {
            ask::exit(0, false);
        }
    }

    /// On another node: takes part in regions until the program ends.
    pub(crate) fn serve(&self) {
        for done in 0.. {
            region::wait_for(done);
            let (code, seed) = *CURRENT.lock();
            // SAFETY: a `Part`, at the same address in all processes that were forked from one.
            let part = unsafe { std::mem::transmute::<usize, Part>(code as usize) };
            self.take_part(part, seed);
        }
    }

    fn take_part(&self, part: Part, seed: u64) {
        region::set_workers(1);
        part(self, seed);
        ask::barrier(0, true);
    }
}

/// Words of the arena.
#[derive(Clone, Copy)]
pub(crate) struct Array {
    half: usize,
    other: usize,
}

/// Words that a program reads and writes, in the arena or elsewhere.
pub(crate) trait Words {
    fn get(&self, at: usize) -> u64;
    fn set(&mut self, at: usize, value: u64);
}

impl Array {
    /// The word at `at`.
    pub(crate) fn word(&self, at: usize) -> *mut u64 {
        let byte = if at < self.half { layout::ARENA + 8 * at } else { self.other + 8 * (at - self.half) };
        byte as *mut u64
    }
}

impl Words for Array {
    fn get(&self, at: usize) -> u64 {
        // SAFETY: in the arena, which is mapped for ever; other nodes' writes come between barriers or under the protocol.
        unsafe { self.word(at).read_volatile() }
    }

    fn set(&mut self, at: usize, value: u64) {
        // SAFETY: as above.
        unsafe { self.word(at).write_volatile(value) };
    }
}

impl Words for Vec<u64> {
    fn get(&self, at: usize) -> u64 {
        self[at]
    }

    fn set(&mut self, at: usize, value: u64) {
        self[at] = value;
    }
}

/// On the origin: the region that its leader begins.
static NEXT: Lock<Option<Region>> = Lock::new(None);
/// On another node: the code and the seed of the region that is under way.
static CURRENT: Lock<(u64, u64)> = Lock::new((0, 0));
/// Regions of which this node's part heard, by the program's own message.
pub(crate) static HEARD: AtomicU32 = AtomicU32::new(0);
/// On the origin: parts of other nodes that came to an end.
pub(crate) static ENDED: AtomicU32 = AtomicU32::new(0);
/// Blocks that other nodes freed: the sum of their addresses.
pub(crate) static FREED: AtomicU64 = AtomicU64::new(0);
/// The last signal that came from another node, and whether a worker raised it.
pub(crate) static RAISED: AtomicU32 = AtomicU32::new(0);

/// What the program's parts say to each other.
const BEGINS: u8 = 1;
const ENDS: u8 = 2;

/// What the origin serves: one more than before, and an answer that takes a while.
pub(crate) const COUNT: u8 = 0;
pub(crate) const LATE: u8 = 9;
const WHILE: Duration = Duration::from_millis(5);

/// The program, as its node's agent sees it.
pub(crate) struct Plain {
    count: u64,
    waiting: VecDeque<(Who, Instant)>,
}

impl Plain {
    pub(crate) fn new() -> Plain {
        Plain { count: 0, waiting: VecDeque::new() }
    }
}

/// Ends this process, as whoever interposes nothing does.
fn exit(status: i32) -> ! {
    // SAFETY: no destructors of the parent's are run.
    unsafe { libc::_exit(status) }
}

impl Program for Plain {
    fn begin_region(&mut self, tell: Tell<'_>) -> Region {
        tell(vec![BEGINS]);
        NEXT.lock().take().unwrap()
    }

    fn enter_region(&mut self, region: &Region) -> bool {
        let Some((code, seed)) = region.order.split_first_chunk::<8>() else { return false };
        let Ok(seed) = seed.try_into() else { return false };
        *CURRENT.lock() = (u64::from_le_bytes(*code), u64::from_le_bytes(seed));
        true
    }

    fn end_region(&mut self, tell: Tell<'_>) {
        tell(vec![ENDS]);
    }

    fn hear(&mut self, from: u32, message: &[u8]) -> bool {
        match message {
            [BEGINS] if from == ORIGIN => HEARD.fetch_add(1, Ordering::Relaxed),
            [ENDS] if from != ORIGIN => ENDED.fetch_add(1, Ordering::Relaxed),
            _ => return false,
        };
        true
    }

    fn serve(&mut self, what: u8, words: [u64; 3], who: Who) -> Option<[u64; 2]> {
        if what == LATE {
            self.waiting.push_back((who, Instant::now() + WHILE));
            return None;
        }
        self.count += words[0];
        Some([self.count, who.0.into()])
    }

    fn serve_late(&mut self) -> Option<(Who, [u64; 2])> {
        let (who, _) = self.waiting.pop_front_if(|(_, until)| *until <= Instant::now())?;
        Some((who, [7, who.0.into()]))
    }

    fn next_time(&self) -> Option<Duration> {
        let until = self.waiting.front().map(|(_, until)| *until);
        until.map(|until| until.saturating_duration_since(Instant::now()))
    }

    fn free(&mut self, block: usize) {
        FREED.fetch_add(block as u64, Ordering::Relaxed);
    }

    fn map_file(&mut self, _: &Mapped, _: i32) {}

    fn unmap_file(&mut self, _: usize, _: usize) {}

    fn raise(&mut self, signal: i32, raised: bool) {
        RAISED.store(signal as u32 * 2 + u32::from(raised), Ordering::Relaxed);
    }

    fn carry_out(&self) -> CarryOut {
        |words, bytes| Reply {
            result: words.iter().sum::<u64>() as i64,
            errno: bytes.len() as i32,
            bytes: bytes.iter().rev().copied().collect(),
        }
    }

    fn exit(&mut self, status: i32) {
        // A program with handlers of its end would run them.
        exit(status)
    }

    fn end(&mut self, how: End) -> ! {
        match how {
            End::ByNode(status) => exit(status),
            End::OfNode => exit(0),
        }
    }
}
