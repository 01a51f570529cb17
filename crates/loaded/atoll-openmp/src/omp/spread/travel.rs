//! Tasks that travel: a node whose workers have nothing to do executes tasks that other nodes have queued.
//!
//! A node with a worker that is idle at a barrier is *hungry* and says so to all others, once. Whoever has tasks in its queues gives some,
//! the oldest, at most half of them, or gives back half of those that it has from the hungry node and has not begun. The node that gave tasks
//! counts them as pending until it is told that they are done. So no barrier opens meanwhile, though the hungry node has
//! arrived there already: its workers leave the barrier and come again (`atoll_nodes::Program::has_work`). A task that came is done
//! when all that it made is done. A worker that waits inside a task may only begin that task's descendants. So it gives back tasks that
//! came and that no idle worker can begin: two nodes could wait for each other's tasks otherwise. Which tasks are worth giving is
//! known by what became of earlier ones (`worth`).
//!
//! `tasks` has the queues, `barrier` and `tasks` call this; `start::program` gives it the agent's turn. A task's arguments are in the
//! message, all else that it uses is the program's coherent memory, workers' stacks included (`stacks`). Pages have one writer at a
//! time in such regions, so that what a task wrote is known wherever somebody hears that it is done.
//!
//! Rules for what the agent calls (`speak`, `heard`): as for the agent. Locks that the agent waits for are held off paged stacks.

use std::collections::{BTreeMap, VecDeque};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use atoll_memory::futex::Lock;
use atoll_nodes::region::has_thrashed;
use atoll_nodes::{ask, clock, stack, stall};
use serde::{Deserialize, Serialize};

use super::measure;
use super::worth::{Kind, Took, Worth};
use crate::omp::icv::Icv;
use crate::omp::kmp::block as blocks;
use crate::omp::task::{Group, Packing, Task};
use crate::omp::tasks::{self, Recipe};
use crate::omp::team::{Function, Team, Thread};

/// A task on its way.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Traveller {
    /// A number that the node which gave it knows it by.
    id: u64,
    icv: Icv,
    is_final: bool,
    depth: u32,
    arguments: Arguments,
}

/// A task's code and arguments.
#[derive(Debug, Serialize, Deserialize)]
enum Arguments {
    /// The function, and its argument's bytes and their alignment.
    Bytes {
        function: u64,
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
        align: u32,
    },
    /// The block of LLVM's compilers.
    Block(blocks::Packed),
}

/// What nodes say to each other of tasks.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Said {
    /// So many workers of the sender have nothing to do, at the barrier of this number.
    Hungry { at: u32, workers: u32 },
    /// A worker of the sender waits for tasks that other nodes have, and may only begin such as it gave.
    Recall,
    /// Tasks for the receiver.
    Take(Vec<Traveller>),
    /// These tasks, which the receiver gave, are done, and took so long.
    Done(Vec<(u64, Took)>),
    /// These tasks, which the receiver gave, have not begun, and the sender does not execute them.
    Back(Vec<u64>),
}

/// The most tasks that are given at once.
pub(super) const MOST: usize = 64;
/// So many tasks that are done are told at once, if more tasks wait here.
const TOGETHER: usize = 8;
/// A task that takes longer is told at once.
const LONG_NS: u64 = 50_000;

/// The barriers of all nodes that this one has passed: the same number on each.
static PASSED: AtomicU32 = AtomicU32::new(0);
/// This node is hungry, and the agent has yet to tell the others.
static WANTS: AtomicBool = AtomicBool::new(false);
/// This node has been hungry since tasks came last.
static WANTED: AtomicBool = AtomicBool::new(false);
/// The number of this node's tasks that other nodes have.
static AWAY: AtomicUsize = AtomicUsize::new(0);
/// A worker waits for tasks that are away, and the agent has yet to recall them.
static RECALLS: AtomicBool = AtomicBool::new(false);
/// A worker has waited for tasks that are away since one of them left or came back last.
static RECALLED: AtomicBool = AtomicBool::new(false);
/// The time before which nobody tries again to give tasks.
static NOT_BEFORE: AtomicU64 = AtomicU64::new(0);
/// The nanoseconds until then, after nothing could be given: at first, and at most.
const AGAIN_NS: (u64, u64) = (200_000, 10_000_000);
/// Another node may be hungry.
static ANY_HUNGRY: AtomicBool = AtomicBool::new(false);
/// The team whose tasks travel: this node's part of the region.
static TEAM: AtomicPtr<Team> = AtomicPtr::new(ptr::null_mut());
/// Tasks that came and that no worker has begun, each with its node.
static CAME: Lock<VecDeque<(u32, Traveller)>> = Lock::new(VecDeque::new());
/// The number of tasks in `CAME`.
static WAITING: AtomicUsize = AtomicUsize::new(0);
/// The number of workers that wait at a barrier of a team whose tasks travel.
static IDLE: AtomicUsize = AtomicUsize::new(0);
/// The number of workers that execute tasks of other nodes.
static EXECUTING: AtomicU64 = AtomicU64::new(0);
/// Tasks of other nodes that are done here, after so long a time, or given back, and of which their nodes have not been told: the node
/// and the task's number there.
static LEFT: Lock<VecDeque<(u32, Option<Took>, u64)>> = Lock::new(VecDeque::new());
/// Tasks of this node that are done elsewhere (true) or have come back.
static RETURNED: Lock<VecDeque<(bool, usize)>> = Lock::new(VecDeque::new());
/// The number of tasks in `RETURNED`.
static BACK: AtomicUsize = AtomicUsize::new(0);

/// This node's part of a region begins.
pub(crate) fn begin_part(team: &'static Team) {
    if team.sends_tasks() {
        TEAM.store(ptr::from_ref(team).cast_mut(), Ordering::Release);
    }
}

fn team() -> Option<&'static Team> {
    // SAFETY: teams are never freed.
    unsafe { TEAM.load(Ordering::Acquire).as_ref() }.filter(|team| team.sends_tasks())
}

/// A worker at a barrier of the team has nothing to do: the agent tells the others as soon as it arrives there, or is asked to
/// speak. Returns whether they have not been told before.
pub(crate) fn want_tasks(team: &Team) -> bool {
    let wants = team.sends_tasks() && !WANTED.swap(true, Ordering::Relaxed);
    if wants {
        WANTS.store(true, Ordering::Release);
    }
    wants
}

/// The team came to a barrier of all nodes, and passed it or left it for work.
pub(crate) fn was_at_barrier(passed: bool) {
    if WANTS.swap(false, Ordering::AcqRel) || passed {
        WANTED.store(false, Ordering::Relaxed);
    }
    if passed {
        PASSED.fetch_add(1, Ordering::Relaxed);
    }
}

/// Whether tasks have come for the workers of `team`.
#[inline]
pub(crate) fn has_work_for(team: &Team) -> bool {
    // Other side: the additions in `heard` and `came_back`.
    team.sends_tasks() && (WAITING.load(Ordering::SeqCst) != 0 || BACK.load(Ordering::SeqCst) != 0)
}

/// Whether tasks have come that no worker has begun.
pub(crate) fn has_work() -> bool {
    WAITING.load(Ordering::SeqCst) != 0
}

/// Lets other nodes have tasks of `team`, which has some in its queues, if one is hungry.
#[inline]
pub(crate) fn offer(team: &Team) {
    if team.sends_tasks()
        && ANY_HUNGRY.load(Ordering::Relaxed)
        && clock::now() >= NOT_BEFORE.load(Ordering::Relaxed)
    {
        ask::speak();
    }
}

/// A worker waits at a barrier of `team` by `wait`, until there is work or the barrier is open.
pub(crate) fn wait_idle(team: &Team, wait: impl FnOnce()) {
    if !team.sends_tasks() {
        return wait();
    }
    IDLE.fetch_add(1, Ordering::SeqCst);
    // With nothing pending the last worker arrives at the barrier of all nodes, and the agent tells them then.
    let pending = team.tasks.pending.load(Ordering::Relaxed) != 0;
    if pending && team.tasks.queued.load(Ordering::Relaxed) == 0 && want_tasks(team) {
        ask::speak();
    }
    wait();
    IDLE.fetch_sub(1, Ordering::SeqCst);
}

/// A worker is about to wait inside a task: recalls tasks that are away and have not begun, and gives back those that came, unless a
/// worker at a barrier can begin them.
#[inline]
pub(crate) fn wait_inside(team: &Team) {
    if team.sends_tasks() {
        if AWAY.load(Ordering::Relaxed) != 0 && !RECALLED.swap(true, Ordering::Relaxed) {
            RECALLS.store(true, Ordering::Release);
            ask::speak();
        }
        give_back();
    }
}

fn give_back() {
    // Other side: `heard`, which wakes those that wait. A worker that is idle now and begins one that came makes this call itself
    // when it waits inside that.
    if WAITING.load(Ordering::SeqCst) == 0 || IDLE.load(Ordering::SeqCst) != 0 {
        return;
    }
    let some = stack::off_paged(|| {
        let came = std::mem::take(&mut *CAME.lock());
        WAITING.fetch_sub(came.len(), Ordering::SeqCst);
        let some = !came.is_empty();
        LEFT.lock().extend(came.into_iter().map(|(node, traveller)| (node, None, traveller.id)));
        some
    });
    if some {
        ask::speak();
    }
}

/// Completes tasks of the team that were done elsewhere, and queues those that have come back; returns whether there were any.
#[inline]
pub(crate) fn settle(team: &Team) -> bool {
    if BACK.load(Ordering::Acquire) == 0 || !team.sends_tasks() {
        return false;
    }
    let mut some = false;
    while let Some((is_done, task)) = stack::off_paged(|| {
        let task = RETURNED.lock().pop_front();
        if task.is_some() {
            BACK.fetch_sub(1, Ordering::Relaxed);
        }
        task
    }) {
        some = true;
        // SAFETY: the agent takes only tasks from other nodes that it gave; such a task lives until it is complete.
        let task = unsafe { &*(task as *const Task) };
        if is_done {
            tasks::complete(team, task);
        } else {
            tasks::queue_again(team, task);
        }
    }
    some
}

/// A member at a barrier does what other nodes have brought: completes what they did, or executes a task that came. Returns whether
/// there was something.
pub(crate) fn work(thread: &Thread, team: &'static Team) -> bool {
    if settle(team) {
        return true;
    }
    if WAITING.load(Ordering::Acquire) == 0 || !team.sends_tasks() {
        return false;
    }
    // Before it leaves the queue: no member may find that nothing is to be done.
    team.tasks.pending.fetch_add(1, Ordering::SeqCst);
    let came = stack::off_paged(|| {
        let came = CAME.lock().pop_front();
        if came.is_some() {
            WAITING.fetch_sub(1, Ordering::SeqCst);
        }
        came
    });
    if let Some((node, traveller)) = came {
        let (id, began, stalled, pages) = (traveller.id, clock::now(), stall::own(), measure::pages_taken());
        let executing = EXECUTING.fetch_add(1, Ordering::Relaxed) + 1;
        execute(thread, team, traveller);
        measure::took_task();
        EXECUTING.fetch_sub(1, Ordering::Relaxed);
        let took = Took {
            ran: clock::now() - began,
            stalled: stall::own() - stalled,
            // Those of all workers, which take about as many each.
            pages: measure::pages_taken().saturating_sub(pages) / executing,
        };
        let left = stack::off_paged(move || {
            let mut left = LEFT.lock();
            left.push_back((node, Some(took), id));
            left.len()
        });
        if took.ran > LONG_NS || left >= TOGETHER || WAITING.load(Ordering::Relaxed) == 0 {
            ask::speak();
        }
    }
    team.tasks.pending.fetch_sub(1, Ordering::SeqCst);
    true
}

/// Executes a task that came, and all that it makes.
fn execute(thread: &Thread, team: &'static Team, traveller: Traveller) {
    let task = match traveller.arguments {
        Arguments::Bytes { function, bytes, align } => {
            // SAFETY: the node that gave it runs the same program at the same addresses, which was compared when the nodes met.
            let function = unsafe { std::mem::transmute::<usize, Function>(function as usize) };
            let (size, align) = (bytes.len(), align as usize);
            let recipe = Recipe { function, copier: None, size, align, flags: 0, priority: 0 };
            let task = tasks::make(thread, &recipe, true);
            tasks::copy_arguments(task, &recipe, bytes.as_ptr().cast_mut());
            task
        }
        Arguments::Block(packed) => blocks::unpack(thread, &packed),
    };
    task.icv.set(traveller.icv);
    task.is_final.set(traveller.is_final);
    task.depth.set(traveller.depth);
    let group = Group::open(ptr::null(), false);
    task.group.set(group);
    tasks::run_body(thread, team, task);
    // SAFETY: the group is open until here.
    let count = unsafe { &(*group).count };
    tasks::work_until(thread, team, || count.load(Ordering::SeqCst) == 0);
    // SAFETY: no task refers to the group any more.
    unsafe { Group::close(group) };
    tasks::complete(team, task);
}

/// The agent's side.
#[derive(Default)]
pub(crate) struct Travel {
    /// Tasks of this node that other nodes have, with these.
    away: BTreeMap<(u32, u64), Kind>,
    /// The nodes that are hungry, each with the number of the barrier at which it is, and of the workers that have nothing to do.
    hungry: BTreeMap<u32, (u32, u32)>,
    /// What it was worth to give tasks.
    worth: Worth,
    /// The nanoseconds until it is tried again after nothing could be given.
    again: u64,
    /// Messages to be sent.
    outbox: VecDeque<(u32, Said)>,
}

impl Travel {
    /// The next message to another node.
    pub(crate) fn speak(&mut self, (me, nodes): (u32, u32)) -> Option<(u32, Said)> {
        if self.outbox.is_empty() {
            self.tell_left();
            if !has_work() && WANTS.swap(false, Ordering::AcqRel) {
                let at = PASSED.load(Ordering::Relaxed);
                let others = (0..nodes).filter(|node| *node != me);
                // The last of them asks at the barrier of all nodes, or is about to wait.
                let workers = IDLE.load(Ordering::Relaxed).max(1) as u32;
                self.outbox.extend(others.map(|node| (node, Said::Hungry { at, workers })));
            }
            if RECALLS.swap(false, Ordering::AcqRel) {
                let with = |node: &u32| self.away.range((*node, 0)..=(*node, u64::MAX)).next().is_some();
                self.outbox.extend((0..nodes).filter(with).map(|node| (node, Said::Recall)));
            }
            if ANY_HUNGRY.load(Ordering::Relaxed) {
                self.give();
            }
        }
        self.outbox.pop_front()
    }

    fn tell_left(&mut self) {
        let mut left: Vec<(u32, Option<Took>, u64)> = LEFT.lock().drain(..).collect();
        left.sort_unstable();
        for of_node in left.chunk_by(|a, b| a.0 == b.0) {
            let (node, _, _) = of_node[0];
            let done: Vec<_> =
                of_node.iter().filter_map(|(_, took, id)| took.map(|took| (*id, took))).collect();
            let back: Vec<_> = of_node.iter().filter(|left| left.1.is_none()).map(|left| left.2).collect();
            self.outbox.extend((!done.is_empty()).then_some((node, Said::Done(done))));
            self.outbox.extend((!back.is_empty()).then_some((node, Said::Back(back))));
        }
    }

    /// Gives tasks to nodes that are hungry, if there are any in the queues.
    fn give(&mut self) {
        let at = PASSED.load(Ordering::Relaxed);
        // A node may have passed a barrier that this node's workers are about to pass.
        self.hungry.retain(|_, (waits_at, _)| waits_at.wrapping_sub(at) as i32 >= 0);
        ANY_HUNGRY.store(!self.hungry.is_empty(), Ordering::Relaxed);
        let waiting: Vec<(u32, u32)> = self
            .hungry
            .iter()
            .filter(|(_, (waits_at, _))| *waits_at == at)
            .map(|(node, (_, workers))| (*node, *workers))
            .collect();
        let Some(team) = team().filter(|_| !waiting.is_empty() && !has_thrashed()) else { return };
        let now = clock::now();
        for (served, &(node, workers)) in waiting.iter().enumerate() {
            let queued = team.tasks.queued.load(Ordering::Relaxed) as usize;
            let most = queued.div_ceil(waiting.len() - served + 1).min(MOST);
            let mut travellers = Vec::new();
            let Travel { worth, away, .. } = self;
            let mut take = |task: &'static Task| {
                away.insert((node, ptr::from_ref(task) as u64), kind(task));
                travellers.push(pack(task));
            };
            // A kind that is worth it: so many tasks more.
            let mut left = BTreeMap::new();
            let fits = |task: &Task| {
                may_travel(task) && {
                    let kind = kind(task);
                    let left = left.entry(kind).or_insert_with(|| worth.at_once(kind, now) * workers);
                    let fits = *left > 0;
                    *left -= u32::from(fits);
                    fits
                }
            };
            tasks::take_for_others(team, most, fits, &mut take);
            if left.values().all(|left| *left == 0) {
                let fits = |task: &Task| may_travel(task) && worth.may_try(kind(task), node, now);
                tasks::take_for_others(team, most.min(1), fits, take);
            }
            for kind in travellers.iter().filter_map(|traveller| self.away.get(&(node, traveller.id))) {
                self.worth.goes(*kind, node);
            }
            if travellers.is_empty() {
                if !self.send_back(node) {
                    let (least, most) = AGAIN_NS;
                    self.again = (2 * self.again).clamp(least, most);
                    NOT_BEFORE.store(now + self.again, Ordering::Relaxed);
                    continue;
                }
            } else {
                self.again = 0;
                AWAY.store(self.away.len(), Ordering::Relaxed);
                RECALLED.store(false, Ordering::Relaxed);
                self.outbox.push_back((node, Said::Take(travellers)));
            }
            self.hungry.remove(&node);
        }
        ANY_HUNGRY.store(!self.hungry.is_empty(), Ordering::Relaxed);
    }

    /// Gives half of node `from`'s tasks back that have not begun; returns whether there are any.
    fn send_back(&mut self, from: u32) -> bool {
        let mut came = CAME.lock();
        let count = came.iter().filter(|(node, _)| *node == from).count();
        let ids: Vec<u64> = (0..count.div_ceil(2))
            .filter_map(|_| came.iter().rposition(|(node, _)| *node == from).and_then(|at| came.remove(at)))
            .map(|(_, traveller)| traveller.id)
            .collect();
        WAITING.fetch_sub(ids.len(), Ordering::SeqCst);
        drop(came);
        if ids.is_empty() {
            return false;
        }
        self.outbox.push_back((from, Said::Back(ids)));
        true
    }

    /// Node `from` says something. False: it makes no sense.
    pub(crate) fn heard(&mut self, from: u32, said: Said) -> bool {
        match said {
            Said::Hungry { at, workers } => {
                self.hungry.insert(from, (at, workers));
                ANY_HUNGRY.store(true, Ordering::Relaxed);
            }
            Said::Take(travellers) => {
                let Some(team) = team() else { return false };
                WANTED.store(false, Ordering::Relaxed);
                let count = travellers.len();
                CAME.lock().extend(travellers.into_iter().map(|traveller| (from, traveller)));
                // Other side: the loads in `work`, `has_work_for` and `give_back`.
                WAITING.fetch_add(count, Ordering::SeqCst);
                team.gate.wake_up_to(count as u32);
                team.announce();
            }
            Said::Recall => {
                self.send_back(from);
            }
            Said::Done(done) => {
                let at = (clock::now(), measure::waited_for_pages());
                let known = done.iter().all(|(id, took)| match self.away.get(&(from, *id)) {
                    Some(kind) => {
                        self.worth.is_done(*kind, from, *took, at);
                        true
                    }
                    None => false,
                });
                return known && self.came_back(from, done.iter().map(|(id, _)| *id), true);
            }
            Said::Back(ids) => {
                for kind in ids.iter().filter_map(|id| self.away.get(&(from, *id))) {
                    self.worth.is_back(*kind, from);
                }
                return self.came_back(from, ids.iter().copied(), false);
            }
        }
        true
    }

    /// Tasks that node `from` had are done, or have not begun.
    fn came_back(&mut self, from: u32, ids: impl Iterator<Item = u64> + Clone, are_done: bool) -> bool {
        let Some(team) = team() else { return false };
        if !ids.clone().all(|id| self.away.remove(&(from, id)).is_some()) {
            return false;
        }
        AWAY.store(self.away.len(), Ordering::Relaxed);
        RECALLED.store(false, Ordering::Relaxed);
        if !are_done {
            WANTED.store(false, Ordering::Relaxed);
        }
        RETURNED.lock().extend(ids.clone().map(|id| (are_done, id as usize)));
        // Other side: the loads in `settle` and `has_work_for`.
        BACK.fetch_add(ids.count(), Ordering::SeqCst);
        team.announce();
        team.gate.wake_up_to(1);
        true
    }
}

/// Whether another node may execute the task.
fn may_travel(task: &Task) -> bool {
    let mut group = task.made_in.get();
    // SAFETY: the group of a task that is not complete is open, and so are those around it.
    while let Some(of_task) = unsafe { group.as_ref() } {
        if !of_task.reductions.get().is_null() || !of_task.kmp_reductions.get().is_null() {
            return false;
        }
        group = of_task.outer;
    }
    task.packing.get() != Packing::Fixed
        && task.has_own_arguments()
        && task.detach.load(Ordering::Relaxed) == 0
        && task.ending.get().is_none()
        && !task.untied.get()
}

/// The address of the task's function.
fn function(task: &Task) -> u64 {
    task.function.get().map_or(0, |function| function as usize as u64)
}

/// The task's kind. Deeper ones than the limit are one kind.
fn kind(task: &Task) -> Kind {
    let code = match task.packing.get() {
        Packing::Block => blocks::code(task),
        _ => function(task),
    };
    (code, task.depth.get().min(DEEPEST))
}

/// The greatest depth that is told apart from others.
const DEEPEST: u32 = 64;

fn pack(task: &Task) -> Traveller {
    let arguments = match task.packing.get() {
        Packing::Block => Arguments::Block(blocks::pack(task)),
        Packing::Bytes { size, align } => {
            // SAFETY: the task has so many bytes of arguments, not paged, and nobody has begun it.
            let bytes = unsafe { std::slice::from_raw_parts(task.data.get(), size) }.to_vec();
            Arguments::Bytes { function: function(task), bytes, align: align as u32 }
        }
        Packing::Fixed => unreachable!("`may_travel` was asked before"),
    };
    Traveller {
        id: ptr::from_ref(task) as u64,
        icv: task.icv.get(),
        is_final: task.is_final.get(),
        depth: task.depth.get(),
        arguments,
    }
}
