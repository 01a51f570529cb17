//! The messages by which a client and a service agree on the interface, before the first call.
//!
//! The client sends its interface, and the service always answers with its own; each end compares, so both know what differs.
//! Used by `caller.rs` and `session.rs`.
//!
//! | bytes | holds, little-endian |
//! | --- | --- |
//! | 0–7 | `ATOLLSVC` |
//! | 8–11 | format of this message and of calls: 1 |
//! | 12–15 | the interface's version |
//! | 16–23 | hash of the interface's methods |
//! | 24–27 | number of the link's last call that the service saw; from a client, 0 |
//! | 28– | the interface's name, UTF-8, 1 to 128 bytes |
//!
//! Source: the barrelfish paper, section 3.4.2 (bind).

use std::fmt;

use atoll_transport::LinkError;

const MAGIC: &[u8; 8] = b"ATOLLSVC";
/// The format of the messages on a link.
pub(crate) const FORMAT: u32 = 1;
/// The bytes before the name.
const FIXED: usize = 28;
const LONGEST_NAME: usize = 128;

/// An interface, as the two ends of a link compare it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interface {
    /// The trait's name.
    pub name: &'static str,
    /// The version in the attribute.
    pub version: u32,
    /// The hash of the names, arguments and results of all methods, as they are written in the trait.
    pub signatures: u64,
}

impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} version {}", self.name, self.version)
    }
}

/// The reasons why two ends cannot talk to each other.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
pub enum BindError {
    /// The message could not be sent or received.
    #[error("{0}")]
    Link(#[from] LinkError),
    /// The peer's bytes do not begin as those of a service or a client.
    #[error("the peer does not speak atoll's calls: {0}")]
    NotAService(&'static str),
    /// The peer was built with an older or newer atoll.
    #[error("the peer's calls have format {theirs}, this end's {ours}")]
    Format {
        /// The peer's format.
        theirs: u32,
        /// This end's format.
        ours: u32,
    },
    /// The peer has another interface.
    #[error("the peer speaks {theirs}, this end {ours}")]
    OtherInterface {
        /// The name of the peer's interface.
        theirs: String,
        /// The name of this end's interface.
        ours: &'static str,
    },
    /// The peer has another version of the interface.
    #[error("the peer speaks {interface} version {theirs}, this end version {ours}")]
    Version {
        /// The interface's name.
        interface: &'static str,
        /// The peer's version.
        theirs: u32,
        /// This end's version.
        ours: u32,
    },
    /// The peer was built with other methods under the same version.
    #[error(
        "both ends speak {interface}, but their methods differ: a change to a method needs a new version"
    )]
    Methods {
        /// The interface's name and version.
        interface: Interface,
    },
}

/// The first message of each end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Hello<'a> {
    pub(crate) format: u32,
    pub(crate) version: u32,
    pub(crate) signatures: u64,
    pub(crate) last: u32,
    pub(crate) name: &'a str,
}

impl<'a> Hello<'a> {
    pub(crate) fn new(interface: &Interface, last: u32) -> Hello<'a> {
        let Interface { name, version, signatures } = *interface;
        Hello { format: FORMAT, version, signatures, last, name }
    }

    pub(crate) fn write(&self, bytes: &mut Vec<u8>) {
        bytes.clear();
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&self.format.to_le_bytes());
        bytes.extend_from_slice(&self.version.to_le_bytes());
        bytes.extend_from_slice(&self.signatures.to_le_bytes());
        bytes.extend_from_slice(&self.last.to_le_bytes());
        bytes.extend_from_slice(self.name.as_bytes());
    }

    pub(crate) fn read(bytes: &'a [u8]) -> Result<Hello<'a>, BindError> {
        let (magic, mut rest) =
            bytes.split_first_chunk::<8>().ok_or(BindError::NotAService("its first message is too short"))?;
        if magic != MAGIC {
            return Err(BindError::NotAService("its first message begins otherwise"));
        }
        // Of another format only its number is known.
        let format = u32::from_le_bytes(take(&mut rest)?);
        if format != FORMAT {
            return Err(BindError::Format { theirs: format, ours: FORMAT });
        }
        let version = u32::from_le_bytes(take(&mut rest)?);
        let signatures = u64::from_le_bytes(take(&mut rest)?);
        let last = u32::from_le_bytes(take(&mut rest)?);
        debug_assert_eq!(bytes.len() - rest.len(), FIXED);
        let name = std::str::from_utf8(rest).ok().filter(|name| is_name(name));
        let name = name.ok_or(BindError::NotAService("its interface has no valid name"))?;
        Ok(Hello { format, version, signatures, last, name })
    }

    /// Checks that the peer, who sent this, has the interface `ours`.
    pub(crate) fn agrees(&self, ours: &Interface) -> Result<(), BindError> {
        if self.name != ours.name {
            return Err(BindError::OtherInterface { theirs: self.name.to_owned(), ours: ours.name });
        }
        if self.version != ours.version {
            return Err(BindError::Version {
                interface: ours.name,
                theirs: self.version,
                ours: ours.version,
            });
        }
        if self.signatures != ours.signatures {
            return Err(BindError::Methods { interface: *ours });
        }
        Ok(())
    }
}

/// Takes the next `N` bytes.
fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], BindError> {
    let (now, then) =
        rest.split_first_chunk::<N>().ok_or(BindError::NotAService("its first message is cut off"))?;
    *rest = then;
    Ok(*now)
}

/// Whether the name is a single word, as errors print it.
fn is_name(name: &str) -> bool {
    (1..=LONGEST_NAME).contains(&name.len()) && name.chars().all(|c| c.is_alphanumeric() || c == '_')
}
