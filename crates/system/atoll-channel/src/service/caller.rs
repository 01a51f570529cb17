//! The client's end of a link: sends calls and waits for their answers. Generated clients wrap it.
//!
//! The other end is `session.rs`. A call has a number on its link, so an answer that comes late or twice is recognised and
//! dropped.

use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::service::dispatch::Refusal;
use crate::service::hello::{BindError, Hello, Interface};
use atoll_transport::Message;
use atoll_transport::clock::Deadline;
use atoll_transport::decode;
use atoll_transport::{Link, LinkError};

use crate::service::wire::{ANSWER, HELLO, answer, begin_request, encode};

/// The reasons why a call has no result. After `Link` with `Closed`, `Died` or `Broken` no other call will have one.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
pub enum CallError {
    /// The call or its answer was not carried. After a timeout the service may have executed the call nevertheless.
    #[error("{method}: {why}")]
    Link {
        /// The method's name.
        method: &'static str,
        /// The reason.
        why: LinkError,
    },
    /// The arguments cannot be encoded: their own serializer failed. Nothing was sent.
    #[error("{method}: its arguments cannot be encoded: {why}")]
    Arguments {
        /// The method's name.
        method: &'static str,
        /// The error of the serializer.
        why: String,
    },
    /// The service reports why there is no result.
    #[error("{method}: {why}")]
    Refused {
        /// The method's name.
        method: &'static str,
        /// The reason.
        why: Refusal,
    },
    /// The service's answer is not a result of the method.
    #[error("{method}: the service's answer is not one of this method")]
    Answer {
        /// The method's name.
        method: &'static str,
    },
}

/// A link, bound to a service at its other end.
pub struct Caller<L> {
    link: L,
    timeout: Option<Duration>,
    /// The number of the last call.
    last: u32,
    request: Vec<u8>,
    received: Message,
}

impl<L: Link> Caller<L> {
    /// Binds to the service, as the generated `bind` documents.
    pub fn bind(
        mut link: L,
        interface: Interface,
        timeout: Option<Duration>,
    ) -> Result<Caller<L>, BindError> {
        let mut deadline = Deadline::new(timeout);
        let mut request = Vec::new();
        Hello::new(&interface, 0).write(&mut request);
        link.send(HELLO, &request, left_to_send(&mut deadline)?)?;
        let mut received = Message::default();
        loop {
            link.recv(&mut received, left(&mut deadline)?)?;
            if received.kind == HELLO | ANSWER {
                break;
            }
            // Answers to calls of an earlier client of the link.
            if received.kind & ANSWER == 0 {
                return Err(BindError::NotAService("it sends messages that no service sends"));
            }
        }
        let theirs = Hello::read(&received.bytes)?;
        theirs.agrees(&interface)?;
        let last = theirs.last;
        Ok(Caller { link, timeout, last, request, received })
    }

    /// Sets the timeout, as the generated `set_timeout` documents.
    pub fn set_timeout(&mut self, timeout: Option<Duration>) {
        self.timeout = timeout;
    }

    /// Returns the link, as the generated `into_link` documents.
    pub fn into_link(self) -> L {
        self.link
    }

    /// Calls method `number` and waits for its answer.
    pub fn call<A: Serialize, R: DeserializeOwned>(
        &mut self,
        number: u16,
        method: &'static str,
        arguments: &A,
    ) -> Result<R, CallError> {
        let mut deadline = Deadline::new(self.timeout);
        self.send(number, method, arguments, &mut deadline)?;
        let failed = |why| CallError::Link { method, why };
        loop {
            let left = left(&mut deadline).map_err(failed)?;
            self.link.recv(&mut self.received, left).map_err(failed)?;
            // Another kind is an answer to a call that timed out, or invalid. An answer with the number of this call belongs to
            // it.
            if self.received.kind != number | ANSWER {
                continue;
            }
            let Some((of, result)) = answer(&self.received.bytes) else {
                return Err(CallError::Answer { method });
            };
            if of != self.last {
                continue;
            }
            let value = result.map_err(|why| CallError::Refused { method, why })?;
            return decode(value).map_err(|_| CallError::Answer { method });
        }
    }

    /// Calls method `number`, which has no answer.
    pub fn notify<A: Serialize>(
        &mut self,
        number: u16,
        method: &'static str,
        arguments: &A,
    ) -> Result<(), CallError> {
        let mut deadline = Deadline::new(self.timeout);
        self.send(number, method, arguments, &mut deadline)
    }

    fn send<A: Serialize>(
        &mut self,
        number: u16,
        method: &'static str,
        arguments: &A,
        deadline: &mut Deadline,
    ) -> Result<(), CallError> {
        let call = self.last.wrapping_add(1);
        begin_request(call, &mut self.request);
        encode(arguments, &mut self.request)
            .map_err(|why| CallError::Arguments { method, why: why.to_string() })?;
        let failed = |why| CallError::Link { method, why };
        let left = left_to_send(deadline).map_err(failed)?;
        // Counted whatever the result: some links may carry a message that they reported as failed, and a number must mean one
        // call.
        self.last = call;
        self.link.send(number, &self.request, left).map_err(failed)
    }
}

/// The time left to wait for the answer of a call.
fn left(deadline: &mut Deadline) -> Result<Option<Duration>, LinkError> {
    deadline.left(Duration::MAX).map(Some).ok_or(LinkError::TimedOut)
}

/// The time left to send a call, which may need none.
fn left_to_send(deadline: &mut Deadline) -> Result<Option<Duration>, LinkError> {
    if deadline.none_left() { Ok(Some(Duration::ZERO)) } else { left(deadline) }
}
