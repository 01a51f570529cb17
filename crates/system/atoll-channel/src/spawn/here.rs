//! The loop of a node's own processes: starts them, keeps their states, and ends them with the clients that ordered them.
//!
//! The loop asks no other node, so two nodes that start processes on each other never wait for one another; `away.rs` asks, and
//! is a client of the other node's loop. Making channels with a process takes time, so each is done by a thread. All processes
//! are started by this one thread: the system kills them when the thread ends.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsString;
use std::time::Duration;

use rustix::process::Signal;

use crate::host::{Admitted, AnyLink, Bell, FromLink, Inlet, LinkClient, Outlet, Serving, admit};
use crate::service::ClientId;
use crate::spawn::away::ToAway;
use crate::spawn::child::Started;
use crate::spawn::interface::{
    BELL, Exit, ProcessError, SpawnError, Spawning, SpawningService, State, Unreachable,
};
use crate::spawn::letter::Letter;
use crate::spawn::order::{Capability, MOST_CAPABILITY, MOST_WORDS, Order, ProcessId};
use crate::spawn::reaper::Reaper;
use atoll_transport::Channel;
use atoll_transport::Node;

/// The most processes that run at once.
const MOST: usize = 4096;
/// The most ended processes that are remembered for clients that may ask.
const MOST_ENDED: usize = 4096;

/// An event that other threads hand to the loop.
pub(super) enum ToHere {
    /// A process of this node, or another node's service.
    Client(Box<Channel>, Bell),
    /// Another node's service, over a link for its calls.
    ClientBy(AnyLink, Bell),
    /// A message came over such a link.
    Link(FromLink),
    /// The process with this number has ended.
    Ended(u64),
    /// The channels of the worker with this number were made; `None` if not in time.
    Greeted(u64, Option<(Box<Channel>, Bell)>),
}

/// A process, running or ended.
struct Child {
    id: ProcessId,
    orderer: ClientId,
    /// The system's process; `None` once it has ended.
    started: Option<Started>,
    /// The letter of a process that waits for its capability, and the time that the process may take.
    unsent: Option<Letter>,
    ready_within: Option<Duration>,
    /// Whether a thread makes channels with it.
    greeting: bool,
    ready: bool,
    late: bool,
    exit: Option<Exit>,
    /// The clients that asked for its state.
    interested: BTreeSet<ClientId>,
}

impl Child {
    fn state(&self) -> State {
        match self.exit {
            // For a worker that was ready and ended at once, it is chance which of the two is seen first.
            Some(exit) if !self.greeting => State::Ended { exit, ready: self.ready },
            _ if self.ready => State::Running,
            _ => State::Starting,
        }
    }
}

/// The loop of the node's processes. Dropping it ends all of them.
pub(super) struct Here {
    outlet: Outlet<ToHere>,
    /// The clients that come over links.
    links: HashMap<ClientId, LinkClient>,
    bells: HashMap<ClientId, Bell>,
    processes: Processes,
}

/// The state apart from the clients.
struct Processes {
    node: Node,
    directory: OsString,
    inlet: Inlet<ToHere>,
    away: Inlet<ToAway>,
    reaper: Reaper,
    children: BTreeMap<u64, Child>,
    running: usize,
    /// The last number given.
    serial: u64,
    /// The clients to ring for.
    roused: BTreeSet<ClientId>,
}

impl Here {
    /// The loop for node `node`, whose services' sockets lie in `directory`.
    pub(super) fn new(
        node: Node,
        directory: OsString,
        outlet: Outlet<ToHere>,
        away: Inlet<ToAway>,
    ) -> std::io::Result<Here> {
        let inlet = outlet.inlet.clone();
        let reaper = Reaper::start({
            let inlet = inlet.clone();
            move |serial| {
                // An error means that the loop has ended, and its children with it.
                let _ = inlet.send(ToHere::Ended(serial));
            }
        })?;
        let processes = Processes {
            node,
            directory,
            inlet,
            away,
            reaper,
            children: BTreeMap::new(),
            running: 0,
            serial: 0,
            roused: BTreeSet::new(),
        };
        Ok(Here { outlet, links: HashMap::new(), bells: HashMap::new(), processes })
    }

    fn add(&mut self, channel: Channel, bell: Bell) {
        // An error means that it is gone again, or cannot be watched; dropping its channel tells it.
        if let Ok(client) = self.outlet.clients.add(channel) {
            self.bells.insert(client, bell);
        }
    }

    fn add_link(&mut self, calls: AnyLink, bell: Bell) {
        let inlet = self.processes.inlet.clone();
        let tell = move |from| inlet.send(ToHere::Link(from));
        // An error means that the system refuses a thread; dropping the link tells the other node.
        if let Ok(client) = LinkClient::start("atoll spawn link", calls, tell) {
            self.bells.insert(client.id, bell);
            self.links.insert(client.id, client);
        }
    }

    /// Forgets a client that is gone, and ends the processes that it ordered.
    fn gone(&mut self, client: ClientId) {
        self.links.remove(&client);
        self.bells.remove(&client);
        self.processes.orderer_gone(client);
    }
}

impl Serving for Here {
    type Event = ToHere;

    fn outlet(&mut self) -> &mut Outlet<ToHere> {
        &mut self.outlet
    }

    fn event(&mut self, event: ToHere) {
        match event {
            ToHere::Client(channel, bell) => self.add(*channel, bell),
            ToHere::ClientBy(calls, bell) => self.add_link(calls, bell),
            ToHere::Link(FromLink::Said(client, said)) => {
                let mut asked = Asked { processes: &mut self.processes, client };
                let served =
                    self.links.get_mut(&client).map(|link| link.serve(said, SpawningService(&mut asked)));
                if served == Some(false) {
                    self.gone(client);
                }
            }
            ToHere::Link(FromLink::Gone(client)) => self.gone(client),
            ToHere::Ended(serial) => self.processes.ended(serial),
            ToHere::Greeted(serial, made) => {
                self.processes.greeted(serial, made.is_some());
                if let Some((channel, bell)) = made {
                    self.add(*channel, bell);
                }
            }
        }
    }

    fn serve(&mut self, client: ClientId) {
        let mut asked = Asked { processes: &mut self.processes, client };
        if self.outlet.clients.serve(client, SpawningService(&mut asked)).is_err() {
            self.gone(client);
        }
    }

    fn ring(&mut self) {
        for client in std::mem::take(&mut self.processes.roused) {
            if let Some(bell) = self.bells.get(&client) {
                bell.ring(BELL);
            }
        }
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        // All are signalled first, as each takes a moment to end.
        for started in self.children.values().filter_map(|child| child.started.as_ref()) {
            let _ = started.signal(Signal::KILL);
        }
        for started in self.children.values_mut().filter_map(|child| child.started.take()) {
            started.end();
        }
    }
}

impl Processes {
    fn spawn(&mut self, orderer: ClientId, order: &Order) -> Result<ProcessId, SpawnError> {
        let node = self.node;
        let bytes = order.bytes();
        if bytes > MOST_WORDS {
            return Err(SpawnError::LongOrder { bytes: bytes as u64 });
        }
        let capability = match &order.capability {
            Capability::Now(bytes) if bytes.len() > MOST_CAPABILITY => {
                return Err(SpawnError::LongCapability { bytes: bytes.len() as u64 });
            }
            Capability::Now(bytes) => Some(bytes.clone()),
            Capability::Later => None,
        };
        if self.running >= MOST {
            return Err(SpawnError::TooMany { node, most: MOST as u32 });
        }
        let directory = (crate::host::NODE_DIRECTORY, self.directory.as_os_str());
        let started = Started::start(order, node, &[directory])?;
        self.serial += 1;
        let id = ProcessId { node, serial: self.serial, process: started.process() };
        if let Err(e) = self.reaper.watch(&started.pidfd, id.serial) {
            started.end();
            let program = order.program_name();
            return Err(SpawnError::Os { program, node, why: format!("epoll_ctl: {e}") });
        }
        let worker = order.ready_within.is_some();
        let child = Child {
            id,
            orderer,
            started: Some(started),
            unsent: Some(Letter { id, capability: Vec::new(), worker }),
            ready_within: order.ready_within.map(Duration::from_millis),
            greeting: false,
            ready: !worker,
            late: false,
            exit: None,
            interested: BTreeSet::new(),
        };
        self.children.insert(id.serial, child);
        self.running += 1;
        if let Some(capability) = capability {
            self.send_letter(id.serial, capability);
        }
        Ok(id)
    }

    /// Sends a process its letter, and begins to wait for it if it is a worker.
    fn send_letter(&mut self, serial: u64, capability: Vec<u8>) {
        let Some(child) = self.children.get_mut(&serial) else { return };
        let (Some(letter), Some(started)) = (child.unsent.take(), &child.started) else { return };
        // An error means that it has ended, which is reported, or that it cannot read the letter, which it tells.
        let _ = Letter { capability, ..letter }.send(&started.socket);
        let (Some(within), Ok(socket)) = (child.ready_within, started.socket.try_clone()) else { return };
        let (node, here, away) = (self.node, self.inlet.clone(), self.away.clone());
        let thread = std::thread::Builder::new().name("atoll greeting".into()).stack_size(256 << 10);
        let greeting = thread.spawn(move || {
            let made = admit(&socket, node, [&|| here.seat(), &|| away.seat()], Some(within));
            let made = made.and_then(|Admitted { calls: [calls, theirs], bell }| {
                away.send(ToAway::Client(theirs, bell.clone())).ok()?;
                Some((calls, bell))
            });
            // An error means that the loop has ended, and the process with it.
            let _ = here.send(ToHere::Greeted(serial, made));
        });
        child.greeting = greeting.is_ok();
        if greeting.is_err() {
            self.greeted(serial, false);
        }
    }

    fn greeted(&mut self, serial: u64, made: bool) {
        let Some(child) = self.children.get_mut(&serial) else { return };
        child.greeting = false;
        child.ready |= made;
        if !made && let Some(started) = &child.started {
            child.late = true;
            // An error means that it has ended, which is reported.
            let _ = started.signal(Signal::KILL);
        }
        self.roused.extend(&child.interested);
    }

    fn ended(&mut self, serial: u64) {
        let Some(child) = self.children.get_mut(&serial) else { return };
        let Some(started) = child.started.take() else { return };
        let exit = started.end();
        child.exit =
            Some(if child.late && exit == Exit::Signal(Signal::KILL.as_raw()) { Exit::Late } else { exit });
        child.unsent = None;
        self.roused.extend(&child.interested);
        self.running -= 1;
        if self.children.len() - self.running > MOST_ENDED
            && let Some(oldest) = self.children.values().find(|child| child.started.is_none())
        {
            let oldest = oldest.id.serial;
            self.children.remove(&oldest);
        }
    }

    /// Ends and forgets all processes that `client` ordered.
    fn orderer_gone(&mut self, client: ClientId) {
        self.roused.remove(&client);
        let mut theirs = Vec::new();
        for child in self.children.values_mut() {
            child.interested.remove(&client);
            if child.orderer == client {
                theirs.push(child.id.serial);
            }
        }
        for started in theirs.iter().filter_map(|serial| self.children.get(serial)?.started.as_ref()) {
            let _ = started.signal(Signal::KILL);
        }
        for serial in theirs {
            let Some(mut child) = self.children.remove(&serial) else { continue };
            self.roused.append(&mut child.interested);
            if let Some(started) = child.started.take() {
                self.running -= 1;
                started.end();
            }
        }
    }

    fn child(&mut self, id: ProcessId) -> Result<&mut Child, ProcessError> {
        self.children.get_mut(&id.serial).filter(|child| child.id == id).ok_or(ProcessError::Unknown(id))
    }
}

/// The node's processes, and the client that asks.
struct Asked<'a> {
    processes: &'a mut Processes,
    client: ClientId,
}

impl Spawning for Asked<'_> {
    fn spawn(&mut self, node: Node, order: Order) -> Result<ProcessId, SpawnError> {
        if node != self.processes.node {
            let why = format!("this is the service of {}", self.processes.node);
            return Err(Unreachable { node, why }.into());
        }
        self.processes.spawn(self.client, &order)
    }

    fn hand_over(&mut self, id: ProcessId, capability: &[u8]) -> Result<(), ProcessError> {
        if capability.len() > MOST_CAPABILITY {
            return Err(ProcessError::LongCapability { bytes: capability.len() as u64 });
        }
        let child = self.processes.child(id)?;
        if let Some(exit) = child.exit {
            return Err(ProcessError::Ended { id, exit });
        }
        if child.unsent.is_none() {
            return Err(ProcessError::HandedOver(id));
        }
        self.processes.send_letter(id.serial, capability.to_owned());
        Ok(())
    }

    fn state(&mut self, id: ProcessId) -> Result<State, ProcessError> {
        let client = self.client;
        let child = self.processes.child(id)?;
        let state = child.state();
        if !matches!(state, State::Ended { .. }) {
            child.interested.insert(client);
        }
        Ok(state)
    }

    fn signal(&mut self, id: ProcessId, signal: i32) -> Result<(), ProcessError> {
        let named = Signal::from_named_raw(signal).ok_or(ProcessError::NoSignal(signal))?;
        let child = self.processes.child(id)?;
        match (&child.started, child.exit) {
            (None, exit) => Err(ProcessError::Ended { id, exit: exit.unwrap_or(Exit::Unknown) }),
            (Some(started), _) => {
                started.signal(named).map_err(|e| ProcessError::Os { id, why: format!("kill: {e}") })
            }
        }
    }
}
