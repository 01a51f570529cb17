//! Another owner's memory as this process can reach it, and why it cannot.
//!
//! `import.rs` makes it of what the owner sent. Rights and bounds are checked here for the sake of this process: what
//! an owner can rely on is what `mod.rs` says of each kind.

use std::io;

use crate::capability::handle::Span;
use crate::capability::in_process::InProcess;
use crate::capability::memory::Direct;
use crate::capability::rights::Rights;
use crate::capability::transport::RemoteMemory;
use atoll_transport::Node;

/// Memory that a capability gives access to, in the way that works from here.
pub enum Access {
    /// This process's own.
    Local(Direct),
    /// Another process's, mapped here too.
    Mapping(Direct),
    /// In another process of this machine: the system copies.
    Process(InProcess),
    /// At a node that a transport reaches.
    Remote(Remote),
}

/// Memory at another node.
pub struct Remote {
    pub(super) owner: Node,
    pub(super) base: u64,
    pub(super) length: u64,
    pub(super) rights: Rights,
    pub(super) memory: Box<dyn RemoteMemory>,
}

impl Remote {
    /// The node it is at.
    pub fn owner(&self) -> Node {
        self.owner
    }

    /// Where it begins there, as the transport counts.
    pub fn base(&self) -> u64 {
        self.base
    }
}

/// Why memory was not read or written.
#[derive(thiserror::Error, Debug)]
pub enum AccessError {
    /// The capability that it was imported with does not allow it.
    #[error("the capability does not allow this: missing is {missing}")]
    Rights {
        /// What is missing.
        missing: Rights,
    },
    /// Not inside.
    #[error("{asked} are not inside {length} bytes")]
    Range {
        /// What was asked for.
        asked: Span,
        /// How many bytes there are.
        length: u64,
    },
    /// The process whose memory it is ended, or runs another program now.
    #[error("the owner of the memory is gone")]
    OwnerGone,
    /// The owner does not have this memory any more.
    #[error("the owner has no memory there any more")]
    Unmapped,
    /// The system or the transport refuses.
    #[error("{0}: {1}")]
    Os(&'static str, #[source] io::Error),
}

impl AccessError {
    /// `count` bytes at `offset` of `length` bytes may be touched with `rights`.
    pub(super) fn check(
        rights: Rights,
        right: Rights,
        length: u64,
        offset: u64,
        count: usize,
    ) -> Result<(), AccessError> {
        let missing = right - rights;
        if !missing.is_empty() {
            return Err(AccessError::Rights { missing });
        }
        let asked = Span { offset, length: count as u64 };
        match (Span { offset: 0, length }).part(asked) {
            Some(_) => Ok(()),
            None => Err(AccessError::Range { asked, length }),
        }
    }
}

impl Access {
    /// How many bytes.
    pub fn length(&self) -> u64 {
        match self {
            Access::Local(direct) | Access::Mapping(direct) => direct.length() as u64,
            Access::Process(memory) => memory.length(),
            Access::Remote(remote) => remote.length,
        }
    }

    /// Reading and writing, or one of them.
    pub fn rights(&self) -> Rights {
        match self {
            Access::Local(direct) | Access::Mapping(direct) => direct.rights(),
            Access::Process(memory) => memory.rights(),
            Access::Remote(remote) => remote.rights,
        }
    }

    /// The bytes as this process reaches them with loads and stores, if it does.
    pub fn direct(&self) -> Option<&Direct> {
        match self {
            Access::Local(direct) | Access::Mapping(direct) => Some(direct),
            Access::Process(_) | Access::Remote(_) => None,
        }
    }

    /// Copies the bytes from `offset` on into this process.
    pub fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), AccessError> {
        match self {
            Access::Local(direct) | Access::Mapping(direct) => direct.read_at(offset, into),
            Access::Process(memory) => memory.read_at(offset, into),
            Access::Remote(remote) => {
                AccessError::check(remote.rights, Rights::READ, remote.length, offset, into.len())?;
                remote.memory.get(offset, into).map_err(|e| AccessError::Os("a remote read", e))
            }
        }
    }

    /// Copies `from` there, from `offset` on.
    pub fn write_at(&self, offset: u64, from: &[u8]) -> Result<(), AccessError> {
        match self {
            Access::Local(direct) | Access::Mapping(direct) => direct.write_at(offset, from),
            Access::Process(memory) => memory.write_at(offset, from),
            Access::Remote(remote) => {
                AccessError::check(remote.rights, Rights::WRITE, remote.length, offset, from.len())?;
                remote.memory.put(offset, from).map_err(|e| AccessError::Os("a remote write", e))
            }
        }
    }
}
