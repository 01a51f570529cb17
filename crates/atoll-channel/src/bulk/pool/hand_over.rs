//! Hands a pool to another process over a Unix socket.
//!
//! `owner.rs` attaches to what arrives.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

use crate::bulk::pool::error::PoolError;
use crate::bulk::pool::owner::Pool;
use crate::clock::Deadline;

/// The byte that the descriptor travels with.
const MARK: u8 = b'P';

impl Pool {
    /// Sends the pool over `stream`; the peer calls `take_over`.
    pub fn hand_over(&self, stream: &UnixStream) -> Result<(), PoolError> {
        let files = [self.descriptor()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fits = control.push(SendAncillaryMessage::ScmRights(&files));
        debug_assert!(fits);
        let sent =
            retry_on_intr(|| sendmsg(stream, &[IoSlice::new(&[MARK])], &mut control, SendFlags::NOSIGNAL));
        sent.map(drop).map_err(|e| PoolError::Os("sendmsg", e.into()))
    }

    /// Attaches to a pool that comes over `stream`, within `timeout` (none is for ever).
    pub fn take_over(stream: &UnixStream, timeout: Option<Duration>) -> Result<Pool, PoolError> {
        let mut deadline = Deadline::new(timeout);
        loop {
            let left = deadline.left(Duration::from_secs(3600)).ok_or(PoolError::TimedOut)?;
            let left = Timespec::try_from(left).ok();
            match poll(&mut [PollFd::new(stream, PollFlags::IN)], left.as_ref()) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => break,
                Err(e) => return Err(PoolError::Os("poll", e.into())),
            }
        }
        let mut mark = [0];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let got = retry_on_intr(|| {
            recvmsg(stream, &mut [IoSliceMut::new(&mut mark)], &mut control, RecvFlags::CMSG_CLOEXEC)
        })
        .map_err(|e| PoolError::Os("recvmsg", e.into()))?;
        let mut file: Option<OwnedFd> = None;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                file = rights.last();
            }
        }
        match file {
            Some(file) if got.bytes == 1 && mark == [MARK] => Pool::attach(file),
            _ => Err(PoolError::NothingHandedOver),
        }
    }
}
