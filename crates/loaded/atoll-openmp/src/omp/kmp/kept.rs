//! The state that this layer keeps for each thread, beside the runtime's own.
//!
//! `team` holds both structures: [`Present`] changes with the region that a thread is in, [`Kept`] stays.

use super::doacross::Nest;
use std::cell::{Cell, UnsafeCell};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI32, Ordering};

/// The state of the constructs that a thread is in.
#[derive(Clone, Copy)]
pub(crate) struct Present {
    /// Whether ordered regions of the loop that is dealt out take turns.
    pub(super) ordered: bool,
    /// The kind of the reduction that has begun.
    pub(super) reducing: Reducing,
    /// The nest of loops whose iterations wait for each other, or null.
    pub(super) nest: *const Nest,
}

/// The way in which a reduction combines the threads' results.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Reducing {
    /// By this thread alone, or by atomic operations.
    Freely,
    /// By one thread after the other, under a lock.
    InTurn,
}

impl Present {
    pub(crate) const NOTHING: Present =
        Present { ordered: false, reducing: Reducing::Freely, nest: std::ptr::null() };
}

/// The settings of the program for the next region, or the next league of teams; 0 where it set nothing.
#[derive(Clone, Copy, Default)]
pub(super) struct Pushed {
    pub(super) threads: u32,
    pub(super) bind: u32,
    pub(super) teams: u32,
    pub(super) thread_limit: u32,
}

static THREADS: AtomicI32 = AtomicI32::new(0);

/// The number of threads that ever existed.
pub(super) fn threads() -> i32 {
    THREADS.load(Ordering::Relaxed)
}

/// The state of a thread that stays from region to region.
pub(crate) struct Kept {
    /// The thread's number among all threads of the program: `__kmpc_global_thread_num`.
    number: i32,
    pub(super) pushed: Cell<Pushed>,
    /// The thread's copies of variables, by the addresses of the originals; only the thread itself uses them.
    pub(super) copies: UnsafeCell<BTreeMap<usize, usize>>,
}

impl Kept {
    pub(crate) fn new() -> Kept {
        let number = THREADS.fetch_add(1, Ordering::Relaxed);
        Kept { number, pushed: Cell::new(Pushed::default()), copies: UnsafeCell::new(BTreeMap::new()) }
    }

    #[inline]
    pub(super) fn number(&self) -> i32 {
        self.number
    }

    /// Changes the settings for the next region.
    pub(super) fn push(&self, change: impl FnOnce(&mut Pushed)) {
        let mut pushed = self.pushed.get();
        change(&mut pushed);
        self.pushed.set(pushed);
    }
}
