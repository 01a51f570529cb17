//! Services: a trait is an interface, the attribute [`interface`] makes the stubs of both its ends, and any [`Link`]
//! carries the calls.
//!
//! Stands on `channel/`; a transport over a network carries calls as soon as it implements [`Link`]. `wire.rs` is what
//! travels, `hello.rs` how the ends agree on the interface, `caller.rs` the client's end, `session.rs` and `clients.rs`
//! the service's for one client and for many.
//!
//! A client is *bound* to a service, in the paper's word, before its first call. It makes one call at a time and waits
//! for the answer, but not for that of a `#[oneway]` method. A call is made once or not at all: where it
//! timed out, the service may still do it, and its answer is thrown away.
//!
//! Source: the barrelfish paper, sections 3.4 and 6.7 (Flounder: an interface in a language of its own, compiled to
//! stubs; here the language is Rust's traits).

mod caller;
mod clients;
mod dispatch;
mod guard;
mod hello;
#[cfg(test)]
mod hostile;
mod later;
mod link;
mod session;
mod wire;

pub use atoll_channel_macros::interface;

pub use self::{
    caller::CallError,
    clients::Clients,
    dispatch::{Call, ClientId, Dispatch, Outcome, Refusal},
    hello::{BindError, Interface},
    later::Answer,
    link::{Link, LinkError},
    session::{ServeError, serve},
};

/// What the generated stubs use. Not for others: it may change with any version.
#[doc(hidden)]
pub mod __private {
    pub use super::caller::Caller;
    pub use super::dispatch::reply;
    pub use super::later::later;
    pub use super::wire::decode;
    pub use serde_bytes::{ByteBuf, Bytes};
}
