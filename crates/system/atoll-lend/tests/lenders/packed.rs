//! Pages that are packed on their way, as the link is slow.

use std::sync::atomic::Ordering::Relaxed;

use atoll_memory::far::hosts::lenders::LenderState;

use crate::pages::Pages;
use crate::raw::lender;

#[test]
fn pages_are_packed_on_a_slow_link_and_come_back_as_they_were() {
    let lender = lender(64 << 20);
    let (mut pages, _controls) = Pages::with(&[&lender], 1);
    let moved = |pages: &Pages| {
        let figures = &pages.lenders.figures[0];
        (figures.bytes_out.swap(0, Relaxed), figures.bytes_in.swap(0, Relaxed))
    };
    // Even salts make pages that shrink. Of the link nothing is known at first.
    pages.store(0..64, 2).unwrap();
    assert_eq!(moved(&pages), (64 << 12, 0));
    pages.slow_links();
    pages.store(64..256, 2).unwrap();
    let (out, _) = moved(&pages);
    assert_eq!(out, 192 * 64, "a page of equal bytes takes one part of 64");
    // Packed pages and others, in one request and alone.
    assert!(pages.load(0..256, 2).unwrap());
    assert_eq!(moved(&pages).1, (64 << 12) + 192 * 64);
    assert!((60..70).all(|page| pages.load(page..page + 1, 2).unwrap()));
    // Pages that do not shrink take a packed page's place, and the other way round.
    pages.store(100..200, 3).unwrap();
    assert!(pages.load(100..200, 3).unwrap() && pages.load(64..100, 2).unwrap());
    pages.slow_links();
    pages.store(100..200, 4).unwrap();
    assert!(pages.load(100..200, 4).unwrap());
    // A page that is there needs no second way, whichever form it has.
    let _ = moved(&pages);
    pages.store(0..100, 2).unwrap();
    assert_eq!(moved(&pages), (0, 0));
    assert_eq!(pages.held(0), 256);
}

#[test]
fn of_packed_pages_the_other_copy_is_taken_where_a_lender_is_lost() {
    let mut lenders = vec![lender(64 << 20), lender(64 << 20)];
    let (mut pages, _controls) = Pages::with(&[&lenders[0], &lenders[1]], 2);
    pages.slow_links();
    pages.store(0..200, 2).unwrap();
    drop(lenders.remove(0));
    assert!(pages.load(0..200, 2).unwrap());
    assert_eq!(pages.lenders.figures[0].state(), LenderState::Lost);
}
