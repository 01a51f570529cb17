//! A wait set: one place to wait for the first of many channels that has something to receive.
//!
//! Stands on `ready.rs` and `turns.rs`, and holds the receivers. Those that were handed out are armed again before it waits. A
//! sender that finds its channel armed marks the channel's seat and wakes the set, so idle channels are never checked, and busy
//! ones are reported once. Every sender of a set can write to its marks, and a broken one could clear another's mark. So the
//! set also checks some of its channels in turn now and then: a message whose mark was lost is found late, but it is found.
//!
//! Source: the barrelfish paper, section 6.7.2 (`struct waitset` of `if_accept` and `if_connect`).

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::event::{Timespec, epoll};

use crate::channel::error::CreateError;
use crate::channel::peer::{Peer, SLICE};
use crate::channel::receiver::Receiver;
use crate::channel::set_file;
use crate::channel::settings::DEFAULT_SPINS;
use crate::clock::{Deadline, coarse};
use crate::ring::doze::Dozer;
use crate::ring::ready::ReadySet;
use crate::ring::turns::Turns;

/// The data that the seats of a set share with it.
struct Seats {
    file: OwnedFd,
    free: Mutex<Vec<u32>>,
}

/// A place in a wait set for one channel. A channel that is made with it can be added to the set; the seat is free again when
/// the channel's receiver is dropped.
pub struct Seat {
    seats: Arc<Seats>,
    number: u32,
}

impl Seat {
    /// The set's memory.
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.seats.file.as_fd()
    }

    /// The seat's number.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.seats.free.lock().unwrap_or_else(PoisonError::into_inner).push(self.number);
    }
}

/// All seats of a wait set are taken.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Debug)]
#[error("all {0} seats of the wait set are taken")]
pub struct SetFull(pub u32);

/// The reasons why a receiver cannot be added to a wait set; the receiver is given back.
#[derive(thiserror::Error)]
pub enum AddError {
    /// The receiver's channel was made without a seat of this set.
    #[error("the channel was not made with a seat of this wait set")]
    NoSeat(Box<Receiver>),
    /// The system refuses to watch its peer.
    #[error("the peer cannot be watched: {1}")]
    Os(Box<Receiver>, #[source] io::Error),
}

impl std::fmt::Debug for AddError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

/// The name of a channel in a wait set, valid from `add` to `remove`; afterwards another channel may have it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Token(pub u32);

/// Channels to be waited for together.
pub struct WaitSet {
    seats: Arc<Seats>,
    ready: ReadySet,
    turns: Turns<Receiver>,
    peers: Peers,
    /// The time of the next check of the peers, by the coarse clock.
    next_look: Duration,
    spins: u32,
}

/// The processes at the other ends, each with its seats, in an epoll set, which reports dead ones without asking all.
struct Peers {
    epoll: OwnedFd,
    seats: HashMap<u64, (Peer, Vec<u32>)>,
}

impl WaitSet {
    /// An empty set for at most `seats` channels, 1 to 262,144. It takes 128 bytes and some 65 bits for every 64 seats.
    pub fn new(seats: u32) -> Result<WaitSet, CreateError> {
        let file = set_file::create(seats)?;
        let ready = set_file::attach(file.as_fd())
            .map_err(|e| CreateError::Os("a wait set's memory", io::Error::other(e)))?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|e| CreateError::Os("epoll_create", e.into()))?;
        Ok(WaitSet {
            seats: Arc::new(Seats { file, free: Mutex::new((0..seats).rev().collect()) }),
            ready,
            turns: Turns::new(seats),
            peers: Peers { epoll, seats: HashMap::new() },
            next_look: coarse() + SLICE,
            spins: DEFAULT_SPINS,
        })
    }

    /// Sets how often `wait` checks before it sleeps, instead of [`DEFAULT_SPINS`].
    pub fn set_spins(&mut self, spins: u32) {
        self.spins = spins;
    }

    /// A free seat, to make a channel with.
    pub fn seat(&self) -> Result<Seat, SetFull> {
        let number = self.seats.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let number = number.ok_or(SetFull(self.ready.seats()))?;
        Ok(Seat { seats: self.seats.clone(), number })
    }

    /// Adds a channel's receiver, which must have been made with a seat of this set.
    pub fn add(&mut self, receiver: Receiver) -> Result<Token, AddError> {
        let seat = receiver.seat().filter(|seat| Arc::ptr_eq(&seat.seats, &self.seats)).map(Seat::number);
        let Some(seat) = seat else { return Err(AddError::NoSeat(receiver.into())) };
        if let Err(e) = self.peers.add(receiver.peer(), seat) {
            return Err(AddError::Os(receiver.into(), e));
        }
        self.turns.insert(seat, receiver);
        Ok(Token(seat))
    }

    /// The receiver of `token`, to receive from.
    pub fn get(&mut self, token: Token) -> Option<&mut Receiver> {
        self.turns.get(token.0)
    }

    /// Takes a receiver out of the set. The receiver keeps its seat and can be added again.
    pub fn remove(&mut self, token: Token) -> Option<Receiver> {
        let receiver = self.turns.remove(token.0)?;
        self.peers.remove(receiver.peer(), token.0);
        Some(receiver)
    }

    /// A handle that ends a `wait` from any thread, or from any process that inherited this one's memory.
    pub fn interrupter(&self) -> Interrupter {
        Interrupter(self.ready.clone())
    }

    /// A handle that sleeps for the set while others, one at a time, use it.
    pub(crate) fn dozer(&self) -> Dozer {
        Dozer::new(self.ready.clone())
    }

    /// The number of channels in the set.
    pub fn len(&self) -> usize {
        self.turns.len()
    }

    /// Whether no channel is in the set.
    pub fn is_empty(&self) -> bool {
        self.turns.len() == 0
    }

    /// Waits for a channel whose `try_recv` returns something: a message, part of one, or an error. Channels take turns, so
    /// none is passed over. A channel that was not emptied comes again, and so does one that ended, until it is removed. Waits
    /// for at most `timeout` (`None`: for ever); returns `None` if no channel was ready in time, the set is empty or an
    /// [`Interrupter`] was used.
    pub fn wait(&mut self, timeout: Option<Duration>) -> Option<Token> {
        let mut deadline = Deadline::new(timeout);
        loop {
            self.look_at_peers();
            if let Some(seat) = self.turns.next(&self.ready) {
                return Some(Token(seat));
            }
            if self.is_empty() {
                return None;
            }
            // A call that does not wait leaves the interruption to one that sleeps.
            let looks = deadline.none_left();
            if !looks && self.ready.take_interrupt() {
                return None;
            }
            let ready = &self.ready;
            let due = self.next_look;
            let spins = if looks { 0 } else { self.spins };
            let waited = ready.bell().wait(
                spins,
                || ready.any() || (!looks && ready.is_interrupted()),
                // Either it is time to check the peers, or the deadline is over.
                || if coarse() >= due { Err(false) } else { deadline.left(SLICE).ok_or(true) },
            );
            if waited == Err(true) {
                return None;
            }
        }
    }

    /// Queues all channels of peers that have died, and those whose marks were lost, if it is time to check.
    fn look_at_peers(&mut self) {
        /// The seats checked at once: a set of 10,000 is checked completely in some eight seconds at next to no cost.
        const ROUND: usize = 256;
        let now = coarse();
        if now >= self.next_look {
            self.next_look = now + SLICE;
            self.turns.look_round(ROUND);
            for seat in self.peers.dead() {
                self.turns.rouse(seat, Receiver::note_death);
            }
        }
    }
}

/// Ends a wait set's [`wait`](WaitSet::wait), the present one or the next.
#[derive(Clone)]
pub struct Interrupter(ReadySet);

impl Interrupter {
    /// Ends the wait. Takes no lock and allocates nothing.
    pub fn interrupt(&self) {
        self.0.interrupt();
    }
}

impl Peers {
    fn add(&mut self, peer: &Peer, seat: u32) -> io::Result<()> {
        if let Some((_, seats)) = self.seats.get_mut(&peer.key()) {
            seats.push(seat);
            return Ok(());
        }
        let data = epoll::EventData::new_u64(peer.key());
        epoll::add(&self.epoll, peer.descriptor(), data, epoll::EventFlags::IN)?;
        self.seats.insert(peer.key(), (peer.clone(), vec![seat]));
        Ok(())
    }

    fn remove(&mut self, peer: &Peer, seat: u32) {
        let Some((_, seats)) = self.seats.get_mut(&peer.key()) else { return };
        seats.retain(|other| *other != seat);
        if seats.is_empty() {
            self.forget(peer.key());
        }
    }

    fn forget(&mut self, key: u64) -> Vec<u32> {
        let Some((peer, seats)) = self.seats.remove(&key) else { return Vec::new() };
        // An error means that the kernel has forgotten it already.
        let _ = epoll::delete(&self.epoll, peer.descriptor());
        seats
    }

    /// The seats of peers that have died since the last call.
    fn dead(&mut self) -> Vec<u32> {
        let mut events = Vec::with_capacity(64);
        let mut dead = Vec::new();
        loop {
            let none = Timespec { tv_sec: 0, tv_nsec: 0 };
            let found = epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&none));
            if found.unwrap_or(0) == 0 {
                return dead;
            }
            for event in events.drain(..) {
                dead.extend(self.forget(event.data.u64()));
            }
        }
    }
}
