//! Hands a pool to another process over a Unix socket.
//!
//! `owner.rs` attaches to the pool that arrives.

use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::bulk::pool::error::PoolError;
use crate::bulk::pool::owner::Pool;
use atoll_transport::clock::Deadline;
use atoll_transport::socket;

/// The byte with which the descriptor is sent.
const MARK: u8 = b'P';

impl Pool {
    /// Sends the pool over `stream`; the peer calls `take_over`.
    pub fn hand_over(&self, stream: &UnixStream) -> Result<(), PoolError> {
        Ok(socket::send(stream, &[MARK], &[self.descriptor()], &mut Deadline::new(None))?)
    }

    /// Attaches to a pool that comes over `stream` within `timeout` (`None`: for ever).
    pub fn take_over(stream: &UnixStream, timeout: Option<Duration>) -> Result<Pool, PoolError> {
        let mut mark = [0];
        let mut files = Vec::new();
        socket::receive(stream, &mut mark, &mut files, &mut Deadline::new(timeout))?;
        match files.pop() {
            Some(file) if mark == [MARK] => Pool::attach(file),
            _ => Err(PoolError::NothingHandedOver),
        }
    }
}
