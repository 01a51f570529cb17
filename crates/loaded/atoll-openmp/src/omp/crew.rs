//! Workers: claimed for a region, sent to work, idle again after it, and started when there are too few.
//!
//! `parallel` asks here for a team's members; `crate::workers` makes the worker's thread or process.

use super::barrier;
use super::env;
use super::hooks;
use super::places;
use super::spread;
use super::team::{Team, Thread, adopt};
use crate::workers;
use atoll_memory::futex::{Gate, Lock};
use std::cell::Cell;
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};

/// A worker: never freed, and always the same thread or process.
pub(crate) struct Worker {
    /// Set while the worker leads or serves a team: only the thread that sets it may send the worker a team.
    claimed: Claim,
    mail: Mail,
    thread: Cell<*const Thread>,
}

#[repr(align(64))]
struct Claim(AtomicBool);

/// The message from a leader to the worker.
#[repr(align(64))]
struct Mail {
    gate: Gate,
    /// The number of regions sent so far.
    sent: AtomicU32,
    team: AtomicPtr<Team>,
    id: AtomicU32,
}

// SAFETY: `thread` is set before other threads know the worker.
unsafe impl Sync for Worker {}

/// The most workers that there can be.
const MOST: usize = 4096;
/// All workers: worker `n`, counted from 1, is at index `n - 1`.
static WORKERS: [AtomicPtr<Worker>; MOST] = [const { AtomicPtr::new(ptr::null_mut()) }; MOST];
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// Held while a worker starts.
static STARTING: Lock<()> = Lock::new(());

impl Worker {
    fn claim(&self) -> bool {
        // Other side: the store in `dismiss`.
        !self.claimed.0.load(Ordering::Relaxed) && !self.claimed.0.swap(true, Ordering::Acquire)
    }

    /// Sends a claimed worker into a region.
    pub(crate) fn send(&self, team: &'static Team, id: u32) {
        self.mail.team.store(ptr::from_ref(team).cast_mut(), Ordering::Relaxed);
        self.mail.id.store(id, Ordering::Relaxed);
        // Other side: the load in `work`; everything set in the team comes before.
        self.mail.sent.fetch_add(1, Ordering::Release);
        self.mail.gate.notify();
    }

    /// The worker's region is over: others may claim it.
    pub(crate) fn dismiss(&self) {
        self.claimed.0.store(false, Ordering::Release);
    }
}

fn worker(index: usize) -> Option<&'static Worker> {
    // SAFETY: workers are never freed.
    unsafe { WORKERS.get(index)?.load(Ordering::Acquire).as_ref() }
}

/// Claims the worker that becomes member `id` of `leader`'s team: the one that was that member before if it is idle; for the
/// program's first thread, worker `id`; else any idle one; else a new one. `None` if no more can be started.
fn claim(leader: &Thread, id: usize) -> Option<&'static Worker> {
    // SAFETY: only its own thread uses a descriptor's list; workers are never freed.
    let before = unsafe { (&*leader.mates.get()).get(id - 1).map(|mate| &**mate) };
    if let Some(mate) = before.filter(|mate| mate.claim()) {
        return Some(mate);
    }
    let count = COUNT.load(Ordering::Acquire);
    let preferred = if leader.first { id - 1 } else { 0 };
    if count > preferred {
        for index in (preferred..count).chain(0..preferred) {
            if let Some(idle) = worker(index).filter(|idle| idle.claim()) {
                return Some(idle);
            }
        }
    }
    start()
}

/// Starts one more worker, already claimed for the caller.
fn start() -> Option<&'static Worker> {
    let _starting = STARTING.lock();
    let index = COUNT.load(Ordering::Relaxed);
    if index >= MOST {
        return None;
    }
    let worker: &'static Worker = Box::leak(Box::new(Worker {
        claimed: Claim(AtomicBool::new(true)),
        mail: Mail {
            gate: Gate::new(),
            sent: AtomicU32::new(0),
            team: AtomicPtr::new(ptr::null_mut()),
            id: AtomicU32::new(0),
        },
        thread: Cell::new(Thread::new(false, false)),
    }));
    let argument = ptr::from_ref(worker).cast_mut().cast::<c_void>();
    let number = index + 1 + spread::region::leaders();
    if let Err(error) = workers::start(number, env::stack_bytes(), work, argument) {
        super::fatal(&format!("Thread creation failed: {error}"));
    }
    WORKERS[index].store(ptr::from_ref(worker).cast_mut(), Ordering::Release);
    COUNT.store(index + 1, Ordering::Release);
    Some(worker)
}

/// Forgets all workers, in a process that the program forked, where none of them exists.
pub(crate) fn forget() {
    for place in &WORKERS[..COUNT.swap(0, Ordering::AcqRel).min(MOST)] {
        let worker = place.swap(ptr::null_mut(), Ordering::AcqRel);
        // SAFETY: workers are never freed. A leader that had this worker in its team never claims it again.
        if let Some(worker) = unsafe { worker.as_ref() } {
            worker.claimed.0.store(true, Ordering::Release);
        }
    }
}

/// Fills `team`'s crew with up to `wanted` members beside the leader; returns how many it found.
pub(crate) fn muster(leader: &Thread, team: &Team, wanted: u32) -> u32 {
    // SAFETY: the leader's own list, and the crew of a team nobody works in.
    let (mates, crew) = unsafe { (&mut *leader.mates.get(), &mut *team.crew.get()) };
    crew.clear();
    for id in 1..=wanted as usize {
        let Some(found) = claim(leader, id) else { break };
        match mates.get_mut(id - 1) {
            Some(mate) => *mate = found,
            None => mates.push(found),
        }
        crew.push(found);
    }
    crew.len() as u32
}

/// The main function of a worker.
extern "C" fn work(argument: *mut c_void) -> *mut c_void {
    // SAFETY: the argument is a worker, never freed.
    let worker = unsafe { &*argument.cast::<Worker>() };
    // SAFETY: descriptors are never freed.
    let thread: &'static Thread = unsafe { &*worker.thread.get() };
    adopt(thread);
    let mut done = 0;
    loop {
        // Other side: the addition in `send`.
        let sent = || worker.mail.sent.load(Ordering::Acquire) != done;
        atoll_nodes::region::wait_parked(|| worker.mail.gate.wait_until(sent));
        done = done.wrapping_add(1);
        // SAFETY: teams are never freed; this one was sent.
        let team: &'static Team = unsafe { &*worker.mail.team.load(Ordering::Relaxed) };
        take_part(thread, team, worker.mail.id.load(Ordering::Relaxed));
    }
}

/// Executes one region as its member `id`, which is not the leader.
fn take_part(thread: &Thread, team: &'static Team, id: u32) {
    thread.state.set(team.state_of(id));
    places::bind_member(thread, team, id);
    if let Some(body) = team.region.body.get() {
        hooks::region_enter(team.key());
        spread::stacks::call(thread, team, body.function, body.data);
    }
    barrier::join(thread, team);
}
