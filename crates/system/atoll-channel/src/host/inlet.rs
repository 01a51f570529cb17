//! The inlet, by which other threads hand events to a loop that serves clients: a queue, and a client of its own whose calls
//! wake the loop.
//!
//! `serving.rs` is the loop; those of `names/` and `spawn/` have one inlet each. The queue of seats goes the other way: a
//! thread that greets a visitor needs a seat of the loop's wait set to make the channel.

use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::interface;
use crate::service::{ClientId, Clients};
use atoll_transport::{Channel, CreateError, Peer, Seat, Settings, pair};

/// The number of seats kept ready; a thread that needs one more waits a moment.
const SPARE: usize = 32;

/// A set for the clients of a loop: some `most` processes, with additional places for inlets, other nodes and spare seats.
///
/// Answers must fit into an empty ring: a client that makes the loop wait, because it does not take its answers, is dropped at
/// once.
pub(crate) fn client_set(most: u32) -> Result<Clients, CreateError> {
    let mut clients = Clients::new(most.saturating_add(1024).min(262_144))?;
    clients.set_patience(Duration::ZERO);
    Ok(clients)
}

/// The interface that wakes a loop.
#[interface(version = 1)]
trait Wake {
    /// Tells the loop that there is something in the queue.
    #[oneway]
    fn wake(&mut self);
}

/// The service behind a wake: the loop handles its queue anyway.
struct Woken;

impl Wake for Woken {
    fn wake(&mut self) {}
}

/// The end for all other threads.
pub(crate) struct Inlet<T> {
    queue: mpsc::Sender<Handed<T>>,
    seats: Arc<Mutex<mpsc::Receiver<Seat>>>,
    wake: Arc<Mutex<WakeClient<Channel>>>,
}

impl<T> Clone for Inlet<T> {
    fn clone(&self) -> Inlet<T> {
        Inlet { queue: self.queue.clone(), seats: self.seats.clone(), wake: self.wake.clone() }
    }
}

/// An item of the queue.
pub(super) enum Handed<T> {
    This(T),
    /// The loop is to end.
    Stop,
}

/// The loop's end, with its clients.
pub(crate) struct Outlet<T> {
    /// All clients that the loop serves, the inlets among them.
    pub(crate) clients: Clients,
    /// An inlet for the threads that the loop starts.
    pub(crate) inlet: Inlet<T>,
    queue: mpsc::Receiver<Handed<T>>,
    seats: mpsc::SyncSender<Seat>,
    /// The inlets, as a client of the loop.
    pub(super) client: ClientId,
    /// A seat that did not fit into the queue of spare ones.
    spare: Option<Seat>,
}

/// The loop has ended.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Debug)]
#[error("the service has ended")]
pub(crate) struct LoopEnded;

fn other(why: impl std::fmt::Display) -> std::io::Error {
    std::io::Error::other(why.to_string())
}

/// Makes both ends for a loop that serves `clients`; takes one of its seats.
pub(crate) fn inlet<T>(mut clients: Clients) -> std::io::Result<(Inlet<T>, Outlet<T>)> {
    let (near, far) = pair(Settings::default(), Some(clients.seat().map_err(other)?)).map_err(other)?;
    let near = near.attach(Peer::this()?).map_err(other)?;
    let far = far.attach(Peer::this()?).map_err(other)?;
    let client = clients.add(near).map_err(other)?;
    // Agreeing on the interface needs both ends.
    let wake = std::thread::scope(|scope| {
        let bound = scope.spawn(|| WakeClient::bind(far, None));
        clients.wait(None);
        let served = clients.serve(client, WakeService(&mut Woken));
        let bound = bound.join().map_err(|_| other("the thread that binds panicked"))?;
        served.map_err(other).and(bound.map_err(other))
    })?;
    let (to_loop, queue) = mpsc::channel();
    let (seats, from_loop) = mpsc::sync_channel(SPARE);
    let inlet =
        Inlet { queue: to_loop, seats: Arc::new(Mutex::new(from_loop)), wake: Arc::new(Mutex::new(wake)) };
    let outlet = Outlet { clients, inlet: inlet.clone(), queue, seats, client, spare: None };
    Ok((inlet, outlet))
}

impl<T> Inlet<T> {
    /// Hands an event over.
    pub(crate) fn send(&self, what: T) -> Result<(), LoopEnded> {
        self.put(Handed::This(what))
    }

    /// Makes the loop end when it has handled all earlier events.
    pub(crate) fn stop(&self) -> Result<(), LoopEnded> {
        self.put(Handed::Stop)
    }

    fn put(&self, what: Handed<T>) -> Result<(), LoopEnded> {
        self.queue.send(what).map_err(|_| LoopEnded)?;
        let mut wake = self.wake.lock().unwrap_or_else(PoisonError::into_inner);
        wake.wake().map_err(|_| LoopEnded)
    }

    /// Takes a seat of the loop's wait set; `None` if all are taken, or the loop has ended.
    pub(crate) fn seat(&self) -> Option<Seat> {
        let seats = self.seats.lock().unwrap_or_else(PoisonError::into_inner);
        if let Ok(seat) = seats.try_recv() {
            return Some(seat);
        }
        // The loop adds new ones whenever it is awake.
        self.wake.lock().unwrap_or_else(PoisonError::into_inner).wake().ok()?;
        seats.recv_timeout(Duration::from_secs(1)).ok()
    }
}

impl<T> Outlet<T> {
    /// The next item, if there is one. To be called until there is none, whenever the loop was woken.
    pub(super) fn next(&self) -> Option<Handed<T>> {
        self.queue.try_recv().ok()
    }

    /// Serves the inlets, and makes sure that they have seats.
    pub(super) fn serve(&mut self) {
        // The call fails only when all inlets are gone.
        let _ = self.clients.serve(self.client, WakeService(&mut Woken));
        self.fill();
    }

    /// Refills the spare seats.
    pub(super) fn fill(&mut self) {
        loop {
            let Some(seat) = self.spare.take().or_else(|| self.clients.seat().ok()) else { return };
            if let Err(mpsc::TrySendError::Full(seat) | mpsc::TrySendError::Disconnected(seat)) =
                self.seats.try_send(seat)
            {
                self.spare = Some(seat);
                return;
            }
        }
    }
}
