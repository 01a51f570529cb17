//! A node's agent: the thread that answers its workers (`mail`) and the other nodes' agents (`wire`).
//!
//! Runs in the node's first process, which every worker was cloned from, so that it reaches their page tables; a worker that
//! waits may step it in the thread's place (`duty`). It steps the coherence protocol (`atoll-coherence`), whose memory is
//! `memory`, speaks with the others through `peers`, and on the origin hands out locks and loops' iterations. What it does for
//! workers is in `asked`, what it does for other agents in `heard`, how phases begin in `phase`.
//!
//! Rules: it never touches paged memory but through the pager's alias: a fault of its own would wait for itself. So it
//! reads no variable of the program and calls nothing in libc that might (`getenv`, streams).

mod asked;
mod heard;
mod late;
mod mapped;
mod phase;

use std::collections::HashMap;
use std::ffi::c_void;
use std::time::{Duration, Instant};

use atoll_coherence::Impossible;
use atoll_coherence::agent::{Agent, Layout, Message};
use atoll_coherence::directory::Want;
use atoll_coherence::merge::Page;
use atoll_memory::control::{EXIT_NODE, EXIT_SETUP, NodeCount, NodeFigures};
use atoll_memory::pager::Pager;
use atoll_memory::pager::node_rights::AskNode;
use atoll_memory::sys;
use atoll_pages::Prefetcher;
use atoll_transport::Node;
use atoll_transport::transport::Doze;

use self::asked::Access;
use self::late::Late;
use self::mapped::Files;
use self::phase::Go;
use super::chunks::Chunks;
use super::direct::Direct;
use super::futexes::Futexes;
use super::hold::Hold;
use super::identity::Identity;
use super::locks::Locks;
use super::mail::{self, Kind, Number, Question};
use super::memory::Pages;
use super::peers::Peers;
use super::phases::Phases;
use super::singles::Singles;
use super::wire::{Content, Diff, Packet};
use super::{ORIGIN, calls, duty, join, measure, region};
use crate::heap::agent::Inside;
use crate::omp::pools::Pools;
use crate::start::forward;
use crate::state;
use crate::wrap::process::Numbers;

/// How long nodes wait for each other at the end.
const GOODBYE: Duration = Duration::from_secs(1);
/// Between two reports of what a node counted.
const LIVE: Duration = Duration::from_millis(900);
/// A round that did so much may have left something that came.
pub(super) const MUCH: usize = 256;

/// What is needed before the agent's thread runs.
pub(crate) struct Meeting {
    peers: Peers,
    /// The processes of nodes on this machine.
    processes: Vec<Option<i32>>,
}

/// Joins the other nodes and compares what they are.
///
/// # Errors
/// A sentence for the user.
pub(crate) fn meet(
    sockets: &str,
    (node, nodes): (u32, u32),
    page_bytes: usize,
    stack: (usize, usize),
) -> Result<Meeting, String> {
    // Whoever steps the agent changes what is made here.
    let _inside = Inside::enter();
    let control = state::control().ok_or("an agent of a program that is not managed")?;
    let way = join::join(sockets, node, nodes)?;
    let mut peers = Peers::new(way, &control.nodes[node as usize]);
    super::set_apart(control.settings.near_bytes != u64::MAX || peers.doze().is_none());
    mail::set_waker(peers.waker());
    let processes = greet(&mut peers, &Identity::new(page_bytes, stack))?;
    Ok(Meeting { peers, processes })
}

/// The CPUs this process may use.
pub(super) fn cpus() -> u32 {
    std::thread::available_parallelism().map_or(1, |n| n.get() as u32)
}

/// Compares what the nodes are; the processes of those on this machine.
fn greet(peers: &mut Peers, mine: &Identity) -> Result<Vec<Option<i32>>, String> {
    peers.broadcast(|| Packet::Hello(mine.clone(), Numbers::own()));
    peers.flush();
    let (end, mut left) = (Instant::now() + join::MEETING, peers.nodes() - 1);
    // What came behind the others' greetings.
    let mut early = Vec::new();
    let mut processes = vec![None; peers.nodes() as usize];
    while left > 0 {
        peers.receive();
        while let Some((from, packet)) = peers.next() {
            let Packet::Hello(theirs, numbers) = packet else {
                early.push((from, packet));
                continue;
            };
            left -= 1;
            processes[from.0 as usize] = numbers.process_here();
            if from.0 == ORIGIN {
                numbers.adopt();
            }
            if let Some(what) = mine.difference(&theirs) {
                return Err(format!("{from} does not run the same program as this node: {what}"));
            }
        }
        if let Some((node, why)) = peers.take_lost() {
            return Err(format!("{node} is gone: {why}"));
        }
        if left > 0 {
            if Instant::now() > end {
                return Err(format!("{left} nodes did not say what they run"));
            }
            peers.wait(Duration::from_millis(100));
        }
    }
    early.into_iter().rev().for_each(|(from, packet)| peers.put_back(from, packet));
    Ok(processes)
}

/// The agent at work.
pub(super) struct Server {
    peers: Peers,
    pager: &'static Pager,
    me: u32,
    nodes: u32,
    agent: Agent<Content, Diff>,
    pages: Pages,
    /// Workers that wait for a page.
    waiting: HashMap<Page, Vec<Number>>,
    /// Who waits for the barrier, for all workers of the node.
    arrived: Option<Number>,
    /// A region that has begun elsewhere.
    next: Option<region::Order>,
    /// Where they go on to from there.
    site: u64,
    /// Does it end the region?
    last: bool,
    late: Late,
    /// Who begins a region, which it may once nothing is under way that was asked for before.
    begins: Option<Number>,
    hold: Hold<Message<Content, Diff>>,
    locks: Locks,
    chunks: Chunks,
    singles: Singles,
    files: Files,
    /// On the origin.
    pools: Pools,
    futexes: Futexes,
    /// Where the calls lie that workers of this node wait for.
    calls: HashMap<Number, usize>,
    /// On the origin: threads of the program in the region and in regions within it, besides the first.
    more_threads: u32,
    phases: Phases,
    streams: HashMap<(Number, Access), Prefetcher>,
    /// Since when faults wait.
    asked: HashMap<Page, Instant>,
    arrived_at: Instant,
    /// They go on when the pages are here that they read first.
    waits_to_go: Vec<Go>,
    /// When the origin heard of this node's counts.
    told_at: Instant,
    counts: &'static NodeFigures,
    /// What only the agent's own thread may do is due.
    for_thread: bool,
    /// Of that, what workers asked for.
    later: Vec<Question>,
    /// Kept for its memory.
    questions: Vec<Question>,
    ending: bool,
    /// Nodes that have said goodbye.
    ended: u32,
    /// A node that went, why and when, if the program may have ended: the origin has not said so yet.
    gone: Option<(Node, String, Instant)>,
}

/// Copies that the message has its receivers drop.
fn invalidations(message: &Message<Content, Diff>) -> u64 {
    match message {
        Message::Invalidate(_) | Message::Forward(_, _, Want::Write) => 1,
        Message::Merge(orders) => orders.invalidations() as u64,
        _ => 0,
    }
}

/// What the agent does before it serves: it learns who has which page at first.
type Begin = Box<dyn FnOnce() -> Result<Layout, String> + Send>;

/// Starts the agent's thread, which runs `begin` first.
///
/// # Errors
/// A sentence for the user.
pub(crate) fn start(
    meeting: Meeting,
    begin: impl FnOnce() -> Result<Layout, String> + Send + 'static,
) -> Result<(), String> {
    let begin: Begin = Box::new(begin);
    let start = Box::into_raw(Box::new((meeting, begin)));
    // Not those that this thread's own faults on its stack are.
    let _blocked = state::SignalsBlocked::new();
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
    let (meeting, begin) = *unsafe { Box::from_raw(start.cast::<(Meeting, Begin)>()) };
    join::enter_thread();
    let _inside = Inside::enter();
    let layout = begin().unwrap_or_else(|message| state::give_up(EXIT_SETUP, &message));
    let Some(pager) = state::pager() else { state::give_up(EXIT_SETUP, "an agent without a pager") };
    // SAFETY: this thread's own executor; it handles no faults.
    let x = unsafe { state::executor(pager) };
    let Meeting { peers, processes } = meeting;
    let (me, nodes) = (peers.me(), peers.nodes());
    prefer_short_waits();
    pager.serve_by(&Workers);
    let mut server = Box::new(Server {
        peers,
        pager,
        me,
        nodes,
        // At most `MAX_NODES`.
        agent: Agent::new(me as u8, layout),
        pages: Pages::new(pager, x),
        waiting: HashMap::new(),
        arrived: None,
        next: None,
        site: 0,
        last: false,
        late: Late::default(),
        begins: None,
        hold: Hold::new(),
        locks: Locks::default(),
        chunks: Chunks::default(),
        singles: Singles::default(),
        files: Files::new(processes),
        pools: Pools::new(),
        futexes: Futexes::default(),
        calls: HashMap::new(),
        more_threads: 0,
        phases: Phases::new(pager.control().settings.prefetch != 0),
        streams: HashMap::new(),
        asked: HashMap::new(),
        arrived_at: Instant::now(),
        waits_to_go: Vec::new(),
        told_at: Instant::now(),
        counts: &pager.control().nodes[me as usize],
        for_thread: false,
        later: Vec::new(),
        questions: Vec::new(),
        ending: false,
        ended: 0,
        gone: None,
    });
    if server.pages.direct.lends() {
        server.peers.broadcast(|| Direct::offer(pager));
        server.peers.flush();
    }
    calls::start(crate::wrap::carry_out).unwrap_or_else(|message| state::give_up(EXIT_SETUP, &message));
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
    /// Tells the origin now and then what this node counted, for who looks on; returns how often.
    fn tell(&mut self) -> usize {
        if self.me == ORIGIN || self.told_at.elapsed() < LIVE {
            return 0;
        }
        self.told_at = Instant::now();
        self.peers.send(ORIGIN, Packet::Counts(self.counts.all().to_vec()));
        // What somebody sends this process is the program's.
        while let Some((signal, _)) = forward::take() {
            self.peers.send(ORIGIN, Packet::Signal { signal, raised: false });
        }
        1
    }

    /// How long until something is due that waits for its time; none if nothing does.
    fn next_time(&self) -> Option<Duration> {
        let times = [
            self.hold.longest_sleep(),
            self.late_sleep(),
            self.singles.longest_sleep(),
            self.futexes.longest_sleep(),
        ];
        times.into_iter().flatten().min()
    }

    /// How long the thread may sleep at most.
    pub(super) fn longest_sleep(&self) -> Duration {
        let longest = if self.gone.is_some() {
            GOODBYE / 10
        } else if self.me == ORIGIN {
            Duration::MAX
        } else {
            LIVE
        };
        self.next_time().map_or(longest, |left| left.min(longest))
    }

    /// Does a worker of this node run, that may use what it has? One that waits for a page may not be let wait for another's turn.
    pub(super) fn some_run(&self) -> bool {
        let waiting: usize = self.waiting.values().map(Vec::len).sum();
        self.arrived.is_none() && waiting < measure::workers()
    }

    /// Does what other nodes asked for and was held, as far as it need not wait any more; returns how much that was.
    fn let_go(&mut self) -> usize {
        let mut done = 0;
        if !self.hold.waits() {
            return done;
        }
        while let Some((from, message)) = self.hold.take(!self.some_run()) {
            done += 1;
            self.receive(from, message);
        }
        done
    }

    /// What lets one thread sleep while others step this, where they may.
    pub(super) fn doze(&self) -> Option<Doze> {
        if super::is_apart() { None } else { self.peers.doze() }
    }

    /// Sleeps until there is something to do, a second at most.
    pub(super) fn sleep(&mut self) {
        self.peers.wait(self.longest_sleep().min(Duration::from_secs(1)));
    }

    /// Does something that was said wait for room?
    pub(super) fn is_behind(&self) -> bool {
        self.peers.is_behind()
    }

    /// Does something wait for its time?
    pub(super) fn holds(&self) -> bool {
        self.hold.waits() || self.next_time().is_some()
    }

    /// Is something due that only the agent's own thread may do?
    pub(super) fn is_for_thread(&self) -> bool {
        self.for_thread
    }

    /// Does what is to be done now, by the agent's `thread` or a worker that waits; returns how much that was.
    pub(super) fn round(&mut self, thread: bool) -> usize {
        let mut done = self.peers.receive();
        if thread {
            self.end_if_gone();
            done += self.tell();
            self.for_thread = false;
            for question in std::mem::take(&mut self.later) {
                done += 1;
                self.asked(question);
            }
        }
        while let Some((from, packet)) = self.peers.next() {
            if !thread && !packet.is_for_anybody() {
                self.peers.put_back(from, packet);
                self.for_thread = true;
                return done + self.flush();
            }
            done += 1;
            self.hear(from.0, packet);
        }
        if self.peers.has_lost() {
            if thread {
                self.lose();
            } else {
                self.for_thread = true;
            }
        }
        let mut questions = std::mem::take(&mut self.questions);
        done += mail::take(|question| questions.push(question));
        for question in questions.drain(..) {
            if !thread && question.kind == Kind::Exit {
                self.later.push(question);
                self.for_thread = true;
            } else {
                self.asked(question);
            }
        }
        self.questions = questions;
        done += self.let_go() + self.serve_late() + self.answer_singles() + self.wake_in_time();
        done + self.flush()
    }

    /// Sends what was said: what it says of pages is so then. Returns how much that was.
    fn flush(&mut self) -> usize {
        self.pages.settle();
        self.peers.flush()
    }

    /// Other nodes are gone: ends this one, unless the program has ended.
    fn lose(&mut self) {
        let gone: Vec<_> = std::iter::from_fn(|| self.peers.take_lost()).collect();
        if self.ending || gone.is_empty() {
            return;
        }
        if gone.iter().any(|(node, _)| node.0 == ORIGIN) {
            // Whoever started the run says how the program ended there.
            crate::wrap::end_node();
        }
        for (node, why) in gone {
            if self.me == ORIGIN {
                Self::cannot_go_on(node, &why);
            }
            // What the origin says last to that node and to this one arrives in any order.
            self.gone.get_or_insert((node, why, Instant::now()));
        }
    }

    /// Ends this node if another one went and the origin has not said for long that the program has ended.
    fn end_if_gone(&self) {
        if let Some((node, why, at)) = &self.gone
            && at.elapsed() > GOODBYE
        {
            Self::cannot_go_on(*node, why);
        }
    }

    fn cannot_go_on(node: Node, why: &str) -> ! {
        state::give_up(EXIT_NODE, &format!("{node} is gone, and the program cannot go on without it: {why}"));
    }

    fn step(&mut self, result: Result<(), Impossible>) {
        if let Err(e) = result {
            state::give_up(EXIT_NODE, &e.to_string());
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
        for page in std::mem::take(&mut self.pages.resumed) {
            self.phases.came(page);
            if let Some(asked) = self.asked.remove(&page) {
                self.counts.add(NodeCount::FaultNs, asked.elapsed().as_nanos() as u64);
            }
            let mut asleep = None;
            let waiting = self.waiting.remove(&page);
            if waiting.is_some() {
                self.pages.settle();
            }
            for number in waiting.into_iter().flatten() {
                *asleep.get_or_insert(false) |= mail::answer(number, [0; 2]);
            }
            if let Some(asleep) = asleep
                && !region::is_many()
            {
                self.hold.given(page, asleep, Instant::now());
            }
        }
        self.let_workers_go();
        if let Some(number) = self.arrived
            && self.agent.released()
        {
            self.arrived = None;
            self.pages.merging = false;
            self.counts.add(NodeCount::Barriers, 1);
            self.counts.add(NodeCount::BarrierNs, self.arrived_at.elapsed().as_nanos() as u64);
            if self.last {
                // Before anybody goes on: what is written from now on has one writer at a time.
                region::end();
            } else {
                region::passed(self.site);
            }
            self.watch();
            self.begin_phase(self.site);
            self.go_on(Go::Worker(number));
            self.begin_next();
            for question in self.late.take() {
                self.asked(question);
            }
        }
        if self.agent.is_settled()
            && let Some(number) = self.begins.take()
        {
            self.begin_region(number);
        }
    }

    /// Tells the origin if the twins of the region that is under way take too much of this node's near memory.
    fn tell_if_crowded(&mut self) {
        if !std::mem::take(&mut self.pages.crowded) {
            return;
        }
        let function = region::order().function;
        if self.me == ORIGIN {
            region::crowded(function);
        } else {
            self.peers.send(ORIGIN, Packet::Crowded(function));
        }
    }
}
