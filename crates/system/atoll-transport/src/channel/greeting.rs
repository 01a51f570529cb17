//! The greeting: the 64 bytes and the descriptors that the ends send each other before there is a channel.
//!
//! `connect.rs` exchanges them over a Unix socket. Magic, version and length keep their places in every version, so ends of
//! different versions can tell each other which they have.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use crate::channel::error::{AttachError, ConnectError};
use crate::channel::file::VERSION;
use crate::channel::settings::{Placement, Settings};
use crate::clock::Deadline;
use crate::socket;

/// The magic number, `ATOLLGRT` in the order of the bytes.
const MAGIC: u64 = u64::from_le_bytes(*b"ATOLLGRT");
/// The bytes of a greeting.
const BYTES: usize = 64;

/// The content of a greeting: an end's settings, and its seat if its receiver is to sit in a wait set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Greeting {
    pub(crate) lines: u32,
    pub(crate) longest: u64,
    pub(crate) outgoing: Placement,
    pub(crate) incoming: Placement,
    pub(crate) seat: Option<u32>,
}

fn placement(byte: u8) -> Option<Placement> {
    match byte {
        0 => Some(Placement::Sender),
        1 => Some(Placement::Receiver),
        _ => None,
    }
}

fn word<const N: usize>(bytes: &[u8; BYTES], at: usize) -> [u8; N] {
    std::array::from_fn(|i| bytes[at + i])
}

impl Greeting {
    /// The greeting of an end with these settings and seat.
    pub(crate) fn new(settings: &Settings, seat: Option<u32>) -> Greeting {
        Greeting {
            lines: settings.lines,
            longest: settings.longest as u64,
            outgoing: settings.outgoing,
            incoming: settings.incoming,
            seat,
        }
    }

    /// The greeting as bytes, all numbers little-endian: magic (8), version (4), lines (4), longest (8), seat (4), whether
    /// there is a seat (1), outgoing (1), incoming (1), zeros.
    fn pack(&self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        bytes[0..8].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.lines.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.longest.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.seat.unwrap_or(0).to_le_bytes());
        bytes[28] = u8::from(self.seat.is_some());
        bytes[29] = self.outgoing as u8;
        bytes[30] = self.incoming as u8;
        bytes
    }

    /// Parses the bytes that a peer sent.
    fn unpack(bytes: &[u8; BYTES]) -> Result<Greeting, ConnectError> {
        if u64::from_le_bytes(word(bytes, 0)) != MAGIC {
            return Err(ConnectError::Greeting("something else"));
        }
        let version = u32::from_le_bytes(word(bytes, 8));
        if version != VERSION {
            return Err(AttachError::Version { theirs: version, ours: VERSION }.into());
        }
        let (Some(outgoing), Some(incoming)) = (placement(bytes[29]), placement(bytes[30])) else {
            return Err(ConnectError::Greeting("of no known placement"));
        };
        let seat = match bytes[28] {
            0 => None,
            1 => Some(u32::from_le_bytes(word(bytes, 24))),
            _ => return Err(ConnectError::Greeting("of no known seat")),
        };
        let lines = u32::from_le_bytes(word(bytes, 12));
        let longest = u64::from_le_bytes(word(bytes, 16));
        Ok(Greeting { lines, longest, outgoing, incoming, seat })
    }

    /// Sends the greeting with `files`: the process, rings and wait set, as many as there are.
    pub(crate) fn send(
        &self,
        stream: &UnixStream,
        files: &[BorrowedFd<'_>],
        deadline: &mut Deadline,
    ) -> Result<(), ConnectError> {
        Ok(socket::send(stream, &self.pack(), files, deadline)?)
    }

    /// Receives the peer's greeting with its descriptors.
    pub(crate) fn receive(
        stream: &UnixStream,
        deadline: &mut Deadline,
    ) -> Result<(Greeting, Vec<OwnedFd>), ConnectError> {
        let mut bytes = [0; BYTES];
        let mut files = Vec::new();
        socket::receive(stream, &mut bytes, &mut files, deadline)?;
        Ok((Greeting::unpack(&bytes)?, files))
    }
}

/// Sends whether this end attached, after the greetings.
pub(crate) fn send_verdict(
    stream: &UnixStream,
    attached: bool,
    deadline: &mut Deadline,
) -> Result<(), ConnectError> {
    Ok(socket::send(stream, &[u8::from(attached)], &[], deadline)?)
}

/// Waits until the peer reports whether it attached.
pub(crate) fn receive_verdict(stream: &UnixStream, deadline: &mut Deadline) -> Result<(), ConnectError> {
    let mut verdict = [0];
    socket::receive(stream, &mut verdict, &mut Vec::new(), deadline)?;
    if verdict == [1] { Ok(()) } else { Err(ConnectError::Refused) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_greeting_survives_its_bytes() {
        for seat in [None, Some(0), Some(77)] {
            let settings = Settings { incoming: Placement::Receiver, ..Settings::default() };
            let greeting = Greeting::new(&settings, seat);
            assert_eq!(Greeting::unpack(&greeting.pack()).unwrap(), greeting);
        }
    }

    #[test]
    fn a_greeting_of_another_version_says_which() {
        let mut bytes = Greeting::new(&Settings::default(), None).pack();
        bytes[8] = 9;
        let error = Greeting::unpack(&bytes).unwrap_err();
        assert!(matches!(error, ConnectError::Attach(AttachError::Version { theirs: 9, ours: VERSION })));
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_a_greeting_or_an_error(mut bytes in proptest::array::uniform32(0u8..), known: bool) {
            if known {
                bytes[0..8].copy_from_slice(&MAGIC.to_le_bytes());
                bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
            }
            let mut all = [0; BYTES];
            all[..32].copy_from_slice(&bytes);
            let _ = Greeting::unpack(&all);
        }
    }
}
