//! How a client and a service agree on what they speak, before the first call.
//!
//! The client says which interface it speaks, the service answers with its own, always; each end compares, so both know
//! what is wrong. Used by `caller.rs` and `session.rs`.
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
/// Format of what travels.
pub(crate) const FORMAT: u32 = 1;
/// Bytes before the name.
const FIXED: usize = 28;
const LONGEST_NAME: usize = 128;

/// An interface, as the two ends of a link compare it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interface {
    /// The trait's name.
    pub name: &'static str,
    /// From the attribute.
    pub version: u32,
    /// Hash of the names, arguments and results of all methods, as they are written in the trait.
    pub signatures: u64,
}

impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} version {}", self.name, self.version)
    }
}

/// Why two ends do not understand each other.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
pub enum BindError {
    /// Nothing could be sent or received.
    #[error("{0}")]
    Link(#[from] LinkError),
    /// What the peer sends does not begin as a service or a client does.
    #[error("the peer does not speak atoll's calls: {0}")]
    NotAService(&'static str),
    /// The peer was built with an older or newer atoll.
    #[error("the peer's calls have format {theirs}, this end's {ours}")]
    Format {
        /// The peer's.
        theirs: u32,
        /// This end's.
        ours: u32,
    },
    /// The peer speaks another interface.
    #[error("the peer speaks {theirs}, this end {ours}")]
    OtherInterface {
        /// The peer's name for it.
        theirs: String,
        /// This end's.
        ours: &'static str,
    },
    /// The peer speaks another version of the interface.
    #[error("the peer speaks {interface} version {theirs}, this end version {ours}")]
    Version {
        /// Its name.
        interface: &'static str,
        /// The peer's version.
        theirs: u32,
        /// This end's.
        ours: u32,
    },
    /// The peer was built with other methods under the same version.
    #[error(
        "both ends speak {interface}, but their methods differ: who changes a method must change the version"
    )]
    Methods {
        /// Its name and version.
        interface: Interface,
    },
}

/// The message.
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
        // Of another format nothing but its number is known.
        let format = u32::from_le_bytes(take(&mut rest)?);
        if format != FORMAT {
            return Err(BindError::Format { theirs: format, ours: FORMAT });
        }
        let version = u32::from_le_bytes(take(&mut rest)?);
        let signatures = u64::from_le_bytes(take(&mut rest)?);
        let last = u32::from_le_bytes(take(&mut rest)?);
        debug_assert_eq!(bytes.len() - rest.len(), FIXED);
        let name = std::str::from_utf8(rest).ok().filter(|name| is_name(name));
        let name = name.ok_or(BindError::NotAService("the name of its interface is none"))?;
        Ok(Hello { format, version, signatures, last, name })
    }

    /// Whether the peer, who said this, speaks `ours`.
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

/// The next `N` bytes.
fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], BindError> {
    let (now, then) =
        rest.split_first_chunk::<N>().ok_or(BindError::NotAService("its first message is cut off"))?;
    *rest = then;
    Ok(*now)
}

/// It is printed in errors, so it must be a word.
fn is_name(name: &str) -> bool {
    (1..=LONGEST_NAME).contains(&name.len()) && name.chars().all(|c| c.is_alphanumeric() || c == '_')
}
