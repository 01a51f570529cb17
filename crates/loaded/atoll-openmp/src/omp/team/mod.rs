//! A team: the threads that execute a region together, and all that they share.
//!
//! `crew` fills teams with workers, `parallel` opens and closes them; all other files of `omp` work on these structures. A trade
//! has a file: the region (`region`), the place among teams (`nesting`) and nodes (`span`), barriers, work sharing (`sharing`),
//! tasks, and a thread's side of all that (`thread`).

mod barriers;
mod nesting;
mod region;
mod sharing;
mod span;
mod tasks;
mod thread;

use self::barriers::Barriers;
use self::nesting::Nesting;
use self::region::Region;
pub(crate) use self::region::{Body, Function};
use self::sharing::Sharing;
pub(crate) use self::span::Span;
use self::tasks::Tasks;
pub(crate) use self::thread::{State, Thread, adopt, in_region, known, me, retire};
use super::contention::Contention;
use super::crew::Worker;
use super::icv::Icv;
use super::kmp;
use super::task::Task;
use super::workshare::WorkShare;
use atoll_memory::futex::{Gate, Lock};
use atoll_memory::region_counts::Key;
use std::cell::{Cell, UnsafeCell};
use std::collections::VecDeque;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

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

/// The threads that execute a region together, and all that they share. A team is never freed, only used again, as a member
/// that is slow to leave the last barrier still reads it.
pub(crate) struct Team {
    // The fields from here on are set by the leader between regions and read by members; the leader's release of a worker
    // (`crew::Worker::send`) orders the two.
    pub(crate) size: Size,
    pub(crate) span: Cell<Span>,
    pub(crate) region: Region,
    pub(crate) nesting: Nesting,
    /// The leader's state outside the region; only the leader uses it.
    pub(crate) outside: Cell<Option<State>>,
    /// The workers that are members 1, 2, …; only the leader uses them.
    pub(crate) crew: UnsafeCell<Vec<*const Worker>>,
    pub(crate) members: Box<[Member]>,

    // The fields from here on are shared during the region.
    pub(crate) barriers: Barriers,
    /// The gate at which members wait at a barrier, where they may execute any task.
    pub(crate) gate: Gate,
    /// The gate at which members wait within the region: for other tasks, or for their turn.
    pub(crate) turns: Gate,
    /// Whether the region is cancelled.
    pub(crate) cancelled: AtomicBool,
    pub(crate) tasks: Tasks,
    pub(crate) sharing: Sharing,
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
            region: Region::new(),
            nesting: Nesting::new(),
            outside: Cell::new(None),
            crew: UnsafeCell::new(Vec::with_capacity(capacity)),
            members: members.into_boxed_slice(),
            barriers: Barriers::new(),
            gate: Gate::new(),
            turns: Gate::new(),
            cancelled: AtomicBool::new(false),
            tasks: Tasks::new(),
            sharing: Sharing::new(),
        }));
        team
    }

    /// A team for `size` members, led by `leader`: the leader's spare one, another's, or a new one.
    pub(crate) fn obtain(leader: &Thread, size: usize) -> &'static Team {
        let team = Team::obtain_used(leader, size);
        // The team may have been a part of a larger one in its last region.
        team.span.set(Span::default());
        team.nesting.leave();
        team
    }

    /// The contention group of the team's threads.
    pub(crate) fn contention(&self) -> &Contention {
        self.nesting.contention()
    }

    /// Whether a thread of this team is in a region.
    pub(crate) fn is_within(&self) -> bool {
        self.nesting.is_within()
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
        self.region.key()
    }

    /// Whether this is a part of a team over several nodes.
    #[inline]
    pub(crate) fn spans(&self) -> bool {
        self.span.get().threads != 0
    }

    /// Whether other nodes may execute this team's tasks.
    #[inline]
    pub(crate) fn sends_tasks(&self) -> bool {
        self.span.get().tasks
    }

    /// Whether the team's tasks are executed by one thread only.
    pub(crate) fn has_one_worker(&self) -> bool {
        self.size.get() == 1 && !self.sends_tasks()
    }

    /// The number of threads that may execute the team's tasks.
    pub(crate) fn workers(&self) -> u32 {
        if self.sends_tasks() { self.threads() } else { self.size.get() }
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
        self.region.settle(icv);
        self.barriers.settle();
        self.sharing.settle();
    }

    /// The state with which member `id` starts a region.
    pub(crate) fn state_of(&self, id: u32) -> State {
        let task = &self.members[id as usize].task;
        task.begin_implicit(self.region.icv.get(), self.region.group.get());
        State {
            team: self,
            id,
            task,
            share: self.sharing.first.get(),
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
        // Other side: `tasks::work_until`.
        self.tasks.events.fetch_add(1, Ordering::SeqCst);
        self.turns.wake_up_to(i32::MAX as u32);
    }

    /// The ancestor of this team at nesting `level`, and the number there of the thread that led to `id` here, counted in the
    /// whole team.
    pub(crate) fn ancestor(&self, id: u32, level: i32) -> Option<(&Team, u32)> {
        let mut at = (self, id);
        if level < 0 || level as u32 > self.nesting.level.get() {
            return None;
        }
        while at.0.nesting.level.get() > level as u32 {
            let within = &at.0.nesting;
            // SAFETY: a team above level 0 has a parent, and teams are never freed.
            at = (unsafe { &*within.parent.get() }, within.parent_id.get());
        }
        Some((at.0, at.1 + at.0.span.get().first))
    }
}
