//! Sends a description with its file over a Unix socket, and receives it.
//!
//! For processes that may not fetch a file from each other (`import.rs` can, where the system allows it). Each is four
//! bytes of length, little-endian, and the description in postcard's format; the file comes with the first byte.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

use crate::capability::description::{Description, Export, MOST_KEY};
use crate::clock::Deadline;

/// Bytes of a description at most: a key and some numbers.
const MOST: usize = MOST_KEY + 256;

/// Why a description did not come over.
#[derive(thiserror::Error, Debug)]
pub enum HandOverError {
    /// The other side closed the socket.
    #[error("the other process closed the connection")]
    Closed,
    /// Nothing came in time.
    #[error("the other process sent no description of memory in time")]
    TimedOut,
    /// What came is no description.
    #[error("the other process sent {0} and no description of memory")]
    Nonsense(&'static str),
    /// The system refuses.
    #[error("{0}: {1}")]
    Os(&'static str, #[source] io::Error),
}

impl Export {
    /// Sends it. Waits while the socket is full, at most `timeout` (none: for ever); after an error the socket is of
    /// no use.
    pub fn send(&self, stream: &UnixStream, timeout: Option<Duration>) -> Result<(), HandOverError> {
        let body = postcard::to_allocvec(&self.description)
            .map_err(|e| HandOverError::Os("a description", io::Error::other(e)))?;
        // An owner's keys are at most as long as that.
        debug_assert!(body.len() <= MOST);
        let mut bytes = (body.len() as u32).to_le_bytes().to_vec();
        bytes.extend(body);
        let mut deadline = Deadline::new(timeout);
        let mut done = 0;
        while done < bytes.len() {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            let file: Vec<_> = self.file().into_iter().collect();
            if done == 0 && !file.is_empty() {
                let fits = control.push(SendAncillaryMessage::ScmRights(&file));
                debug_assert!(fits);
            }
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            let sent = || sendmsg(stream, &[IoSlice::new(&bytes[done..])], &mut control, flags);
            done += once(stream, PollFlags::OUT, &mut deadline, sent)?.unwrap_or(0);
        }
        Ok(())
    }
}

impl Description {
    /// Receives one and the file that came with it, if one did. Waits at most `timeout` (none: for ever); after an
    /// error the socket is of no use.
    pub fn receive(
        stream: &UnixStream,
        timeout: Option<Duration>,
    ) -> Result<(Description, Option<OwnedFd>), HandOverError> {
        let mut deadline = Deadline::new(timeout);
        let mut files = Vec::new();
        let mut length = [0; 4];
        fill(stream, &mut length, &mut files, &mut deadline)?;
        let length = u32::from_le_bytes(length) as usize;
        if length > MOST {
            return Err(HandOverError::Nonsense("too much"));
        }
        let mut body = vec![0; length];
        fill(stream, &mut body, &mut files, &mut deadline)?;
        let (description, rest) =
            postcard::take_from_bytes(&body).map_err(|_| HandOverError::Nonsense("other bytes"))?;
        match (rest, files.len()) {
            ([], 0 | 1) => Ok((description, files.pop())),
            ([], _) => Err(HandOverError::Nonsense("several files")),
            _ => Err(HandOverError::Nonsense("more bytes")),
        }
    }
}

/// Reads until `into` is full; appends the files that come along, which are close on exec.
fn fill(
    stream: &UnixStream,
    into: &mut [u8],
    files: &mut Vec<OwnedFd>,
    deadline: &mut Deadline,
) -> Result<(), HandOverError> {
    let mut done = 0;
    while done < into.len() {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let read = || recvmsg(stream, &mut [IoSliceMut::new(&mut into[done..])], &mut control, flags);
        let Some(got) = once(stream, PollFlags::IN, deadline, read)? else { continue };
        // More files than fit were closed by the kernel; these are closed when dropped.
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                files.extend(rights);
            }
        }
        // With every byte could come another one.
        files.truncate(2);
        if got.bytes == 0 {
            return Err(HandOverError::Closed);
        }
        done += got.bytes;
    }
    Ok(())
}

/// Waits until the socket is ready and makes the call; none if it was not ready after all.
fn once<T>(
    stream: &UnixStream,
    ready: PollFlags,
    deadline: &mut Deadline,
    call: impl FnOnce() -> rustix::io::Result<T>,
) -> Result<Option<T>, HandOverError> {
    let left = deadline.left(Duration::from_secs(3600)).ok_or(HandOverError::TimedOut)?;
    let left = Timespec::try_from(left).ok();
    match poll(&mut [PollFd::new(stream, ready)], left.as_ref()) {
        Ok(0) | Err(Errno::INTR) => return Ok(None),
        Ok(_) => {}
        Err(e) => return Err(HandOverError::Os("poll", e.into())),
    }
    match call() {
        Ok(done) => Ok(Some(done)),
        Err(Errno::INTR | Errno::AGAIN) => Ok(None),
        Err(Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN) => Err(HandOverError::Closed),
        Err(e) => Err(HandOverError::Os("the socket", e.into())),
    }
}
