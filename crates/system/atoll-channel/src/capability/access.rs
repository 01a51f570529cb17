//! Another owner's memory as this process reaches it, and the errors of reaching it.
//!
//! `import.rs` makes it from the owner's description. Rights and bounds are checked here to protect this process; `mod.rs` says
//! what an owner can rely on for each kind.

use std::io;

use crate::capability::handle::Span;
use crate::capability::in_process::InProcess;
use crate::capability::memory::Direct;
use crate::capability::rights::Rights;
use crate::capability::transport::RemoteMemory;
use atoll_transport::Node;

/// Memory that a capability gives access to, by the means that works in this process.
pub enum Access {
    /// Memory of this process.
    Local(Direct),
    /// Memory of another process, mapped here, too.
    Mapping(Direct),
    /// Memory in another process of this machine, which the system copies.
    Process(InProcess),
    /// Memory at a node that a transport reaches.
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
    /// The node that has the memory.
    pub fn owner(&self) -> Node {
        self.owner
    }

    /// The start of the memory, in the transport's addresses.
    pub fn base(&self) -> u64 {
        self.base
    }
}

/// The reasons why memory was not read or written.
#[derive(thiserror::Error, Debug)]
pub enum AccessError {
    /// The imported capability does not allow it.
    #[error("the capability does not allow this: missing is {missing}")]
    Rights {
        /// The missing rights.
        missing: Rights,
    },
    /// The range is not inside the memory.
    #[error("{asked} are not inside {length} bytes")]
    Range {
        /// The range that was asked for.
        asked: Span,
        /// The bytes of the memory.
        length: u64,
    },
    /// The process whose memory it is has ended, or runs another program now.
    #[error("the owner of the memory is gone")]
    OwnerGone,
    /// The owner has unmapped this memory.
    #[error("the owner has no memory there any more")]
    Unmapped,
    /// The system or the transport refuses a call; the text names it.
    #[error("{0}: {1}")]
    Os(&'static str, #[source] io::Error),
}

impl AccessError {
    /// Checks that `count` bytes at `offset` of `length` bytes may be accessed with `rights`.
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
    /// The length in bytes.
    pub fn length(&self) -> u64 {
        match self {
            Access::Local(direct) | Access::Mapping(direct) => direct.length() as u64,
            Access::Process(memory) => memory.length(),
            Access::Remote(remote) => remote.length,
        }
    }

    /// The rights: reading, writing, or both.
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

    /// Copies `from` to the memory, from `offset` on.
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
