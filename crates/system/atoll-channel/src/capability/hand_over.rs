//! Sends a description with its file over a Unix socket, and receives it.
//!
//! For processes that may not fetch a file from each other (`import.rs` can, where the system allows it). A message is four
//! bytes of length, little-endian, and the description in postcard's format; the file comes with the first byte.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::capability::description::{Description, Export, MOST_KEY};
use atoll_transport::clock::Deadline;
use atoll_transport::decode;
use atoll_transport::socket::{self, SocketError};

/// The most bytes of a description: a key and some numbers.
const MOST: usize = MOST_KEY + 256;

/// The reasons why a description was not sent or received.
#[derive(thiserror::Error, Debug)]
pub enum HandOverError {
    /// The other side closed the socket.
    #[error("the other process closed the connection")]
    Closed,
    /// Nothing came in time.
    #[error("the other process sent no description of memory in time")]
    TimedOut,
    /// The bytes that came are no description.
    #[error("the other process sent {0} and no description of memory")]
    Nonsense(&'static str),
    /// The system refuses a call; the text names it.
    #[error("{0}: {1}")]
    Os(&'static str, #[source] io::Error),
}

impl From<SocketError> for HandOverError {
    fn from(why: SocketError) -> HandOverError {
        match why {
            SocketError::Closed => HandOverError::Closed,
            SocketError::TimedOut => HandOverError::TimedOut,
            SocketError::Os(what, why) => HandOverError::Os(what, why),
        }
    }
}

impl Export {
    /// Sends the description and its file. Waits while the socket is full, for at most `timeout` (`None`: for ever); after an
    /// error the socket must not be used any more.
    pub fn send(&self, stream: &UnixStream, timeout: Option<Duration>) -> Result<(), HandOverError> {
        let body = postcard::to_allocvec(&self.description)
            .map_err(|e| HandOverError::Os("a description", io::Error::other(e)))?;
        // An owner's keys are at most that long.
        debug_assert!(body.len() <= MOST);
        let mut bytes = (body.len() as u32).to_le_bytes().to_vec();
        bytes.extend(body);
        let files: Vec<_> = self.file().into_iter().collect();
        Ok(socket::send(stream, &bytes, &files, &mut Deadline::new(timeout))?)
    }
}

impl Description {
    /// Receives a description, and the file that came with it, if any. Waits for at most `timeout` (`None`: for ever); after an
    /// error the socket must not be used any more.
    pub fn receive(
        stream: &UnixStream,
        timeout: Option<Duration>,
    ) -> Result<(Description, Option<OwnedFd>), HandOverError> {
        let mut deadline = Deadline::new(timeout);
        let mut files = Vec::new();
        let mut length = [0; 4];
        socket::receive(stream, &mut length, &mut files, &mut deadline)?;
        let length = u32::from_le_bytes(length) as usize;
        if length > MOST {
            return Err(HandOverError::Nonsense("too much"));
        }
        let mut body = vec![0; length];
        socket::receive(stream, &mut body, &mut files, &mut deadline)?;
        let description = decode(&body).map_err(|_| HandOverError::Nonsense("other bytes"))?;
        match files.len() {
            0 | 1 => Ok((description, files.pop())),
            _ => Err(HandOverError::Nonsense("several files")),
        }
    }
}
