//! The protocol of launcher, agent and program over pipes: a magic line, then frames with their length in front.
//!
//! `launch/` uses it at one end, `agent.rs` in the middle, `launched.rs` at the other end. Both ends must be of one version,
//! which the magic line tells: a job's hosts have the same atoll installed.

use std::io::{self, Read, Write};

use serde::{Deserialize, Serialize};

use crate::decode::decode;

/// The version of the frames; any change to them needs a new number.
pub(super) const VERSION: u32 = 1;

/// Bytes that nobody prints by accident. The output of a login shell comes before them.
pub(super) const MAGIC: [u8; 16] = *b"\0\x1batoll start\0\x1b\n";

/// The bytes of magic and version.
pub(super) const OPENING: usize = MAGIC.len() + 4;

/// The most bytes of a frame; an order with as many arguments as Linux lets a program have fits.
const LONGEST: u32 = 4 << 20;

/// The most bytes of a program's input or output in one frame.
pub(super) const PIECE: usize = 64 << 10;

/// The order to start a node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Order {
    pub(super) welcome: Welcome,
    /// The program and its arguments.
    pub(super) words: Vec<Vec<u8>>,
    /// Variables to set in the program's environment, besides those of the host.
    pub(super) environment: Vec<(Vec<u8>, Vec<u8>)>,
    /// The directory in which it starts; `None` leaves that to the host.
    pub(super) directory: Option<Vec<u8>>,
}

/// The answer that tells a program its place in the job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Welcome {
    pub(super) node: u32,
    pub(super) nodes: u32,
    pub(super) secret: [u8; 32],
    /// The number of the next exchange.
    pub(super) round: u32,
}

/// The two outputs of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum Stream {
    Output,
    Error,
}

/// The ways in which a program ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum Ending {
    Status(u8),
    Signal(u8),
}

/// A frame, by its direction and meaning.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum Frame {
    /// Launcher to agent, once: start the program.
    Order(Order),
    /// Launcher to agent: bytes for the program's standard input, empty at its end. Only one is sent until `InputTaken`.
    Input(Vec<u8>),
    /// Launcher to agent: a signal for the program's process group.
    Signal(u8),
    /// Launcher to program: the bytes that `node` gave in `round`.
    Gathered { round: u32, node: u32, bytes: Vec<u8> },
    /// Launcher to program: `node` ended before it gave anything in the round that is waited for.
    Gone { node: u32 },
    /// Program to agent: asks for its place in the job.
    Hello,
    /// Agent to program: its place in the job.
    Welcome(Welcome),
    /// Program to launcher: its bytes in `round`.
    Contribution { round: u32, bytes: Vec<u8> },
    /// Agent to launcher: the program runs.
    Started,
    /// Agent to launcher: the program could not be started, and why.
    Failed(String),
    /// Agent to launcher: the program has taken the last `Input`, or never will.
    InputTaken,
    /// Agent to launcher: output of the program.
    Printed(Stream, Vec<u8>),
    /// Agent to launcher, the last frame: the program has ended, and all its output was sent before.
    Ended(Ending),
}

/// The reasons why no frame could be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum FrameError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("a frame of {0} bytes, where none may be longer than {LONGEST}")]
    TooLong(u64),
    #[error("a frame that cannot be read")]
    Broken,
    #[error("an end amid a frame")]
    Cut,
}

/// The line before the first frame.
pub(super) fn opening() -> [u8; OPENING] {
    let mut bytes = [0; OPENING];
    bytes[..MAGIC.len()].copy_from_slice(&MAGIC);
    bytes[MAGIC.len()..].copy_from_slice(&VERSION.to_le_bytes());
    bytes
}

/// The bytes of `frame` as they are sent.
pub(super) fn encode(frame: &Frame) -> Result<Vec<u8>, FrameError> {
    let bytes = postcard::to_extend(frame, vec![0; 4]).map_err(|_| FrameError::Broken)?;
    match u32::try_from(bytes.len() - 4) {
        Ok(length) if length <= LONGEST => {
            let mut bytes = bytes;
            bytes[..4].copy_from_slice(&length.to_le_bytes());
            Ok(bytes)
        }
        _ => Err(FrameError::TooLong(bytes.len() as u64 - 4)),
    }
}

/// Sends `frame`, as one write.
pub(super) fn write(to: &mut impl Write, frame: &Frame) -> Result<(), FrameError> {
    to.write_all(&encode(frame)?)?;
    Ok(to.flush()?)
}

/// The next frame; `None` where the stream ends between two frames.
pub(super) fn read(from: &mut impl Read) -> Result<Option<Frame>, FrameError> {
    let mut length = [0; 4];
    let mut have = 0;
    while have < length.len() {
        match from.read(&mut length[have..]) {
            Ok(0) if have == 0 => return Ok(None),
            Ok(0) => return Err(FrameError::Cut),
            Ok(count) => have += count,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e.into()),
        }
    }
    let length = u32::from_le_bytes(length);
    if length > LONGEST {
        return Err(FrameError::TooLong(length.into()));
    }
    // Memory is taken as bytes come, not as they are announced.
    let mut bytes = Vec::new();
    from.by_ref().take(length.into()).read_to_end(&mut bytes)?;
    if bytes.len() != length as usize {
        return Err(FrameError::Cut);
    }
    decode(&bytes).map(Some).map_err(|_| FrameError::Broken)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn order() -> Order {
        Order {
            welcome: Welcome { node: 1, nodes: 3, secret: [7; 32], round: 2 },
            words: vec![b"a b".to_vec(), Vec::new(), b"\"$x'\n".to_vec()],
            environment: vec![(b"A".to_vec(), b"\xff".to_vec())],
            directory: Some(b"/tmp".to_vec()),
        }
    }

    fn all() -> Vec<Frame> {
        vec![
            Frame::Order(order()),
            Frame::Input(vec![1, 2]),
            Frame::Signal(15),
            Frame::Gathered { round: 1, node: 2, bytes: vec![3; 1000] },
            Frame::Gone { node: 9 },
            Frame::Hello,
            Frame::Welcome(order().welcome),
            Frame::Contribution { round: 0, bytes: Vec::new() },
            Frame::Started,
            Frame::Failed("no".into()),
            Frame::InputTaken,
            Frame::Printed(Stream::Error, vec![10; PIECE]),
            Frame::Ended(Ending::Signal(9)),
        ]
    }

    #[test]
    fn frames_come_out_as_they_went_in() {
        let mut bytes = Vec::new();
        for frame in all() {
            write(&mut bytes, &frame).unwrap();
        }
        let mut from = bytes.as_slice();
        for frame in all() {
            assert_eq!(read(&mut from).unwrap(), Some(frame));
        }
        assert_eq!(read(&mut from).unwrap(), None);
        assert!(matches!(read(&mut &bytes[..bytes.len() - 1][..3]), Err(FrameError::Cut)));
    }

    #[test]
    fn a_length_beyond_the_limit_is_refused_unread() {
        assert!(matches!(read(&mut &[255; 100][..]), Err(FrameError::TooLong(_))));
        let long = Frame::Input(vec![0; LONGEST as usize]);
        assert!(matches!(encode(&long), Err(FrameError::TooLong(_))));
    }

    proptest! {
        #[test]
        fn any_bytes_are_frames_or_an_error(mut bytes: Vec<u8>, which in 0..13_usize, at: u16, to: u8) {
            while let Ok(Some(_)) = read(&mut bytes.as_slice()) {
                bytes.truncate(bytes.len() - 1);
            }
            let mut bytes = encode(&all()[which]).unwrap();
            let at = usize::from(at) % bytes.len();
            bytes[at] = to;
            let _ = read(&mut bytes.as_slice());
            bytes.truncate(at);
            prop_assert!(!matches!(read(&mut bytes.as_slice()), Ok(Some(_))));
        }
    }
}
