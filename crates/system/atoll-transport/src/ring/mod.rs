//! Rings of 64-byte lines, bells to sleep by and the marks of a wait set: all memory that two ends share.
//!
//! `channel/` maps this memory and makes channels of it. Only atomics from `sync.rs` are used here, so that the model
//! checker (`model.rs`) runs the very same code.

pub(crate) mod bell;
pub(crate) mod consumer;
pub(crate) mod doze;
pub(crate) mod line;
pub(crate) mod memory;
pub(crate) mod producer;
pub(crate) mod ready;
pub(crate) mod sync;
pub(crate) mod turns;

#[cfg(all(test, loom))]
mod model;
