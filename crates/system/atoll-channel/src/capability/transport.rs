//! The traits of transports through which memory is reached from other nodes.
//!
//! The transports implement them; `owner.rs` registers memory with one, and `import.rs` reaches it at the other side.

use std::io;

use crate::capability::memory::Direct;
use crate::capability::rights::Rights;
use atoll_transport::Node;

/// The owner's side of a transport.
pub trait Register {
    /// The transport's name, which is unique: a capability is registered once with each transport.
    fn name(&self) -> &'static str;

    /// Lets other nodes reach `memory` with at most `rights`, which are reading, writing, or both, until the result is dropped.
    /// No other byte becomes reachable.
    fn register(&self, memory: Direct, rights: Rights) -> io::Result<Registration>;
}

/// Memory that a transport makes reachable for others.
pub struct Registration {
    /// The start address, as the transport counts.
    pub base: u64,
    /// The key that gives access to it; nobody can guess it.
    pub key: Vec<u8>,
    /// A guard that ends it when dropped: no access begins after that, and none is still going on. It owns the memory until
    /// then.
    pub guard: Box<dyn Send + Sync>,
}

/// The other nodes' side of a transport.
pub trait Reach {
    /// Makes memory usable by its key. The key is not to be believed, because it came from the owner.
    fn reach(&self, owner: Node, base: u64, length: u64, key: &[u8]) -> io::Result<Box<dyn RemoteMemory>>;
}

/// Memory of another node. Offsets and lengths have been checked.
pub trait RemoteMemory: Send {
    /// Fills `into` with the bytes from `offset` on.
    fn get(&self, offset: u64, into: &mut [u8]) -> io::Result<()>;

    /// Writes `from` to `offset`; when it returns, the bytes are in the memory.
    fn put(&self, offset: u64, from: &[u8]) -> io::Result<()>;
}
