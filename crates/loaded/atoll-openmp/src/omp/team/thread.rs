//! A thread's descriptor: which team it works in, and as which member.
//!
//! `crew` starts workers with descriptors; a thread that the runtime did not start gets one at its first call.

use super::super::crew::Worker;
use super::super::env;
use super::super::icv::Icv;
use super::super::kmp;
use super::super::task::{Blocks, Task};
use super::super::workshare::WorkShare;
use super::Team;
use crate::start::own_threads;
use crate::state;
use atoll_libgomp::{set_thread_word, thread_word};
use atoll_memory::futex::Lock;
use std::cell::{Cell, UnsafeCell};
use std::ptr;

/// A thread's place in its team, which a region saves on entry and restores at its end.
#[derive(Clone, Copy)]
pub(crate) struct State {
    pub(crate) team: *const Team,
    /// `omp_get_thread_num`.
    pub(crate) id: u32,
    pub(crate) task: *const Task,
    /// The work share of the construct that the thread met last.
    pub(crate) share: *const WorkShare,
    /// The number of `single` constructs met in this region.
    pub(crate) singles: u64,
    /// The number of chunks taken of the present static loop.
    pub(crate) trip: u64,
    /// The iterations of an ordered loop this thread has at present.
    pub(crate) chunk: (u64, u64),
    /// The state of `kmp` for the constructs that the thread is in.
    pub(crate) kmp: kmp::Present,
}

/// A thread as OpenMP sees it: the program's first thread, a worker, or a thread the program made itself.
/// Never freed.
pub(crate) struct Thread {
    pub(crate) state: Cell<State>,
    /// The team this thread led last, kept for its next region.
    pub(crate) spare: Cell<*const Team>,
    /// The workers that served as thread 1, 2, … of this thread's regions, which are asked first again.
    pub(crate) mates: UnsafeCell<Vec<*const Worker>>,
    /// Whether the thread executes the rest of a region's tasks, after `hooks::region_leave`.
    pub(crate) leaving: Cell<bool>,
    /// The place this thread is bound to, from 0; -1 for none.
    pub(crate) place: Cell<i32>,
    /// Whether this is the program's first thread.
    pub(crate) first: bool,
    /// Whether no other process sees this thread's stack, so that its regions have no other member.
    pub(crate) alone: bool,
    /// The end of the stack on which a worker executes regions whose tasks travel; 0: it has none yet.
    pub(crate) paged_stack: Cell<usize>,
    /// Memory of tasks that ended, for the thread's next ones.
    pub(crate) blocks: Blocks,
    /// The state of `kmp` for the thread.
    pub(crate) kmp: kmp::Kept,
}

/// The address of the calling thread's descriptor, null if it has none yet. `me.c` defines the variable: Rust has no name for
/// the model of thread-local storage that makes no call.
#[inline]
fn mine() -> *const Thread {
    // SAFETY: `me.c` defines the word.
    unsafe { thread_word!("atoll_me") as *const Thread }
}

/// Whether the calling thread is in a region of more than one thread.
pub(crate) fn in_region() -> bool {
    // SAFETY: teams are never freed.
    known().is_some_and(|me| unsafe { (*me.state.get().team).nesting.active_level.get() > 0 })
}

/// The calling thread's descriptor.
#[inline]
pub(crate) fn me() -> &'static Thread {
    // SAFETY: descriptors are never freed.
    unsafe { mine().as_ref() }.unwrap_or_else(introduce)
}

/// The calling thread's descriptor, if it has one.
#[inline]
pub(crate) fn known() -> Option<&'static Thread> {
    // SAFETY: descriptors are never freed.
    unsafe { mine().as_ref() }
}

/// Descriptors of those threads of the program that have ended.
static SPARE_THREADS: Lock<Vec<&'static Thread>> = Lock::new(Vec::new());

/// Makes the descriptor of a thread that the runtime did not start.
#[cold]
fn introduce() -> &'static Thread {
    env::init();
    crate::start::unmanaged::uses_openmp();
    let own = own_threads::is_own();
    let spare = if own { SPARE_THREADS.lock().pop() } else { None };
    let thread = spare.unwrap_or_else(|| {
        let first = state::is_first_thread();
        // The thread that leads another node's part of regions is a worker.
        let alone = !state::is_worker() && !own && state::are_workers_processes();
        let thread = Thread::new(first, alone);
        thread.state.set(State { team: Team::with_capacity(1), ..thread.state.get() });
        thread
    });
    adopt(thread);
    let team = thread.team();
    team.settle(1, env::initial_icv());
    thread.state.set(team.state_of(0));
    own_threads::note_openmp(ptr::from_ref(thread) as usize);
    thread
}

/// Keeps the descriptor at this address for another thread, as its thread has ended; 0 means none.
pub(crate) fn retire(descriptor: usize) {
    // SAFETY: descriptors are never freed.
    let Some(thread) = (unsafe { (descriptor as *const Thread).as_ref() }) else { return };
    // A thread that ended inside a region left a team that waits for it.
    if thread.team().nesting.level.get() == 0 {
        SPARE_THREADS.lock().push(thread);
    }
}

/// Makes `thread` the descriptor of the calling thread.
pub(crate) fn adopt(thread: &'static Thread) {
    // SAFETY: `me.c` defines the word.
    unsafe { set_thread_word!("atoll_me", ptr::from_ref(thread) as usize) };
}

impl Thread {
    pub(crate) fn new(first: bool, alone: bool) -> &'static Thread {
        Box::leak(Box::new(Thread {
            state: Cell::new(State {
                team: ptr::null(),
                id: 0,
                task: ptr::null(),
                share: ptr::null(),
                singles: 0,
                trip: 0,
                chunk: (0, 0),
                kmp: kmp::Present::NOTHING,
            }),
            spare: Cell::new(ptr::null()),
            mates: UnsafeCell::new(Vec::new()),
            leaving: Cell::new(false),
            place: Cell::new(-1),
            first,
            alone,
            paged_stack: Cell::new(0),
            blocks: Blocks::new(),
            kmp: kmp::Kept::new(),
        }))
    }

    #[inline]
    pub(crate) fn team(&self) -> &'static Team {
        // SAFETY: teams are never freed, and every thread has one from its introduction on.
        unsafe { &*self.state.get().team }
    }

    #[inline]
    pub(crate) fn id(&self) -> u32 {
        self.state.get().id
    }

    /// The thread's number in the whole team: `omp_get_thread_num`.
    #[inline]
    pub(crate) fn number(&self) -> u32 {
        self.id() + self.team().span.get().first
    }

    /// The task that the thread executes. It lives at least as long as the thread executes it.
    #[inline]
    pub(crate) fn task(&self) -> &'static Task {
        // SAFETY: a thread's current task is alive; callers keep the reference no longer than it is current.
        unsafe { &*self.state.get().task }
    }

    #[inline]
    pub(crate) fn set_task(&self, task: &Task) {
        // SAFETY: only this thread uses its state, and no reference to it is kept anywhere.
        unsafe { (*self.state.as_ptr()).task = task };
    }

    /// The control variables of the current task.
    #[inline]
    pub(crate) fn icv(&self) -> Icv {
        self.task().icv.get()
    }

    /// Changes the control variables of the current task.
    pub(crate) fn set_icv(&self, change: impl FnOnce(&mut Icv)) {
        let mut icv = self.icv();
        change(&mut icv);
        self.task().icv.set(icv);
    }

    #[inline]
    pub(crate) fn update(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state.get();
        change(&mut state);
        self.state.set(state);
    }
}
