//! One buffer of a pool that this process holds.
//!
//! A buffer is taken from `owner.rs` or received over `link.rs`, which also sends it away.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::bulk::memory::Memory;
use crate::bulk::pool::owner::Shared;

/// Gives the buffer back when neither the `Buffer` nor a transfer uses it any more in this process.
pub(crate) struct Lease {
    shared: Arc<Shared>,
    number: u32,
    sent: AtomicBool,
}

impl Drop for Lease {
    fn drop(&mut self) {
        if !*self.sent.get_mut() {
            self.shared.state().holders.drop_here(self.number);
        }
    }
}

/// A buffer that this process owns: it alone may read and write it until it sends or drops the buffer.
pub struct Buffer {
    memory: Memory,
    lease: Arc<Lease>,
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "buffer {} of {} bytes", self.number(), self.bytes())
    }
}

impl Buffer {
    /// The buffer with a number, which the pool knows to be here.
    pub(crate) fn new(shared: &Arc<Shared>, number: u32) -> Option<Buffer> {
        let lease = Arc::new(Lease { shared: shared.clone(), number, sent: AtomicBool::new(false) });
        Some(Buffer { memory: shared.part(number, lease.clone())?, lease })
    }

    /// The buffer's memory, to read, to write, or to name in transfers. While a clone of it is held, for instance by a
    /// transfer, the buffer cannot be sent.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// The size in bytes.
    pub fn bytes(&self) -> u64 {
        self.memory.bytes()
    }

    /// The buffer's number in the pool.
    pub fn number(&self) -> u32 {
        self.lease.number
    }

    /// Whether the buffer is of the pool of a link.
    pub(crate) fn is_of(&self, shared: &Arc<Shared>) -> bool {
        Arc::ptr_eq(&self.lease.shared, shared)
    }

    /// Ends it after it was sent, so that dropping gives nothing back.
    pub(crate) fn sent(self) {
        self.lease.sent.store(true, Ordering::Relaxed);
    }
}
