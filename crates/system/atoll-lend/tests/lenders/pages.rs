//! A store over lenders, as a worker of a program has it.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use atoll_lend::{Control, Lender};
use atoll_memory::far::hosts::lenders::{LenderSettings, Lenders, LendersSettings};
use atoll_memory::far::{AnyFar, FarConfig, FarError, FarSpec, FarStore, Lane, Transfer};

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

impl Pages {
    pub(crate) fn over(lenders: Lenders) -> Pages {
        let config = FarConfig {
            page_size: PAGE,
            pages: 1 << 20,
            lanes: 2,
            limit_bytes: None,
            memory_bytes: 0,
            counts_as_near: false,
            lenders: Some(lenders),
        };
        let store = AnyFar::new(&FarSpec::Hosts, &config).unwrap();
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
    /// Stores pages that have their number and `salt` in every byte.
    pub(crate) fn store(&mut self, numbers: Range<u64>, salt: u8) -> Result<(), FarError> {
        let pages: Vec<Page> =
            numbers.clone().map(|number| Page([(number as u8).wrapping_mul(3) ^ salt; PAGE])).collect();
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
        Ok(pages
            .iter()
            .zip(numbers)
            .all(|(page, number)| page.0 == [(number as u8).wrapping_mul(3) ^ salt; PAGE]))
    }

    pub(crate) fn discard(&self, first: u64, count: u64) {
        self.store.discard(first, count);
    }
}
