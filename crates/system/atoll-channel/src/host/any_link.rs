//! A link of any type, as services keep them.
//!
//! Used for links to node 0's name service, and to other nodes' spawning services.

use std::time::Duration;

use atoll_transport::Message;
use atoll_transport::{Link, LinkError};

/// A link of any type.
pub(crate) struct AnyLink(Box<dyn Link + Send>);

impl AnyLink {
    /// Wraps `link`.
    pub(crate) fn new(link: impl Link + Send + 'static) -> AnyLink {
        AnyLink(Box::new(link))
    }
}

impl Link for AnyLink {
    fn send(&mut self, kind: u16, bytes: &[u8], timeout: Option<Duration>) -> Result<(), LinkError> {
        self.0.send(kind, bytes, timeout)
    }

    fn recv(&mut self, message: &mut Message, timeout: Option<Duration>) -> Result<(), LinkError> {
        self.0.recv(message, timeout)
    }
}
