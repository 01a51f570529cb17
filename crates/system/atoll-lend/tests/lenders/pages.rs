//! A store over lenders, as a worker of a program has it.

use std::sync::atomic::Ordering::Relaxed;

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
            lanes: 1,
            limit_bytes: None,
            memory_bytes: 0,
            counts_as_near: false,
            lenders: Some(lenders),
        };
        let store = AnyFar::new(&FarSpec::Hosts, &config).unwrap();
        let mut lane = store.lane(0).unwrap();
        lane.attach().unwrap();
        Pages { store, lane, lenders }
    }

    /// Sessions with these lenders, and a store over them.
    pub(crate) fn with(of: &[&Lender], copies: u32) -> (Pages, Vec<Control>) {
        let controls: Vec<Control> = of.iter().map(|lender| session(lender)).collect();
        let both: Vec<_> = of.iter().copied().zip(&controls).collect();
        (Pages::over(lenders(&both, copies)), controls)
    }

    /// Stores pages that have their number and `salt` in every byte.
    pub(crate) fn store(&mut self, numbers: std::ops::Range<u64>, salt: u8) -> Result<(), FarError> {
        let pages: Vec<Page> =
            numbers.clone().map(|number| Page([(number as u8).wrapping_mul(3) ^ salt; PAGE])).collect();
        // SAFETY: the pages are aligned, live during the call, and are only read.
        let transfer = |(page, number): (&Page, u64)| unsafe {
            Transfer::new(number, (&raw const page.0).cast_mut().cast())
        };
        let all: Vec<Transfer> = pages.iter().zip(numbers).map(transfer).collect();
        self.store.store(&mut self.lane, &all)
    }

    /// Loads pages, and says whether they are those that were stored with `salt`.
    pub(crate) fn load(&mut self, numbers: std::ops::Range<u64>, salt: u8) -> Result<bool, FarError> {
        let mut pages: Vec<Page> = numbers.clone().map(|_| Page([0xee; PAGE])).collect();
        // SAFETY: the pages are aligned, live during the call, and nobody else has them.
        let transfer =
            |(page, number): (&mut Page, u64)| unsafe { Transfer::new(number, (&raw mut page.0).cast()) };
        let all: Vec<Transfer> = pages.iter_mut().zip(numbers.clone()).map(transfer).collect();
        self.store.load(&mut self.lane, &all)?;
        Ok(pages
            .iter()
            .zip(numbers)
            .all(|(page, number)| page.0 == [(number as u8).wrapping_mul(3) ^ salt; PAGE]))
    }

    pub(crate) fn held(&self, lender: usize) -> u64 {
        self.lenders.figures[lender].pages_held.load(Relaxed)
    }

    pub(crate) fn discard_all(&self) {
        self.store.discard(0, u64::MAX);
    }
}
