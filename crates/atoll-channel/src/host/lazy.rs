//! A client that agrees with its service on what they speak at its first call.
//!
//! For services that ask other nodes: one that waits for such a node keeps nobody from using the rest.

use std::time::Duration;

use crate::service::BindError;
use atoll_transport::Channel;
use atoll_transport::LinkError;

/// A `bind` that was generated for an interface.
type Bind<C> = fn(Channel, Option<Duration>) -> Result<C, BindError>;

/// A client of type `C`, or what it is made of.
pub(crate) struct Lazy<C> {
    bind: Bind<C>,
    timeout: Option<Duration>,
    /// Until it is bound.
    channel: Option<Channel>,
    client: Result<C, BindError>,
}

impl<C> Lazy<C> {
    /// A client over `channel`, to be bound by `bind`; its calls take at most `timeout`.
    pub(crate) fn new(channel: Channel, bind: Bind<C>, timeout: Option<Duration>) -> Lazy<C> {
        Lazy { bind, timeout, channel: Some(channel), client: Err(LinkError::Closed.into()) }
    }

    /// The client. One that could not be bound cannot be later either.
    pub(crate) fn get(&mut self) -> Result<&mut C, BindError> {
        if let Some(channel) = self.channel.take() {
            self.client = (self.bind)(channel, self.timeout);
        }
        self.client.as_mut().map_err(|why| why.clone())
    }
}
