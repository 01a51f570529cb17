//! The structures of the runtime: a thread's descriptor and the team it works in.
//!
//! `crew` fills teams with workers, `parallel` opens and closes them; all other files work on these structures.

use super::barrier::Barrier;
use super::contention::Contention;
use super::crew::Worker;
use super::env;
use super::icv::Icv;
use super::kmp;
use super::spread::division::Share;
use super::task::{Group, Task};
use super::workshare::WorkShare;
use crate::start::own_threads;
use crate::state;
use atoll_memory::futex::{Gate, Lock};
use atoll_memory::region_counts::Key;
use std::cell::{Cell, UnsafeCell};
use std::collections::{BTreeMap, VecDeque};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// An outlined function of the program.
pub(crate) type Function = extern "C" fn(*mut u8);

/// The code that each member of a region executes.
#[derive(Clone, Copy)]
pub(crate) struct Body {
    pub(crate) function: Function,
    pub(crate) data: *mut u8,
    /// The program's own function, which tells the region apart: `function` itself, or a function that it calls.
    pub(crate) outlined: usize,
}

impl Body {
    /// A body that is the program's function itself.
    pub(crate) fn plain(function: Function, data: *mut u8) -> Body {
        Body { function, data, outlined: function as usize }
    }
}

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
    /// The state of `kmp` for the thread.
    pub(crate) kmp: kmp::Kept,
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
    if thread.team().level.get() == 0 {
        SPARE_THREADS.lock().push(thread);
    }
}

/// Makes `thread` the descriptor of the calling thread.
pub(crate) fn adopt(thread: &'static Thread) {
    ME.set(thread);
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
    /// The member's implicit task.
    pub(crate) task: Task,
    /// Tasks that this member made and no thread has begun.
    pub(crate) queue: Lock<VecDeque<*const Task>>,
    /// The work share that the member met last in the region; for the leader, after the join.
    pub(crate) last_share: AtomicPtr<WorkShare>,
}

/// A team's size. It is set like the cells beside it, but a member late to leave the last region may read it at any time.
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

/// A team that is one node's part of a larger one, whose other parts are on other nodes.
#[derive(Clone, Copy, Default)]
pub(crate) struct Span {
    /// The number that this part's first thread has in the whole team.
    pub(crate) first: u32,
    /// The number of threads of the whole team; 0 if this team is the whole.
    pub(crate) threads: u32,
    /// This part's share where the runtime deals out blocks of iterations.
    pub(crate) iterations: Share,
    /// Whether the first thread of any node that comes to a `single` executes it, instead of the origin's first.
    pub(crate) first_come: bool,
    /// Whether the region is being measured.
    pub(crate) measured: bool,
}

impl Span {
    /// One node's part of a region.
    pub(crate) fn part(threads: Share, iterations: Share, first_come: bool) -> Span {
        Span { first: threads.first, threads: threads.of, iterations, first_come, measured: true }
    }
}

/// The threads that execute a region together, and all that they share. A team is never freed, only used again, as a member
/// that is slow to leave the last barrier still reads it.
pub(crate) struct Team {
    // The fields from here on are set by the leader between regions and read by members; the leader's release of a worker
    // (`crew::Worker::send`) orders the two.
    pub(crate) size: Size,
    pub(crate) span: Cell<Span>,
    /// For a team over several nodes, the address to which members return from the barrier they are at; 0 if unknown.
    pub(crate) site: AtomicUsize,
    pub(crate) level: Cell<u32>,
    pub(crate) active_level: Cell<u32>,
    /// Whether the team is within a region though its level is 0, as that of a `target` construct may be.
    pub(crate) within: Cell<bool>,
    /// The contention group of the team's threads; null if it is this team's own, whose leader is an initial thread.
    pub(crate) contention: Cell<*const Contention>,
    own_contention: Contention,
    /// The number of its threads that the group counts besides the leader.
    pub(crate) counted: Cell<u32>,
    /// The team that met the region, and the number of the thread of it that did.
    pub(crate) parent: Cell<*const Team>,
    pub(crate) parent_id: Cell<u32>,
    pub(crate) body: Cell<Option<Body>>,
    pub(crate) call_site: Cell<usize>,
    /// The region's extent, as `region_counts::Key::extent` defines it.
    pub(crate) extent: Cell<u64>,
    pub(crate) icv: Cell<Icv>,
    /// The values of `omp_get_num_teams` and `omp_get_team_num`.
    pub(crate) teams: Cell<(u32, u32)>,
    /// The binding policy, and the leader's place when the region began.
    pub(crate) bind: Cell<u8>,
    pub(crate) leader_place: Cell<i32>,
    /// The task group of the region's reductions.
    pub(crate) group: Cell<*const Group>,
    /// The leader's state outside the region; only the leader uses it.
    pub(crate) outside: Cell<Option<State>>,
    /// The workers that are members 1, 2, …; only the leader uses them.
    pub(crate) crew: UnsafeCell<Vec<*const Worker>>,
    pub(crate) members: Box<[Member]>,

    // The fields from here on are shared during the region.
    pub(crate) barrier: Barrier,
    pub(crate) join: Barrier,
    /// The gate at which members wait, for any reason.
    pub(crate) gate: Gate,
    pub(crate) singles: AtomicU64,
    pub(crate) copy_private: AtomicPtr<u8>,
    pub(crate) cancelled: AtomicBool,
    /// One more than the barrier generation whose work-sharing construct is cancelled.
    pub(crate) share_cancelled: AtomicU64,
    /// The number of deferred tasks that are not complete, and of those that wait in queues.
    pub(crate) pending: AtomicU32,
    pub(crate) queued: AtomicU32,
    /// The number of events so far that may concern a member waiting in a task.
    pub(crate) events: AtomicU32,
    /// Tasks with a priority, ordered by falling priority and then by age; and their number.
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

/// Teams that no leader has at present.
static SPARE_TEAMS: Lock<Vec<&'static Team>> = Lock::new(Vec::new());

impl Team {
    /// Makes a team of up to `capacity` members.
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
            span: Cell::new(Span::default()),
            site: AtomicUsize::new(0),
            level: Cell::new(0),
            active_level: Cell::new(0),
            within: Cell::new(false),
            contention: Cell::new(ptr::null()),
            own_contention: Contention::new(),
            counted: Cell::new(0),
            parent: Cell::new(ptr::null()),
            parent_id: Cell::new(0),
            body: Cell::new(None),
            call_site: Cell::new(0),
            extent: Cell::new(0),
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

    /// A team for `size` members, led by `leader`: the leader's spare one, another's, or a new one.
    pub(crate) fn obtain(leader: &Thread, size: usize) -> &'static Team {
        let team = Team::obtain_used(leader, size);
        // The team may have been a part of a larger one in its last region.
        team.span.set(Span::default());
        team.within.set(false);
        team.contention.set(ptr::null());
        team
    }

    /// The contention group of the team's threads.
    pub(crate) fn contention(&self) -> &Contention {
        // SAFETY: null, or that of an ancestor: teams are never freed.
        unsafe { self.contention.get().as_ref() }.unwrap_or(&self.own_contention)
    }

    /// Whether a thread of this team is in a region.
    pub(crate) fn is_within(&self) -> bool {
        self.level.get() > 0 || self.within.get()
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

    /// The key of the region that the team is in.
    pub(crate) fn key(&self) -> Key {
        let function = self.body.get().map_or(0, |body| body.outlined as u64);
        Key { function, call_site: self.call_site.get() as u64, extent: self.extent.get() }
    }

    /// Whether this is a part of a team over several nodes.
    #[inline]
    pub(crate) fn spans(&self) -> bool {
        self.span.get().threads != 0
    }

    /// The number of threads of the whole team: `omp_get_num_threads`.
    #[inline]
    pub(crate) fn threads(&self) -> u32 {
        match self.span.get().threads {
            0 => self.size.get(),
            threads => threads,
        }
    }

    /// Keeps the team for the leader's next region, or for another leader, at the end of a region.
    pub(crate) fn put_back(&'static self, leader: &Thread) {
        let other = leader.spare.replace(self);
        // SAFETY: teams are never freed.
        if let Some(other) = unsafe { other.as_ref() } {
            SPARE_TEAMS.lock().push(other);
        }
    }

    /// Prepares the team for a region of `size` members. Only the leader calls this, while no other member runs.
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

    /// The state with which member `id` starts a region.
    pub(crate) fn state_of(&self, id: u32) -> State {
        let task = &self.members[id as usize].task;
        task.begin_implicit(self.icv.get(), self.group.get());
        State {
            team: self,
            id,
            task,
            share: self.first_share.get(),
            singles: 0,
            trip: 0,
            chunk: (0, 0),
            kmp: kmp::Present::NOTHING,
        }
    }

    #[inline]
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    /// Counts an event that a member waiting in a task may wait for, and wakes those members.
    pub(crate) fn announce(&self) {
        self.events.fetch_add(1, Ordering::Release);
        self.gate.notify();
    }

    /// The ancestor of this team at nesting `level`, and the number there of the thread that led to `id` here, counted in the
    /// whole team.
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
