//! The loop of a level whose registry is kept here: the node's own names, and at node 0 the global ones.
//!
//! One thread has the registry to itself. It serves each request at once (`kept.rs`), so the node's names never wait for
//! another node. `service.rs` starts it.

use std::collections::{BTreeSet, HashMap};

use crate::host::{AnyLink, Bell, FromLink, LinkClient, Outlet, Said, Serving};
use crate::names::entry::Owner;
use crate::names::interface::{NamesService, NodeNamesService, Remote};
use crate::names::kept::{Kept, KeptForNode};
use crate::names::registry::Registry;
use crate::service::ClientId;
use atoll_transport::Channel;
use atoll_transport::Node;

/// An event that other threads hand to the loop of a level.
pub(super) enum ToLevel {
    /// A process of this node.
    Process(Owner, Box<Channel>, Bell),
    /// Another node.
    Node(Node, Box<Channel>, Bell),
    /// Another node, over a link for its calls.
    NodeBy(Node, AnyLink, Bell),
    /// A message came over such a link.
    Link(FromLink),
}

/// The identity of a client.
enum Who {
    Process(Owner),
    Node(Node),
}

/// A node with a link to this one.
struct Linked {
    client: NodeClient,
    bell: Bell,
    roused: BTreeSet<Remote>,
}

/// The means by which a node's calls come.
enum NodeClient {
    Channel(ClientId),
    Link(LinkClient),
}

impl NodeClient {
    fn id(&self) -> ClientId {
        match self {
            NodeClient::Channel(id) => *id,
            NodeClient::Link(client) => client.id,
        }
    }
}

/// A registry and all clients that may ask it.
pub(super) struct LevelLoop {
    node: Node,
    /// The kind of its bells' messages.
    kind: u16,
    registry: Registry,
    outlet: Outlet<ToLevel>,
    who: HashMap<ClientId, Who>,
    bells: HashMap<Owner, Bell>,
    nodes: HashMap<Node, Linked>,
}

impl LevelLoop {
    pub(super) fn new(node: Node, kind: u16, registry: Registry, outlet: Outlet<ToLevel>) -> LevelLoop {
        let (who, bells, nodes) = (HashMap::new(), HashMap::new(), HashMap::new());
        LevelLoop { node, kind, registry, outlet, who, bells, nodes }
    }

    fn add_process(&mut self, owner: Owner, channel: Box<Channel>, bell: Bell) {
        // An error means that it is gone again, or cannot be watched; dropping its channel tells it.
        if let Ok(client) = self.outlet.clients.add(*channel) {
            self.who.insert(client, Who::Process(owner));
            self.bells.insert(owner, bell);
        }
    }

    /// Adds a node. One that is linked again has lost what it had before.
    fn add_node(&mut self, node: Node, bell: Bell, add: impl FnOnce(&mut LevelLoop) -> Option<NodeClient>) {
        if let Some(old) = self.nodes.remove(&node) {
            let old = old.client.id();
            self.outlet.clients.remove(old);
            self.who.remove(&old);
            self.registry.node_gone(node);
        }
        if let Some(client) = add(self) {
            self.who.insert(client.id(), Who::Node(node));
            self.nodes.insert(node, Linked { client, bell, roused: BTreeSet::new() });
        }
    }

    /// Serves a node's message from a link. The thread of a node that is no longer served tells it.
    fn serve_link(&mut self, client: ClientId, said: Said) {
        let Some(Who::Node(node)) = self.who.get(&client) else { return };
        let node = *node;
        let Some(Linked { client: NodeClient::Link(link), roused, .. }) = self.nodes.get_mut(&node) else {
            return;
        };
        let mut kept = KeptForNode { registry: &mut self.registry, node, roused };
        if !link.serve(said, NodeNamesService(&mut kept)) {
            self.gone(client);
        }
    }

    /// Forgets a client that is gone, with its entries.
    fn gone(&mut self, client: ClientId) {
        match self.who.remove(&client) {
            Some(Who::Process(owner)) => {
                self.bells.remove(&owner);
                self.registry.owner_gone(owner);
            }
            Some(Who::Node(node)) => {
                self.nodes.remove(&node);
                self.registry.node_gone(node);
            }
            None => {}
        }
    }
}

impl Serving for LevelLoop {
    type Event = ToLevel;

    fn outlet(&mut self) -> &mut Outlet<ToLevel> {
        &mut self.outlet
    }

    fn event(&mut self, event: ToLevel) {
        match event {
            ToLevel::Process(owner, channel, bell) => self.add_process(owner, channel, bell),
            ToLevel::Node(node, channel, bell) => self
                .add_node(node, bell, |this| this.outlet.clients.add(*channel).map(NodeClient::Channel).ok()),
            ToLevel::NodeBy(node, calls, bell) => self.add_node(node, bell, |this| {
                let inlet = this.outlet.inlet.clone();
                let tell = move |from| inlet.send(ToLevel::Link(from));
                LinkClient::start("atoll names link", calls, tell).map(NodeClient::Link).ok()
            }),
            ToLevel::Link(FromLink::Said(client, said)) => self.serve_link(client, said),
            ToLevel::Link(FromLink::Gone(client)) => self.gone(client),
        }
    }

    fn serve(&mut self, client: ClientId) {
        let registry = &mut self.registry;
        let served = match self.who.get(&client) {
            Some(Who::Process(owner)) => {
                self.outlet.clients.serve(client, NamesService(&mut Kept { registry, owner: *owner }))
            }
            Some(Who::Node(node)) => {
                let Some(Linked { roused, .. }) = self.nodes.get_mut(node) else { return };
                let mut kept = KeptForNode { registry, node: *node, roused };
                self.outlet.clients.serve(client, NodeNamesService(&mut kept))
            }
            None => return,
        };
        if served.is_err() {
            self.gone(client);
        }
    }

    fn ring(&mut self) {
        for owner in self.registry.roused() {
            if owner.node == self.node {
                if let Some(bell) = self.bells.get(&owner) {
                    bell.ring(self.kind);
                }
            } else if let Some(linked) = self.nodes.get_mut(&owner.node) {
                linked.roused.insert(Remote { process: owner.process, connection: owner.connection });
                linked.bell.ring(self.kind);
            }
        }
    }
}
