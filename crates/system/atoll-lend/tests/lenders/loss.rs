//! Lenders that go, are full or are slow, as the store sees it.

use std::time::{Duration, Instant};

use atoll_memory::far::FarError;
use atoll_memory::far::hosts::lenders::LenderState;

use crate::pages::Pages;
use crate::raw::lender;

#[test]
fn pages_fill_the_nearest_lender_first_and_then_the_next() {
    let lenders = [lender(4 << 20), lender(64 << 20)];
    let (mut pages, _controls) = Pages::with(&[&lenders[0], &lenders[1]], 1);
    pages.store(0..1500, 1).unwrap();
    assert_eq!((pages.held(0), pages.held(1)), (1024, 476));
    assert!(pages.load(0..1500, 1).unwrap());
    // Room that a discard makes is used anew.
    pages.discard_all();
    assert_eq!((pages.held(0), pages.held(1)), (0, 0));
    pages.store(2000..2300, 2).unwrap();
    assert_eq!((pages.held(0), pages.held(1)), (300, 0));
    assert!(pages.load(2000..2300, 2).unwrap());
}

#[test]
fn lenders_that_are_equally_near_take_turns() {
    let lenders = [lender(64 << 20), lender(64 << 20), lender(64 << 20)];
    let (mut pages, _controls) = Pages::with(&[&lenders[0], &lenders[1], &lenders[2]], 1);
    pages.lenders.figures[1].round_trip_ns.store(110_000, std::sync::atomic::Ordering::Relaxed);
    pages.store(0..640, 1).unwrap();
    assert_eq!((pages.held(0), pages.held(1), pages.held(2)), (320, 320, 0));
    assert!(pages.load(0..640, 1).unwrap());
}

#[test]
fn pages_that_no_lender_has_room_for_go_to_a_file_and_back_when_there_is_room() {
    let lender = lender(4 << 20);
    let (mut pages, _controls) = Pages::with(&[&lender], 1);
    pages.store(0..1024, 1).unwrap();
    pages.store(2000..2100, 1).unwrap();
    assert_eq!((pages.held(0), pages.behind()), (1024, (0, 100)));
    assert!(pages.load(0..1024, 1).unwrap() && pages.load(2000..2100, 1).unwrap());
    assert_eq!(pages.behind(), (100, 100));
    pages.store(5..6, 9).unwrap();
    assert!(pages.load(5..6, 9).unwrap());
    pages.discard(0, 1000);
    // What is in the file already stays there; what is new goes to the lender.
    pages.store(2000..2100, 1).unwrap();
    assert_eq!((pages.held(0), pages.behind().1), (24, 100));
    pages.store(2000..2100, 2).unwrap();
    assert_eq!((pages.held(0), pages.behind().1), (124, 100));
    assert!(pages.load(1000..1024, 1).unwrap() && pages.load(2000..2100, 2).unwrap());
    pages.discard_all();
    assert_eq!(pages.load(2000..2001, 2), Err(FarError::NotStored { page: 2000 }));
}

#[test]
fn a_lost_lender_with_the_only_copy_is_an_error_with_its_name_and_never_zeros() {
    let lender = lender(64 << 20);
    let (mut pages, _controls) = Pages::with(&[&lender], 1);
    pages.store(0..100, 1).unwrap();
    drop(lender);
    let error = pages.load(0..100, 1).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("lender0 on host0") && text.contains("--far-copies 2"), "{text}");
    assert_eq!(pages.lenders.figures[0].state(), LenderState::Lost);
    assert!(pages.load(7..8, 1).is_err());
    // What is near still is kept in the file.
    pages.store(200..210, 1).unwrap();
    assert!(pages.load(200..210, 1).unwrap());
    assert!(pages.load(7..8, 1).is_err());
}

#[test]
fn with_two_copies_a_lost_lender_loses_nothing() {
    let mut lenders = vec![lender(64 << 20), lender(64 << 20), lender(64 << 20)];
    let all: Vec<_> = lenders.iter().collect();
    let (mut pages, _controls) = Pages::with(&all, 2);
    pages.store(0..500, 1).unwrap();
    assert_eq!((pages.held(0), pages.held(1), pages.held(2)), (500, 500, 0));
    drop(lenders.remove(0));
    assert!(pages.load(0..500, 1).unwrap());
    // What is written from now on has two copies again.
    pages.store(0..200, 2).unwrap();
    pages.store(600..700, 2).unwrap();
    assert_eq!((pages.held(1), pages.held(2)), (600, 300));
    drop(lenders.remove(0));
    assert!(pages.load(0..200, 2).unwrap() && pages.load(600..700, 2).unwrap());
    // These had their second copy on the first lender, and were not written since.
    assert!(pages.load(300..310, 1).is_err());
}

#[test]
fn a_lender_that_goes_during_a_store_sends_the_pages_elsewhere() {
    let mut lenders = vec![lender(64 << 20), lender(64 << 20)];
    let (mut pages, _controls) = Pages::with(&[&lenders[0], &lenders[1]], 1);
    pages.store(0..10, 1).unwrap();
    drop(lenders.remove(0));
    pages.store(100..400, 2).unwrap();
    assert_eq!(pages.held(1), 300);
    assert!(pages.load(100..400, 2).unwrap());
    // Pages that are near still can be stored again.
    pages.store(0..10, 3).unwrap();
    assert!(pages.load(0..10, 3).unwrap());
}

#[test]
fn a_slow_lender_is_avoided_and_used_anew_when_it_comes_back() {
    let lenders = [lender(64 << 20), lender(64 << 20)];
    let (mut pages, _controls) = Pages::with(&[&lenders[0], &lenders[1]], 1);
    pages.store(0..10, 1).unwrap();
    assert_eq!((pages.held(0), pages.held(1)), (10, 0));
    pages.lenders.figures[0].set_state(LenderState::Slow);
    pages.store(0..20, 2).unwrap();
    assert_eq!((pages.held(0), pages.held(1)), (0, 20));
    pages.lenders.figures[0].set_state(LenderState::Well);
    pages.store(20..30, 2).unwrap();
    assert_eq!((pages.held(0), pages.held(1)), (10, 20));
    assert!(pages.load(0..30, 2).unwrap());
}

#[test]
fn a_connection_that_breaks_is_made_again() {
    let lender = lender(64 << 20);
    let (mut pages, mut controls) = Pages::with(&[&lender], 1);
    pages.store(0..10, 1).unwrap();
    // The session has ended, and a new connection is refused: the lender gave the pages up.
    controls.clear();
    // The lender ends the session when its thread hears of that.
    let until = Instant::now() + Duration::from_secs(20);
    while lender.sessions().0 > 0 {
        assert!(Instant::now() < until, "the session stays");
        std::thread::sleep(Duration::from_millis(1));
    }
    let text = pages.load(0..10, 1).unwrap_err().to_string();
    assert!(text.contains("does not know this run"), "{text}");
}
