//! Services: a trait is an interface, the attribute [`interface`] makes the stubs of both its ends, and any [`Link`](crate::Link)
//! carries the calls.
//!
//! Stands on the channels of `atoll-transport`; a transport over a network carries calls as soon as it implements
//! [`Link`](crate::Link). `wire.rs` defines the messages, `hello.rs` how the ends agree on the interface, `caller.rs` the
//! client's end, `session.rs` and `clients.rs` the service's for one client and for many.
//!
//! A client is *bound* to a service, in the paper's word, before its first call. It makes one call at a time and waits for the
//! answer, except for a `#[oneway]` method. A call is made once or not at all: after a timeout, the service may still execute
//! it, and its answer is dropped.
//!
//! Source: the barrelfish paper, sections 3.4 and 6.7 (Flounder: an interface in a language of its own, compiled to stubs; here
//! the language is that of Rust's traits).

mod caller;
mod clients;
mod dispatch;
mod hello;
#[cfg(test)]
mod hostile;
mod later;
mod session;
mod wire;

/// Makes a trait an interface: the methods that one process executes for others.
///
/// `#[interface(version = 1)] trait Counter` stays a trait, which a service implements, and generates, equally visible,
///
/// - `CounterClient<L: Link>`: `CounterClient::bind(link, timeout)` agrees with the service at the other end of
///   a [`Link`](crate::Link). It has the trait's methods, all with `&mut self`, and each returns `Result<T, CallError>` for the
///   trait's `T`. `set_timeout` changes the longest time of a call, `into_link` returns the link.
/// - `CounterService(&mut counter)`: what [`serve`] and [`Clients::serve`] call.
///
/// A method takes `&mut self` or `&self` and at most 16 arguments: values whose types implement serde's `Serialize` and
/// `Deserialize`, or `&str` and `&[u8]`, which the service reads where they arrived. Its result must implement both, too. Two
/// kinds of methods do not simply return a result:
///
/// - `#[oneway]`: it has no result, and the client does not wait for it.
/// - With `answer: Answer<T>` as its last argument the method returns nothing, keeps the [`Answer`] and gives it a `T` at any
///   later time, while other calls are served. The client's method lacks that argument and waits for the `T`.
///
/// Both ends must have the same name, version and methods, which `bind` and the service compare: order and names of the
/// methods, and types of arguments and results as they are written. The content of those types is not compared: a change to a
/// field needs a new version, as a change to a method does. Fields and variants are sent in their order and without names, so
/// serde's attributes that need names or leave fields out (`skip_serializing_if`, `untagged`, `flatten`) do not work. A `usize`
/// is sent as 64 bits, and refused where it does not fit.
///
/// ```
/// use std::time::Duration;
/// use atoll_channel::{Answer, Peer, Settings, interface, pair, serve};
///
/// /// A gate that opens when enough have come.
/// #[interface(version = 1)]
/// trait Gate {
///     /// Returns when the gate opens; the result is the number that have come.
///     fn pass(&mut self, name: &str, answer: Answer<u32>);
///     /// The number of those that wait.
///     fn waiting(&self) -> u32;
/// }
///
/// struct Open(u32);
///
/// impl Gate for Open {
///     fn pass(&mut self, _name: &str, answer: Answer<u32>) {
///         self.0 += 1;
///         answer.give(&self.0);
///     }
///     fn waiting(&self) -> u32 {
///         0
///     }
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (near, far) = pair(Settings::default(), None)?;
/// let (near, far) = (near.attach(Peer::this()?)?, far.attach(Peer::this()?)?);
/// let service = std::thread::spawn(move || serve(near, GateService(&mut Open(0)), None));
/// let mut gate = GateClient::bind(far, Some(Duration::from_secs(1)))?;
/// assert_eq!(gate.pass("me")?, 1);
/// assert_eq!(gate.waiting()?, 0);
/// drop(gate);
/// service.join().map_err(|_| "the service panicked")??;
/// # Ok(())
/// # }
/// ```
pub use atoll_channel_macros::interface;

pub(crate) use self::session::{Session, Step, send_answer};
pub use self::{
    caller::CallError,
    clients::Clients,
    dispatch::{Call, ClientId, Dispatch, Outcome, Refusal},
    hello::{BindError, Interface},
    later::Answer,
    session::{ServeError, serve},
};

/// Used by the generated stubs only: it may change with any version.
#[doc(hidden)]
pub mod __private {
    pub use super::caller::Caller;
    pub use super::dispatch::reply;
    pub use super::later::later;
    pub use atoll_transport::decode;
    pub use serde_bytes::{ByteBuf, Bytes};
}
