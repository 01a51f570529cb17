//! A store over lenders, as a worker of a program has it.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use atoll_lend::{Control, Lender};
use atoll_memory::far::hosts::lenders::{LenderSettings, Lenders, LendersSettings};
use atoll_memory::far::{AnyFar, FarConfig, FarError, FarSpec, FarStore, Lane, Transfer, Usage};

use crate::raw::session;

const PAGE: usize = 4096;

/// A page in near memory.
#[repr(C, align(4096))]
pub(crate) struct Page([u8; PAGE]);

/// A store with one lane.
pub(crate) struct Pages {
    store: AnyFar,
    lane: Lane,
    /// Of the thread that gives lenders back what they want.
    mover: Lane,
    pub(crate) lenders: Lenders,
}

/// Lenders with which these sessions have begun.
pub(crate) fn lenders(of: &[(&Lender, &Control)], copies: u32) -> Lenders {
    let mut settings = LendersSettings { count: of.len() as u32, copies, ..LendersSettings::NONE };
    for (number, (lender, control)) in of.iter().enumerate() {
        settings.each[number] = LenderSettings::new(
            &format!("lender{number} on host{number}"),
            lender.address(),
            control.session(),
            control.key(),
            control.piece_bytes(),
        );
    }
    let lenders = Lenders::alone(settings).unwrap();
    for (number, figures) in lenders.figures.iter().enumerate() {
        figures.free_bytes.store(u64::MAX, Relaxed);
        figures.round_trip_ns.store(100_000 * (number as u64 + 1), Relaxed);
    }
    lenders
}

/// Has the store take all links for slow ones, until it has measured them many times.
pub(crate) fn slow_links(lenders: Lenders) {
    lenders.figures.iter().for_each(|figures| figures.wire_ns.store(1 << 40, Relaxed));
}

/// What a page has that was stored with `salt`: bytes that are all equal if it is even, and bytes that no store makes shorter if it is odd.
fn content(number: u64, salt: u8) -> Page {
    if salt.is_multiple_of(2) {
        return Page([(number as u8).wrapping_mul(3) ^ salt; PAGE]);
    }
    let mut random = number << 8 | u64::from(salt);
    let mut page = Page([0; PAGE]);
    for bytes in page.0.chunks_mut(8) {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        bytes.copy_from_slice(&(random ^ random >> 29).to_le_bytes());
    }
    page
}

impl Pages {
    pub(crate) fn over(lenders: Lenders) -> Pages {
        Self::in_store(&FarSpec::Hosts, lenders, 0)
    }

    /// A store of this host's memory, so many bytes of it, with these lenders behind.
    pub(crate) fn behind_memory(lenders: Lenders, memory_bytes: u64) -> Pages {
        Self::in_store(&FarSpec::Auto, lenders, memory_bytes)
    }

    fn in_store(spec: &FarSpec, lenders: Lenders, memory_bytes: u64) -> Pages {
        let config = FarConfig {
            page_size: PAGE,
            pages: 1 << 20,
            lanes: 2,
            limit_bytes: None,
            memory_bytes,
            counts_as_near: false,
            lenders: Some(lenders),
        };
        let store = AnyFar::new(spec, &config).unwrap();
        let mut lane = store.lane(0).unwrap();
        lane.attach().unwrap();
        let mut mover = store.lane(1).unwrap();
        mover.attach().unwrap();
        Pages { store, lane, mover, lenders }
    }

    /// Sessions with these lenders, and a store over them.
    pub(crate) fn with(of: &[&Lender], copies: u32) -> (Pages, Vec<Control>) {
        let controls: Vec<Control> = of.iter().map(|lender| session(lender)).collect();
        let both: Vec<_> = of.iter().copied().zip(&controls).collect();
        (Pages::over(lenders(&both, copies)), controls)
    }

    /// See [`Worker::store`].
    pub(crate) fn store(&mut self, numbers: Range<u64>, salt: u8) -> Result<(), FarError> {
        Worker { store: &self.store, lane: &mut self.lane }.store(numbers, salt)
    }

    /// See [`Worker::load`].
    pub(crate) fn load(&mut self, numbers: Range<u64>, salt: u8) -> Result<bool, FarError> {
        Worker { store: &self.store, lane: &mut self.lane }.load(numbers, salt)
    }

    /// The links are as slow as that: pages that shrink are packed.
    pub(crate) fn slow_links(&self) {
        slow_links(self.lenders);
    }

    pub(crate) fn usage(&self) -> Usage {
        self.store.usage()
    }

    pub(crate) fn held(&self, lender: usize) -> u64 {
        self.lenders.figures[lender].pages_held.load(Relaxed)
    }

    /// Pages that came from the file behind the lenders, and that went there.
    pub(crate) fn behind(&self) -> (u64, u64) {
        (self.lenders.behind.pages_in.load(Relaxed), self.lenders.behind.pages_out.load(Relaxed))
    }

    pub(crate) fn discard(&self, first: u64, count: u64) {
        self.store.discard(first, count);
    }

    pub(crate) fn discard_all(&self) {
        self.discard(0, u64::MAX);
    }

    /// Gives lenders back what they want, until `done`.
    pub(crate) fn give_back_until(&mut self, mut done: impl FnMut() -> bool) {
        let until = Instant::now() + Duration::from_secs(60);
        while !done() {
            assert!(Instant::now() < until, "the lender does not have its memory back");
            if !self.store.give_back(&mut self.mover) {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }

    /// Uses the store from this thread and the way of the mover from another one, at once.
    pub(crate) fn at_once(&mut self, work: impl FnOnce(&mut Worker<'_>)) {
        let Pages { store, lane, mover, .. } = self;
        let ends = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !ends.load(Relaxed) {
                    store.give_back(mover);
                }
            });
            // A panic must end the other thread, too.
            let done =
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(&mut Worker { store, lane })));
            ends.store(true, Relaxed);
            done.unwrap();
        });
    }
}

/// A worker's way to the store.
pub(crate) struct Worker<'a> {
    store: &'a AnyFar,
    lane: &'a mut Lane,
}

impl Worker<'_> {
    /// Stores pages with the content of their number and `salt`.
    pub(crate) fn store(&mut self, numbers: Range<u64>, salt: u8) -> Result<(), FarError> {
        let pages: Vec<Page> = numbers.clone().map(|number| content(number, salt)).collect();
        // SAFETY: the pages are aligned, live during the call, and are only read.
        let transfer = |(page, number): (&Page, u64)| unsafe {
            Transfer::new(number, (&raw const page.0).cast_mut().cast())
        };
        let all: Vec<Transfer> = pages.iter().zip(numbers).map(transfer).collect();
        self.store.store(self.lane, &all)
    }

    /// Loads pages, and says whether they are those that were stored with `salt`.
    pub(crate) fn load(&mut self, numbers: Range<u64>, salt: u8) -> Result<bool, FarError> {
        let mut pages: Vec<Page> = numbers.clone().map(|_| Page([0xee; PAGE])).collect();
        // SAFETY: the pages are aligned, live during the call, and nobody else has them.
        let transfer =
            |(page, number): (&mut Page, u64)| unsafe { Transfer::new(number, (&raw mut page.0).cast()) };
        let all: Vec<Transfer> = pages.iter_mut().zip(numbers.clone()).map(transfer).collect();
        self.store.load(self.lane, &all)?;
        Ok(pages.iter().zip(numbers).all(|(page, number)| page.0 == content(number, salt).0))
    }

    pub(crate) fn discard(&self, first: u64, count: u64) {
        self.store.discard(first, count);
    }
}
