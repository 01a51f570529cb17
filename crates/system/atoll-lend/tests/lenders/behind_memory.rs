//! Lenders behind this host's own memory: `auto`.

use crate::pages::{Pages, lenders};
use crate::raw::{lender, session};

/// Bytes of memory before the lenders: a piece of compressed memory has room in it.
const MEMORY: u64 = 1 << 20;

#[test]
fn what_memory_has_no_room_for_goes_to_a_lender_and_then_to_a_file() {
    let lender = lender(8 << 20);
    let control = session(&lender);
    let mut pages = Pages::behind_memory(lenders(&[(&lender, &control)], 1), MEMORY);
    // Odd salts make pages that do not shrink.
    pages.store(0..4000, 1).unwrap();
    let in_memory = 4000 - pages.held(0) - pages.behind().1;
    assert_eq!(pages.held(0), 2048, "the lender is full");
    assert!((1..=300).contains(&in_memory), "{in_memory}");
    assert!(pages.load(0..4000, 1).unwrap());
    assert!(pages.behind().0 > 1000);
    assert!(pages.usage().bytes_reserved >= 4000 << 12);
    // Pages that shrink come back to memory.
    pages.store(0..4000, 2).unwrap();
    assert!(pages.held(0) < 200, "{}", pages.held(0));
    assert!(pages.load(0..4000, 2).unwrap());
    let usage = pages.usage();
    assert_eq!(usage.pages_held, 4000);
    assert!(usage.bytes_after < 2 << 20, "{usage:?}");
    pages.discard_all();
    assert_eq!((pages.usage().pages_held, pages.held(0)), (0, 0));
    assert!(pages.load(3000..3001, 2).is_err());
}

#[test]
fn a_lender_behind_memory_has_its_memory_back_when_it_leaves() {
    let lender = lender(64 << 20);
    let control = session(&lender);
    let mut pages = Pages::behind_memory(lenders(&[(&lender, &control)], 1), MEMORY);
    pages.store(0..2000, 1).unwrap();
    assert!(pages.held(0) > 1000);
    lender.close();
    pages.lenders.figures[0].set_keep_bytes(Some(0));
    pages.give_back_until(|| lender.lent_bytes() == 0);
    assert!(pages.load(0..2000, 1).unwrap());
    assert_eq!(pages.held(0), 0);
}
