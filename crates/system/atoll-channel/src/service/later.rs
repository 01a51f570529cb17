//! Answers that a service gives after the method has returned, for instance to a look-up of something that is not there yet.
//!
//! The method has an [`Answer`] as its last argument. An answer waits in the outbox until the loop that serves the client
//! (`session.rs`, `clients.rs`) sends it.

use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use serde::Serialize;

use crate::service::dispatch::{Call, ClientId, Outcome, Refusal};
use crate::service::wire::{ANSWER, begin_answer, encode, refuse};
use atoll_transport::Message;

/// The most answers that one client may wait for at once; further calls are refused. Each takes memory of the service.
pub(crate) const MOST_PENDING: usize = 1024;

/// The answers that were given and not sent yet.
#[derive(Clone, Default)]
pub(crate) struct Outbox {
    answers: Arc<Mutex<Vec<(ClientId, Message)>>>,
}

impl Outbox {
    fn push(&self, client: ClientId, message: Message) {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).push((client, message));
    }

    /// Takes all answers.
    pub(crate) fn take(&self) -> Vec<(ClientId, Message)> {
        std::mem::take(&mut *self.answers.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// An answer that a client waits for, of type `T`. Dropped without being given, it tells the client that there will be none.
pub struct Answer<T> {
    client: ClientId,
    /// Lives as long as the client.
    alive: Weak<()>,
    outbox: Outbox,
    /// The refusal to send, until there is an answer.
    message: Option<Message>,
    of: PhantomData<fn(T)>,
}

impl<T: Serialize> Answer<T> {
    /// Gives the answer. It is sent when the loop that serves the client continues: after the method that calls this, or before
    /// the loop waits again.
    pub fn give(mut self, value: &T) {
        if let Some(mut message) = self.message.take() {
            message.bytes.pop();
            message.bytes.push(0);
            if encode(value, &mut message.bytes).is_err() {
                refuse(Refusal::Answer, &mut message.bytes);
            }
            self.outbox.push(self.client, message);
        }
    }
}

impl<T> Answer<T> {
    /// The client that waits.
    pub fn client(&self) -> ClientId {
        self.client
    }

    /// Whether the client is gone. A client that has given up waiting does not tell.
    pub fn is_orphaned(&self) -> bool {
        self.alive.strong_count() == 0
    }
}

impl<T> fmt::Debug for Answer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Answer for {:?}", self.client)
    }
}

impl<T> Drop for Answer<T> {
    fn drop(&mut self) {
        if let Some(message) = self.message.take()
            && !self.is_orphaned()
        {
            self.outbox.push(self.client, message);
        }
    }
}

/// Passes the answer that will be given to the method `go`, unless the client waits for too many.
pub fn later<T>(call: &Call<'_>, go: impl FnOnce(Answer<T>)) -> Outcome {
    if Arc::weak_count(call.alive) >= MOST_PENDING {
        return Outcome::Refuse(Refusal::TooMany);
    }
    let mut message = Message { kind: call.method | ANSWER, bytes: Vec::new() };
    begin_answer(call.number, &mut message.bytes);
    refuse(Refusal::NoAnswer, &mut message.bytes);
    go(Answer {
        client: call.client,
        alive: Arc::downgrade(call.alive),
        outbox: call.outbox.clone(),
        message: Some(message),
        of: PhantomData,
    });
    Outcome::Nothing
}
