//! Work shares: the data of one work-sharing construct that a team's members share.
//!
//! Work shares form a list along which each member moves at its own pace, so any number may be in use at once (`nowait`).
//! `loops`, `sections`, `ordered` and `doacross` fill and use them.

use super::doacross::Doacross;
use super::loops::Plan;
use super::stealing::Blocks;
use super::team::{Team, Thread};
use atoll_memory::futex::Lock;
use std::cell::{Cell, UnsafeCell};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// One work-sharing construct that is being executed.
#[repr(align(64))]
pub(crate) struct WorkShare {
    /// The construct after this one; set once, by the member that gets there first.
    next: AtomicPtr<WorkShare>,
    // The fields from here on are set before the share is published, and constant after that.
    pub(crate) plan: Cell<Plan>,
    pub(crate) reductions: Cell<*mut usize>,
    /// Zeroed memory that the compiler asked for.
    pub(crate) memory: UnsafeCell<Vec<u64>>,
    pub(crate) doacross: UnsafeCell<Option<Box<Doacross>>>,
    /// What is left of a loop whose chunks may come in any order.
    pub(crate) blocks: UnsafeCell<Blocks>,
    pub(crate) cursor: Cursor,
    /// The number of members that have gone on to the next construct.
    passed: AtomicU32,
    /// The number of such constructs before this one in the region, which is the same on all nodes.
    pub(crate) number: Cell<u64>,
    /// For a team over several nodes: iterations that this node has taken and not yet dealt out.
    pub(crate) batch: Lock<(u64, u64)>,
}

/// The words that members contend for, on a cache line of their own.
#[repr(align(64))]
pub(crate) struct Cursor {
    /// The number of iterations given out.
    pub(crate) next: AtomicU64,
    /// The number of the iteration whose ordered region may run.
    pub(crate) ordered: AtomicU64,
}

// SAFETY: cells are written before the share is published and only read after; the rest is atomic.
unsafe impl Sync for WorkShare {}

impl WorkShare {
    /// Allocates a share, which is never freed but may be recycled.
    pub(crate) fn allocate() -> *mut WorkShare {
        Box::into_raw(Box::new(WorkShare {
            next: AtomicPtr::new(ptr::null_mut()),
            plan: Cell::new(Plan::empty()),
            reductions: Cell::new(ptr::null_mut()),
            memory: UnsafeCell::new(Vec::new()),
            doacross: UnsafeCell::new(None),
            blocks: UnsafeCell::new(Blocks::none()),
            cursor: Cursor { next: AtomicU64::new(0), ordered: AtomicU64::new(0) },
            passed: AtomicU32::new(0),
            number: Cell::new(0),
            batch: Lock::new((0, 0)),
        }))
    }

    /// Sets the share back to its initial state. Called only while no other member can reach it.
    pub(crate) fn rewind(&self) {
        self.next.store(ptr::null_mut(), Ordering::Relaxed);
        self.passed.store(0, Ordering::Relaxed);
        self.number.set(0);
        *self.batch.lock() = (0, 0);
        self.cursor.next.store(0, Ordering::Relaxed);
        self.cursor.ordered.store(0, Ordering::Relaxed);
        self.reductions.set(ptr::null_mut());
        // SAFETY: no other thread can reach the share.
        unsafe {
            (*self.memory.get()).clear();
            *self.doacross.get() = None;
        }
    }

    /// Reserves `bytes` of zeroed memory for the construct, before the share is published.
    pub(crate) fn reserve(&self, bytes: usize) {
        // SAFETY: the share is not published yet.
        unsafe { (*self.memory.get()).resize(bytes.div_ceil(8), 0) };
    }

    /// The memory reserved, which all members use.
    pub(crate) fn memory(&self) -> *mut u8 {
        // SAFETY: the vector itself is not changed any more; its contents are the program's.
        unsafe { (*self.memory.get()).as_ptr().cast_mut().cast() }
    }
}

fn take_share(team: &Team) -> *mut WorkShare {
    for slot in &team.sharing.free {
        if slot.load(Ordering::Relaxed).is_null() {
            continue;
        }
        // Other side: the exchange in `give_share`.
        let share = slot.swap(ptr::null_mut(), Ordering::Acquire);
        if !share.is_null() {
            return share;
        }
    }
    WorkShare::allocate()
}

fn give_share(team: &Team, share: *mut WorkShare) {
    // SAFETY: the giver is the last that could reach the share.
    unsafe { &*share }.rewind();
    for slot in &team.sharing.free {
        let given = slot.compare_exchange(ptr::null_mut(), share, Ordering::Release, Ordering::Relaxed);
        if given.is_ok() {
            return;
        }
    }
    // SAFETY: from `allocate`, and unreachable for others.
    drop(unsafe { Box::from_raw(share) });
}

/// Moves the calling member to its next work-sharing construct. The first member to come fills the share with `fill` before any
/// other sees it; two that race both fill one, and one share is thrown away (`spill` undoes what `fill` did elsewhere). Returns
/// the share, and true where it is the one the caller filled.
pub(crate) fn meet(
    thread: &Thread,
    team: &Team,
    fill: impl FnOnce(&WorkShare),
    spill: impl FnOnce(&WorkShare),
) -> (&'static WorkShare, bool) {
    // SAFETY: the share met last stays until this member has passed it, below.
    let last = unsafe { &*thread.state.get().share };
    let mut share = last.next.load(Ordering::Acquire);
    let mut first = false;
    if share.is_null() {
        let own = take_share(team);
        // SAFETY: no other thread can reach the share yet.
        unsafe {
            (*own).number.set(last.number.get() + 1);
            fill(&*own);
        }
        // Other side: the load above, and this exchange in other members.
        match last.next.compare_exchange(ptr::null_mut(), own, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => {
                share = own;
                first = true;
            }
            Err(other) => {
                // SAFETY: the share is still this thread's alone.
                spill(unsafe { &*own });
                give_share(team, own);
                share = other;
            }
        }
    }
    // Other side: this addition in the other members; the last to pass recycles.
    if last.passed.fetch_add(1, Ordering::AcqRel) + 1 == team.size.get() {
        give_share(team, ptr::from_ref(last).cast_mut());
    }
    thread.update(|state| {
        state.share = share;
        state.trip = 0;
    });
    // SAFETY: the share stays until all members, this one among them, have passed it.
    (unsafe { &*share }, first)
}

/// The share of the construct that the thread is in.
#[inline]
pub(crate) fn current(thread: &Thread) -> &'static WorkShare {
    // SAFETY: the share stays until this member has passed it.
    unsafe { &*thread.state.get().share }
}

/// Makes the share met last the first one of the team's next region. Only the leader calls this, after the join. All members
/// are at that share, unless the region was cancelled: then the shares between are recycled.
pub(crate) fn close(team: &Team) {
    let size = team.size.get() as usize;
    let follower = |share: *const WorkShare| {
        // SAFETY: a share that a member is at, or one after it, is not recycled.
        unsafe { &*share }.next.load(Ordering::Acquire).cast_const()
    };
    let mut slowest: *const WorkShare = ptr::null();
    let mut most = 0;
    let places = team.members[..size].iter().map(|member| member.last_share.load(Ordering::Relaxed));
    for place in places {
        let mut length = 1;
        let mut at = follower(place);
        while !at.is_null() {
            length += 1;
            at = follower(at);
        }
        if length > most {
            (slowest, most) = (place.cast_const(), length);
        }
    }
    let mut last = slowest;
    loop {
        let next = follower(last);
        if next.is_null() {
            break;
        }
        give_share(team, last.cast_mut());
        last = next;
    }
    team.sharing.first.set(last);
}
