//! Pools of buffers whose ownership moves: a message hands a buffer over, nothing is copied.
//!
//! Stands on `memory.rs` and on channels, over which buffers travel. A process makes a pool ([`Pool`]) and gives it to others
//! (as a descriptor); each channel that its buffers may travel over has a [`Link`] at both ends. A [`Buffer`] that is sent
//! belongs to the peer. Dropped anywhere, it finds its way back to the pool's owner, through the links it came by, so a pool
//! can serve several hops. A message holds a buffer's number and no address.
//!
//! Each process knows from messages alone, in memory of its own (`holders.rs`), **who holds what**: a peer may send the buffers
//! that were sent to it and not sent back. A peer that sends another one, or the same twice, or one that does not exist, breaks
//! the protocol and gains nothing. A peer that dies gives back the buffers it had.
//!
//! **What shared memory cannot enforce:** a process that has a pool mapped for writing can write to every buffer of it at any
//! time, also to those it has sent; no protocol takes a mapping away. So between processes that do not trust each other:
//! - Contents are read by copying (`Memory::read`, a transfer); what is checked is the copy, and it is made
//!   once.
//! - A pool that only its owner writes to is made with `Writers::Maker`: the kernel refuses all others a
//!   mapping for writing.
//! - Processes that must not see each other's data use different pools.
//!
//! Within one process ownership is enforced: a buffer that was sent cannot be touched, and one that a transfer still uses is
//! not sent. When a peer dies that had passed a buffer on, its owner takes the buffer back although the process behind may
//! still have it; that process sees its channel broken.
//!
//! Source: the barrelfish paper, sections 6.10.2 (pools assigned to channels, sizes, several hops) and 8.9
//! (trusted and not; contents do not change under an operation).

mod buffer;
mod error;
mod hand_over;
mod holders;
mod link;
mod message;
mod owner;

pub use self::{
    buffer::Buffer,
    error::{PoolError, ProtocolError, Unsent, UnsentReason},
    link::{Arrival, Link},
    owner::{MOST_BUFFERS, Pool},
};
