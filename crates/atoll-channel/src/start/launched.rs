//! A program's end where atoll's own launcher started it: a socket that its agent left open for it.
//!
//! `mod.rs` asks it; at the socket's other end is `agent.rs`, which hands what is said on to the launcher.

use std::io::{self, Read};
use std::os::fd::{BorrowedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::fs::{FileType, fstat};
use rustix::io::{FdFlags, fcntl_setfd};

use super::error::StartError;
use super::frame::{self, Frame, FrameError, Welcome};
use crate::Node;
use crate::clock::Deadline;

/// Names the socket by its descriptor and its inode, `5:12345`: a descendant whose descriptor 5 is something else is
/// told from one that inherited it.
pub(super) const VARIABLE: &str = "ATOLL_START_SOCKET";

/// The socket to this node's agent.
pub(super) struct Launched {
    socket: UnixStream,
    nodes: u32,
    /// Of the next exchange.
    round: u32,
}

impl Launched {
    /// The socket that the environment names; none where it names none.
    pub(super) fn find() -> Result<Option<UnixStream>, StartError> {
        let Some(value) = std::env::var_os(VARIABLE) else { return Ok(None) };
        let text = value.to_string_lossy();
        let none = || StartError::NoSocket { variable: VARIABLE, value: text.clone().into_owned() };
        let (descriptor, inode) = text.split_once(':').ok_or_else(none)?;
        let descriptor: RawFd = descriptor.parse().ok().filter(|&fd| fd >= 0).ok_or_else(none)?;
        // SAFETY: it is only looked at, for the length of this function; that it may be closed is what is asked.
        let borrowed = unsafe { BorrowedFd::borrow_raw(descriptor) };
        let status = fstat(borrowed).map_err(|_| none())?;
        let socket = FileType::from_raw_mode(status.st_mode) == FileType::Socket;
        if !socket || inode != status.st_ino.to_string() {
            return Err(none());
        }
        // The inherited descriptor stays, for another `detect` in this process; no child gets it from now on, unless it
        // is started by what closes nothing (a fork without exec).
        fcntl_setfd(borrowed, FdFlags::CLOEXEC).map_err(|e| StartError::Os("fcntl", e.into()))?;
        let copy = borrowed.try_clone_to_owned().map_err(|e| StartError::Os("dup", e))?;
        Ok(Some(UnixStream::from(copy)))
    }

    /// Asks the agent for this node's place.
    pub(super) fn greet(
        socket: UnixStream,
        deadline: &mut Deadline,
    ) -> Result<(Launched, Welcome), StartError> {
        let mut this = Launched { socket, nodes: 0, round: 0 };
        this.send(&Frame::Hello)?;
        let welcome = match this.receive(deadline)? {
            Frame::Welcome(welcome) if welcome.node < welcome.nodes => welcome,
            _ => return Err(StartError::Nonsense("no welcome")),
        };
        (this.nodes, this.round) = (welcome.nodes, welcome.round);
        Ok((this, welcome))
    }

    /// Gives `mine`, and waits for what all nodes gave.
    pub(super) fn exchange(
        &mut self,
        mine: &[u8],
        deadline: &mut Deadline,
    ) -> Result<Vec<Vec<u8>>, StartError> {
        let round = self.round;
        self.round += 1;
        self.send(&Frame::Contribution { round, bytes: mine.to_vec() })?;
        let mut all = Vec::new();
        while all.len() < self.nodes as usize {
            match self.receive(deadline)? {
                Frame::Gathered { round: its, node, bytes } if its == round && node as usize == all.len() => {
                    all.push(bytes);
                }
                Frame::Gathered { .. } => return Err(StartError::Nonsense("an exchange out of turn")),
                Frame::Gone { node } => return Err(StartError::Gone(Node(node))),
                _ => return Err(StartError::Nonsense("no part of an exchange")),
            }
        }
        Ok(all)
    }

    fn send(&mut self, frame: &Frame) -> Result<(), StartError> {
        frame::write(&mut self.socket, frame).map_err(|e| gone_or(e, Duration::ZERO))
    }

    fn receive(&mut self, deadline: &mut Deadline) -> Result<Frame, StartError> {
        let timeout = deadline.timeout().unwrap_or(Duration::MAX);
        let frame = frame::read(&mut Timed { socket: &self.socket, deadline });
        frame.map_err(|e| gone_or(e, timeout))?.ok_or(StartError::LauncherGone)
    }
}

/// Reads that end with the deadline.
struct Timed<'a> {
    socket: &'a UnixStream,
    deadline: &'a mut Deadline,
}

impl Read for Timed<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = self.deadline.left(Duration::from_secs(3600)).ok_or(io::ErrorKind::TimedOut)?;
        self.socket.set_read_timeout(Some(left))?;
        match (&mut &*self.socket).read(into) {
            // Once an hour, or at the deadline: the caller reads again, and the deadline is looked at above.
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Err(io::ErrorKind::Interrupted.into()),
            other => other,
        }
    }
}

fn gone_or(error: FrameError, timeout: Duration) -> StartError {
    match error {
        FrameError::Io(e) if e.kind() == io::ErrorKind::TimedOut => StartError::Timeout(timeout),
        FrameError::Io(e)
            if matches!(e.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) =>
        {
            StartError::LauncherGone
        }
        FrameError::Io(e) => StartError::Os("the socket to the launcher", e),
        FrameError::Cut => StartError::LauncherGone,
        FrameError::TooLong(_) | FrameError::Broken => StartError::Nonsense("no frame"),
    }
}
