//! Tests of a service written with the `interface` attribute, called over channels between threads.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::HashMap;
use std::thread;
use std::time::Duration;

use atoll_channel::{
    Answer, BindError, CallError, Channel, Clients, Dispatch, LinkError, Message, Peer, Refusal, ServeError,
    Settings, interface, pair, serve,
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

/// Both ends of a channel, made as threads make them.
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

/// A board with words, and look-ups that wait for words.
#[interface(version = 1)]
trait Board {
    /// Answers once `word` was put.
    fn find(&mut self, word: &str, answer: Answer<u32>);

    fn put(&mut self, word: &str, number: u32);

    /// Drops all waiting look-ups.
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

/// The client's end of a channel of `clients`.
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
            // The ring may be full, since the service runs in a thread of its own.
            assert_eq!(board.find("x"), Err(timed_out.clone()));
            sent += 1;
            thread::sleep(Duration::from_micros(20));
        }
        // Shorter than the service waits: a ring that was full a moment ago has calls that are kept and not refused yet.
        board.set_timeout(Some(Duration::from_millis(500)));
        loop {
            match board.find("x") {
                Err(CallError::Refused { why, .. }) => return why,
                other => assert_eq!(other, Err(timed_out.clone())),
            }
        }
    });
    let mut words = Words::default();
    assert_eq!(serve(far, BoardService(&mut words), SECONDS), Ok(()));
    assert_eq!(client.join().unwrap(), Refusal::TooMany);
    assert_eq!(words.waiting.len(), 1024);
    assert!(words.waiting.iter().all(|(_, answer)| answer.is_orphaned()));
}

/// Interfaces that other builds may take for `Counter`.
mod others {
    use super::interface;

    pub(crate) mod newer {
        use super::interface;
        #[interface(version = 2)]
        pub(crate) trait Counter {
            fn add(&mut self, number: u64, twice: bool) -> u64;
        }
    }

    pub(crate) mod changed {
        use super::interface;
        #[interface(version = 1)]
        pub(crate) trait Counter {
            fn add(&mut self, number: u64) -> u64;
        }
    }

    #[interface(version = 1)]
    pub(crate) trait Clock {
        fn now(&self) -> std::time::Duration;
    }

    impl newer::Counter for () {
        fn add(&mut self, _: u64, _: bool) -> u64 {
            0
        }
    }

    impl changed::Counter for () {
        fn add(&mut self, _: u64) -> u64 {
            0
        }
    }

    impl Clock for () {
        fn now(&self) -> std::time::Duration {
            std::time::Duration::ZERO
        }
    }
}

/// The errors of a client of `Counter` and of this service about each other.
fn disagree<D: Dispatch>(service: D) -> (String, String) {
    let (near, far) = both(Settings::default());
    let client = thread::spawn(move || CounterClient::bind(near, SECONDS).map(|_| ()).unwrap_err());
    let service = serve(far, service, SECONDS).unwrap_err();
    (client.join().unwrap().to_string(), service.to_string())
}

#[test]
fn ends_that_do_not_speak_the_same_both_say_why() {
    let (client, service) = disagree(others::newer::CounterService(&mut ()));
    assert_eq!(client, "the peer speaks Counter version 2, this end version 1");
    assert_eq!(service, "the peer speaks Counter version 1, this end version 2");
    let (client, service) = disagree(others::ClockService(&mut ()));
    assert_eq!(client, "the peer speaks Clock, this end Counter");
    assert_eq!(service, "the peer speaks Counter, this end Clock");
    let (client, service) = disagree(others::changed::CounterService(&mut ()));
    assert!(client.contains("Counter version 1, but their methods differ"), "{client}");
    assert_eq!(client, service);
}

#[test]
fn another_format_of_calls_is_told_at_both_ends() {
    let (mut near, far) = both(Settings::default());
    let service = thread::spawn(move || serve(far, CounterService(&mut Adder::default()), SECONDS));
    // A message of a later atoll: nothing behind its number is known.
    near.send(0, b"ATOLLSVC\x02\0\0\0?", SECONDS).unwrap();
    let mut answer = Message::default();
    near.recv(&mut answer, SECONDS).unwrap();
    assert_eq!((answer.kind, &answer.bytes[..12]), (0x8000, &b"ATOLLSVC\x01\0\0\0"[..]));
    let why = service.join().unwrap().unwrap_err();
    assert_eq!(why, ServeError::Bind(BindError::Format { theirs: 2, ours: 1 }));
    assert_eq!(why.to_string(), "the peer's calls have format 2, this end's 1");
}

#[test]
fn a_peer_that_is_no_service_is_told_from_one() {
    // The peer sends nothing.
    let (near, _far) = both(Settings::default());
    let silent = CounterClient::bind(near, Some(Duration::from_millis(20))).map(|_| ()).unwrap_err();
    assert_eq!(silent, BindError::Link(LinkError::TimedOut));
    // The peer is a client itself.
    let (near, far) = both(Settings::default());
    let other = thread::spawn(move || CounterClient::bind(far, SECONDS).map(|_| ()).unwrap_err());
    let mirrored = CounterClient::bind(near, SECONDS).map(|_| ()).unwrap_err();
    assert!(matches!(mirrored, BindError::NotAService(_)), "{mirrored}");
    drop(other.join().unwrap());
    // The peer is something else, or is gone.
    for (kind, bytes) in [(1, &b"hello"[..]), (0x8000, b"hello"), (0x8000, b"")] {
        let (near, mut far) = both(Settings::default());
        far.send(kind, bytes, SECONDS).unwrap();
        let strange = CounterClient::bind(near, SECONDS).map(|_| ()).unwrap_err();
        assert!(matches!(strange, BindError::NotAService(_)), "{strange}");
    }
    let (near, far) = both(Settings::default());
    drop(far);
    let closed = CounterClient::bind(near, SECONDS).map(|_| ()).unwrap_err();
    assert_eq!(closed, BindError::Link(LinkError::Closed));
}

#[test]
fn a_link_can_have_one_client_after_another() {
    let (mut near, far) = both(Settings::default());
    let service = thread::spawn(move || {
        let mut adder = Adder::default();
        serve(far, CounterService(&mut adder), SECONDS).map(|()| adder.total)
    });
    for _ in 0..3 {
        let mut counter = CounterClient::bind(&mut near, SECONDS).unwrap();
        counter.add(1).unwrap().unwrap();
        counter.add(1).unwrap().unwrap();
    }
    drop(near);
    assert_eq!(service.join().unwrap(), Ok(6));
}

#[test]
fn what_is_too_long_for_the_channel_is_an_error_and_ends_nothing() {
    let (near, far) = both(Settings { longest: 1000, ..Settings::default() });
    let service = thread::spawn(move || serve(far, CounterService(&mut Adder::default()), SECONDS));
    let mut counter = CounterClient::bind(near, SECONDS).unwrap();
    let too_long = counter.note("", &[0; 1000]);
    assert!(matches!(too_long, Err(CallError::Link { why: LinkError::TooLong { longest: 1000, .. }, .. })));
    counter.note("", &[1; 600]).unwrap();
    counter.note("", &[2; 600]).unwrap();
    assert_eq!(counter.notes(), Err(CallError::Refused { method: "notes", why: Refusal::TooLong }));
    assert_eq!(counter.add(1), Ok(Ok(1)));
    drop(counter);
    service.join().unwrap().unwrap();
}

#[test]
fn a_client_that_takes_no_answers_is_dropped_and_holds_up_nobody_for_long() {
    let mut clients = Clients::new(2).unwrap();
    clients.set_patience(Duration::from_millis(20));
    let (idle, busy) = (joined(&mut clients), joined(&mut clients));
    let other = thread::spawn(move || {
        let mut idle = CounterClient::bind(idle, SECONDS).unwrap();
        idle.set_timeout(Some(Duration::ZERO));
        let mut busy = CounterClient::bind(busy, SECONDS).unwrap();
        while !matches!(idle.add(1), Err(CallError::Link { why: LinkError::Closed, .. })) {
            busy.add(1).unwrap().unwrap();
        }
    });
    let mut adder = Adder::default();
    let mut dropped = Vec::new();
    while let Some(client) = clients.wait(SECONDS) {
        if let Err(why) = clients.serve(client, CounterService(&mut adder)) {
            dropped.push(why);
        }
    }
    other.join().unwrap();
    assert_eq!(dropped, [ServeError::Link(LinkError::TimedOut), ServeError::Link(LinkError::Closed)]);
}

#[test]
fn a_client_that_takes_no_later_answers_is_dropped_once() {
    let mut clients = Clients::new(2).unwrap();
    clients.set_patience(Duration::from_millis(20));
    let (idle, busy) = (joined(&mut clients), joined(&mut clients));
    let other = thread::spawn(move || {
        let mut idle = BoardClient::bind(idle, SECONDS).unwrap();
        idle.set_timeout(Some(Duration::ZERO));
        // More answers than the client's ring takes; the service reads each call before the next is made.
        let mut busy = BoardClient::bind(busy, SECONDS).unwrap();
        for _ in 0..200 {
            let _ = idle.find("x");
            busy.put("y", 0).unwrap();
        }
        busy.put("x", 1).unwrap();
        idle
    });
    let mut words = Words::default();
    let mut dropped = Vec::new();
    while let Some(client) = clients.wait(SECONDS) {
        if let Err(why) = clients.serve(client, BoardService(&mut words)) {
            dropped.push(why);
        }
    }
    drop(other.join().unwrap());
    assert_eq!(dropped, [ServeError::Link(LinkError::TimedOut), ServeError::Link(LinkError::Closed)]);
}
