//! The launcher's loop over a running job.
//!
//! `mod.rs` makes it from a [`Launch`]; `link.rs` reports events of each node, `rounds.rs` keeps the exchanges.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use signal_hook::iterator::Signals;

use super::input::Input;
use super::link::{Link, Target};
use super::output::Output;
use super::rounds::{Rounds, Send};
use super::trouble::{Failure, FailureReason, LaunchError, Outcome};
use super::{Event, Heard, Launch};
use crate::Node;
use crate::clock::LONG;
use crate::start::LONGEST;
use crate::start::frame::{self, Ending, Frame};
use crate::start::secret::Secret;

/// The most logins under way at once on one host: sshd refuses some where there are more than ten.
const LOGINS: usize = 8;

/// The time that the processes leading to a node have to end after the connection was cut.
const LAST_GRACE: Duration = Duration::from_secs(2);

/// The progress of a node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Phase {
    Waiting,
    /// The process that leads to the agent was started.
    Reaching,
    /// The agent has its order.
    Starting,
    Running,
    /// The program has ended, or will never start; the connection to its agent has not closed yet.
    Ended,
    Closed,
}

/// A running job.
pub(super) struct Job<'a> {
    launch: &'a Launch,
    secret: Secret,
    links: Vec<Option<Link>>,
    phases: Vec<Phase>,
    rounds: Rounds,
    input: Input,
    output: Output,
    events: Receiver<Event>,
    sender: Sender<Event>,
    /// The time by which all nodes must run.
    start_by: Instant,
    failure: Option<Failure>,
    /// The last signal that was passed on.
    interrupted: Option<u8>,
    /// The time at which nodes that still run are cut off, and the time at which the processes leading to them are killed.
    cut_at: Option<Instant>,
    kill_at: Option<Instant>,
    killed: bool,
}

impl<'a> Job<'a> {
    pub(super) fn start(
        launch: &'a Launch,
        secret: Secret,
        mut signals: Signals,
    ) -> Result<Job<'a>, LaunchError> {
        let (sender, events) = channel();
        let to = sender.clone();
        let heed = move || {
            for signal in signals.forever() {
                if to.send(Event::Signal(signal as u8)).is_err() {
                    return;
                }
            }
        };
        let os = |what| move |e| LaunchError::Os(what, e);
        thread::Builder::new().name("signals".into()).spawn(heed).map_err(os("a thread"))?;
        let nodes = launch.hosts.len();
        let now = Instant::now();
        Ok(Job {
            launch,
            secret,
            links: (0..nodes).map(|_| None).collect(),
            phases: vec![Phase::Waiting; nodes],
            rounds: Rounds::new(nodes),
            input: Input::start(sender.clone()).map_err(os("standard input"))?,
            output: Output::new().map_err(os("standard output"))?,
            events,
            sender,
            start_by: now.checked_add(launch.timeout).unwrap_or(now + Duration::from_secs(1 << 30)),
            failure: None,
            interrupted: None,
            cut_at: None,
            kill_at: None,
            killed: false,
        })
    }

    pub(super) fn run(mut self) -> Outcome {
        self.start_nodes();
        while self.phases.iter().any(|&phase| phase != Phase::Closed) {
            match self.next() {
                Some(Event::Node(node, heard)) => self.hear(node, heard),
                Some(Event::Input(bytes)) => self.send(0, &Frame::Input(bytes)),
                Some(Event::Signal(signal)) => self.interrupt(signal),
                None => self.look_at_clock(),
            }
            if self.kill_at.is_none() && self.phases.iter().all(|phase| *phase >= Phase::Ended) {
                // All output has come. A process that still holds a connection open does not belong to the job.
                self.kill_at = Some(Instant::now() + LAST_GRACE);
            }
        }
        Outcome { failure: self.failure }
    }

    /// The next event; `None` when a time has come.
    fn next(&self) -> Option<Event> {
        let starting = self.phases.iter().any(|phase| *phase < Phase::Running);
        let due = [starting.then_some(self.start_by), self.cut_at, self.kill_at].into_iter().flatten().min();
        let wait = due.map_or(LONG, |due| due.saturating_duration_since(Instant::now()));
        // Never disconnected, as this loop holds a sender itself.
        self.events.recv_timeout(wait).ok()
    }

    /// Starts waiting nodes, as many as their hosts let log in at once.
    fn start_nodes(&mut self) {
        for node in 0..self.phases.len() {
            let host = &self.launch.hosts[node];
            let at = |phase: &Phase| *phase == Phase::Reaching;
            let same =
                self.launch.hosts.iter().zip(&self.phases).filter(|(name, phase)| *name == host && at(phase));
            if self.phases[node] != Phase::Waiting || self.failure.is_some() || same.count() >= LOGINS {
                continue;
            }
            let alone = self.phases.len() == 1;
            let target = Target { node, host, agent: &self.launch.agent, rsh: &self.launch.rsh, alone };
            match Link::start(&target, &self.output, &self.sender) {
                Ok(link) => {
                    self.links[node] = Some(link);
                    self.phases[node] = Phase::Reaching;
                }
                Err(why) => {
                    self.phases[node] = Phase::Closed;
                    self.fail(Some(node), why);
                }
            }
        }
    }

    fn hear(&mut self, node: usize, heard: Heard) {
        let phase = self.phases[node];
        match heard {
            Heard::Opening if phase == Phase::Reaching => {
                self.phases[node] = Phase::Starting;
                // The answer to the opening that this node's agent sent.
                self.links[node].iter().for_each(|link| link.send(frame::opening().into()));
                self.send(node, &self.launch.order(node, &self.secret));
                self.start_nodes();
            }
            Heard::Opening => {}
            Heard::Frame(frame) => self.hear_frame(node, frame),
            Heard::Closed(why) => {
                self.links[node] = None;
                self.phases[node] = Phase::Closed;
                if phase < Phase::Ended {
                    match self.interrupted {
                        // The connection is closed because of the signal.
                        Some(signal) => self.fail(None, FailureReason::Interrupted(signal)),
                        None => self.fail(Some(node), why),
                    }
                }
            }
        }
    }

    fn hear_frame(&mut self, node: usize, frame: Frame) {
        match (frame, self.phases[node]) {
            (Frame::Started, Phase::Starting) => {
                self.phases[node] = Phase::Running;
                if node == 0 {
                    self.input.more();
                }
            }
            (Frame::Failed(why), Phase::Starting | Phase::Running) => {
                self.phases[node] = Phase::Ended;
                self.fail(Some(node), FailureReason::NotRun(why));
            }
            (Frame::InputTaken, Phase::Running) if node == 0 => self.input.more(),
            (Frame::Contribution { round, bytes }, Phase::Running) if bytes.len() <= LONGEST => {
                match self.rounds.give(node, round, bytes) {
                    Some(Ok(send)) => self.answer(send),
                    _ => self.fail(Some(node), FailureReason::Nonsense("an exchange out of turn".into())),
                }
            }
            (Frame::Ended(ending), Phase::Running) => {
                self.phases[node] = Phase::Ended;
                match ending {
                    Ending::Status(0) => {
                        let send = self.rounds.end(node);
                        self.answer(send);
                    }
                    Ending::Status(status) => self.fail(Some(node), FailureReason::Status(status)),
                    Ending::Signal(signal) => self.fail(Some(node), FailureReason::Signal(signal)),
                }
            }
            // Sent before the node was told to end.
            (_, Phase::Ended) => {}
            _ => self.fail(Some(node), FailureReason::Nonsense("something out of turn".into())),
        }
    }

    fn answer(&self, send: Send) {
        match send {
            Send::All { frames, given } => {
                // Who wanted to hear of it may have lost interest.
                self.launch.gathered.iter().for_each(|to| drop(to.send(given.clone())));
                let frames: Arc<[u8]> = frames.into();
                self.links.iter().flatten().for_each(|link| link.send(Arc::clone(&frames)));
            }
            Send::Gone { to, gone } => {
                to.into_iter().for_each(|to| self.send(to, &Frame::Gone { node: gone }));
            }
            Send::Nothing => {}
        }
    }

    fn send(&self, node: usize, frame: &Frame) {
        // All frames sent here were checked before to be short enough.
        if let (Some(link), Ok(bytes)) = (&self.links[node], frame::encode(frame)) {
            link.send(bytes.into());
        }
    }

    /// Passes a signal on; at the second one, cuts all nodes off.
    fn interrupt(&mut self, signal: u8) {
        if self.interrupted.replace(signal).is_some() {
            self.cut_at = Some(Instant::now());
        }
        self.end(signal);
        if self.phases.iter().all(|phase| *phase < Phase::Running || *phase == Phase::Closed) {
            // There is no program that could end by it.
            self.fail(None, FailureReason::Interrupted(signal));
        }
    }

    /// Notes a failure, which ends the job; only the first counts.
    fn fail(&mut self, node: Option<usize>, why: FailureReason) {
        if self.failure.is_some() {
            return;
        }
        let place = node.map(|node| (Node(node as u32), self.launch.hosts[node].clone()));
        self.failure = Some(Failure { place, why });
        for phase in self.phases.iter_mut().filter(|phase| **phase == Phase::Waiting) {
            *phase = Phase::Closed;
        }
        self.end(Signal::TERM.as_raw() as u8);
    }

    /// Sends running programs `signal`, and keeps others from starting.
    fn end(&mut self, signal: u8) {
        for (node, phase) in self.phases.iter().enumerate() {
            match phase {
                Phase::Running => self.send(node, &Frame::Signal(signal)),
                Phase::Reaching | Phase::Starting => {
                    self.links[node].iter().for_each(|link| link.kill(Signal::TERM));
                }
                _ => {}
            }
        }
        let now = Instant::now();
        self.cut_at.get_or_insert(now.checked_add(self.launch.grace).unwrap_or(now + LAST_GRACE));
    }

    fn look_at_clock(&mut self) {
        let now = Instant::now();
        let late = |phase: &Phase| *phase < Phase::Running;
        if now >= self.start_by
            && let Some(node) = self.phases.iter().position(late)
        {
            self.fail(Some(node), FailureReason::Timeout(self.launch.timeout));
            self.start_by = now + Duration::from_secs(1 << 30);
        }
        if self.cut_at.is_some_and(|at| now >= at) {
            // Agents whose launcher is gone kill their programs.
            self.cut_at = Some(now + Duration::from_secs(1 << 30));
            self.kill_at = Some(now + LAST_GRACE);
            if let Some(signal) = self.interrupted {
                self.fail(None, FailureReason::Interrupted(signal));
            }
            for node in 0..self.links.len() {
                if let Some(link) = &mut self.links[node] {
                    link.cut();
                }
            }
        }
        if self.kill_at.is_some_and(|at| now >= at) {
            self.kill_at = Some(now + LAST_GRACE);
            for node in 0..self.links.len() {
                match &self.links[node] {
                    Some(link) if !self.killed => link.kill(Signal::KILL),
                    // A process that left its group holds the pipe open; it is not waited for.
                    _ => self.phases[node] = Phase::Closed,
                }
            }
            self.killed = true;
        }
    }
}
