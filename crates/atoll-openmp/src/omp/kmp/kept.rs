//! What this layer keeps of each thread, beside what the runtime keeps.
//!
//! `team` holds both structures: [`Present`] changes with the region that a thread is in, [`Kept`] stays.

use super::doacross::Nest;
use std::cell::{Cell, UnsafeCell};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI32, Ordering};

/// Of the constructs that a thread is in.
#[derive(Clone, Copy)]
pub(crate) struct Present {
    /// The loop that is dealt out takes turns.
    pub(super) ordered: bool,
    /// How the reduction goes that has begun.
    pub(super) reducing: Reducing,
    /// The nest of loops whose iterations wait for each other, or null.
    pub(super) nest: *const Nest,
}

/// How a reduction goes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Reducing {
    /// By nobody else, or by atomic operations.
    Freely,
    /// By one thread after the other.
    InTurn,
}

impl Present {
    pub(crate) const NOTHING: Present =
        Present { ordered: false, reducing: Reducing::Freely, nest: std::ptr::null() };
}

/// What the next region, or the next league of teams, is to have: 0 where nobody said.
#[derive(Clone, Copy, Default)]
pub(super) struct Pushed {
    pub(super) threads: u32,
    pub(super) bind: u32,
    pub(super) teams: u32,
    pub(super) thread_limit: u32,
}

static THREADS: AtomicI32 = AtomicI32::new(0);

/// Threads that there have been.
pub(super) fn threads() -> i32 {
    THREADS.load(Ordering::Relaxed)
}

/// Of a thread.
pub(crate) struct Kept {
    /// The thread's number among all of this process tree: `__kmpc_global_thread_num`.
    number: i32,
    pub(super) pushed: Cell<Pushed>,
    /// Its copies of variables, by the addresses of the originals; only its own thread uses them.
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

    /// Changes what the next region is to have.
    pub(super) fn push(&self, change: impl FnOnce(&mut Pushed)) {
        let mut pushed = self.pushed.get();
        change(&mut pushed);
        self.pushed.set(pushed);
    }
}
