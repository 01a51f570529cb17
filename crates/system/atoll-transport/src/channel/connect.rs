//! Makes a channel with the process at the other end of a Unix socket: each end makes the rings that are placed with it, and
//! hands them over.
//!
//! Both ends call `connect`; `greeting.rs` defines what they send each other. The socket may be a named one, one half of a pair
//! inherited over a fork, or a child's standard input over an exec. It can be used again for the next channel, or dropped: a
//! channel does not need it.
//!
//! Source: the barrelfish paper, section 6.7 (`if_accept` and `if_connect`, which users had to call in the right order; here
//! the order does not matter).

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::channel::ends::{Channel, Parts};
use crate::channel::error::{AttachError, ConnectError, CreateError};
use crate::channel::greeting::{Greeting, receive_verdict, send_verdict};
use crate::channel::peer::Peer;
use crate::channel::ring_file;
use crate::channel::settings::{Placement, Settings};
use crate::channel::wait_set::Seat;
use crate::clock::Deadline;

impl Channel {
    /// Makes a channel with the process at the other end of `stream`, which does the same with mirrored settings. With a `seat`
    /// the receiver can be added to that wait set. Waits for the peer for at most `timeout` (`None`: for ever).
    ///
    /// Any process that can write to the socket can be the peer: where the socket has a name, its permissions are the only
    /// guard.
    pub fn connect(
        stream: &UnixStream,
        settings: Settings,
        seat: Option<Seat>,
        timeout: Option<Duration>,
    ) -> Result<Channel, ConnectError> {
        settings.check().map_err(CreateError::Settings)?;
        let mut deadline = Deadline::new(timeout);
        let create = || ring_file::create(&settings).map_err(|e| CreateError::Os("a ring's memory", e));
        let outgoing = (settings.outgoing == Placement::Sender).then(create).transpose()?;
        let incoming = (settings.incoming == Placement::Receiver).then(create).transpose()?;
        let this = Peer::this().map_err(|e| ConnectError::Os("pidfd_open", e))?;

        let mut files = vec![this.descriptor()];
        files.extend(outgoing.iter().chain(&incoming).map(AsFd::as_fd));
        files.extend(seat.as_ref().map(Seat::file));
        Greeting::new(&settings, seat.as_ref().map(Seat::number)).send(stream, &files, &mut deadline)?;

        let attached = Greeting::receive(stream, &mut deadline)
            .and_then(|(greeting, theirs)| attach(settings, outgoing, incoming, seat, &greeting, theirs));
        match attached {
            Ok(channel) => {
                send_verdict(stream, true, &mut deadline)?;
                receive_verdict(stream, &mut deadline)?;
                Ok(channel)
            }
            Err(why) => {
                // The peer may be gone, and this end's own error is the one to report.
                let _ = send_verdict(stream, false, &mut deadline);
                Err(why)
            }
        }
    }
}

/// Attaches to this end's rings and to those that came with the peer's `greeting`.
fn attach(
    settings: Settings,
    outgoing: Option<OwnedFd>,
    incoming: Option<OwnedFd>,
    seat: Option<Seat>,
    greeting: &Greeting,
    theirs: Vec<OwnedFd>,
) -> Result<Channel, ConnectError> {
    let agree = |what, theirs: u64, ours: u64| {
        if theirs == ours { Ok(()) } else { Err(AttachError::Settings { what, theirs, ours }) }
    };
    agree("lines", greeting.lines.into(), settings.lines.into())?;
    agree("longest", greeting.longest, settings.longest as u64)?;
    agree("the placement of this end's outgoing ring", greeting.incoming as u64, settings.outgoing as u64)?;
    agree("the placement of this end's incoming ring", greeting.outgoing as u64, settings.incoming as u64)?;

    // The files come in the order in which `connect` lists them.
    let mut theirs = theirs.into_iter();
    let mut next = || theirs.next().ok_or(ConnectError::Greeting("short of a descriptor"));
    let peer = Peer::handed_over(next()?)?;
    let incoming = incoming.map_or_else(&mut next, Ok)?;
    let outgoing = outgoing.map_or_else(&mut next, Ok)?;
    let peers_set = greeting.seat.map(|seat| next().map(|file| (file, seat))).transpose()?;
    let parts = Parts {
        outgoing: outgoing.as_fd(),
        incoming: incoming.as_fd(),
        peers_set: peers_set.as_ref().map(|(file, seat)| (file.as_fd(), *seat)),
        seat,
        peer,
    };
    Ok(Channel::attach(parts, &settings)?)
}

#[cfg(test)]
mod tests {
    use std::os::fd::BorrowedFd;

    use super::*;
    use crate::channel::file::VERSION;
    use crate::channel::{file, set_file};

    /// Connects to a peer that sends `files` with its greeting, and then its verdict; returns the result.
    fn meet(seat: Option<u32>, files: &[BorrowedFd<'_>], verdict: bool) -> Result<Channel, ConnectError> {
        let (here, there) = UnixStream::pair().unwrap();
        let deadline = &mut Deadline::new(None);
        Greeting::new(&Settings::default(), seat).send(&there, files, deadline).unwrap();
        send_verdict(&there, verdict, deadline).unwrap();
        Channel::connect(&here, Settings::default(), None, Some(Duration::from_secs(5)))
    }

    #[test]
    fn a_peer_that_hands_over_nonsense_is_told_from_one_that_does_not() {
        let this = Peer::this().unwrap();
        let process = this.descriptor();
        let ring = ring_file::create(&Settings::default()).unwrap();
        let set = set_file::create(10).unwrap();
        let zeros = file::create("atoll-test", 4096).unwrap();
        let null = std::fs::File::open("/dev/null").unwrap();

        assert!(meet(None, &[process, ring.as_fd()], true).is_ok());
        // Each peer below brings a new ring, since an end of a ring can be taken once.
        let new = || ring_file::create(&Settings::default()).unwrap();
        let why = |seat, files: &[BorrowedFd<'_>]| meet(seat, files, true).err().unwrap();
        let taken = why(None, &[process, ring.as_fd()]);
        assert!(matches!(taken, ConnectError::Attach(AttachError::Taken)));
        let refused = meet(None, &[process, new().as_fd()], false).err().unwrap();
        assert!(matches!(refused, ConnectError::Refused));
        let short = why(None, &[process]);
        assert!(matches!(short, ConnectError::Greeting("short of a descriptor")));
        let no_process = why(None, &[null.as_fd(), new().as_fd()]);
        assert!(matches!(no_process, ConnectError::Attach(AttachError::NotAProcess)));
        let no_ring = why(None, &[process, zeros.as_fd()]);
        assert!(matches!(no_ring, ConnectError::Attach(AttachError::NotAChannel(0))));
        assert!(meet(Some(9), &[process, new().as_fd(), set.as_fd()], true).is_ok());
        let no_seat = why(Some(10), &[process, new().as_fd(), set.as_fd()]);
        assert!(matches!(no_seat, ConnectError::Attach(AttachError::Seat { seat: 10, seats: 10 })));
        let no_set = why(Some(0), &[process, new().as_fd(), zeros.as_fd()]);
        assert!(matches!(no_set, ConnectError::Attach(AttachError::NotAChannel(0))));
        let newer = new();
        rustix::io::pwrite(&newer, &(VERSION + 1).to_le_bytes(), 8).unwrap();
        let newer = why(None, &[process, newer.as_fd()]);
        let theirs = VERSION + 1;
        assert!(
            matches!(newer, ConnectError::Attach(AttachError::Version { theirs: t, ours: VERSION }) if t == theirs)
        );
    }
}
