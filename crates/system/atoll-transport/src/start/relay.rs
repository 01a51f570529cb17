//! A socket between a node's launcher and the program it has started: the launcher tells the program how to join, and exchanges
//! bytes with the other nodes for it.
//!
//! A [`Start`] belongs to one process. Where that is a launcher and its program joins a transport, the launcher calls [`serve`]
//! and the program uses [`Relay`]. Both are of the same version of atoll, on one machine.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{LONGEST, Start};

/// The bytes of the longest message, which holds the bytes of all nodes.
const MOST: u32 = 256 << 20;
/// How much longer the program waits than its launcher.
const SLACK: Duration = Duration::from_secs(5);

/// The data by which a program joins the others.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meeting {
    /// This node's number.
    pub node: u32,
    /// The number of nodes.
    pub nodes: u32,
    /// The bytes of the job's secret.
    pub secret: [u8; 32],
    /// The place where the nodes meet.
    pub place: MeetingPlace,
}

/// The place where nodes meet, and so the means by which they talk.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum MeetingPlace {
    /// Shared memory, as all are on one machine. The name is one that no other job has.
    Memory([u8; 16]),
    /// UCX.
    Network {
        /// UCX's devices; `None` leaves them to the environment.
        devices: Option<String>,
        /// UCX's transports; `None` leaves them to the environment.
        transports: Option<String>,
    },
}

/// The reasons why the talk of a program and its launcher failed.
#[derive(Debug, thiserror::Error)]
pub enum RelayError {
    /// The socket reports an error.
    #[error("the launcher of this node is gone: {0}")]
    Gone(#[from] io::Error),
    /// The message that came is invalid.
    #[error("the launcher of this node sent a message that makes no sense")]
    Nonsense,
    /// The exchange did not take place.
    #[error("{0}")]
    Exchange(String),
}

/// The program's end of the socket.
pub struct Relay {
    socket: UnixStream,
}

impl Relay {
    /// Takes the socket that the launcher left; returns its first message, too.
    pub fn new(socket: UnixStream, timeout: Duration) -> Result<(Relay, Meeting), RelayError> {
        socket.set_read_timeout(Some(timeout + SLACK))?;
        let meeting = read(&mut &socket)?.ok_or_else(gone)?;
        Ok((Relay { socket }, meeting))
    }

    /// Exchanges bytes as [`Start::exchange`] does, through the launcher, which limits the time.
    pub fn exchange(&mut self, mine: &[u8]) -> Result<Vec<Vec<u8>>, RelayError> {
        write(&mut &self.socket, &mine)?;
        let answer: Result<Vec<Vec<u8>>, String> = read(&mut &self.socket)?.ok_or_else(gone)?;
        answer.map_err(RelayError::Exchange)
    }
}

fn gone() -> RelayError {
    RelayError::Gone(io::ErrorKind::UnexpectedEof.into())
}

/// The launcher's end: sends `meeting`, and exchanges the bytes that the program gives until the program closes its end. Each
/// exchange takes at most `timeout`.
pub fn serve(
    start: &mut Start,
    mut socket: UnixStream,
    meeting: &Meeting,
    timeout: Duration,
) -> Result<(), RelayError> {
    write(&mut socket, meeting)?;
    while let Some(mine) = read::<Vec<u8>>(&mut socket)? {
        if mine.len() > LONGEST {
            return Err(RelayError::Nonsense);
        }
        let answer = start.exchange(&mine, Some(timeout)).map_err(|e| e.to_string());
        write(&mut socket, &answer)?;
    }
    Ok(())
}

fn write<T: Serialize + ?Sized>(to: &mut impl Write, word: &T) -> Result<(), RelayError> {
    let mut bytes = postcard::to_extend(word, vec![0; 4]).map_err(|_| RelayError::Nonsense)?;
    let length = u32::try_from(bytes.len() - 4).map_err(|_| RelayError::Nonsense)?;
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    Ok(to.write_all(&bytes)?)
}

/// The next message; `None` if the socket was closed before it.
fn read<T: DeserializeOwned>(from: &mut impl Read) -> Result<Option<T>, RelayError> {
    let mut length = [0; 4];
    match from.read_exact(&mut length) {
        Err(e) if matches!(e.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset) => {
            return Ok(None);
        }
        other => other?,
    }
    let length = u32::from_le_bytes(length);
    if length > MOST {
        return Err(RelayError::Nonsense);
    }
    // Memory is taken as bytes come, not as they are announced.
    let mut bytes = Vec::new();
    from.take(length.into()).read_to_end(&mut bytes)?;
    postcard::from_bytes(&bytes).map(Some).map_err(|_| RelayError::Nonsense)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meeting() -> Meeting {
        let place = MeetingPlace::Network { devices: Some("lo".into()), transports: None };
        Meeting { node: 0, nodes: 1, secret: [5; 32], place }
    }

    #[test]
    fn a_program_exchanges_by_its_launcher() {
        let (here, there) = UnixStream::pair().unwrap();
        let second = Duration::from_secs(1);
        let launcher = std::thread::spawn(move || {
            let mut start = Start::alone().unwrap();
            serve(&mut start, there, &meeting(), second).map(|()| start.finish().unwrap())
        });
        let (mut relay, heard) = Relay::new(here, second).unwrap();
        assert!(heard == meeting());
        assert_eq!(relay.exchange(b"mine").unwrap(), [b"mine"]);
        assert_eq!(relay.exchange(&[7; 3000]).unwrap(), [[7; 3000]]);
        drop(relay);
        assert!(launcher.join().unwrap().is_ok());
    }

    #[test]
    fn what_makes_no_sense_is_an_error() {
        let hear = |bytes: &[u8]| {
            let (here, mut there) = UnixStream::pair().unwrap();
            there.write_all(bytes).unwrap();
            drop(there);
            Relay::new(here, Duration::from_secs(1)).err().unwrap()
        };
        assert!(matches!(hear(&[]), RelayError::Gone(_)));
        assert!(matches!(hear(&[255; 4]), RelayError::Nonsense));
        assert!(matches!(hear(&[9, 0, 0, 0, 1, 2]), RelayError::Nonsense));
    }
}
