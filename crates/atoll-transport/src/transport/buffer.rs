//! Where a put reads and a get writes: memory that is certain to be there until the operation has ended.
//!
//! An operation owns its buffer and gives it back with its `Event::Done`; `memory.rs` is memory that both this node
//! and others use.

use std::sync::Arc;

use super::memory::{Memory, OutOfRange};

/// The local end of a put or get.
#[derive(Debug)]
pub enum Buffer {
    /// As many bytes as the vector has.
    Owned(Vec<u8>),
    /// A piece of memory, in place.
    Piece(Piece),
}

/// A range of a [`Memory`].
#[derive(Clone, Debug)]
pub struct Piece {
    memory: Arc<Memory>,
    offset: usize,
    length: usize,
}

impl Piece {
    /// `length` bytes of `memory` from `offset` on.
    pub fn new(memory: Arc<Memory>, offset: usize, length: usize) -> Result<Piece, OutOfRange> {
        memory.check(offset, length)?;
        Ok(Piece { memory, offset, length })
    }
}

impl Buffer {
    /// How many bytes are moved.
    pub fn len(&self) -> usize {
        match self {
            Buffer::Owned(bytes) => bytes.len(),
            Buffer::Piece(piece) => piece.length,
        }
    }

    /// Nothing is moved.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The vector of an owned one.
    pub fn into_owned(self) -> Option<Vec<u8>> {
        match self {
            Buffer::Owned(bytes) => Some(bytes),
            Buffer::Piece(_) => None,
        }
    }

    /// Where it begins. Valid for reads and writes of `len` bytes while the buffer is neither changed nor dropped; it
    /// may be moved.
    pub(crate) fn base(&mut self) -> *mut u8 {
        match self {
            Buffer::Owned(bytes) => bytes.as_mut_ptr(),
            Buffer::Piece(piece) => piece.memory.base().wrapping_add(piece.offset),
        }
    }
}
