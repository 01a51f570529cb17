//! A call from the service's side: its method, its client, and its outcome.
//!
//! The attribute `interface` generates the `Dispatch` of each service; `session.rs` hands calls to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

use crate::service::hello::Interface;
use crate::service::later::{MOST_PENDING, Outbox};
use crate::service::wire::encode;

/// The number of a client. No two clients of this process's services ever have the same.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ClientId(u64);

impl ClientId {
    /// A number that no client has had.
    pub(crate) fn new() -> ClientId {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        ClientId(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// A call, apart from its arguments.
pub struct Call<'a> {
    /// The number of the method, from 1 in the order of the trait.
    pub method: u16,
    /// The number of the call on its link.
    pub number: u32,
    /// The client that makes it.
    pub client: ClientId,
    /// Lives as long as the client; each answer that it waits for points to it weakly.
    pub(crate) alive: &'a Arc<()>,
    /// The queue of answers that are given later.
    pub(crate) outbox: &'a Outbox,
}

/// The reasons why a service did not execute a call, or has no result.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Refusal {
    /// The interface has no such method.
    #[error("the service has no such method")]
    UnknownMethod = 1,
    /// The arguments' bytes are not those of the method's arguments.
    #[error("the service cannot read the arguments")]
    Arguments = 2,
    /// The result cannot be encoded: its own serializer failed.
    #[error("the service cannot write its answer")]
    Answer = 3,
    /// The result is longer than the link allows.
    #[error("the service's answer is longer than the link takes")]
    TooLong = 4,
    /// The service dropped the call, and will not answer it.
    #[error("the service has dropped the call without an answer")]
    NoAnswer = 5,
    /// The client waits for too many answers at once.
    #[error("the service keeps no more than {MOST_PENDING} calls waiting for one client")]
    TooMany = 6,
}

impl Refusal {
    /// The refusal with this number on the wire.
    pub(crate) fn numbered(number: u8) -> Option<Refusal> {
        use Refusal::{Answer, Arguments, NoAnswer, TooLong, TooMany, UnknownMethod};
        [UnknownMethod, Arguments, Answer, TooLong, NoAnswer, TooMany]
            .into_iter()
            .find(|refusal| *refusal as u8 == number)
    }
}

/// The outcome of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The call was executed, and the answer was written.
    Answer,
    /// The call was executed, and needs no answer, or none yet.
    Nothing,
    /// The call was not executed, or there is no answer; the client is told why.
    Refuse(Refusal),
    /// The call was not executed, and the client waits for no answer, so the client is dropped to let it know.
    HangUp(Refusal),
}

/// A service that can be called with bytes: the attribute `interface` generates this for a trait.
pub trait Dispatch {
    /// The interface that it serves.
    fn interface(&self) -> Interface;

    /// Executes `call` with the encoded `arguments`, and appends its encoded result, if it has one, to `reply`.
    fn dispatch(&mut self, call: &Call<'_>, arguments: &[u8], reply: &mut Vec<u8>) -> Outcome;
}

impl<D: Dispatch + ?Sized> Dispatch for &mut D {
    fn interface(&self) -> Interface {
        (**self).interface()
    }

    fn dispatch(&mut self, call: &Call<'_>, arguments: &[u8], reply: &mut Vec<u8>) -> Outcome {
        (**self).dispatch(call, arguments, reply)
    }
}

/// Appends the result of a method.
pub fn reply<T: Serialize + ?Sized>(value: &T, reply: &mut Vec<u8>) -> Outcome {
    match encode(value, reply) {
        Ok(()) => Outcome::Answer,
        Err(_) => Outcome::Refuse(Refusal::Answer),
    }
}
