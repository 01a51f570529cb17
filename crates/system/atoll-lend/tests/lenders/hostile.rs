//! Borrowers that mean harm: what they claim gives them nothing, and others are served on.

use std::io::{Read, Write};
use std::time::Instant;

use atoll_lend::{Control, ControlError};
use atoll_memory::far::hosts::wire::{
    Entry, Handle, Hello, MOST_BYTES, Purpose, Request, Status, VERSION, Verb,
};

use crate::raw::{KEY, Raw, SOON, lender, session};

const PIECE: u64 = 4 << 20;

#[test]
fn capabilities_that_are_forged_stale_or_anothers_read_and_write_nothing() {
    let lender = lender(64 << 20);
    let (mine, other) = (session(&lender), session(&lender));
    let (mut raw, mut thief) = (Raw::of(&lender, &mine), Raw::of(&lender, &other));
    let (_, handle) = raw.borrow();
    let (_, own) = thief.borrow();
    assert_eq!(raw.write(handle, 4096, &[5; 4096]), Status::Done);
    let tries = |thief: &mut Raw, handle: Handle, status: Status| {
        assert_eq!(thief.read(handle, 4096, 4096), (status, vec![]));
        assert_eq!(thief.write(handle, 4096, &[9; 4096]), status);
        assert_eq!(thief.give_back(handle), status);
    };
    tries(&mut thief, handle, Status::NotAllowed);
    for forged in [
        Handle { check: handle.check ^ 1, ..handle },
        Handle { slot: handle.slot + 1, ..handle },
        Handle { generation: handle.generation + 1, ..handle },
        Handle { slot: u32::MAX, ..own },
        Handle { node: 77, ..own },
        Handle::default(),
    ] {
        tries(&mut thief, forged, Status::Forged);
    }
    // The lender's own capability to the same memory is none of a borrower's.
    for slot in (0..8).filter(|slot| *slot != own.slot) {
        tries(&mut thief, Handle { slot, ..own }, Status::Forged);
    }
    assert_eq!(raw.read(handle, 4096, 4096), (Status::Done, vec![5; 4096]));
    // What was given back is gone, and the next who has the memory sees zeros.
    assert_eq!(raw.give_back(handle), Status::Done);
    tries(&mut raw, handle, Status::Revoked);
    let (_, next) = thief.borrow();
    assert_eq!(thief.read(next, 4096, 4096), (Status::Done, vec![0; 4096]));
    tries(&mut raw, handle, Status::Revoked);
}

#[test]
fn ranges_outside_of_a_piece_are_refused_and_the_connection_goes_on() {
    let lender = lender(64 << 20);
    let control = session(&lender);
    let mut raw = Raw::of(&lender, &control);
    let (_, handle) = raw.borrow();
    for (offset, length) in
        [(PIECE, 1), (PIECE - 1, 2), (u64::MAX, 1), (0, PIECE + 1), (0, u64::MAX), (0, MOST_BYTES + 1)]
    {
        assert_eq!(raw.read(handle, offset, length), (Status::Range, vec![]), "{offset} {length}");
    }
    assert_eq!(raw.write(handle, PIECE - 10, &[1; 11]), Status::Range);
    // The entry says more than was sent, and less.
    for length in [0, 9, 11, u64::MAX] {
        assert_eq!(raw.write_as(Entry { handle, offset: 0, length }, &[1; 10]), Status::Range);
    }
    assert_eq!(raw.read(handle, 0, 16), (Status::Done, vec![0; 16]));
    assert_eq!(raw.write(handle, PIECE - 10, &[1; 10]), Status::Done);
}

#[test]
fn who_does_not_know_the_key_gets_nothing() {
    let lender = lender(64 << 20);
    let opened = Control::open(lender.address(), &[8; 32], SOON);
    assert!(matches!(opened, Err(ControlError::Unproven)));
    let control = session(&lender);
    let mut raw = Raw::unproven(lender.address());
    assert_eq!(raw.greet(VERSION, control.session(), &[8; 32]), Status::Unproven);
    assert_eq!(raw.stream.read(&mut [0; 1]).unwrap_or(0), 0, "the lender hangs up");
    let mut raw = Raw::unproven(lender.address());
    assert_eq!(raw.greet(VERSION, control.session() ^ 1, &control.key()), Status::NoSession);
    let mut raw = Raw::unproven(lender.address());
    assert_eq!(raw.greet(VERSION + 1, control.session(), &control.key()), Status::Version);
    // The key of the lender is not that of a session, nor the other way round.
    let mut raw = Raw::unproven(lender.address());
    assert_eq!(raw.greet(VERSION, control.session(), &KEY), Status::Unproven);
    assert!(Control::open(lender.address(), &control.key(), SOON).is_err());
}

#[test]
fn nonsense_ends_its_own_connection_only() {
    let lender = lender(64 << 20);
    let mut control = session(&lender);
    let mut state = 1_u64;
    let mut noise = |count: usize| -> Vec<u8> {
        let next = |_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as u8
        };
        (0..count).map(next).collect()
    };
    for round in 0..60 {
        let mut raw = Raw::unproven(lender.address());
        let bytes = noise(round * 7);
        if round % 3 == 0 {
            raw.greet(VERSION, control.session(), &control.key());
            // Heads that are right up to a point.
            let head = Request {
                verb: Verb::Write,
                sequence: 1,
                entries: round as u32 % 65,
                bytes: MOST_BYTES / (round as u64 + 1),
            };
            raw.stream.write_all(&head.encode()).unwrap();
        } else if round % 3 == 1 {
            let hello = Hello { version: VERSION, purpose: Purpose::Control, session: 0, challenge: [1; 32] };
            raw.stream.write_all(&hello.encode()).unwrap();
        }
        let _ = raw.stream.write_all(&bytes);
    }
    let (_, free) = control.ping().unwrap();
    assert!(free > 0);
    let mut raw = Raw::of(&lender, &control);
    let (_, handle) = raw.borrow();
    assert_eq!(raw.write(handle, 0, &[1; 8]), Status::Done);
}

#[test]
fn memory_of_a_session_is_free_when_its_borrower_is_gone() {
    let lender = lender(4 * PIECE);
    let mut watcher = session(&lender);
    let before = watcher.report().unwrap().free_bytes;
    let mut control = session(&lender);
    control.introduce("a program on a host").unwrap();
    let mut raw = Raw::of(&lender, &control);
    let (_, handle) = raw.borrow();
    // A write that stays unfinished does not keep the session.
    let head = Request { verb: Verb::Write, sequence: 2, entries: 1, bytes: 4096 }.encode();
    raw.stream.write_all(&head).unwrap();
    raw.stream.write_all(&Entry { handle, offset: 0, length: 4096 }.encode()).unwrap();
    let report = watcher.report().unwrap();
    assert_eq!((report.loans.len(), report.loans[0].bytes), (1, PIECE));
    assert_eq!(report.loans[0].borrower, "a program on a host");
    assert_eq!(lender.lent_bytes(), PIECE);
    let session = (control.session(), control.key());
    drop(control);
    let began = Instant::now();
    while watcher.report().unwrap().free_bytes != before || !watcher.report().unwrap().loans.is_empty() {
        assert!(began.elapsed() < SOON, "the memory is not free");
        std::thread::yield_now();
    }
    // Nobody gets into a session that has ended.
    let mut late = Raw::unproven(lender.address());
    assert_eq!(late.greet(VERSION, session.0, &session.1), Status::NoSession);
}

#[test]
fn two_borrowers_of_the_last_piece_get_it_once() {
    for _ in 0..20 {
        let lender = lender(PIECE);
        let sessions = [session(&lender), session(&lender)];
        let given: Vec<Status> = std::thread::scope(|scope| {
            let ask = |control| {
                let lender = &lender;
                scope.spawn(move || Raw::of(lender, control).borrow().0)
            };
            let both = sessions.each_ref().map(ask);
            both.map(|thread| thread.join().unwrap()).to_vec()
        });
        assert!(given.contains(&Status::Done) && given.contains(&Status::Full), "{given:?}");
    }
}

#[test]
fn thousands_of_grants_leave_nothing_behind() {
    let lender = lender(4 * PIECE);
    let control = session(&lender);
    let mut raw = Raw::of(&lender, &control);
    let mut last = Handle::default();
    for round in 0..3000_u32 {
        let (status, handle) = raw.borrow();
        assert_eq!(status, Status::Done, "{round}");
        assert_ne!(handle, last);
        assert_eq!(raw.give_back(handle), Status::Done);
        last = handle;
    }
    assert_eq!(raw.read(last, 0, 1).0, Status::Revoked);
    let all: Vec<Status> = (0..5).map(|_| raw.borrow().0).collect();
    assert_eq!(all, [Status::Done, Status::Done, Status::Done, Status::Done, Status::Full]);
}
