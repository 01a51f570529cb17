//! Calls of functions on another node, which has what they are about: the streams that it opened, say.
//!
//! The worker that calls waits as for any question; its agent passes the call on, and threads of the other node's first process carry
//! it out, as it may wait for a lock or for input. There is one such thread, and one more whenever all may be waiting. A caller may hold
//! on to its thread, so that what it does next is done by the one that has a lock.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use atoll_memory::control::EXIT_SETUP;
use atoll_memory::ending::give_up;
use atoll_memory::futex::{Gate, Lock};
use atoll_memory::signals::SignalsBlocked;

use crate::mail::{self, Kind, Number};

/// Threads at most.
const MOST: usize = 64;

/// The outcome of a call.
#[derive(Debug, Default)]
pub struct Reply {
    /// The value that the function returned.
    pub result: i64,
    /// The value of `errno` after it; 0 where it was not changed.
    pub errno: i32,
    /// The bytes that it wrote for the caller.
    pub bytes: Vec<u8>,
}

/// A call, in pinned memory, which the agent of its node sees.
pub(crate) struct Call {
    pub(crate) to: u32,
    pub(crate) words: [u64; 4],
    pub(crate) bytes: Vec<u8>,
    pub(crate) reply: Reply,
}

/// Lets node `to` carry out what `words` and `bytes` say ([`Program::carry_out`](crate::Program::carry_out)).
pub fn call(to: u32, words: [u64; 4], bytes: &[u8]) -> Reply {
    let mut call = Box::new(Call { to, words, bytes: bytes.to_vec(), reply: Reply::default() });
    mail::post(Kind::Call, [std::ptr::from_mut(&mut *call) as u64, 0, 0]);
    call.reply
}

/// A call that has come from another node.
#[derive(Debug)]
pub(crate) struct Come {
    pub(crate) from: u32,
    pub(crate) by: Number,
    pub(crate) words: [u64; 4],
    pub(crate) bytes: Vec<u8>,
}

impl Come {
    fn caller(&self) -> Caller {
        (self.from, self.by)
    }
}

/// A worker: its node and its slot there.
type Caller = (u32, Number);

/// A call that was carried out, for the agent.
pub(crate) struct Done {
    pub(crate) to: u32,
    pub(crate) by: Number,
    pub(crate) reply: Reply,
}

struct Waiting {
    calls: VecDeque<Come>,
    /// Callers that hold on to a thread.
    held: Vec<Caller>,
}

static WAITING: Lock<Waiting> = Lock::new(Waiting { calls: VecDeque::new(), held: Vec::new() });
static GATE: Gate = Gate::new();
/// Threads that there are, and those of them that wait for any call.
static THREADS: AtomicUsize = AtomicUsize::new(0);
static IDLE: AtomicUsize = AtomicUsize::new(0);

/// For the agent: a call has come.
pub(crate) fn come(call: Come) {
    WAITING.lock().calls.push_back(call);
    GATE.notify();
}

/// Carries a call out: its words and bytes.
pub type CarryOut = fn([u64; 4], &[u8]) -> Reply;

static CARRY_OUT: OnceLock<CarryOut> = OnceLock::new();

/// In the node's first process: starts the first thread, which carries calls out by `carry_out`.
///
/// # Errors
/// A sentence for the user.
pub(crate) fn start(carry_out: CarryOut) -> Result<(), String> {
    // Once, by the agent.
    let _ = CARRY_OUT.set(carry_out);
    one_more()
}

fn one_more() -> Result<(), String> {
    if THREADS.fetch_add(1, Ordering::Relaxed) >= MOST {
        THREADS.fetch_sub(1, Ordering::Relaxed);
        return Ok(());
    }
    // It inherits blocked signals.
    let _blocked = SignalsBlocked::new();
    let mut thread: libc::pthread_t = 0;
    // SAFETY: the thread takes nothing and never ends.
    let error = unsafe { libc::pthread_create(&raw mut thread, std::ptr::null(), run, std::ptr::null_mut()) };
    if error == 0 {
        Ok(())
    } else {
        Err(format!("cannot start a thread for other nodes: {}", std::io::Error::from_raw_os_error(error)))
    }
}

extern "C" fn run(_: *mut c_void) -> *mut c_void {
    loop {
        IDLE.fetch_add(1, Ordering::SeqCst);
        let call = next(None);
        if IDLE.fetch_sub(1, Ordering::SeqCst) == 1
            && let Err(message) = one_more()
        {
            give_up(EXIT_SETUP, &message);
        }
        serve(call);
    }
}

/// The next call: of that caller, or of any who does not hold on to another thread.
fn next(of: Option<Caller>) -> Come {
    let mut found = None;
    GATE.wait_until(|| {
        let mut waiting = WAITING.lock();
        let held = &waiting.held;
        let fits = |call: &Come| match of {
            Some(caller) => call.caller() == caller,
            None => !held.contains(&call.caller()),
        };
        let at = waiting.calls.iter().position(fits);
        found = at.and_then(|at| waiting.calls.remove(at));
        found.is_some()
    });
    // The gate opens when there is one.
    found.unwrap_or_else(|| unreachable!("a gate that opened for nothing"))
}

/// The first word of calls by which a caller takes a thread of the other node for itself.
pub const HOLD: u64 = u64::MAX;
/// The first word of calls by which a caller lets the thread that it took go again.
pub const LET_GO: u64 = u64::MAX - 1;

fn serve(call: Come) {
    if call.words[0] != HOLD {
        return answer(&call, carry_out(&call));
    }
    let caller = call.caller();
    WAITING.lock().held.push(caller);
    // What it says first is done with the thread held, what it says when it lets go, too: a lock is taken and given back.
    let first = Come { words: [call.words[1], call.words[2], call.words[3], 0], ..call };
    answer(&first, carry_out(&first));
    loop {
        let call = next(Some(caller));
        let last = call.words[0] == LET_GO;
        let words = if last { [call.words[1], call.words[2], call.words[3], 0] } else { call.words };
        let call = Come { words, ..call };
        let reply = carry_out(&call);
        if last {
            WAITING.lock().held.retain(|held| *held != caller);
            GATE.notify();
            return answer(&call, reply);
        }
        answer(&call, reply);
    }
}

fn carry_out(call: &Come) -> Reply {
    CARRY_OUT.get().map_or_else(Reply::default, |carry_out| carry_out(call.words, &call.bytes))
}

fn answer(call: &Come, reply: Reply) {
    let done = Box::new(Done { to: call.from, by: call.by, reply });
    mail::post(Kind::Called, [std::ptr::from_ref(&*done) as u64, 0, 0]);
}
