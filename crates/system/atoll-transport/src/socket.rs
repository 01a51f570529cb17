//! Sends and receives bytes over a Unix socket, with open files beside them (`SCM_RIGHTS`), until a deadline.
//!
//! `channel/greeting.rs` and, in `atoll-channel`, pools and capabilities use it to hand over files to map. The input is a
//! peer's: files beyond the greatest number that anybody sends are closed, however many come.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

use crate::clock::{Deadline, LONG};

/// The most files that are sent at once: a greeting's process, two rings and wait set.
pub const MOST_FILES: usize = 4;

/// The reasons why not all bytes were sent or received.
#[derive(Debug)]
pub enum SocketError {
    /// The other side closed the socket.
    Closed,
    /// The deadline is over.
    TimedOut,
    /// The system refuses a call; the text names it.
    Os(&'static str, io::Error),
}

/// Sends all of `bytes`, and `files`, at most `MOST_FILES`, with the first of them. After an error the socket must not be used
/// any more.
pub fn send(
    stream: &UnixStream,
    bytes: &[u8],
    files: &[BorrowedFd<'_>],
    deadline: &mut Deadline,
) -> Result<(), SocketError> {
    let mut done = 0;
    while done < bytes.len() {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FILES))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if done == 0 && !files.is_empty() {
            let fits = control.push(SendAncillaryMessage::ScmRights(files));
            debug_assert!(fits);
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let bytes = [IoSlice::new(&bytes[done..])];
        done +=
            when_ready(stream, PollFlags::OUT, deadline, || sendmsg(stream, &bytes, &mut control, flags))?;
    }
    Ok(())
}

/// Receives until `into` is full; appends the files that come along, which are closed on exec, up to `MOST_FILES`. After an
/// error the socket must not be used any more.
pub fn receive(
    stream: &UnixStream,
    into: &mut [u8],
    files: &mut Vec<OwnedFd>,
    deadline: &mut Deadline,
) -> Result<(), SocketError> {
    let mut done = 0;
    while done < into.len() {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FILES))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let got = when_ready(stream, PollFlags::IN, deadline, || {
            recvmsg(stream, &mut [IoSliceMut::new(&mut into[done..])], &mut control, flags)
        })?;
        // Files that did not fit were closed by the kernel.
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                files.extend(rights);
            }
        }
        // Every byte could bring more files.
        files.truncate(MOST_FILES);
        if got.bytes == 0 {
            return Err(SocketError::Closed);
        }
        done += got.bytes;
    }
    Ok(())
}

/// Makes a call that does not wait; where it would have to, waits and makes it again.
fn when_ready<T>(
    stream: &UnixStream,
    ready: PollFlags,
    deadline: &mut Deadline,
    mut call: impl FnMut() -> rustix::io::Result<T>,
) -> Result<T, SocketError> {
    loop {
        match call() {
            Ok(done) => return Ok(done),
            Err(Errno::INTR) => continue,
            Err(Errno::AGAIN) => {}
            Err(Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN) => return Err(SocketError::Closed),
            Err(e) => return Err(SocketError::Os("the socket", e.into())),
        }
        let left = deadline.left(LONG).ok_or(SocketError::TimedOut)?;
        match poll(&mut [PollFd::new(stream, ready)], Timespec::try_from(left).ok().as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(SocketError::Os("poll", e.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::time::Duration;

    use super::*;

    fn soon() -> Deadline {
        Deadline::new(Some(Duration::from_millis(50)))
    }

    #[test]
    fn a_peer_that_sends_a_file_with_every_byte_gives_no_more_than_the_most() {
        let (here, there) = UnixStream::pair().unwrap();
        let null = std::fs::File::open("/dev/null").unwrap();
        for byte in 0..20 {
            send(&there, &[byte], &[null.as_fd(), null.as_fd()], &mut soon()).unwrap();
        }
        let (mut bytes, mut files) = ([0; 20], Vec::new());
        receive(&here, &mut bytes, &mut files, &mut soon()).unwrap();
        assert_eq!(bytes, std::array::from_fn(|i| i as u8));
        assert_eq!(files.len(), MOST_FILES);
    }

    #[test]
    fn nobody_waits_beyond_the_deadline() {
        let (here, there) = UnixStream::pair().unwrap();
        let late = receive(&here, &mut [0], &mut Vec::new(), &mut soon());
        assert!(matches!(late, Err(SocketError::TimedOut)));
        // The data is more than any socket buffers.
        let full = send(&here, &vec![0; 16 << 20], &[], &mut soon());
        assert!(matches!(full, Err(SocketError::TimedOut)));
        drop(there);
        assert!(matches!(send(&here, &[0], &[], &mut soon()), Err(SocketError::Closed)));
    }
}
