//! A client that binds to its service at its first call.
//!
//! Used for services that ask other nodes, so that one that waits for such a node blocks nobody from using the rest.

use std::time::Duration;

use crate::service::BindError;
use atoll_transport::Channel;
use atoll_transport::LinkError;

/// The `bind` that was generated for an interface.
type Bind<C> = fn(Channel, Option<Duration>) -> Result<C, BindError>;

/// A client of type `C`, or the channel to make it of.
pub(crate) struct Lazy<C> {
    bind: Bind<C>,
    timeout: Option<Duration>,
    /// The channel, until the client is bound.
    channel: Option<Channel>,
    client: Result<C, BindError>,
}

impl<C> Lazy<C> {
    /// A client over `channel`, to be bound by `bind`; its calls take at most `timeout`.
    pub(crate) fn new(channel: Channel, bind: Bind<C>, timeout: Option<Duration>) -> Lazy<C> {
        Lazy { bind, timeout, channel: Some(channel), client: Err(LinkError::Closed.into()) }
    }

    /// The client. If binding failed once it fails always.
    pub(crate) fn get(&mut self) -> Result<&mut C, BindError> {
        if let Some(channel) = self.channel.take() {
            self.client = (self.bind)(channel, self.timeout);
        }
        self.client.as_mut().map_err(|why| why.clone())
    }
}
