//! Mail from workers to their node's agent: they ask for something and wait for it, in one slot a worker, in memory that all workers
//! share.
//!
//! `agent` answers, whose part a waiting worker may take itself (`duty`). A worker may come here from its fault handler.
//!
//! Rules: no allocation, no locks the program could hold, no arena access.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use atoll_memory::control::{EXIT_SETUP, MAX_THREADS, MAX_WORKERS};
use atoll_memory::ending::give_up;
use atoll_memory::signals::{self, SignalsBlocked};
use atoll_memory::{futex, managed};
use atoll_transport::transport::Waker;
use serde::{Deserialize, Serialize};

use crate::{duty, stall};

/// A service that the origin's agent has for all workers of all nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Service {
    /// The lock's name; 1: do not wait. Answer: 1 if taken.
    Lock,
    /// The lock's name. The answer does not wait for the origin.
    Unlock,
    /// The questions of `futexes`.
    Futex,
    /// A service of the program's part on the origin, by a number of its own.
    Program(u8),
}

/// A kind of question, with its words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// The page, and whether the worker writes it: leave to do so.
    Fault,
    /// The site to which workers go on, and whether it ends the region: all workers of the node are at a barrier. Answer: 1 if they
    /// have work to do before.
    Arrive,
    /// On the origin: all nodes are to begin a region.
    Region,
    /// A value for all nodes.
    Publish,
    /// The program ends with this status; whether what it registered for its end is still to run.
    Exit,
    /// A block of another node's heap is free.
    Free,
    /// On another node than the origin: a worker sends the program this signal.
    Signal,
    /// An address that a worker touched in vain, and which node may have something mapped there. Answer: see `files`.
    Touched,
    /// From where on, how many bytes: these nodes, by bits, are to unmap it. Answered when all have.
    Forget,
    /// The address of a `calls::Call`. Answered when its reply is in it.
    Call,
    /// The address of a `calls::Done`.
    Called,
    /// The program has something to say to other nodes.
    Speak,
    /// Three words for a service of the origin, which has two for an answer.
    Origin(Service),
}

/// Kinds that are not the origin's services, by the numbers as which they travel.
const OWN: [Kind; 12] = [
    Kind::Fault,
    Kind::Arrive,
    Kind::Region,
    Kind::Publish,
    Kind::Exit,
    Kind::Free,
    Kind::Signal,
    Kind::Touched,
    Kind::Forget,
    Kind::Call,
    Kind::Called,
    Kind::Speak,
];
/// Numbers of the services: the agent's own, and from where on they are the program's.
const SERVICES: [Service; 3] = [Service::Lock, Service::Unlock, Service::Futex];
const FIRST_SERVICE: u32 = 64;
const FIRST_OF_PROGRAM: u32 = 128;

impl Kind {
    const fn number(self) -> u32 {
        match self {
            Kind::Fault => 0,
            Kind::Arrive => 1,
            Kind::Region => 2,
            Kind::Publish => 3,
            Kind::Exit => 4,
            Kind::Free => 5,
            Kind::Signal => 6,
            Kind::Touched => 7,
            Kind::Forget => 8,
            Kind::Call => 9,
            Kind::Called => 10,
            Kind::Speak => 11,
            Kind::Origin(Service::Lock) => FIRST_SERVICE,
            Kind::Origin(Service::Unlock) => FIRST_SERVICE + 1,
            Kind::Origin(Service::Futex) => FIRST_SERVICE + 2,
            Kind::Origin(Service::Program(what)) => FIRST_OF_PROGRAM + what as u32,
        }
    }

    fn of(number: u32) -> Kind {
        match number {
            FIRST_OF_PROGRAM.. => Kind::Origin(Service::Program((number - FIRST_OF_PROGRAM) as u8)),
            FIRST_SERVICE.. => Kind::Origin(SERVICES[(number - FIRST_SERVICE) as usize % SERVICES.len()]),
            _ => OWN[number as usize % OWN.len()],
        }
    }
}

/// Each kind is found by its number.
const _: () = {
    let mut number = 0;
    while number < OWN.len() {
        assert!(OWN[number].number() as usize == number);
        number += 1;
    }
    number = 0;
    while number < SERVICES.len() {
        assert!(Kind::Origin(SERVICES[number]).number() == FIRST_SERVICE + number as u32);
        number += 1;
    }
};

const IDLE: u32 = 0;
const POSTED: u32 = 1;
const SLEEPING: u32 = 2;
const DONE: u32 = 3;

/// One worker's question and its answer.
#[repr(align(64))]
struct Slot {
    state: AtomicU32,
    kind: AtomicU32,
    words: [AtomicU64; 3],
    answers: [AtomicU64; 2],
}

/// A slot's number: the worker's executor, twice, and one for its faults: asking for something else it may fault. Behind those one
/// for who ends the program, which a signal's handler may do while its worker waits.
pub(crate) type Number = u32;

const EXIT: usize = 2 * (MAX_WORKERS + MAX_THREADS);
const COUNT: usize = EXIT + 64;

static SLOTS: [Slot; COUNT] = [const {
    Slot {
        state: AtomicU32::new(IDLE),
        kind: AtomicU32::new(0),
        words: [const { AtomicU64::new(0) }; 3],
        answers: [const { AtomicU64::new(0) }; 2],
    }
}; COUNT];

/// Bits of the slots that were posted and not looked at by the agent.
static NEWS: [AtomicU64; COUNT / 64] = [const { AtomicU64::new(0) }; COUNT / 64];

/// The agent's thread sleeps, or is about to.
static ASLEEP: AtomicU32 = AtomicU32::new(0);
static WAKER: OnceLock<Waker> = OnceLock::new();

/// Asks, and waits for the answer. Signals that come meanwhile are handled.
pub(crate) fn post(kind: Kind, words: [u64; 3]) -> [u64; 2] {
    let number = if kind == Kind::Exit { EXIT } else { 2 * managed::executor_index() };
    post_in(number, kind, words)
}

/// Asks for [`Kind::Touched`], which a worker may do while it waits for something else.
pub(crate) fn post_touched(words: [u64; 3]) -> [u64; 2] {
    post_in(2 * managed::executor_index() + 1, Kind::Touched, words)
}

fn post_in(number: usize, kind: Kind, words: [u64; 3]) -> [u64; 2] {
    let blocked = SignalsBlocked::new();
    let slot = ask(number, kind, words);
    while !is_answered(slot) {
        sleep(slot);
        if signals::signal_waits(blocked.before()) {
            blocked.let_pass();
        }
    }
    let answers = slot.answers.each_ref().map(|answer| answer.load(Ordering::Relaxed));
    slot.state.store(IDLE, Ordering::Relaxed);
    answers
}

/// Asks for a page, and waits until the worker is to try again. False: a signal waits that is to be handled before, outside of
/// the handler of faults, which blocks all.
///
/// What was asked for comes nevertheless: the answer may meet the worker's next question, which is then asked once more.
pub(crate) fn post_fault(words: [u64; 3]) -> bool {
    stall::measured(|| ask_for_page(words))
}

fn ask_for_page(words: [u64; 3]) -> bool {
    let handling = signals::is_handling();
    let blocked = (!handling).then(SignalsBlocked::new);
    let slot = ask(2 * managed::executor_index() + 1, Kind::Fault, words);
    while !is_answered(slot) {
        sleep(slot);
        match &blocked {
            Some(blocked) if signals::signal_waits(blocked.before()) => blocked.let_pass(),
            None if signals::signal_waits(signals::blocked_before()) => {
                slot.state.store(IDLE, Ordering::Relaxed);
                return false;
            }
            _ => {}
        }
    }
    slot.state.store(IDLE, Ordering::Relaxed);
    true
}

/// Puts a question, and takes part in answering it as long as that is worth it.
fn ask(number: usize, kind: Kind, words: [u64; 3]) -> &'static Slot {
    let slot: &'static Slot = &SLOTS[number];
    let free = match slot.state.load(Ordering::Relaxed) {
        IDLE => true,
        // What came for a page that a signal's handler was let go before.
        DONE => matches!(kind, Kind::Fault | Kind::Touched),
        _ => false,
    };
    if !free {
        give_up(EXIT_SETUP, "a worker that waits for its node's agent asked it once more");
    }
    slot.kind.store(kind.number(), Ordering::Relaxed);
    for (place, word) in slot.words.iter().zip(words) {
        place.store(word, Ordering::Relaxed);
    }
    slot.state.store(POSTED, Ordering::Relaxed);
    // Other side: the swap in `take`.
    NEWS[number / 64].fetch_or(1 << (number % 64), Ordering::Release);
    // Other side: the fence in `announce_sleep`. Either who goes off duty sees the news, or this worker sees that nobody is.
    fence(Ordering::SeqCst);
    // Other side: the swap in `answer`.
    let done = move || slot.state.load(Ordering::Acquire) == DONE;
    if !duty::help(!futex::is_crowded(), done) && ASLEEP.load(Ordering::Relaxed) != 0 {
        wake_agent();
    }
    duty::look(done);
    slot
}

/// Other side: the swap in `answer`.
fn is_answered(slot: &Slot) -> bool {
    slot.state.load(Ordering::Acquire) == DONE
}

/// Sleeps until the question is answered, not for long. The caller has blocked signals.
fn sleep(slot: &Slot) {
    let slept = slot.state.compare_exchange(POSTED, SLEEPING, Ordering::Acquire, Ordering::Acquire);
    if matches!(slept, Ok(_) | Err(SLEEPING)) {
        duty::parked(|| futex::sleep_a_while(&slot.state, SLEEPING));
    }
}

/// Lets the agent's thread look.
pub(crate) fn wake_agent() {
    if let Some(waker) = WAKER.get() {
        waker.wake();
    }
}

/// The agent's side: sets what wakes its thread. That takes no lock, as a worker may fault while it wakes the thread, and wake it once
/// more. Called once, before there are workers.
pub(crate) fn set_waker(waker: Waker) {
    let _ = WAKER.set(waker);
}

/// A question.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question {
    pub(crate) number: Number,
    pub(crate) kind: Kind,
    pub(crate) words: [u64; 3],
}

/// The agent's side: takes all questions since the last call. Returns how many there were.
pub(crate) fn take(mut each: impl FnMut(Question)) -> usize {
    let mut count = 0;
    for (group, news) in NEWS.iter().enumerate() {
        if news.load(Ordering::Relaxed) == 0 {
            continue;
        }
        // Other side: the addition in `post`.
        let mut bits = news.swap(0, Ordering::Acquire);
        while bits != 0 {
            let number = group * 64 + bits.trailing_zeros() as usize;
            bits &= bits - 1;
            let slot = &SLOTS[number];
            let kind = Kind::of(slot.kind.load(Ordering::Relaxed));
            let words = std::array::from_fn(|i| slot.words[i].load(Ordering::Relaxed));
            count += 1;
            each(Question { number: number as Number, kind, words });
        }
    }
    count
}

/// Is this a slot's number?
pub(crate) fn is_number(number: Number) -> bool {
    (number as usize) < COUNT
}

/// The agent's side: answers, and lets the worker go on. Returns whether it slept.
pub(crate) fn answer(number: Number, answers: [u64; 2]) -> bool {
    let slot = &SLOTS[number as usize];
    slot.answers[0].store(answers[0], Ordering::Relaxed);
    slot.answers[1].store(answers[1], Ordering::Relaxed);
    // Other side: the loads in `is_answered` and `sleep`.
    let slept = slot.state.swap(DONE, Ordering::Release) == SLEEPING;
    if slept {
        futex::wake(&slot.state, 1);
    }
    slept
}

/// The agent's side: from now on whoever asks wakes its thread. True if somebody has asked meanwhile.
#[must_use]
pub(crate) fn announce_sleep() -> bool {
    ASLEEP.store(1, Ordering::Relaxed);
    // Other side: the fence in `post`.
    fence(Ordering::SeqCst);
    NEWS.iter().any(|news| news.load(Ordering::Relaxed) != 0)
}

/// The agent's side: somebody looks at what is asked.
pub(crate) fn retract_sleep() {
    ASLEEP.store(0, Ordering::Relaxed);
}
