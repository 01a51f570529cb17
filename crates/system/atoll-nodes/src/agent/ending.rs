//! The program's end on all nodes, and nodes that go before it.
//!
//! The origin tells the others that the program has ended and waits for their goodbye, not for long. A node that goes before ends the
//! run. `agent`'s rounds come here, `asked` where a worker ends the program, and `heard` where another node says so.

use std::time::{Duration, Instant};

use atoll_memory::control::EXIT_NODE;
use atoll_memory::ending::give_up;
use atoll_transport::Node;

use super::Server;
use crate::ORIGIN;
use crate::program::End;
use crate::wire::Packet;

/// Nodes wait so long for each other at the end.
const GOODBYE: Duration = Duration::from_secs(1);

/// The state of the program's end.
#[derive(Default)]
pub(super) struct Ending {
    /// The program has ended.
    begun: bool,
    /// On the origin: the number of nodes that have said goodbye.
    pub(super) ended: u32,
    /// A node that went, why and when, if the program may have ended: the origin has not said so yet.
    gone: Option<(Node, String, Instant)>,
}

impl Ending {
    /// The longest time that the thread may sleep while it is not known why a node went.
    pub(super) fn longest_sleep(&self) -> Option<Duration> {
        self.gone.is_some().then_some(GOODBYE / 10)
    }

    /// Ends this node if another one went and the origin has not said for long that the program has ended.
    pub(super) fn end_if_gone(&self) {
        if let Some((node, why, at)) = &self.gone
            && at.elapsed() > GOODBYE
        {
            cannot_go_on(*node, why);
        }
    }
}

fn cannot_go_on(node: Node, why: &str) -> ! {
    give_up(EXIT_NODE, &format!("{node} is gone, and the program cannot go on without it: {why}"));
}

impl Server {
    /// Other nodes are gone: ends this one, unless the program has ended.
    pub(super) fn lose(&mut self) {
        let gone: Vec<_> = std::iter::from_fn(|| self.peers.take_lost()).collect();
        if self.ending.begun || gone.is_empty() {
            return;
        }
        if gone.iter().any(|(node, _)| node.0 == ORIGIN) {
            // Whoever started the run says how the program ended there.
            self.program.end(End::OfNode);
        }
        for (node, why) in gone {
            if self.me == ORIGIN {
                cannot_go_on(node, &why);
            }
            // What the origin says last to that node and to this one arrives in any order.
            self.ending.gone.get_or_insert((node, why, Instant::now()));
        }
    }

    /// On another node than the origin, where the program has ended: says goodbye and ends this node.
    pub(super) fn leave(&mut self) {
        self.ending.begun = true;
        let peers = &mut self.peers;
        self.program.report(&mut |message| peers.send(ORIGIN, Packet::Program(message)));
        self.peers.send(ORIGIN, Packet::Goodbye(self.counts.all().to_vec()));
        self.pages.settle();
        self.peers.deliver(GOODBYE);
        self.program.end(End::OfNode);
    }

    /// On the origin, where the program has ended: tells the other nodes and waits for their goodbye.
    pub(super) fn end_others(&mut self, status: i32) {
        self.ending.begun = true;
        self.peers.broadcast(|| Packet::Exit(status));
        self.pages.settle();
        self.peers.deliver(GOODBYE);
        let until = Instant::now() + GOODBYE;
        while self.ending.ended + 1 < self.nodes && Instant::now() < until {
            if self.round(true) == 0 {
                self.peers.wait(Duration::from_millis(10));
            }
        }
        // Nodes that said goodbye have heard all that was said to them. Over a network that is not enough: what was acknowledged
        // may still be on its way out of this process.
        if self.ending.ended + 1 < self.nodes || self.peers.doze().is_none() {
            self.peers.outlast(GOODBYE);
        }
    }

    /// On the origin: a worker of another node ended the program; `handlers`: what it registered for its end is to run.
    pub(super) fn end_by_node(&mut self, status: i32, handlers: bool) {
        if handlers {
            // The thread that runs them needs this one.
            return self.program.exit(status);
        }
        self.end_others(status);
        self.program.end(End::ByNode(status));
    }
}
