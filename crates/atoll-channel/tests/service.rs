//! A service written with the `interface` attribute, called over channels between threads.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::thread;
use std::time::Duration;

use atoll_channel::{CallError, Channel, Clients, Peer, ServeError, Settings, interface, pair, serve};

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
