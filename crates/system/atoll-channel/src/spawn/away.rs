//! The loop of processes on other nodes: passes its clients' requests on to the spawning services there.
//!
//! The other end of each link is the `here.rs` of that node, to which this service is a client like any other. The loop has a
//! thread of its own, so that a slow node delays no process of this one. A link that fails is not used again, because the other
//! node has then killed all that was ordered over it.
//!
//! Source: the barrelfish paper, section 6.8.1 (the local driver forwards the request to the node's).

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use rustix::process::Signal;

use crate::host::{AnyLink, Bell, Heard, Outlet, Serving, listen};
use crate::service::{CallError, ClientId};
use crate::spawn::interface::{
    BELL, ProcessError, SpawnError, Spawning, SpawningClient, SpawningService, State, Unreachable,
};
use crate::spawn::order::{Capability, MOST_CAPABILITY, MOST_WORDS, Order, ProcessId};
use atoll_transport::Channel;
use atoll_transport::LinkError;
use atoll_transport::Node;

/// The longest time that another node may take for an answer before it is given up.
const PATIENCE: Option<Duration> = Some(Duration::from_secs(10));

/// An event that other threads hand to the loop.
pub(super) enum ToAway {
    /// A process of this node.
    Client(Box<Channel>, Bell),
    /// A link to another node's service: for calls, and the bell.
    Link(Node, AnyLink, AnyLink),
    /// The bell of that node rang, over the link with this number.
    Rang(Node, u64),
    /// The link to that node with this number is broken.
    Lost(Node, u64, LinkError),
}

/// A link to another node.
struct Linked {
    calls: SpawningClient<AnyLink>,
    number: u64,
    /// Keeps the link's bell listened for.
    _heard: Heard,
    /// The clients that asked for the state of a process there.
    interested: BTreeSet<ClientId>,
}

/// The clients' side of the links to other nodes.
pub(super) struct Away {
    outlet: Outlet<ToAway>,
    bells: HashMap<ClientId, Bell>,
    /// The processes that each client ordered.
    ordered: HashMap<ClientId, Vec<ProcessId>>,
    links: Links,
}

/// The links to all nodes.
#[derive(Default)]
struct Links {
    links: HashMap<Node, Linked>,
    /// The reasons why earlier links are gone.
    lost: HashMap<Node, String>,
    /// The number of links so far.
    count: u64,
    /// The clients to ring for.
    roused: BTreeSet<ClientId>,
}

impl Links {
    /// Sends a request of `client` to `node`.
    fn call<T>(
        &mut self,
        node: Node,
        call: impl FnOnce(&mut Linked) -> Result<T, CallError>,
    ) -> Result<T, Unreachable> {
        let Some(link) = self.links.get_mut(&node) else {
            let why =
                self.lost.get(&node).map_or("this node was not linked to it", String::as_str).to_owned();
            return Err(Unreachable { node, why });
        };
        call(link).map_err(|e| {
            let why = e.to_string();
            // An error of one request does not concern the link.
            if matches!(&e, CallError::Link { why, .. } if !matches!(why, LinkError::TooLong { .. })) {
                self.lose(node, why.clone());
            }
            Unreachable { node, why }
        })
    }

    fn lose(&mut self, node: Node, why: String) {
        if let Some(mut link) = self.links.remove(&node) {
            // The clients are told when they ask.
            self.roused.append(&mut link.interested);
        }
        self.lost.insert(node, why);
    }

    /// The link to `node`, if it is the one with this number.
    fn numbered(&mut self, node: Node, number: u64) -> Option<&mut Linked> {
        self.links.get_mut(&node).filter(|link| link.number == number)
    }
}

impl Away {
    pub(super) fn new(outlet: Outlet<ToAway>) -> Away {
        let (bells, ordered) = (HashMap::new(), HashMap::new());
        Away { outlet, bells, ordered, links: Links::default() }
    }

    fn link(&mut self, node: Node, calls: AnyLink, bell: AnyLink) {
        self.links.lose(node, "this node was linked to it anew".to_owned());
        self.links.count += 1;
        let number = self.links.count;
        let linked = SpawningClient::bind(calls, PATIENCE).map_err(|e| e.to_string()).and_then(|calls| {
            let inlet = self.outlet.inlet.clone();
            let heard = listen("atoll spawn bell", bell, move |heard| {
                inlet.send(match heard {
                    Ok(()) => ToAway::Rang(node, number),
                    Err(why) => ToAway::Lost(node, number, why),
                })
            });
            let heard = heard.map_err(|e| format!("a thread for its bell: {e}"))?;
            Ok(Linked { calls, number, _heard: heard, interested: BTreeSet::new() })
        });
        match linked {
            Ok(link) => drop(self.links.links.insert(node, link)),
            Err(why) => self.links.lose(node, why),
        }
    }
}

impl Serving for Away {
    type Event = ToAway;

    fn outlet(&mut self) -> &mut Outlet<ToAway> {
        &mut self.outlet
    }

    fn event(&mut self, event: ToAway) {
        match event {
            ToAway::Client(channel, bell) => {
                // An error means that it is gone again; dropping its channel tells it.
                if let Ok(client) = self.outlet.clients.add(*channel) {
                    self.bells.insert(client, bell);
                }
            }
            ToAway::Link(node, calls, bell) => self.link(node, calls, bell),
            ToAway::Rang(node, number) => {
                if let Some(link) = self.links.numbered(node, number) {
                    let roused = link.interested.clone();
                    self.links.roused.extend(roused);
                }
            }
            ToAway::Lost(node, number, why) => {
                if self.links.numbered(node, number).is_some() {
                    self.links.lose(node, why.to_string());
                }
            }
        }
    }

    fn serve(&mut self, client: ClientId) {
        let ordered = self.ordered.entry(client).or_default();
        let mut asked = Asked { links: &mut self.links, client, ordered };
        if self.outlet.clients.serve(client, SpawningService(&mut asked)).is_ok() {
            return;
        }
        self.bells.remove(&client);
        for link in self.links.links.values_mut() {
            link.interested.remove(&client);
        }
        for id in self.ordered.remove(&client).unwrap_or_default() {
            // An error means that it has ended, or that its node is gone and has ended it.
            let _ = self.links.call(id.node, |link| link.calls.signal(id, Signal::KILL.as_raw()));
        }
    }
    fn ring(&mut self) {
        for client in std::mem::take(&mut self.links.roused) {
            if let Some(bell) = self.bells.get(&client) {
                bell.ring(BELL);
            }
        }
    }
}

/// The other nodes, and the client that asks.
struct Asked<'a> {
    links: &'a mut Links,
    client: ClientId,
    ordered: &'a mut Vec<ProcessId>,
}

impl Spawning for Asked<'_> {
    fn spawn(&mut self, node: Node, order: Order) -> Result<ProcessId, SpawnError> {
        // The other node checks it, too; checked here so that an order that is too long for the link is not sent.
        let bytes = order.bytes();
        if bytes > MOST_WORDS {
            return Err(SpawnError::LongOrder { bytes: bytes as u64 });
        }
        if let Capability::Now(bytes) = &order.capability
            && bytes.len() > MOST_CAPABILITY
        {
            return Err(SpawnError::LongCapability { bytes: bytes.len() as u64 });
        }
        let id = self.links.call(node, |link| link.calls.spawn(node, order))??;
        self.ordered.push(id);
        Ok(id)
    }

    fn hand_over(&mut self, id: ProcessId, capability: &[u8]) -> Result<(), ProcessError> {
        if capability.len() > MOST_CAPABILITY {
            return Err(ProcessError::LongCapability { bytes: capability.len() as u64 });
        }
        self.links.call(id.node, |link| link.calls.hand_over(id, capability))?
    }

    fn state(&mut self, id: ProcessId) -> Result<State, ProcessError> {
        let client = self.client;
        let state = self.links.call(id.node, |link| {
            // Noted before the request, as the bell may ring at once.
            link.interested.insert(client);
            link.calls.state(id)
        })?;
        if matches!(state, Ok(State::Ended { .. }) | Err(_)) {
            // There is nothing left to be killed.
            self.ordered.retain(|ordered| *ordered != id);
        }
        state
    }

    fn signal(&mut self, id: ProcessId, signal: i32) -> Result<(), ProcessError> {
        self.links.call(id.node, |link| link.calls.signal(id, signal))?
    }
}
