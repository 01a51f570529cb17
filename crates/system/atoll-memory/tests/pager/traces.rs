//! Random traces of two workers against a slow and obvious pager: one vector of bytes, in which every page is always near.
//!
//! After every step all pages are compared, wherever they are, and what is near is held against the limit. The kernel disturbs calls by
//! chance meanwhile: it stops in the middle, is interrupted, or refuses for good.

use std::collections::BTreeMap;

use atoll_memory::arena;
use atoll_memory::far::pressure::Left;
use atoll_memory::far::{Access, AnyFar, FarError, FarStore, Lane, Transfer};

use crate::team::{Team, word_of};
use crate::{alone, orders};

/// Where and how a trace runs.
struct Case {
    shift: u32,
    policy: &'static str,
    far: &'static str,
    /// One in so many calls is disturbed.
    one_in: u64,
    is_harsh: bool,
    steps: usize,
}

/// Random numbers (xorshift).
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 24) as usize % end
    }
}

/// The slow and obvious pager: words that were written, by address. All else is zero.
#[derive(Default)]
struct Obvious {
    words: BTreeMap<usize, u64>,
}

impl Obvious {
    fn release(&mut self, start: usize, end: usize) {
        self.words.retain(|at, _| !(start..end).contains(at));
    }

    /// Whether `content` is what stretch `start..` holds.
    fn holds(&self, start: usize, content: &[u8]) -> bool {
        let mut words = self.words.range(start..start + content.len()).peekable();
        content.chunks_exact(8).zip((start..).step_by(8)).all(|(is, at)| {
            let word = words.next_if(|(word_at, _)| **word_at == at).map_or(0, |(_, word)| *word);
            is == word.to_ne_bytes()
        })
    }
}

/// Reads pages past the pager: from the arena's file, else from far memory.
pub(crate) struct Peek {
    lane: Lane,
    buffer: *mut u8,
}

impl Peek {
    pub(crate) fn new(team: &Team) -> Peek {
        let mut lane = team.pager.far().lane(2000).unwrap();
        lane.attach().unwrap();
        let buffer = vec![0u8; team.page + 4096].leak().as_mut_ptr();
        Peek { lane, buffer: (buffer as usize).next_multiple_of(4096) as *mut u8 }
    }

    /// The page's content, wherever it is.
    pub(crate) fn content(&mut self, team: &Team, page: usize) -> &[u8] {
        let (at, parts) = (team.at(page), team.page / 4096);
        // SAFETY: a page of memory that only this test uses.
        let buffer = unsafe { std::slice::from_raw_parts_mut(self.buffer, team.page) };
        let near = buffer
            .chunks_mut(4096)
            .zip((at..).step_by(4096))
            .filter_map(|(to, at)| team.in_file(at, to))
            .count();
        if near > 0 {
            assert_eq!(near, parts, "a part of page {page} is near");
            return buffer;
        }
        let number = page as u64;
        let held = match team.pager.far().direct(&self.lane, number, Access::Load) {
            // SAFETY: a whole page in far memory.
            Ok(Some(from)) => Ok(unsafe { std::slice::from_raw_parts(from, team.page) }),
            Err(error) => Err(error),
            Ok(None) => {
                // SAFETY: a page of memory, aligned, that only this test uses.
                let transfer = unsafe { Transfer::new(number, self.buffer) };
                team.pager.far().load(&mut self.lane, &[transfer]).map(|()| &*buffer)
            }
        };
        match held {
            Ok(content) => content,
            Err(FarError::NotStored { .. }) => &ZEROS[..team.page],
            Err(error) => panic!("page {page}: {error}"),
        }
    }
}

static ZEROS: [u8; 1 << 16] = [0; 1 << 16];

/// Near memory for about `frames` pages beside the tables that a team of two takes.
pub(crate) fn near_for(frames: u64, shift: u32) -> u64 {
    (if shift == 12 { 256 << 10 } else { 512 << 10 }) + (frames << shift)
}

/// What the pager's tables may grow by between two batches of frames, and near memory be beyond its limit until the next one: the
/// scratch memory of a worker that evicts for the first time, and some tables' pages.
fn grown(shift: u32) -> u64 {
    (64 << 10) + if shift == 12 { 256 << 10 } else { 512 << 10 }
}

fn trace(case: &Case) -> bool {
    const PAGES: usize = 256;
    let pages = if case.shift == 12 { PAGES } else { PAGES / 2 };
    let near = near_for(60, case.shift);
    let Some(team) = Team::new(2, case.shift, near, case.policy, case.far, u64::MAX) else { return false };
    let (mut dice, mut obvious, mut peek) =
        (Dice(0x2545_f491_4f6c_dd1d), Obvious::default(), Peek::new(&team));
    let (mut tail, mut stream, mut most, mut in_place) = (0, 0, 0, 0);
    for step in 0..case.steps {
        let worker = dice.below(2);
        let page = match dice.below(4) {
            // A stream, so that pages are fetched ahead; a hot set; anything.
            0 | 1 => {
                stream = (stream + 1) % pages;
                stream
            }
            2 => dice.below(pages / 8),
            _ => dice.below(pages),
        };
        let at = team.at(page) + word_of(worker, dice.below(team.page / 64));
        orders::disturb(dice.0, case.one_in, case.is_harsh);
        match dice.below(64) {
            0..32 => assert_eq!(
                team.read(worker, at),
                Some(obvious.words.get(&at).copied().unwrap_or(0)),
                "step {step}: worker {worker} reads page {page}"
            ),
            32..60 => {
                team.write(worker, at, step as u64 + 1).unwrap();
                obvious.words.insert(at, step as u64 + 1);
            }
            60 | 61 => {
                let (start, end) = (team.at(page), team.at((page + 1 + dice.below(6)).min(pages)));
                team.pager.release(start, end, &team.pager.control().figures[0]);
                obvious.release(start, end);
            }
            _ => {
                team.pager.mark(dice.below(4) as u32);
                // Pages that stayed where they lie are packed while the machine is short of memory.
                if let AnyFar::Auto(store) = team.pager.far() {
                    store.note_left([Left::Plenty, Left::Plenty, Left::Some][dice.below(3)]);
                }
                if team.pager.scans() {
                    team.pager.scan_tick();
                    team.drop_mappings(worker, &mut tail);
                }
            }
        }
        orders::disturb(1, 0, false);
        most = most.max(team.near_bytes() + arena::table_bytes());
        in_place = in_place.max(team.in_place());
        assert!(
            most <= near + grown(case.shift),
            "step {step}: {most} bytes are near, and the limit is {near}"
        );
        // All pages now and then, else those around.
        let around = if step % 16 == 0 { 0..pages } else { page.saturating_sub(8)..(page + 8).min(pages) };
        for page in around {
            let is = peek.content(&team, page);
            assert!(obvious.holds(team.at(page), is), "step {step}: page {page} is not what was written");
        }
    }
    // All tables are as large as they become: the limit is kept to the page.
    for page in (0..pages).chain(0..pages) {
        assert!(team.read(0, team.at(page)).is_some());
    }
    let now = team.near_bytes() + arena::table_bytes();
    assert!(now <= near, "{now} bytes are near in the end, and the limit is {near}");
    let figures = &team.pager.control().figures;
    let evicted: u64 =
        figures[..2].iter().map(|f| f.evictions_dirty.load(std::sync::atomic::Ordering::Relaxed)).sum();
    println!(
        "{} disturbed, {evicted} evicted, {in_place} in place, {most} of {near} bytes near",
        orders::disturbed()
    );
    assert_eq!(in_place > 0, case.far == "auto", "{in_place} pages stayed where they lie");
    assert!(evicted > 20 && orders::disturbed() > 20, "{evicted} evicted, {} disturbed", orders::disturbed());
    true
}

macro_rules! traces {
    ($($name:ident: $case:expr;)*) => {
        $(#[test]
        fn $name() {
            alone(concat!("traces::", stringify!($name)), || trace(&$case));
        })*
    };
}

traces! {
    fifo_in_plain_memory:
        Case { shift: 12, policy: "fifo", far: "ram", one_in: 5, is_harsh: false, steps: 3000 };
    adaptive_in_plain_memory_where_the_kernel_refuses:
        Case { shift: 12, policy: "adaptive", far: "ram", one_in: 6, is_harsh: true, steps: 3000 };
    adaptive_in_compressed_memory_where_the_kernel_refuses:
        Case { shift: 12, policy: "adaptive", far: "lz4", one_in: 6, is_harsh: true, steps: 2500 };
    adaptive_in_place_where_the_kernel_refuses:
        Case { shift: 12, policy: "adaptive", far: "auto", one_in: 6, is_harsh: true, steps: 3000 };
    larger_pages_in_place_where_the_kernel_refuses:
        Case { shift: 16, policy: "fifo", far: "auto", one_in: 6, is_harsh: true, steps: 1000 };
    lru_in_plain_memory_where_the_kernel_refuses:
        Case { shift: 12, policy: "lru:scan=40", far: "ram", one_in: 6, is_harsh: true, steps: 2500 };
    cmcp_in_a_file_where_the_disk_refuses:
        Case { shift: 12, policy: "cmcp", far: "file", one_in: 6, is_harsh: true, steps: 2500 };
    larger_pages_in_plain_memory:
        Case { shift: 16, policy: "fifo", far: "ram", one_in: 5, is_harsh: false, steps: 1000 };
    larger_pages_in_a_file_where_the_kernel_refuses:
        Case { shift: 16, policy: "adaptive", far: "file", one_in: 6, is_harsh: true, steps: 1000 };
}

/// Workers write words of their own in the same pages at once, while pages come and go. `no_pipes`: pages that others may be writing to
/// are write-protected and copied, as no pipe can hold them meanwhile.
fn at_once(workers: usize, case: &Case, no_pipes: bool) -> bool {
    let near = near_for(60 * workers as u64, case.shift);
    let Some(team) = Team::new(workers, case.shift, near, case.policy, case.far, u64::MAX) else {
        return false;
    };
    for nth in 1..=workers as i64 * i64::from(no_pipes) {
        orders::order(orders::Call::Pipe, nth, orders::Act::Fail(libc::EMFILE));
    }
    orders::disturb(7, case.one_in, case.is_harsh);
    assert_eq!(team.hammer(300, case.steps as u64), workers);
    true
}

#[test]
fn two_workers_at_once_lose_no_write() {
    alone("traces::two_workers_at_once_lose_no_write", || {
        let far = "ram";
        at_once(
            2,
            &Case { shift: 12, policy: "adaptive", far, one_in: 40, is_harsh: true, steps: 30_000 },
            false,
        )
    });
}

/// Pages that stayed where they lie were there for ever, however short the machine was of memory.
#[test]
fn pages_that_stayed_are_packed_when_memory_is_short() {
    alone("traces::pages_that_stayed_are_packed_when_memory_is_short", || {
        let Some(team) = Team::new(2, 12, near_for(60, 12), "adaptive", "auto", u64::MAX) else {
            return false;
        };
        let AnyFar::Auto(store) = team.pager.far() else { panic!("another store") };
        for page in 0..600 {
            team.write(page % 2, team.at(page) + word_of(page % 2, 5), page as u64 + 7).unwrap();
        }
        let stayed = team.in_place();
        assert!(stayed > 200, "{stayed} pages stayed");
        store.note_left(Left::Some);
        for page in 0..600 {
            assert_eq!(team.read(page % 2, team.at(page) + word_of(page % 2, 5)), Some(page as u64 + 7));
        }
        assert_eq!(team.in_place(), 0);
        store.note_left(Left::Plenty);
        for page in 0..600 {
            assert_eq!(team.read(0, team.at(page) + word_of(page % 2, 5)), Some(page as u64 + 7));
        }
        assert!(team.in_place() > 0);
        true
    });
}

#[test]
fn workers_at_once_lose_no_write_to_pages_that_stay_where_they_lie() {
    alone("traces::workers_at_once_lose_no_write_to_pages_that_stay_where_they_lie", || {
        let far = "auto";
        at_once(
            3,
            &Case { shift: 12, policy: "adaptive", far, one_in: 40, is_harsh: true, steps: 30_000 },
            false,
        )
    });
}

#[test]
fn three_workers_at_once_without_pipes_lose_no_write() {
    alone("traces::three_workers_at_once_without_pipes_lose_no_write", || {
        let far = "lz4";
        at_once(3, &Case { shift: 12, policy: "fifo", far, one_in: 20, is_harsh: true, steps: 20_000 }, true)
    });
}

#[test]
fn two_workers_at_once_lose_no_write_to_larger_pages_on_a_disk_that_fails() {
    alone("traces::two_workers_at_once_lose_no_write_to_larger_pages_on_a_disk_that_fails", || {
        let far = "file";
        at_once(
            2,
            &Case { shift: 16, policy: "adaptive", far, one_in: 20, is_harsh: true, steps: 2500 },
            false,
        )
    });
}
