//! Duty: the node's agent is stepped by its own thread, or by a worker that waits for it, so that nobody need be woken to go on.
//!
//! `mail` comes here with a worker that waits; `agent` has what is done on duty. One at a time is on duty, under a lock. The
//! agent's thread sleeps at the transport's bell while a worker is, hushed: what comes wakes nobody, as the worker looks
//! itself. When the worker goes it lets the bell ring again and looks once more; what came in between it leaves to the thread.
//!
//! Only over transports that lie in shared memory, and only while nothing goes to far memory: all else is the first
//! process's own.
//!
//! Rules: as for `agent`, which is why it leaves a stack that is paged; and as a worker may come from a fault inside `malloc`,
//! all that is allocated is the agent's heap's (`heap`).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use atoll_memory::ending::end;
use atoll_memory::futex::{self, Guard, Lock};
use atoll_memory::pager::Pager;
use atoll_memory::{managed, sys};
use atoll_transport::transport::Doze;

use crate::agent::{MUCH, Server};
use crate::heap::Inside;
use crate::{clock, mail, stack};

/// The agent, and the bell of its transport, for whoever is on duty.
pub(crate) struct Shared {
    server: Box<Server>,
    doze: Doze,
}

/// The agent, where workers may step it.
static DUTY: Lock<Option<Shared>> = Lock::new(None);
/// Workers may step the agent.
static SHARED: AtomicBool = AtomicBool::new(false);

/// The time for which a worker that has a CPU to itself looks while nothing comes.
const LONG: Duration = Duration::from_millis(2);
/// A worker looks at the clock once in so many looks.
const LOOKS: u32 = 64;
/// The value of `Patience::eager` for a worker.
const EAGER: u32 = 256;
/// A call that offers the CPU and takes longer than this had takers who want it for long.
const TAKEN_NS: u64 = 1_000_000;
/// The time for which nobody looks for long after such a call.
const CALM_NS: u64 = 20_000_000;
/// The end of that time, by `clock::now`.
static CONTENDED: AtomicU64 = AtomicU64::new(0);
/// A worker that has no CPU to itself looks so often.
const FEW: u32 = 3;
/// The agent's thread looks so soon again whether there is room for messages that wait.
const RETRY: Duration = Duration::from_micros(100);

/// The agent's thread: steps it whenever no worker does.
pub(crate) fn serve(server: Box<Server>) -> ! {
    let Some(doze) = server.doze() else { serve_alone(server) };
    *DUTY.lock() = Some(Shared { server, doze: doze.clone() });
    // Other side: the load in `help`, behind which the lock is taken.
    SHARED.store(true, Ordering::Release);
    loop {
        let mut duty = DUTY.lock();
        let Some(Shared { server, .. }) = duty.as_mut() else { unreachable!("stored above, for ever") };
        while server.round(true) > 0 {}
        let longest = server.longest_sleep();
        let longest = if server.is_behind() { longest.min(RETRY) } else { longest };
        let asked = mail::announce_sleep();
        drop(duty);
        if !asked {
            doze.sleep(longest);
        }
        mail::retract_sleep();
    }
}

/// Steps the agent where only its thread may. The thread looks a while longer than there is something to do: much of what comes is
/// followed by more, and waking a thread takes longer than most ways between nodes.
fn serve_alone(mut server: Box<Server>) -> ! {
    loop {
        // The worker that it answers may want the same CPU.
        let mut patience = Patience { eager: 0, ..Patience::new(!futex::is_crowded()) };
        loop {
            if server.round(true) > 0 {
                patience.begin_again();
            } else if patience.is_over() {
                break;
            } else {
                patience.pause();
            }
        }
        if !mail::announce_sleep() {
            server.sleep();
        }
        mail::retract_sleep();
    }
}

/// A worker that waits for the agent's thread: looks a while whether it is `done`.
pub(crate) fn look(done: impl Fn() -> bool) {
    if SHARED.load(Ordering::Relaxed) {
        // It has looked already, on duty.
        return;
    }
    let mut patience = Patience::new(!futex::is_crowded());
    while !done() && !patience.is_over() {
        patience.pause();
    }
}

/// A worker that waits, with signals blocked: steps the agent until `done`, as long as that is worth it. `alone`: it has a CPU
/// to itself. True if it was on duty: then all that was asked before has been seen, or is left to the thread.
pub(crate) fn help<D: Fn() -> bool + 'static>(alone: bool, done: D) -> bool {
    if !SHARED.load(Ordering::Acquire) {
        return false;
    }
    parked(move || take_part(alone, &done))
}

/// Runs `wait`, in which a worker touches no paged memory, with signals blocked: what the node loses meanwhile is unmapped in the
/// worker's page table when the wait is over, and its memory is kept.
pub(crate) fn parked<R>(wait: impl FnOnce() -> R) -> R {
    stack::off_paged_blocked(move || {
        let _parked = Parked::new();
        wait()
    })
}

/// While it lives, what the node loses is not unmapped at once in the page table of the worker that waits.
pub(crate) struct Parked {
    pager: Option<&'static Pager>,
}

impl Parked {
    pub(crate) fn new() -> Parked {
        let pager = managed::pager();
        pager.into_iter().for_each(|pager| pager.park(managed::table()));
        Parked { pager }
    }
}

impl Drop for Parked {
    fn drop(&mut self) {
        if let Some(Err(e)) = self.pager.map(|pager| pager.unpark(managed::table())) {
            end(e);
        }
    }
}

fn take_part(alone: bool, done: &impl Fn() -> bool) -> bool {
    let mut patience = Patience::new(alone);
    while !done() {
        if let Some(duty) = DUTY.try_lock() {
            step(duty, &mut patience, done);
            return true;
        }
        if patience.is_over() {
            return false;
        }
        patience.pause();
    }
    false
}

/// The patience of a worker that looks for its answer.
struct Patience {
    alone: bool,
    /// Looks before it offers the CPU to others at each.
    eager: u32,
    looks: u32,
    begin: Instant,
}

impl Patience {
    fn new(alone: bool) -> Self {
        let alone = alone && clock::now() > CONTENDED.load(Ordering::Relaxed);
        Self { alone, eager: EAGER, looks: 0, begin: Instant::now() }
    }

    /// Between two looks: lets others have the CPU after a while, as whom this worker waits for may want the same one. Where
    /// somebody took it, the agent's thread serves sooner, which is woken at once: this worker stops looking.
    fn pause(&mut self) {
        if self.looks < self.eager {
            return std::hint::spin_loop();
        }
        let before = clock::now();
        sys::yield_now();
        let now = clock::now();
        if now - before > TAKEN_NS {
            CONTENDED.store(now + CALM_NS, Ordering::Relaxed);
            self.alone = false;
        }
    }

    /// Something came: more may.
    fn begin_again(&mut self) {
        if self.alone {
            (self.looks, self.begin) = (0, Instant::now());
        }
    }

    fn is_over(&mut self) -> bool {
        self.looks += 1;
        if self.alone {
            self.looks.is_multiple_of(LOOKS) && self.begin.elapsed() > LONG
        } else {
            self.looks > FEW
        }
    }
}

fn step(mut duty: Guard<'_, Option<Shared>>, patience: &mut Patience, done: &impl Fn() -> bool) {
    let Some(Shared { server, doze }) = duty.as_mut() else { return };
    let inside = Inside::enter();
    doze.hush();
    mail::retract_sleep();
    let mut did = 0;
    while !done() && !server.is_for_thread() {
        did = server.round(false);
        if did > 0 {
            patience.begin_again();
        } else if patience.is_over() {
            break;
        } else {
            patience.pause();
        }
    }
    // What the last round left undone, such as room that a queue waits for, is the thread's.
    let left = did >= MUCH || server.is_for_thread() || server.is_behind() || server.holds();
    // Both before the lock is free, or they could undo what the next one on duty does.
    let asked = mail::announce_sleep();
    let came = doze.unhush();
    drop(inside);
    drop(duty);
    if left || asked || came {
        mail::wake_agent();
    }
}
