//! A service written with the `interface` attribute, called over channels between threads.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::HashMap;
use std::thread;
use std::time::Duration;

use atoll_channel::{
    Answer, CallError, Channel, Clients, LinkError, Peer, Refusal, ServeError, Settings, interface, pair,
    serve,
};

const SECONDS: Option<Duration> = Some(Duration::from_secs(10));

#[derive(serde::Serialize, serde::Deserialize, Debug, PartialEq)]
enum CounterError {
    TooMuch { total: u64 },
}

/// Adds numbers up.
#[interface(version = 1)]
trait Counter {
    /// Adds `number`; returns the sum.
    fn add(&mut self, number: u64) -> Result<u64, CounterError>;

    /// The sum.
    fn total(&self) -> u64;

    /// Adds to the notes.
    #[oneway]
    fn note(&mut self, text: &str, bytes: &[u8]);

    fn notes(&self) -> Vec<(String, Vec<u8>)>;

    fn nothing(&mut self);
}

#[derive(Default)]
struct Adder {
    total: u64,
    notes: Vec<(String, Vec<u8>)>,
}

impl Counter for Adder {
    fn add(&mut self, number: u64) -> Result<u64, CounterError> {
        let sum = self.total.checked_add(number).ok_or(CounterError::TooMuch { total: self.total })?;
        self.total = sum;
        Ok(sum)
    }

    fn total(&self) -> u64 {
        self.total
    }

    fn note(&mut self, text: &str, bytes: &[u8]) {
        self.notes.push((text.to_owned(), bytes.to_owned()));
    }

    fn notes(&self) -> Vec<(String, Vec<u8>)> {
        self.notes.clone()
    }

    fn nothing(&mut self) {}
}

/// Both ends, made as threads make them.
fn both(settings: Settings) -> (Channel, Channel) {
    let (near, far) = pair(settings, None).unwrap();
    (near.attach(Peer::this().unwrap()).unwrap(), far.attach(Peer::this().unwrap()).unwrap())
}

fn use_it(channel: Channel) -> Result<(), CallError> {
    let mut counter = CounterClient::bind(channel, SECONDS).unwrap();
    assert_eq!(counter.add(2)?, Ok(2));
    assert_eq!(counter.add(3)?, Ok(5));
    assert_eq!(counter.add(u64::MAX)?, Err(CounterError::TooMuch { total: 5 }));
    assert_eq!(counter.total()?, 5);
    counter.note("hello", &[0; 1000])?;
    counter.nothing()?;
    assert_eq!(counter.notes()?, [("hello".to_owned(), vec![0; 1000])]);
    Ok(())
}

#[test]
fn a_service_is_called() {
    let (near, far) = both(Settings::default());
    let client = thread::spawn(move || use_it(near));
    let mut adder = Adder::default();
    assert_eq!(serve(far, CounterService(&mut adder), SECONDS), Ok::<(), ServeError>(()));
    client.join().unwrap().unwrap();
    assert_eq!(adder.total, 5);
}

#[test]
fn a_service_has_many_clients() {
    let mut clients = Clients::new(10).unwrap();
    let threads: Vec<_> = (0..10)
        .map(|_| {
            let (near, far) = pair(Settings::default(), Some(clients.seat().unwrap())).unwrap();
            let near = near.attach(Peer::this().unwrap()).unwrap();
            let far = far.attach(Peer::this().unwrap()).unwrap();
            clients.add(near).unwrap();
            thread::spawn(move || {
                let mut counter = CounterClient::bind(far, SECONDS).unwrap();
                for number in 0..100 {
                    counter.add(number).unwrap().unwrap();
                }
            })
        })
        .collect();
    let mut adder = Adder::default();
    clients.serve_all(CounterService(&mut adder), SECONDS);
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!((adder.total, clients.len()), (10 * 4950, 0));
}

/// What is told, and what was not yet.
#[interface(version = 1)]
trait Board {
    /// Answers once `word` was put.
    fn find(&mut self, word: &str, answer: Answer<u32>);

    fn put(&mut self, word: &str, number: u32);

    /// Drops everybody who waits.
    #[oneway]
    fn clear(&mut self);
}

#[derive(Default)]
struct Words {
    known: HashMap<String, u32>,
    waiting: Vec<(String, Answer<u32>)>,
}

impl Board for Words {
    fn find(&mut self, word: &str, answer: Answer<u32>) {
        match self.known.get(word) {
            Some(number) => answer.give(number),
            None => self.waiting.push((word.to_owned(), answer)),
        }
    }

    fn put(&mut self, word: &str, number: u32) {
        self.known.insert(word.to_owned(), number);
        let (found, waiting) = std::mem::take(&mut self.waiting).into_iter().partition(|(of, _)| of == word);
        self.waiting = waiting;
        let found: Vec<(String, Answer<u32>)> = found;
        found.into_iter().for_each(|(_, answer)| answer.give(&number));
    }

    fn clear(&mut self) {
        self.waiting.clear();
    }
}

/// A client's end of a channel of `clients`.
fn joined(clients: &mut Clients) -> Channel {
    let (near, far) = pair(Settings::default(), Some(clients.seat().unwrap())).unwrap();
    clients.add(near.attach(Peer::this().unwrap()).unwrap()).unwrap();
    far.attach(Peer::this().unwrap()).unwrap()
}

#[test]
fn an_answer_is_given_later_and_keeps_nobody_waiting() {
    let mut clients = Clients::new(3).unwrap();
    let [finds, puts, gives_up] = [(); 3].map(|()| joined(&mut clients));
    let finder = thread::spawn(move || {
        let mut board = BoardClient::bind(finds, SECONDS).unwrap();
        assert_eq!(board.find("a"), Ok(7));
        assert_eq!(board.find("a"), Ok(7));
        assert_eq!(board.find("b"), Err(CallError::Refused { method: "find", why: Refusal::NoAnswer }));
    });
    let other = thread::spawn(move || {
        let mut hasty = BoardClient::bind(gives_up, SECONDS).unwrap();
        hasty.set_timeout(Some(Duration::from_millis(20)));
        let timed_out = CallError::Link { method: "find", why: LinkError::TimedOut };
        assert_eq!(hasty.find("a"), Err(timed_out));
        let mut board = BoardClient::bind(puts, SECONDS).unwrap();
        board.put("a", 7).unwrap();
        // The answer that came too late is not taken for another.
        hasty.set_timeout(SECONDS);
        board.put("c", 8).unwrap();
        assert_eq!(hasty.find("c"), Ok(8));
        while !finder.is_finished() {
            board.clear().unwrap();
            thread::sleep(Duration::from_millis(1));
        }
        finder.join().unwrap();
    });
    let mut words = Words::default();
    clients.serve_all(BoardService(&mut words), SECONDS);
    other.join().unwrap();
    assert!(words.waiting.is_empty());
}

#[test]
fn another_thread_gives_an_answer() {
    struct Slow;
    impl Board for Slow {
        fn find(&mut self, _: &str, answer: Answer<u32>) {
            thread::spawn(move || {
                thread::sleep(Duration::from_millis(30));
                answer.give(&5);
            });
        }
        fn put(&mut self, _: &str, _: u32) {}
        fn clear(&mut self) {}
    }
    let (near, far) = both(Settings::default());
    let client = thread::spawn(move || BoardClient::bind(near, SECONDS).unwrap().find("x"));
    assert_eq!(serve(far, BoardService(&mut Slow), None), Ok(()));
    assert_eq!(client.join().unwrap(), Ok(5));
}

#[test]
fn a_client_cannot_have_a_service_keep_calls_without_end() {
    let (near, far) = both(Settings::default());
    let client = thread::spawn(move || {
        let mut board = BoardClient::bind(near, SECONDS).unwrap();
        board.set_timeout(Some(Duration::ZERO));
        let timed_out = CallError::Link { method: "find", why: LinkError::TimedOut };
        let mut sent = 0;
        while sent < 1024 {
            // The ring may be full, as the service is a thread like this.
            assert_eq!(board.find("x"), Err(timed_out.clone()));
            sent += 1;
            thread::sleep(Duration::from_micros(20));
        }
        board.set_timeout(SECONDS);
        loop {
            match board.find("x") {
                Err(CallError::Refused { why, .. }) => return why,
                other => assert_eq!(other, Err(timed_out.clone())),
            }
            board.set_timeout(Some(Duration::from_millis(100)));
        }
    });
    let mut words = Words::default();
    assert_eq!(serve(far, BoardService(&mut words), SECONDS), Ok(()));
    assert_eq!(client.join().unwrap(), Refusal::TooMany);
    assert_eq!(words.waiting.len(), 1024);
    assert!(words.waiting.iter().all(|(_, answer)| answer.is_orphaned()));
}
