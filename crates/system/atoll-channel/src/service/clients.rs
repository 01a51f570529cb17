//! The clients of a service: their channels are in one wait set, and each is served when it has sent something.
//!
//! Stands on `session.rs` and on the channels' [`WaitSet`]; [`serve`](crate::serve) serves a single client on any link.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use crate::service::dispatch::{ClientId, Dispatch};
use crate::service::later::Outbox;
use crate::service::session::{ServeError, Session, Step, send_answer};
use atoll_transport::LinkError;
use atoll_transport::clock::Deadline;
use atoll_transport::{
    AddError, Channel, CreateError, Message, Seat, SendError, Sender, SetFull, Token, WaitSet,
};

/// The default time that a client may keep a service waiting by not taking an answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// The clients of one or more services, over channels.
pub struct Clients {
    set: WaitSet,
    clients: HashMap<Token, Client>,
    tokens: HashMap<ClientId, Token>,
    outbox: Outbox,
    /// The clients that failed while they were not being served, and the reasons.
    failed: VecDeque<(ClientId, ServeError)>,
    message: Message,
    patience: Duration,
}

struct Client {
    id: ClientId,
    sender: Sender,
    session: Session,
}

impl Clients {
    /// A set for at most `clients` clients, 1 to 262,144.
    pub fn new(clients: u32) -> Result<Clients, CreateError> {
        Ok(Clients {
            set: WaitSet::new(clients)?,
            clients: HashMap::new(),
            tokens: HashMap::new(),
            outbox: Outbox::default(),
            failed: VecDeque::new(),
            message: Message::default(),
            patience: PATIENCE,
        })
    }

    /// Sets how long one client may keep all waiting, by not taking an answer that is longer than the free room in its ring,
    /// before it is dropped: one second by default.
    pub fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// A seat, to make a channel with.
    pub fn seat(&self) -> Result<Seat, SetFull> {
        self.set.seat()
    }

    /// Serves the client at the other end of `channel`, which was made with a seat from here.
    pub fn add(&mut self, channel: Channel) -> Result<ClientId, AddError> {
        let token = self.set.add(channel.receiver)?;
        let id = ClientId::new();
        self.clients.insert(
            token,
            Client { id, sender: channel.sender, session: Session::new(id, self.outbox.clone()) },
        );
        self.tokens.insert(id, token);
        Ok(id)
    }

    /// Drops a client. Returns whether it was there.
    pub fn remove(&mut self, client: ClientId) -> bool {
        self.failed.retain(|(failed, _)| *failed != client);
        let Some(token) = self.tokens.remove(&client) else { return false };
        self.clients.remove(&token);
        self.set.remove(token);
        true
    }

    /// The number of clients.
    pub fn len(&self) -> usize {
        self.clients.len()
    }

    /// Whether there are no clients.
    pub fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }

    /// Waits for a client that has something to be served, for at most `timeout` (`None`: for ever). Returns `None` if no
    /// client had anything in time, or there are none.
    ///
    /// Answers that were given later than their calls are sent first, and after each `serve`; a thread that gives one does not
    /// end a wait.
    pub fn wait(&mut self, timeout: Option<Duration>) -> Option<ClientId> {
        self.send_later();
        if let Some((client, _)) = self.failed.front() {
            return Some(*client);
        }
        let mut deadline = Deadline::new(timeout);
        loop {
            let left = if deadline.none_left() { Duration::ZERO } else { deadline.left(Duration::MAX)? };
            let token = self.set.wait(Some(left))?;
            if let Some(client) = self.clients.get(&token) {
                return Some(client.id);
            }
            // Impossible, as they are added and removed together; a receiver without a client is removed.
            self.set.remove(token);
        }
    }

    /// Executes the next call of `client` with `service`, if all of it has come. An error means that the client is gone:
    /// closed, dead, or dropped because it broke the rules.
    pub fn serve<D: Dispatch>(&mut self, client: ClientId, mut service: D) -> Result<(), ServeError> {
        let failed = self.failed.iter().position(|(failed, _)| *failed == client);
        let served = match failed.and_then(|at| self.failed.remove(at)) {
            Some((_, why)) => Err(why),
            None => self.serve_next(client, &mut service),
        };
        if served.is_err() {
            self.remove(client);
        }
        self.send_later();
        served
    }

    /// Sends the answers that were given later than their calls.
    fn send_later(&mut self) {
        for (id, mut answer) in self.outbox.take() {
            // The client may be gone by now, or have used up the patience.
            if self.failed.iter().any(|(failed, _)| *failed == id) {
                continue;
            }
            let token = self.tokens.get(&id);
            let Some(client) = token.and_then(|token| self.clients.get_mut(token)) else { continue };
            if let Err(why) = send(&mut client.sender, &mut answer, self.patience) {
                self.failed.push_back((id, why.into()));
            }
        }
    }

    fn serve_next<D: Dispatch>(&mut self, client: ClientId, service: &mut D) -> Result<(), ServeError> {
        let gone = ServeError::Link(LinkError::Closed);
        let Some(token) = self.tokens.get(&client) else { return Err(gone) };
        let (Some(receiver), Some(client)) = (self.set.get(*token), self.clients.get_mut(token)) else {
            return Err(gone);
        };
        if !receiver.try_recv(&mut self.message).map_err(LinkError::from)? {
            return Ok(());
        }
        let step = client.session.handle(&self.message, service)?;
        if step == Step::Nothing {
            return Ok(());
        }
        let Client { sender, session, .. } = client;
        let sent = send(sender, &mut session.answer, self.patience);
        if let Step::Farewell(why) = step {
            return Err(why.into());
        }
        Ok(sent?)
    }

    /// Serves all clients with one service, until none is left, or none sent anything for `timeout` (`None`: for ever).
    pub fn serve_all<D: Dispatch>(&mut self, mut service: D, timeout: Option<Duration>) {
        while let Some(client) = self.wait(timeout) {
            // The reason why it is gone matters to nobody here.
            let _ = self.serve(client, &mut service);
        }
    }
}

/// Sends an answer to a client, which may keep all others waiting for `patience`.
fn send(sender: &mut Sender, answer: &mut Message, patience: Duration) -> Result<(), LinkError> {
    send_answer(answer, |kind, bytes| match sender.try_send(kind, bytes) {
        Err(SendError::Full | SendError::NeverFits { .. }) => Ok(sender.send(kind, bytes, Some(patience))?),
        other => Ok(other?),
    })
}
