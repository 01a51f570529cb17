//! A ring's memory: a control part of four lines, then the lines of messages.
//!
//! `producer.rs` and `consumer.rs` work on it; `channel/ring_file.rs` maps it from a memfd. Words that the two ends write lie
//! in different cache lines, so that in the steady state only lines of messages move, and the credit line once a quarter lap.
//!
//! Source: the barrelfish paper, section 5.5.

use std::any::Any;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::ring::bell::Bell;
use crate::ring::line::Line;
use crate::ring::sync::{AtomicU32, AtomicU64, Ordering};

/// The identity at the start of a ring, which an attaching process checks. Written once, before any other process can see it.
#[repr(C, align(64))]
pub(crate) struct Identity {
    pub(crate) magic: AtomicU64,
    pub(crate) version: AtomicU32,
    pub(crate) lines: AtomicU32,
    pub(crate) longest: AtomicU64,
}

/// The state of one end; written by that end except for the bell, which the other end answers.
#[repr(C, align(64))]
pub(crate) struct Side {
    pub(crate) bell: Bell,
    /// 1 once a process has attached as this end.
    pub(crate) attached: AtomicU32,
    /// 1 once this end will do nothing more.
    pub(crate) closed: AtomicU32,
}

/// The number of lines that the consumer has read, modulo 2^32; written by the consumer.
#[repr(C, align(64))]
pub(crate) struct Credit {
    pub(crate) consumed: AtomicU32,
}

/// The control part of a ring. Zeros are a valid one.
#[repr(C)]
pub(crate) struct Control {
    pub(crate) identity: Identity,
    pub(crate) producer: Side,
    pub(crate) consumer: Side,
    pub(crate) credit: Credit,
}

/// The bytes of the control part.
#[cfg(not(loom))]
pub(crate) const CONTROL_BYTES: usize = 256;
#[cfg(not(loom))]
const _: () = assert!(size_of::<Control>() == CONTROL_BYTES);

/// A ring in memory that both ends see.
#[derive(Clone)]
pub(crate) struct Ring {
    control: NonNull<Control>,
    lines: NonNull<Line>,
    /// The number of lines; this end's own copy, as the other end could change the one in the identity.
    count: u32,
    /// The owner of the memory.
    _keep: Arc<dyn Any + Send + Sync>,
}

// SAFETY: all memory behind the pointers is atomics, and `_keep` holds it as long as any copy lives.
unsafe impl Send for Ring {}
// SAFETY: as above; a shared ring gives access to atomics only.
unsafe impl Sync for Ring {}

impl Ring {
    /// A ring of `count` lines, at least 2, in memory that `keep` holds.
    ///
    /// # Safety
    /// `control` and `count` lines from `lines` on must be valid, aligned and written by nothing but atomics
    /// as long as `keep` lives.
    pub(crate) unsafe fn new(
        control: NonNull<Control>,
        lines: NonNull<Line>,
        count: u32,
        keep: Arc<dyn Any + Send + Sync>,
    ) -> Ring {
        Ring { control, lines, count, _keep: keep }
    }

    #[inline]
    pub(crate) fn control(&self) -> &Control {
        // SAFETY: valid as `new` was promised, and held by `_keep`.
        unsafe { self.control.as_ref() }
    }

    /// Whether the consumer has closed the ring and will not read any more.
    #[inline]
    pub(crate) fn consumer_closed(&self) -> bool {
        // Acquire: pairs with the Release in `Consumer::close`.
        self.control().consumer.closed.load(Ordering::Acquire) != 0
    }

    /// Whether the producer has closed the ring, so that nothing follows the published lines.
    #[inline]
    pub(crate) fn producer_closed(&self) -> bool {
        // Acquire: pairs with the Release in `Producer::close`; every line is visible after it.
        self.control().producer.closed.load(Ordering::Acquire) != 0
    }

    /// The number of lines.
    #[inline]
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// The number of lines that the consumer reads before it gives their room back.
    #[inline]
    pub(crate) fn quarter(&self) -> u32 {
        (self.count / 4).max(1)
    }

    /// The number of lines that certainly have room at once, after the consumer has read all: it keeps less than a quarter
    /// back.
    #[inline]
    pub(crate) fn sure(&self) -> u32 {
        self.count - self.quarter() + 1
    }

    /// The line at `slot`, below `count`.
    #[inline]
    pub(crate) fn line(&self, slot: u32) -> &Line {
        assert!(slot < self.count, "a slot outside the ring");
        // SAFETY: inside the lines, which are valid as `new` was promised.
        unsafe { self.lines.add(slot as usize).as_ref() }
    }
}

/// Rings on the heap, for one process: used by the model checker and by tests.
#[cfg(any(test, loom))]
pub(crate) mod heap {
    use super::*;

    struct Heap {
        control: Control,
        lines: Vec<Line>,
    }

    fn side() -> Side {
        Side { bell: Bell::new(), attached: AtomicU32::new(0), closed: AtomicU32::new(0) }
    }

    pub(crate) fn ring(count: u32) -> Ring {
        let identity = Identity {
            magic: AtomicU64::new(0),
            version: AtomicU32::new(0),
            lines: AtomicU32::new(0),
            longest: AtomicU64::new(0),
        };
        let credit = Credit { consumed: AtomicU32::new(0) };
        let control = Control { identity, producer: side(), consumer: side(), credit };
        let heap = Arc::new(Heap { control, lines: (0..count).map(|_| Line::new()).collect() });
        let lines = NonNull::from(heap.lines.as_slice()).cast();
        // SAFETY: both parts are the heap's, which the ring holds.
        unsafe { Ring::new(NonNull::from(&heap.control), lines, count, heap.clone()) }
    }
}
