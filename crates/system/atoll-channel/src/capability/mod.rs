//! Memory capabilities: handles to ranges of a node's memory, with rights that only ever shrink.
//!
//! Stands on channels, which tell who the other process is. Code that moves bytes (bulk transfer, a service) asks here whether
//! it may, and where they are.
//!
//! - [`Table`]: which holder was given which capability. Pure. Each node has one for its own memory.
//! - [`Owner`]: a table with real memory behind it. It exports, copies for others, and revokes.
//! - [`Handle`]: names a capability and travels. Anybody may have it; only its [`Holder`] can use it.
//! - [`Description`]: what the owner sends when a holder wants to reach the memory itself; [`Description::import`]
//!   makes an [`Access`] of it, valid in the holder's address space. A handle that comes back to its owner becomes
//!   valid there by [`Owner::local`].
//!
//! ```
//! use atoll_channel::Node;
//! use atoll_channel::capability::{Holder, Limits, Means, Memory, Owner, Refused, Rights, Shared, Sharing, Span, With};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let this = Holder { node: Node(0), process: 0 };
//! let peer = Holder { node: Node(0), process: 1 };
//! let mut owner = Owner::new(this, Limits::default())?;
//! let all = owner.add(Memory::Shared(Shared::new(1 << 20, Sharing::Read)?))?;
//!
//! // The peer may map all of it, and have bytes copied to a part of it.
//! let mapped = owner.grant(this, all, peer, Span { offset: 0, length: 1 << 20 }, Rights::READ)?;
//! let inbox = owner.grant(this, all, peer, Span { offset: 4096, length: 100 }, Rights::COPY_TO)?;
//!
//! // The owner does this when a message of the peer asks for it.
//! owner.copy_to(peer, inbox, 0, b"hello")?;
//! assert!(matches!(owner.copy_to(peer, inbox, 96, b"hello"), Err(Refused::Range { .. })));
//! let export = owner.export(peer, mapped, Means::Mapping)?;
//!
//! // The peer does this when it has received the export (`Export::send`, `Description::receive`).
//! let file = export.file().map(|file| file.try_clone_to_owned()).transpose()?;
//! let access = export.description.import(With { file, ..With::default() })?;
//! let mut bytes = [0; 5];
//! access.read_at(4096, &mut bytes)?;
//! assert_eq!(&bytes, b"hello");
//!
//! owner.revoke(this, all)?;
//! assert!(matches!(owner.copy_to(peer, inbox, 0, b"again"), Err(Refused::Revoked)));
//! # Ok(())
//! # }
//! ```
//!
//! # Rights
//!
//! READ and WRITE allow a holder to reach memory itself. COPY_FROM and COPY_TO allow it to have the owner copy
//! ([`Owner::copy_from`], [`Owner::copy_to`], or an engine that asked [`Owner::local`]). GRANT allows it to give (some of) its
//! rights to another holder. None implies another.
//!
//! # What enforces a right, and what revoking it does
//!
//! | a right is used by | enforced by | after its revocation |
//! | --- | --- | --- |
//! | copies by the owner | the table, for each request | the next request is refused; a copy that began may end |
//! | a key of a transport | the transport, which reaches only the registered bytes with these rights | the registration has ended before `revoke` returns |
//! | a mapping | the kernel: the file is sealed against writing if others may only read it; the file has no other content, as only a capability to all of a memory is exported in this way | the holder keeps the pages; [`Owner::renew`] moves the bytes to a new file and wipes the old one, so that the holder has zeros |
//! | the address in the owner's process | nothing: a process that may trace the owner reads all its memory without any capability, and one that may not gets nothing | nothing changes |
//!
//! The owner's service decides by which means memory can be reached, since it calls [`Owner::export`]. So memory that must be
//! taken back at once is given with the rights to copy only, or exported over a transport. Memory whose bytes may be copied
//! once at revocation can be mapped. An address is told to processes of the same job and user, which trust each other as far as
//! the system does. Each [`Revoked`] says in `given` which of these its holder had; the caller tells the holder, which drops
//! the [`Access`], and calls [`Owner::renew`] if telling is not enough.
//!
//! Among processes of one user that may trace each other (no Yama, no container between them) capabilities guard against
//! mistakes, and against messages from other nodes, but not against a hostile program, which needs none of them.
//!
//! Revoking a right does not bring back bytes that were copied with it. A process that was handed a file can hand it on without
//! the right to grant, as the kernel knows nothing of that; `renew` takes the memory from all.
//!
//! Source: the barrelfish paper, sections 3.2, 4.3.3, 6.6, 6.9.3, 8.3. There an address is translated by adding a
//! constant, the drivers are trusted with all memory, and nothing is revoked.

mod access;
mod description;
mod given;
mod hand_over;
mod handle;
mod import;
mod in_process;
mod memory;
#[cfg(test)]
mod model;
mod owner;
#[cfg(test)]
mod owner_rules;
mod pages;
mod refused;
mod rights;
mod shared;
mod table;
mod transport;
mod tree;

pub use self::{
    access::{Access, AccessError, Remote},
    description::{Description, Export, FileId, MOST_KEY, Place},
    given::Given,
    hand_over::HandOverError,
    handle::{Handle, Holder, Secret, Span},
    import::{ImportError, With},
    in_process::InProcess,
    memory::{Direct, Memory, MoveError, Private},
    owner::{ExportError, Means, Owner},
    refused::Refused,
    rights::{Rights, UnknownRights},
    shared::{Shared, Sharing},
    table::{Checked, Limits, Revoked, Table, View},
    transport::{Reach, Register, Registration, RemoteMemory},
};
