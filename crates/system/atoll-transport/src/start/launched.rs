//! The end of a program that atoll's own launcher started: a socket that its agent left open for it.
//!
//! `mod.rs` asks it; at the socket's other end is `agent.rs`, which passes frames on to the launcher.

use std::io::{self, Read};
use std::os::fd::{BorrowedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::fs::{FileType, fstat};
use rustix::io::{FdFlags, fcntl_setfd};

use super::error::StartError;
use super::frame::{self, Frame, FrameError, Welcome};
use crate::Node;
use crate::clock::{Deadline, LONG};

/// The variable that names the socket by its descriptor and its inode, such as `5:12345`. By the inode, a descendant whose
/// descriptor 5 is something else is told from one that inherited it.
pub const VARIABLE: &str = "ATOLL_START_SOCKET";

/// Whether the environment names a socket.
pub(super) fn is_expected() -> bool {
    std::env::var_os(VARIABLE).is_some()
}

/// The socket to this node's agent.
pub(super) struct Launched {
    socket: UnixStream,
    nodes: u32,
    /// The number of the next exchange.
    round: u32,
}

impl Launched {
    /// The socket that the environment names; `None` if it names none.
    pub(super) fn find() -> Result<Option<UnixStream>, StartError> {
        let Some(value) = std::env::var_os(VARIABLE) else { return Ok(None) };
        let text = value.to_string_lossy();
        let none = || StartError::NoSocket { variable: VARIABLE, value: text.clone().into_owned() };
        let (descriptor, inode) = text.split_once(':').ok_or_else(none)?;
        let descriptor: RawFd = descriptor.parse().ok().filter(|&fd| fd >= 0).ok_or_else(none)?;
        // SAFETY: borrowed only during this function; whether it is open is what is being checked.
        let borrowed = unsafe { BorrowedFd::borrow_raw(descriptor) };
        let status = fstat(borrowed).map_err(|_| none())?;
        let socket = FileType::from_raw_mode(status.st_mode) == FileType::Socket;
        if !socket || inode != status.st_ino.to_string() {
            return Err(none());
        }
        // The inherited descriptor stays open, for another `detect` in this process. No child gets it from now on, except by a
        // fork without exec.
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
        this.send(&Frame::Hello, deadline)?;
        let welcome = match this.receive(deadline)? {
            Frame::Welcome(welcome) if welcome.node < welcome.nodes => welcome,
            _ => return Err(StartError::Nonsense("no welcome")),
        };
        (this.nodes, this.round) = (welcome.nodes, welcome.round);
        Ok((this, welcome))
    }

    /// Gives `mine`, and waits for the bytes that all nodes gave.
    pub(super) fn exchange(
        &mut self,
        mine: &[u8],
        deadline: &mut Deadline,
    ) -> Result<Vec<Vec<u8>>, StartError> {
        let round = self.round;
        self.round += 1;
        self.send(&Frame::Contribution { round, bytes: mine.to_vec() }, deadline)?;
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

    fn send(&mut self, frame: &Frame, deadline: &mut Deadline) -> Result<(), StartError> {
        let timeout = deadline.timeout().unwrap_or(Duration::MAX);
        let left = deadline.left(Duration::MAX).ok_or(StartError::Timeout(timeout))?;
        // A launcher whose own output is blocked takes nothing.
        let left = deadline.timeout().map(|_| left);
        self.socket.set_write_timeout(left).map_err(|e| StartError::Os("the socket to the launcher", e))?;
        frame::write(&mut self.socket, frame).map_err(|e| gone_or(e, timeout))
    }

    fn receive(&mut self, deadline: &mut Deadline) -> Result<Frame, StartError> {
        let timeout = deadline.timeout().unwrap_or(Duration::MAX);
        let frame = frame::read(&mut Timed { socket: &self.socket, deadline });
        frame.map_err(|e| gone_or(e, timeout))?.ok_or(StartError::LauncherGone)
    }
}

/// A reader whose reads end at the deadline.
struct Timed<'a> {
    socket: &'a UnixStream,
    deadline: &'a mut Deadline,
}

impl Read for Timed<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = self.deadline.left(LONG).ok_or(io::ErrorKind::TimedOut)?;
        self.socket.set_read_timeout(Some(left))?;
        match (&mut &*self.socket).read(into) {
            // This happens once an hour, or at the deadline: the caller reads again, and the deadline is checked above.
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Err(io::ErrorKind::Interrupted.into()),
            other => other,
        }
    }
}

fn gone_or(error: FrameError, timeout: Duration) -> StartError {
    match error {
        FrameError::Io(e) if matches!(e.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock) => {
            StartError::Timeout(timeout)
        }
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

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// The result of greeting and a first exchange with a peer that sends these frames.
    fn hear(frames: &[Frame], more: &[u8]) -> Result<Vec<Vec<u8>>, StartError> {
        let (here, mut there) = UnixStream::pair().unwrap();
        for frame in frames {
            frame::write(&mut there, frame).unwrap();
        }
        there.write_all(more).unwrap();
        let deadline = &mut Deadline::new(Some(Duration::from_millis(50)));
        Launched::greet(here, deadline)?.0.exchange(b"mine", deadline)
    }

    fn welcome(node: u32, nodes: u32) -> Frame {
        Frame::Welcome(Welcome { node, nodes, secret: [1; 32], round: 3 })
    }

    fn gathered(round: u32, node: u32) -> Frame {
        Frame::Gathered { round, node, bytes: vec![node as u8] }
    }

    #[test]
    fn what_an_agent_should_not_say_is_an_error() {
        let both = [welcome(0, 2), gathered(3, 0), gathered(3, 1)];
        assert_eq!(hear(&both, &[]).unwrap(), [[0], [1]]);
        let gone = [welcome(0, 2), gathered(3, 0), Frame::Gone { node: 1 }];
        assert!(matches!(hear(&gone, &[]), Err(StartError::Gone(Node(1)))));
        assert!(matches!(hear(&both[..2], &[]), Err(StartError::Timeout(_))));
        assert!(matches!(hear(&[], &[]), Err(StartError::Timeout(_))));
        let nonsense = [
            vec![welcome(2, 2)],
            vec![welcome(0, 0)],
            vec![Frame::Started],
            vec![welcome(0, 2), gathered(2, 0)],
            vec![welcome(0, 2), gathered(3, 1)],
            vec![welcome(0, 2), gathered(3, 0), gathered(3, 0)],
            vec![welcome(0, 2), Frame::Hello],
        ];
        for frames in nonsense {
            assert!(matches!(hear(&frames, &[]), Err(StartError::Nonsense(_))), "{frames:?}");
        }
        assert!(matches!(hear(&both[..2], &[255; 8]), Err(StartError::Nonsense(_))));
        assert!(matches!(hear(&both[..2], &[2, 0, 0, 0, 200, 200]), Err(StartError::Nonsense(_))));
    }

    #[test]
    fn an_agent_that_is_gone_is_an_error() {
        let (here, there) = UnixStream::pair().unwrap();
        drop(there);
        let greeted = Launched::greet(here, &mut Deadline::new(None));
        assert!(matches!(greeted.err(), Some(StartError::LauncherGone)));
    }
}
