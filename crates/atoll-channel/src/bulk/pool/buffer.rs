//! One buffer, in the hands of this process.
//!
//! Taken from `owner.rs` or received over `link.rs`, which also sends it away.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::bulk::memory::Memory;
use crate::bulk::pool::owner::Shared;

/// Gives the buffer back when nobody here uses it any more: neither the `Buffer` nor a transfer.
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

/// A buffer that this process owns: it alone may read and write it until it sends or drops it.
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
    /// The buffer with a number, which is here as the pool knows.
    pub(crate) fn new(shared: &Arc<Shared>, number: u32) -> Option<Buffer> {
        let lease = Arc::new(Lease { shared: shared.clone(), number, sent: AtomicBool::new(false) });
        Some(Buffer { memory: shared.part(number, lease.clone())?, lease })
    }

    /// Its memory, to read and write or to name in transfers. While a clone of it is held, by a transfer for
    /// one, the buffer is not sent.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Its size.
    pub fn bytes(&self) -> u64 {
        self.memory.bytes()
    }

    /// Its number in the pool.
    pub fn number(&self) -> u32 {
        self.lease.number
    }

    /// It is of the pool that a link is of.
    pub(crate) fn is_of(&self, shared: &Arc<Shared>) -> bool {
        Arc::ptr_eq(&self.lease.shared, shared)
    }

    /// It was sent: nothing is given back when this goes.
    pub(crate) fn sent(self) {
        self.lease.sent.store(true, Ordering::Relaxed);
    }
}
