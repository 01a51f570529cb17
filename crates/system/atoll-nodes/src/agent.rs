//! A node's agent: the thread that answers its workers (`mail`) and the other nodes' agents (`wire`).
//!
//! Runs in the node's first process, which every worker was cloned from, so that it reaches their page tables; a worker that
//! waits may step it in the thread's place (`duty`). It steps the coherence protocol (`atoll-coherence`), whose memory is
//! `memory`, and speaks with the others through `peers`. Each of its trades has a file and a structure: `faults` (pages that workers
//! wait for), `barriers` and `phase` (the program's rounds), `services` (what the origin has for all), `mapped` (files), `ending` (the
//! program's end). `asked` gives workers' questions to them, `heard` other agents' messages.
//!
//! Rules: it never touches paged memory but through the pager's alias: a fault of its own would wait for itself. So it
//! reads no variable of the program and calls nothing in libc that might (`getenv`, streams).

mod asked;
mod barriers;
mod ending;
mod faults;
mod heard;
mod late;
mod mapped;
mod phase;
mod services;

use std::collections::HashMap;
use std::ffi::c_void;
use std::time::{Duration, Instant};

use atoll_coherence::Impossible;
use atoll_coherence::agent::{Agent, Layout, Message};
use atoll_coherence::directory::Want;
use atoll_memory::control::{EXIT_NODE, EXIT_SETUP, NodeFigures};
use atoll_memory::ending::give_up;
use atoll_memory::pager::Pager;
use atoll_memory::pager::node_rights::AskNode;
use atoll_memory::signals::SignalsBlocked;
use atoll_memory::{managed, sys};
use atoll_transport::transport::Doze;

use crate::direct::Direct;
use crate::heap::Inside;
use crate::mail::{self, Kind, Number, Question};
use crate::meeting::Meeting;
use crate::memory::Pages;
use crate::peers::Peers;
use crate::wire::{Content, Diff, Packet};
use crate::{ORIGIN, Program, calls, cpus, duty, join, region};
use barriers::Barriers;
use ending::Ending;
use faults::Faults;
use mapped::Files;
use phase::Phase;
use services::Services;

/// Between two reports of what a node counted.
const LIVE: Duration = Duration::from_millis(900);
/// A round that did so much may have left undone something that came meanwhile.
pub(crate) const MUCH: usize = 256;

/// A set of nodes has room for all.
const _: () = assert!(atoll_memory::layout::MAX_NODES <= atoll_coherence::nodes::MOST);

/// The agent at work.
pub(crate) struct Server {
    peers: Peers,
    pager: &'static Pager,
    program: Box<dyn Program>,
    me: u32,
    nodes: u32,
    /// The coherence protocol.
    agent: Agent<Content, Diff>,
    /// The copies that it decides about.
    pages: Pages,
    faults: Faults,
    barriers: Barriers,
    phase: Phase,
    services: Services,
    files: Files,
    /// The calls that workers of this node wait for, by address.
    calls: HashMap<Number, usize>,
    ending: Ending,
    desk: Desk,
    /// The last time at which the origin heard of this node's counts.
    told_at: Instant,
    counts: &'static NodeFigures,
}

/// Questions that are not answered yet.
#[derive(Default)]
struct Desk {
    /// Something is due that only the agent's own thread may do.
    for_thread: bool,
    /// Questions of workers that only the agent's own thread may answer.
    later: Vec<Question>,
    /// Questions of the round that is under way; empty between rounds, and kept for its memory.
    questions: Vec<Question>,
}

/// The number of copies that the receivers of `message` drop.
fn invalidations(message: &Message<Content, Diff>) -> u64 {
    match message {
        Message::Invalidate(_) | Message::Forward(_, _, Want::Write) => 1,
        Message::Merge(orders) => orders.invalidations() as u64,
        _ => 0,
    }
}

/// The work of the agent before it serves: it learns which node has which page at first.
type Begin = Box<dyn FnOnce() -> Result<Layout, String> + Send>;

/// All that the agent's thread begins with.
type Start = (Meeting, Box<dyn Program>, Begin);

/// Starts the agent's thread, which runs `begin` first and then serves `program`.
///
/// # Errors
/// A sentence for the user.
pub fn start(
    meeting: Meeting,
    program: Box<dyn Program>,
    begin: impl FnOnce() -> Result<Layout, String> + Send + 'static,
) -> Result<(), String> {
    let begin: Begin = Box::new(begin);
    let start: *mut Start = Box::into_raw(Box::new((meeting, program, begin)));
    // A signal that is a fault of this thread's own stack is not blocked.
    let _blocked = SignalsBlocked::new();
    let mut thread: libc::pthread_t = 0;
    // SAFETY: the thread takes the box and never ends; it inherits blocked signals.
    let error = unsafe { libc::pthread_create(&raw mut thread, std::ptr::null(), run, start.cast()) };
    if error == 0 {
        Ok(())
    } else {
        Err(format!("cannot start the node's agent: {}", std::io::Error::from_raw_os_error(error)))
    }
}

extern "C" fn run(start: *mut c_void) -> *mut c_void {
    // SAFETY: made by `start` for this thread alone.
    let (meeting, program, begin) = *unsafe { Box::from_raw(start.cast::<Start>()) };
    join::enter_thread();
    let _inside = Inside::enter();
    let layout = begin().unwrap_or_else(|message| give_up(EXIT_SETUP, &message));
    let Some(pager) = managed::pager() else { give_up(EXIT_SETUP, "an agent without a pager") };
    prefer_short_waits();
    pager.serve_by(&Workers);
    let mut server = Server::new(meeting, program, layout, pager);
    if server.pages.direct.lends() {
        server.peers.broadcast(|| Direct::offer(pager));
        server.peers.flush();
    }
    calls::start(server.program.carry_out()).unwrap_or_else(|message| give_up(EXIT_SETUP, &message));
    duty::serve(server)
}

/// Asks the kernel for short slices of time: who has them runs at once when it wakes, in the place of a worker that computes.
/// Others wait for what this thread does, and it does little. Needs no privilege (Linux 6.12); without it all goes slower.
fn prefer_short_waits() {
    /// The kernel's `struct sched_attr`, as it was first.
    #[repr(C)]
    #[derive(Default)]
    struct Attributes {
        size: u32,
        policy: u32,
        flags: u64,
        nice: i32,
        priority: u32,
        /// For ordinary threads the slice, in nanoseconds.
        runtime: u64,
        deadline: u64,
        period: u64,
    }
    let attributes =
        Attributes { size: size_of::<Attributes>() as u32, runtime: 100_000, ..Attributes::default() };
    // SAFETY: the structure is valid for reads, of the size it says.
    let _ = unsafe {
        sys::syscall(libc::SYS_sched_setattr, [0, std::ptr::from_ref(&attributes) as usize, 0, 0, 0, 0])
    };
}

/// The workers of this node, which ask its agent by mail.
struct Workers;

impl AskNode for Workers {
    fn ask(&self, page: u32, write: bool) -> bool {
        mail::post_fault([page.into(), write.into(), 0])
    }
}

impl Server {
    fn new(
        meeting: Meeting,
        program: Box<dyn Program>,
        layout: Layout,
        pager: &'static Pager,
    ) -> Box<Server> {
        let Meeting { peers, processes, .. } = meeting;
        let (me, nodes) = (peers.me(), peers.nodes());
        // SAFETY: this thread's own executor; it handles no faults.
        let x = unsafe { managed::executor(pager) };
        Box::new(Server {
            peers,
            pager,
            program,
            me,
            nodes,
            // Less than `MAX_NODES`.
            agent: Agent::new(me as u8, layout),
            pages: Pages::new(pager, x),
            faults: Faults::new(),
            barriers: Barriers::new(),
            phase: Phase::new(pager.control().settings.prefetch != 0),
            services: Services::default(),
            files: Files::new(processes),
            calls: HashMap::new(),
            ending: Ending::default(),
            desk: Desk::default(),
            told_at: Instant::now(),
            counts: &pager.control().nodes[me as usize],
        })
    }

    /// Tells the origin now and then what this node counted, for who looks on; returns how often.
    fn tell(&mut self) -> usize {
        if self.me == ORIGIN || self.told_at.elapsed() < LIVE {
            return 0;
        }
        self.told_at = Instant::now();
        self.peers.send(ORIGIN, Packet::Counts(self.counts.all().to_vec()));
        // What somebody sends this process is the program's.
        while let Some(signal) = self.program.take_signal() {
            self.peers.send(ORIGIN, Packet::Signal { signal, raised: false });
        }
        1
    }

    /// The time until something is due that waits for its time; none if nothing waits.
    fn next_time(&self) -> Option<Duration> {
        [self.faults.hold.longest_sleep(), self.late_sleep(), self.services_sleep()]
            .into_iter()
            .flatten()
            .min()
    }

    /// The longest time that the agent's thread may sleep.
    pub(crate) fn longest_sleep(&self) -> Duration {
        let others = if self.me == ORIGIN { Duration::MAX } else { LIVE };
        let longest = self.ending.longest_sleep().unwrap_or(others);
        self.next_time().map_or(longest, |left| left.min(longest))
    }

    /// The bell at which the agent's thread sleeps while workers step the agent; none where they may not.
    pub(crate) fn doze(&self) -> Option<Doze> {
        if cpus::is_apart() { None } else { self.peers.doze() }
    }

    /// Sleeps until there is something to do, a second at most.
    pub(crate) fn sleep(&mut self) {
        self.peers.wait(self.longest_sleep().min(Duration::from_secs(1)));
    }

    /// Does a message of this node wait for room on its way?
    pub(crate) fn is_behind(&self) -> bool {
        self.peers.is_behind()
    }

    /// Does anything wait for its time?
    pub(crate) fn holds(&self) -> bool {
        self.faults.hold.waits() || self.next_time().is_some()
    }

    /// Is something due that only the agent's own thread may do?
    pub(crate) fn is_for_thread(&self) -> bool {
        self.desk.for_thread
    }

    /// One round: does all that can be done now, in the agent's own thread if `thread`, else in a worker that waits. Returns how much
    /// that was.
    pub(crate) fn round(&mut self, thread: bool) -> usize {
        let mut done = self.peers.receive();
        if thread {
            self.ending.end_if_gone();
            done += self.tell();
            self.desk.for_thread = false;
            for question in std::mem::take(&mut self.desk.later) {
                done += 1;
                self.asked(question);
            }
        }
        while let Some((from, packet)) = self.peers.next() {
            if !thread && !packet.is_for_anybody() {
                self.peers.put_back(from, packet);
                self.desk.for_thread = true;
                return done + self.flush();
            }
            done += 1;
            self.hear(from.0, packet);
        }
        if self.peers.has_lost() {
            if thread {
                self.lose();
            } else {
                self.desk.for_thread = true;
            }
        }
        done += self.take_questions(thread);
        done += self.let_go() + self.serve_late() + self.answer_in_time();
        done + self.flush()
    }

    /// Takes what workers asked meanwhile; returns how much that was.
    fn take_questions(&mut self, thread: bool) -> usize {
        let mut questions = std::mem::take(&mut self.desk.questions);
        let done = mail::take(|question| questions.push(question));
        for question in questions.drain(..) {
            if !thread && question.kind == Kind::Exit {
                self.desk.later.push(question);
                self.desk.for_thread = true;
            } else {
                self.asked(question);
            }
        }
        self.desk.questions = questions;
        done
    }

    /// Settles what was put off, so that messages about pages are true, and sends them. Returns how many were sent.
    fn flush(&mut self) -> usize {
        self.pages.settle();
        self.peers.flush()
    }

    /// Answers a worker of this node or, from the origin, of another.
    fn answer(&mut self, (node, by): (u32, Number), answers: [u64; 2]) {
        if node == self.me {
            mail::answer(by, answers);
        } else {
            self.peers.send(node, Packet::Answer { by, answers });
        }
    }

    /// Does what follows from a step of the protocol: sends its messages, lets workers go on whose pages are here, passes the barrier
    /// that is over.
    fn step(&mut self, result: Result<(), Impossible>) {
        if let Err(e) = result {
            give_up(EXIT_NODE, &e.to_string());
        }
        for (to, message) in self.agent.take_outbox() {
            if self.me == ORIGIN {
                region::invalidated(invalidations(&message));
            }
            self.peers.send(to.into(), Packet::Coherence(message));
        }
        if self.peers.has_enough() {
            self.flush();
        }
        self.resume();
        self.let_workers_go();
        self.pass_barrier();
        self.go_to_work();
        if self.agent.is_settled()
            && let Some(number) = self.phase.begins.take()
        {
            self.begin_region(number);
        }
    }
}
