//! The model checker's tests: every order in which two or three threads can execute the code of this folder.
//!
//! The tests drive the very files that run between processes, `producer.rs`, `consumer.rs`, `bell.rs`, `ready.rs` and `turns.rs`,
//! with loom's atomics from `sync.rs`. A lost wake-up is a deadlock here, since sleeps have no timeout, and loom reports it.
//! Loom does not explore a load that sees a store that runs later, so the orders of `Credit` rest on their comments alone.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p atoll-transport --lib`

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::convert::Infallible;
use std::time::Duration;

use loom::thread;

use crate::ring::consumer::Consumer;
use crate::ring::doze::Dozer;
use crate::ring::line::{FIRST, LAST};
use crate::ring::memory;
use crate::ring::producer::Producer;
use crate::ring::ready::{self, ReadySet};
use crate::ring::turns::{Turns, Watched};

/// Checks all orders with at most `preemptions` forced changes of thread, besides those at which a thread waits.
fn check(preemptions: usize, test: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(test);
}

fn halves(lines: u32) -> (Producer, Consumer) {
    let ring = memory::heap::ring(lines);
    (Producer::new(ring.clone()), Consumer::new(ring))
}

fn nap() -> Result<Duration, Infallible> {
    Ok(Duration::MAX)
}

/// Sends `count` lines that hold their number, sleeping while the ring is full.
fn send_all(producer: &mut Producer, count: u8, told: impl Fn()) {
    for i in 0..count {
        let ring = producer.ring().clone();
        let bell = &ring.control().producer.bell;
        let Ok(()) = bell.wait(0, || producer.room(1).unwrap() > 0, nap);
        producer.publish(u16::from(i), FIRST | LAST, &[i; 8]);
        producer.notify(&told);
    }
}

/// Takes a line if there is one, and checks it.
fn take_one(consumer: &mut Consumer, number: u8) -> bool {
    let mut bytes = Vec::new();
    match consumer.take(&mut bytes).unwrap() {
        Some(header) => {
            assert_eq!(header.kind, u16::from(number));
            assert_eq!(bytes, [number; 8]);
            true
        }
        None => false,
    }
}

#[test]
fn lines_arrive_whole_and_nobody_sleeps_for_ever() {
    check(4, || {
        let (mut producer, mut consumer) = halves(2);
        let sender = thread::spawn(move || send_all(&mut producer, 3, || unreachable!()));
        for number in 0..3 {
            let ring = consumer.ring().clone();
            let Ok(()) = ring.control().consumer.bell.wait(0, || consumer.readable(), nap);
            assert!(take_one(&mut consumer, number));
        }
        sender.join().unwrap();
    });
}

#[test]
fn a_poller_sees_whole_lines() {
    check(5, || {
        let (mut producer, mut consumer) = halves(2);
        let sender = thread::spawn(move || send_all(&mut producer, 3, || unreachable!()));
        let mut number = 0;
        while number < 3 {
            if take_one(&mut consumer, number) {
                number += 1;
            } else {
                thread::yield_now();
            }
        }
        sender.join().unwrap();
    });
}

#[test]
fn a_close_wakes_the_consumer_behind_all_lines() {
    check(5, || {
        let (mut producer, mut consumer) = halves(2);
        let sender = thread::spawn(move || {
            send_all(&mut producer, 1, || unreachable!());
            producer.close();
            producer.notify(|| unreachable!());
        });
        let ring = consumer.ring().clone();
        let bell = &ring.control().consumer.bell;
        let mut number = 0;
        loop {
            let Ok(()) = bell.wait(0, || consumer.readable() || consumer.producer_closed(), nap);
            if take_one(&mut consumer, number) {
                number += 1;
            } else if consumer.producer_closed() {
                // As `Receiver` does: lines that were published before the close are visible after it.
                if !take_one(&mut consumer, number) {
                    break;
                }
                number += 1;
            }
        }
        assert_eq!(number, 1);
        sender.join().unwrap();
    });
}

#[test]
fn a_close_wakes_a_producer_that_waits_for_room() {
    check(5, || {
        let (mut producer, consumer) = halves(2);
        let receiver = thread::spawn(move || consumer.close());
        let ring = producer.ring().clone();
        for _ in 0..3 {
            let bell = &ring.control().producer.bell;
            let Ok(()) = bell.wait(0, || producer.room(1).unwrap() > 0 || ring.consumer_closed(), nap);
            if producer.room(1).unwrap() > 0 {
                producer.publish(0, FIRST | LAST, &[]);
                producer.notify(|| unreachable!());
            }
        }
        assert!(producer.consumer_closed());
        receiver.join().unwrap();
    });
}

impl Watched for Consumer {
    fn ready(&self) -> bool {
        self.readable() || self.producer_closed()
    }

    fn arm(&self) -> bool {
        Consumer::arm(self)
    }

    fn disarm(&self) {
        Consumer::disarm(self);
    }
}

/// Serves `consumers` from a set, as `WaitSet` does, until each gave `each` lines.
fn serve(set: &ReadySet, consumers: Vec<Consumer>, each: u8) {
    let mut turns = Turns::new(set.seats());
    let mut number = vec![0; consumers.len()];
    for (seat, consumer) in consumers.into_iter().enumerate() {
        turns.insert(seat as u32, consumer);
    }
    while number.iter().any(|n| *n < each) {
        match turns.next(set) {
            Some(seat) => {
                let number = &mut number[seat as usize];
                assert!(take_one(turns.get(seat).unwrap(), *number), "handed out with nothing to read");
                *number += 1;
            }
            None => {
                let Ok(()) = set.bell().wait(0, || set.any(), nap);
            }
        }
    }
}

#[test]
fn a_set_of_one_ring_is_told_of_every_line() {
    check(5, || {
        let set = ready::heap::set(1);
        let (mut producer, consumer) = halves(2);
        let told = set.clone();
        let sender = thread::spawn(move || send_all(&mut producer, 2, || told.ring(0)));
        serve(&set, vec![consumer], 2);
        sender.join().unwrap();
    });
}

#[test]
fn a_set_of_two_rings_loses_neither() {
    check(3, || {
        let set = ready::heap::set(2);
        let (consumers, senders): (Vec<_>, Vec<_>) = (0..2)
            .map(|seat| {
                let (mut producer, consumer) = halves(2);
                let told = set.clone();
                (consumer, thread::spawn(move || send_all(&mut producer, 1, || told.ring(seat))))
            })
            .unzip();
        serve(&set, consumers, 1);
        for sender in senders {
            sender.join().unwrap();
        }
    });
}

/// The data of the threads that take turns with a set of one ring: the turns, and the number of lines that came.
type Taken = loom::sync::Mutex<(Turns<Consumer>, u8)>;

fn take_all(set: &ReadySet, (turns, number): &mut (Turns<Consumer>, u8)) {
    while let Some(seat) = turns.next(set) {
        assert!(take_one(turns.get(seat).unwrap(), *number), "handed out with nothing to read");
        *number += 1;
    }
}

#[test]
fn who_dozes_is_told_of_what_comes_when_the_other_is_gone() {
    const LINES: u8 = 2;
    check(3, || {
        let set = ready::heap::set(1);
        let (mut producer, consumer) = halves(2);
        let mut turns = Turns::new(1);
        turns.insert(0, consumer);
        let taken: loom::sync::Arc<Taken> = loom::sync::Arc::new(loom::sync::Mutex::new((turns, 0)));
        let told = set.clone();
        let sender = thread::spawn(move || send_all(&mut producer, LINES, || told.ring(0)));
        let (other, shared) = (set.clone(), taken.clone());
        let helper = thread::spawn(move || {
            let Ok(mut taken) = shared.try_lock() else { return };
            let doze = Dozer::new(other.clone());
            doze.hush();
            take_all(&other, &mut taken);
            // All lines came, so the thread that dozes has nothing to wait for any more.
            let came = doze.unhush() || taken.1 == LINES;
            drop(taken);
            if came {
                other.interrupt();
            }
        });
        loop {
            let mut taken = taken.lock().unwrap();
            take_all(&set, &mut taken);
            if taken.1 == LINES {
                break;
            }
            drop(taken);
            Dozer::new(set.clone()).doze(Duration::MAX);
        }
        sender.join().unwrap();
        helper.join().unwrap();
    });
}
