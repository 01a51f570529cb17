//! The names of lenders that other lenders keep, for users whose hosts share no folder: how they are asked and told.
//!
//! Every lender keeps the names of those that tell it (`names` at its end). A lender tells each of the user's keepers over a
//! connection that it holds as long as it lends, so its name goes with it. A borrower asks all of them and takes what the first
//! ones answer; one that answers suffices.
//!
//! Source: the barrelfish paper, section 6.8.2: a name goes with who registered it.

use std::net::ToSocketAddrs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Release};
use std::sync::{Arc, mpsc};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use atoll_memory::signals::SignalsBlocked;

use super::{Card, DirectoryError, PATIENCE};
use crate::control::{Control, ControlError};

/// The time between two questions whether a keeper is there.
const PERIOD: Duration = Duration::from_millis(200);
/// The time between two tries to reach a keeper that is not.
const SEARCH: Duration = Duration::from_millis(500);
/// How long a keeper may take to notice that a lender of the same name is gone, whose host went away without a word.
const NOTICE: Duration = Duration::from_secs(5);

/// The addresses of the lenders that keep names, each `HOST:PORT`.
#[derive(Clone, Debug)]
pub(super) struct Keepers(Vec<String>);

/// Why a lender is not entered at a keeper.
enum Refusal {
    Control(ControlError),
    Taken(Card),
}

impl From<ControlError> for Refusal {
    fn from(error: ControlError) -> Refusal {
        Refusal::Control(error)
    }
}

impl Keepers {
    /// The addresses of a list with commas; `None` if it is none.
    pub(super) fn parse(list: &str) -> Option<Keepers> {
        let is_address = |at: &str| {
            at.rsplit_once(':').is_some_and(|(host, port)| {
                !host.is_empty() && !host.contains('/') && port.parse::<u16>().is_ok_and(|port| port != 0)
            })
        };
        let all: Vec<String> = list.split(',').map(|at| at.trim().to_owned()).collect();
        all.iter().all(|at| is_address(at)).then_some(Keepers(all))
    }

    /// The cards that the keepers know which answer within `time`, by name. The secret of `key` is at `secret`.
    pub(super) fn cards(
        &self,
        key: [u8; 32],
        secret: &Path,
        time: Duration,
    ) -> Result<Vec<Card>, DirectoryError> {
        let (tell, told) = mpsc::channel();
        for at in self.0.clone() {
            let tell = tell.clone();
            let ask = move || {
                // Whoever asks goes on without those that are late, and signals are for its own thread.
                let _blocked = SignalsBlocked::new();
                // Nobody hears a late answer.
                let _ = tell.send((at.clone(), ask(&at, &key)));
            };
            // A keeper for which no thread can be made is one that does not answer.
            let _ = Builder::new().name("lenders".into()).spawn(ask);
        }
        drop(tell);
        let until = Instant::now() + time;
        let next = || told.recv_timeout(until.saturating_duration_since(Instant::now())).ok();
        let (mut cards, mut heard, mut trouble) = (Vec::<Card>::new(), false, None);
        for (at, answer) in std::iter::from_fn(next) {
            match answer {
                Ok(more) => {
                    heard = true;
                    let new = |card: &Card| !cards.iter().any(|known| known.name == card.name);
                    let more: Vec<Card> = more.into_iter().filter(new).collect();
                    cards.extend(more);
                }
                Err(error) => trouble = Some((at, words(&error, secret))),
            }
        }
        if !heard {
            let silent = || (self.0.join(", "), format!("no answer within {:.1} s", time.as_secs_f64()));
            let (at, why) = trouble.unwrap_or_else(silent);
            return Err(DirectoryError::Keeper(at, why));
        }
        cards.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(cards)
    }

    /// Tells all keepers of a lender, and holds the connections. Keepers that cannot be told now are told later.
    pub(super) fn enter(&self, card: &Card, key: [u8; 32], secret: &Path) -> Result<Kept, DirectoryError> {
        let mut kept =
            Kept { ends: Arc::new(AtomicBool::new(false)), threads: Vec::new(), untold: Vec::new() };
        for at in &self.0 {
            let first = match register(at, &key, card) {
                Ok(control) => Some(control),
                Err(Refusal::Taken(other)) => return Err(DirectoryError::Taken(other.name, other.host)),
                Err(Refusal::Control(error)) => {
                    let why = DirectoryError::Keeper(at.clone(), words(&error, secret));
                    kept.untold.push(why.to_string());
                    None
                }
            };
            let (at, card, ends) = (at.clone(), card.clone(), Arc::clone(&kept.ends));
            let hold = move || hold(&at, &key, &card, first, &ends);
            let thread = Builder::new().name("names".into()).spawn(hold);
            let thread =
                thread.map_err(|error| DirectoryError::Keeper(self.0.join(", "), error.to_string()))?;
            kept.threads.push(thread);
        }
        Ok(kept)
    }
}

/// A lender's entries at its keepers, which last until this is dropped.
pub(super) struct Kept {
    ends: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    untold: Vec<String>,
}

impl Kept {
    pub(super) fn untold(&self) -> &[String] {
        &self.untold
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.ends.store(true, Release);
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

/// Holds a lender's entry at one keeper, and makes it anew when the keeper was away.
fn hold(at: &str, key: &[u8; 32], card: &Card, first: Option<Control>, ends: &AtomicBool) {
    let mut control = first;
    while !ends.load(Acquire) {
        control = match control.take() {
            Some(mut control) => control.ping().is_ok().then_some(control),
            None => register(at, key, card).ok(),
        };
        std::thread::park_timeout(if control.is_some() { PERIOD } else { SEARCH });
    }
}

/// Begins a session with the lender at `HOST:PORT`.
fn open(at: &str, key: &[u8; 32]) -> Result<Control, ControlError> {
    let mut last = std::io::Error::from(std::io::ErrorKind::AddrNotAvailable).into();
    for address in at.to_socket_addrs()? {
        match Control::open(address, key, PATIENCE) {
            Ok(control) => return Ok(control),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn ask(at: &str, key: &[u8; 32]) -> Result<Vec<Card>, ControlError> {
    open(at, key)?.names()
}

/// Enters a lender at one keeper. The entry lasts as long as the connection.
fn register(at: &str, key: &[u8; 32], card: &Card) -> Result<Control, Refusal> {
    let mut control = open(at, key)?;
    let until = Instant::now() + NOTICE;
    loop {
        match control.register(card)? {
            None => return Ok(control),
            // A keeper knows itself.
            Some(other) if other == *card => return Ok(control),
            Some(other) if Instant::now() > until || other.open(key).is_ok() => {
                return Err(Refusal::Taken(other));
            }
            Some(_) => std::thread::sleep(PERIOD),
        }
    }
}

/// Why a keeper cannot be asked, and what to do. The secret of this host is at `secret`.
fn words(error: &ControlError, secret: &Path) -> String {
    match error {
        ControlError::Unproven => {
            format!("{error}; copy the secret of its host, {} there, to this one", secret.display())
        }
        error => error.to_string(),
    }
}
