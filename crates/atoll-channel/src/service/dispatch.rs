//! A call as a service meets it: which method, whose, and what becomes of it.
//!
//! The attribute `interface` generates the `Dispatch` of each service; `session.rs` hands calls to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

use crate::service::hello::Interface;
use crate::service::later::{MOST_PENDING, Outbox};
use crate::service::wire::encode;

/// Which client makes a call. No two clients of this process's services have the same, one after the other neither.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ClientId(u64);

impl ClientId {
    /// One that nobody has had.
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
    /// Who makes it.
    pub client: ClientId,
    /// There while the client is; each answer that it waits for points to it weakly.
    pub(crate) alive: &'a Arc<()>,
    /// Where answers go that are given later.
    pub(crate) outbox: &'a Outbox,
}

/// Why a service did not do what a call says, or cannot tell what came of it.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Refusal {
    /// The interface has no such method.
    #[error("the service has no such method")]
    UnknownMethod = 1,
    /// The arguments' bytes are not those of the method's arguments.
    #[error("the service cannot read the arguments")]
    Arguments = 2,
    /// The result cannot be written: its own serializer failed.
    #[error("the service cannot write its answer")]
    Answer = 3,
    /// The result is longer than the link takes.
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

/// What came of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It was done, and the answer was written.
    Answer,
    /// It was done, and needs no answer, or none yet.
    Nothing,
    /// It was not done, or there is no answer; the client is told why.
    Refuse(Refusal),
    /// It was not done, and the client waits for no answer: it is dropped, as the next best way of telling it.
    HangUp(Refusal),
}

/// A service that can be called with bytes: what the attribute `interface` generates for a trait.
pub trait Dispatch {
    /// What it serves.
    fn interface(&self) -> Interface;

    /// Does `call` with the encoded `arguments`, and appends its encoded result to `reply` if it has one.
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

/// Appends what a method returned.
pub fn reply<T: Serialize + ?Sized>(value: &T, reply: &mut Vec<u8>) -> Outcome {
    match encode(value, reply) {
        Ok(()) => Outcome::Answer,
        Err(_) => Outcome::Refuse(Refusal::Answer),
    }
}
