//! The client's end of a link: sends calls and waits for their answers. The generated clients are wrapped around it.
//!
//! The other end is `session.rs`. A call has its number from the link, so an answer that comes late or twice is known
//! and thrown away.

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

/// Why a call has no result. After `Link` with `Closed`, `Died` or `Broken` no other will have one either.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
pub enum CallError {
    /// The call or its answer was not carried. After a timeout the service may have done the call all the same.
    #[error("{method}: {why}")]
    Link {
        /// What was called.
        method: &'static str,
        /// Why.
        why: LinkError,
    },
    /// The arguments cannot be written: their own serializer failed. Nothing was sent.
    #[error("{method}: its arguments cannot be encoded: {why}")]
    Arguments {
        /// What was called.
        method: &'static str,
        /// As the serializer says.
        why: String,
    },
    /// The service says why there is no result.
    #[error("{method}: {why}")]
    Refused {
        /// What was called.
        method: &'static str,
        /// Why.
        why: Refusal,
    },
    /// What the service answered is no result of the method.
    #[error("{method}: the service's answer is not one of this method")]
    Answer {
        /// What was called.
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
    /// As the generated `bind`.
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
            // Answers to the calls of a client that had the link before.
            if received.kind & ANSWER == 0 {
                return Err(BindError::NotAService("it sends what no service does"));
            }
        }
        let theirs = Hello::read(&received.bytes)?;
        theirs.agrees(&interface)?;
        let last = theirs.last;
        Ok(Caller { link, timeout, last, request, received })
    }

    /// As the generated `set_timeout`.
    pub fn set_timeout(&mut self, timeout: Option<Duration>) {
        self.timeout = timeout;
    }

    /// As the generated `into_link`.
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
            // Another kind: an answer to a call that timed out, or nonsense. The same number makes it ours.
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
        // Whatever comes of it: some links may carry what they gave up, and a number means one call.
        self.last = call;
        self.link.send(number, &self.request, left).map_err(failed)
    }
}

/// What is left of a call's time to wait for its answer.
fn left(deadline: &mut Deadline) -> Result<Option<Duration>, LinkError> {
    deadline.left(Duration::MAX).map(Some).ok_or(LinkError::TimedOut)
}

/// The same for sending it, which may need no time.
fn left_to_send(deadline: &mut Deadline) -> Result<Option<Duration>, LinkError> {
    if deadline.none_left() { Ok(Some(Duration::ZERO)) } else { left(deadline) }
}
