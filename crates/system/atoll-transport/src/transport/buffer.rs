//! The buffers that a put reads and a get writes: memory that certainly stays until the operation has ended.
//!
//! An operation owns its buffer and gives it back with its `Event::Done`; `memory.rs` is memory that this node and others use.

use std::sync::Arc;

use super::memory::{Memory, OutOfRange};

/// The local buffer of a put or get.
#[derive(Debug)]
pub enum Buffer {
    /// All bytes of a vector.
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
    /// The piece of `length` bytes of `memory` from `offset` on.
    pub fn new(memory: Arc<Memory>, offset: usize, length: usize) -> Result<Piece, OutOfRange> {
        memory.check(offset, length)?;
        Ok(Piece { memory, offset, length })
    }
}

impl Buffer {
    /// The number of bytes to move.
    pub fn len(&self) -> usize {
        match self {
            Buffer::Owned(bytes) => bytes.len(),
            Buffer::Piece(piece) => piece.length,
        }
    }

    /// Whether no byte is to be moved.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The vector of an owned buffer.
    pub fn into_owned(self) -> Option<Vec<u8>> {
        match self {
            Buffer::Owned(bytes) => Some(bytes),
            Buffer::Piece(_) => None,
        }
    }

    /// The buffer's first address. Valid for reads and writes of `len` bytes until the buffer is changed or dropped; it may be
    /// moved.
    pub(crate) fn base(&mut self) -> *mut u8 {
        match self {
            Buffer::Owned(bytes) => bytes.as_mut_ptr(),
            Buffer::Piece(piece) => piece.memory.base().wrapping_add(piece.offset),
        }
    }
}
