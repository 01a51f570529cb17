//! The structures of the runtime: a thread's descriptor and the team it works in.
//!
//! `crew` fills teams with workers, `parallel` opens and closes them; all other files work on what is here.

use super::barrier::Barrier;
use super::crew::Worker;
use super::env;
use super::icv::Icv;
use super::task::{Group, Task};
use super::workshare::WorkShare;
use crate::futex::{Gate, Lock};
use std::cell::{Cell, UnsafeCell};
use std::collections::{BTreeMap, VecDeque};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// An outlined function of the program.
pub(crate) type Function = extern "C" fn(*mut u8);

/// Where in its team a thread is: what a region saves on entry and restores at its end.
#[derive(Clone, Copy)]
pub(crate) struct State {
    pub(crate) team: *const Team,
    /// `omp_get_thread_num`.
    pub(crate) id: u32,
    pub(crate) task: *const Task,
    /// The work share of the construct met last.
    pub(crate) share: *const WorkShare,
    /// `single` constructs met in this region.
    pub(crate) singles: u64,
    /// Chunks of the present static loop taken.
    pub(crate) trip: u64,
    /// The iterations of an ordered loop this thread has at present.
    pub(crate) chunk: (u64, u64),
}

/// A thread as OpenMP sees it: the program's first thread, a worker, or a thread the program made itself.
/// Never freed.
pub(crate) struct Thread {
    pub(crate) state: Cell<State>,
    /// The team this thread led last, kept for its next region.
    pub(crate) spare: Cell<*const Team>,
    /// Workers that served as thread 1, 2, … of this thread's regions: asked again first.
    pub(crate) mates: UnsafeCell<Vec<*const Worker>>,
    /// Runs the rest of a region's tasks after `hooks::region_leave`.
    pub(crate) leaving: Cell<bool>,
    /// The place this thread is bound to, from 0; -1 for none.
    pub(crate) place: Cell<i32>,
    /// Is this the program's first thread?
    pub(crate) first: bool,
}

thread_local! {
    static ME: Cell<*const Thread> = const { Cell::new(ptr::null()) };
}

/// The calling thread's descriptor.
#[inline]
pub(crate) fn me() -> &'static Thread {
    let me = ME.get();
    if me.is_null() {
        return introduce();
    }
    // SAFETY: descriptors are never freed.
    unsafe { &*me }
}

/// Makes the descriptor of a thread that we did not start.
#[cold]
fn introduce() -> &'static Thread {
    static SEEN: AtomicBool = AtomicBool::new(false);
    env::init();
    let thread = Thread::new(!SEEN.swap(true, Ordering::Relaxed));
    adopt(thread);
    let team = Team::with_capacity(1);
    team.settle(1, env::initial_icv());
    thread.state.set(team.state_of(0));
    thread
}

/// Makes `thread` the descriptor of the calling thread.
pub(crate) fn adopt(thread: &'static Thread) {
    ME.set(thread);
}

impl Thread {
    pub(crate) fn new(first: bool) -> &'static Thread {
        Box::leak(Box::new(Thread {
            state: Cell::new(State {
                team: ptr::null(),
                id: 0,
                task: ptr::null(),
                share: ptr::null(),
                singles: 0,
                trip: 0,
                chunk: (0, 0),
            }),
            spare: Cell::new(ptr::null()),
            mates: UnsafeCell::new(Vec::new()),
            leaving: Cell::new(false),
            place: Cell::new(-1),
            first,
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

    /// Its number in the whole team: `omp_get_thread_num`.
    #[inline]
    pub(crate) fn number(&self) -> u32 {
        self.id() + self.team().span.get().first
    }

    /// The task the thread executes. It lives at least as long as the thread does so.
    #[inline]
    pub(crate) fn task(&self) -> &'static Task {
        // SAFETY: a thread's current task is alive; callers keep the reference no longer than it is current.
        unsafe { &*self.state.get().task }
    }

    #[inline]
    pub(crate) fn set_task(&self, task: &Task) {
        self.update(|state| state.task = task);
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

/// One thread's part of a team.
#[repr(align(64))]
pub(crate) struct Member {
    /// The implicit task.
    pub(crate) task: Task,
    /// Tasks this member made that nobody has begun.
    pub(crate) queue: Lock<VecDeque<*const Task>>,
    /// The work share the member met last in the region; for the leader, after the join.
    pub(crate) last_share: AtomicPtr<WorkShare>,
}

/// A team's size: as the cells beside it, but a member late to leave the last region may read it at any time.
pub(crate) struct Size(AtomicU32);

impl Size {
    #[inline]
    pub(crate) fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    fn set(&self, size: u32) {
        self.0.store(size, Ordering::Relaxed);
    }
}

/// A team's part of a larger one, whose other parts are on other nodes.
#[derive(Clone, Copy, Default)]
pub(crate) struct Span {
    /// The number that this part's first thread has in the whole.
    pub(crate) first: u32,
    /// Threads of the whole. 0: this team is all.
    pub(crate) threads: u32,
}

/// The threads that execute a region together, and all they share. Never freed, but used again: a member that
/// is slow to leave the last barrier still reads it.
pub(crate) struct Team {
    // Set by the leader between regions, read by members; the leader's release of a worker (`crew::Worker::send`)
    // orders the two.
    pub(crate) size: Size,
    pub(crate) span: Cell<Span>,
    /// Where members return to from the barrier they are at, of a team over several nodes; 0: not told.
    pub(crate) site: AtomicUsize,
    pub(crate) level: Cell<u32>,
    pub(crate) active_level: Cell<u32>,
    /// The team that met the region, and as which of its threads.
    pub(crate) parent: Cell<*const Team>,
    pub(crate) parent_id: Cell<u32>,
    pub(crate) function: Cell<Option<Function>>,
    pub(crate) data: Cell<*mut u8>,
    pub(crate) call_site: Cell<usize>,
    pub(crate) icv: Cell<Icv>,
    /// `omp_get_num_teams` and `omp_get_team_num`.
    pub(crate) teams: Cell<(u32, u32)>,
    /// The binding policy, and the leader's place when the region began.
    pub(crate) bind: Cell<u8>,
    pub(crate) leader_place: Cell<i32>,
    /// The task group of the region's reductions.
    pub(crate) group: Cell<*const Group>,
    /// The leader's state outside of the region; leader only.
    pub(crate) outside: Cell<Option<State>>,
    /// The workers that are members 1, 2, …; leader only.
    pub(crate) crew: UnsafeCell<Vec<*const Worker>>,
    pub(crate) members: Box<[Member]>,

    // Shared during the region.
    pub(crate) barrier: Barrier,
    pub(crate) join: Barrier,
    /// Where members wait, for whatever it be.
    pub(crate) gate: Gate,
    pub(crate) singles: AtomicU64,
    pub(crate) copy_private: AtomicPtr<u8>,
    pub(crate) cancelled: AtomicBool,
    /// One more than the barrier generation whose work-sharing construct is cancelled.
    pub(crate) share_cancelled: AtomicU64,
    /// Deferred tasks not yet complete, and those that wait in queues.
    pub(crate) pending: AtomicU32,
    pub(crate) queued: AtomicU32,
    /// Counts events that may concern somebody waiting in a task.
    pub(crate) events: AtomicU32,
    /// Tasks with a priority, first the highest, then the oldest; and how many there are.
    pub(crate) urgent: Lock<BTreeMap<(i32, u64), *const Task>>,
    pub(crate) urgent_count: AtomicU32,
    pub(crate) urgent_serial: AtomicU64,
    /// The region's first work share, already past for all members unless a combined construct filled it.
    pub(crate) first_share: Cell<*const WorkShare>,
    pub(crate) free_shares: [AtomicPtr<WorkShare>; 8],
}

// SAFETY: cells are written by the leader only while no member runs (see the field groups above); the rest is
// atomic or locked.
unsafe impl Sync for Team {}

/// Teams no leader has at present.
static SPARE_TEAMS: Lock<Vec<&'static Team>> = Lock::new(Vec::new());

impl Team {
    /// A team that can have up to `capacity` members.
    pub(crate) fn with_capacity(capacity: usize) -> &'static Team {
        let members = (0..capacity)
            .map(|_| Member {
                task: Task::implicit(),
                queue: Lock::new(VecDeque::new()),
                last_share: AtomicPtr::new(ptr::null_mut()),
            })
            .collect::<Vec<_>>();
        let team: &'static Team = Box::leak(Box::new(Team {
            size: Size(AtomicU32::new(1)),
            span: Cell::new(Span { first: 0, threads: 0 }),
            site: AtomicUsize::new(0),
            level: Cell::new(0),
            active_level: Cell::new(0),
            parent: Cell::new(ptr::null()),
            parent_id: Cell::new(0),
            function: Cell::new(None),
            data: Cell::new(ptr::null_mut()),
            call_site: Cell::new(0),
            icv: Cell::new(Icv::initial(1)),
            teams: Cell::new((1, 0)),
            bind: Cell::new(0),
            leader_place: Cell::new(-1),
            group: Cell::new(ptr::null()),
            outside: Cell::new(None),
            crew: UnsafeCell::new(Vec::with_capacity(capacity)),
            members: members.into_boxed_slice(),
            barrier: Barrier::new(),
            join: Barrier::new(),
            gate: Gate::new(),
            singles: AtomicU64::new(0),
            copy_private: AtomicPtr::new(ptr::null_mut()),
            cancelled: AtomicBool::new(false),
            share_cancelled: AtomicU64::new(0),
            pending: AtomicU32::new(0),
            queued: AtomicU32::new(0),
            events: AtomicU32::new(0),
            urgent: Lock::new(BTreeMap::new()),
            urgent_count: AtomicU32::new(0),
            urgent_serial: AtomicU64::new(0),
            first_share: Cell::new(WorkShare::allocate()),
            free_shares: [const { AtomicPtr::new(ptr::null_mut()) }; 8],
        }));
        team
    }

    /// A team for `size` members, led by `leader`: its spare one, another's, or a new one.
    pub(crate) fn obtain(leader: &Thread, size: usize) -> &'static Team {
        let team = Team::obtain_used(leader, size);
        // It may have been a part of a larger one in its last region.
        team.span.set(Span::default());
        team
    }

    fn obtain_used(leader: &Thread, size: usize) -> &'static Team {
        let spare = leader.spare.replace(ptr::null());
        // SAFETY: teams are never freed.
        if let Some(team) = unsafe { spare.as_ref() } {
            if team.members.len() >= size {
                return team;
            }
            SPARE_TEAMS.lock().push(team);
        }
        let mut spares = SPARE_TEAMS.lock();
        match spares.iter().position(|team| team.members.len() >= size) {
            Some(at) => spares.swap_remove(at),
            None => Team::with_capacity(size),
        }
    }

    /// Is it a part of a team over several nodes?
    #[inline]
    pub(crate) fn spans(&self) -> bool {
        self.span.get().threads != 0
    }

    /// Threads of the whole team: `omp_get_num_threads`.
    #[inline]
    pub(crate) fn threads(&self) -> u32 {
        match self.span.get().threads {
            0 => self.size.get(),
            threads => threads,
        }
    }

    /// The leader's region is over: keeps the team for its next, or somebody else's.
    pub(crate) fn put_back(&'static self, leader: &Thread) {
        let other = leader.spare.replace(self);
        // SAFETY: teams are never freed.
        if let Some(other) = unsafe { other.as_ref() } {
            SPARE_TEAMS.lock().push(other);
        }
    }

    /// Prepares for a region of `size` members. Leader only, while no other member runs.
    pub(crate) fn settle(&self, size: u32, icv: Icv) {
        self.size.set(size);
        self.icv.set(icv);
        self.group.set(ptr::null());
        self.barrier.restart();
        self.join.restart();
        self.singles.store(0, Ordering::Relaxed);
        self.share_cancelled.store(0, Ordering::Relaxed);
        // SAFETY: the first share is this team's, and nobody else uses it between regions.
        unsafe { &*self.first_share.get() }.rewind();
    }

    /// What member `id` starts a region with.
    pub(crate) fn state_of(&self, id: u32) -> State {
        let task = &self.members[id as usize].task;
        task.begin_implicit(self.icv.get(), self.group.get());
        State { team: self, id, task, share: self.first_share.get(), singles: 0, trip: 0, chunk: (0, 0) }
    }

    #[inline]
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    /// Something happened that a member waiting in a task may wait for.
    pub(crate) fn announce(&self) {
        self.events.fetch_add(1, Ordering::Release);
        self.gate.notify();
    }

    /// The ancestor of this team at nesting `level`, and the number its thread had there that led to `id` here: in the whole
    /// team, where it is a part of one.
    pub(crate) fn ancestor(&self, id: u32, level: i32) -> Option<(&Team, u32)> {
        let mut at = (self, id);
        if level < 0 || level as u32 > self.level.get() {
            return None;
        }
        while at.0.level.get() > level as u32 {
            // SAFETY: a team above level 0 has a parent, and teams are never freed.
            at = (unsafe { &*at.0.parent.get() }, at.0.parent_id.get());
        }
        Some((at.0, at.1 + at.0.span.get().first))
    }
}
