//! The program as a node sees it: one trait for all that a node asks of it, or of the runtime that runs it.
//!
//! The agent (`agent`) holds the program and calls it, one call at a time, in its own thread or in a worker that steps it (`duty`). The
//! program's messages to its parts on other nodes are bytes that only it understands.
//!
//! Rules for whoever implements it: as for the agent. No call may touch paged memory, wait for the agent, or take a lock whose holder
//! may fault.

use std::time::Duration;

use crate::calls::CarryOut;
use crate::files::Mapped;
use crate::region::Region;

/// Sends a message to the program's part on another node, or to all of them, by whom it is given to.
pub type Tell<'a> = &'a mut dyn FnMut(Vec<u8>);

/// A worker: its node, and a number there.
pub type Who = (u32, u32);

/// The way in which a node's part of the program ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// On the origin: a worker of another node ended the program, with this status.
    ByNode(i32),
    /// On another node: the program has ended on the origin.
    OfNode,
}

/// The program, or its runtime, of which a node asks this.
pub trait Program: Send {
    /// On the origin, where the leader has asked for it: a region begins. Says what the other nodes must know; what is given to `tell`
    /// reaches them before.
    fn begin_region(&mut self, tell: Tell<'_>) -> Region;

    /// On another node: the region begins. Who leads this node's part ([`region::wait_for`](crate::region::wait_for)) goes on soon.
    /// False: its order makes no sense.
    fn enter_region(&mut self, region: &Region) -> bool;

    /// On another node, where all workers are at the region's last barrier: what the origin is to know before it goes on.
    fn end_region(&mut self, _tell: Tell<'_>) {}

    /// The program's part on node `from` says something. False: it makes no sense.
    fn hear(&mut self, from: u32, message: &[u8]) -> bool;

    /// What the program's part here has to say to its part on another node, where a worker asked for that ([`ask::speak`](crate::ask::speak)),
    /// after a message was heard, and where this node's workers are at a barrier: that node and the message, until there is no more.
    fn speak(&mut self) -> Option<(u32, Vec<u8>)> {
        None
    }

    /// Has a message brought work for this node's workers, so that those at a barrier do it first? They count as not having come.
    fn has_work(&self) -> bool {
        false
    }

    /// On the origin: a worker asks for `what` ([`ask::program`](crate::ask::program)). None: the answer comes later, from
    /// [`serve_late`](Self::serve_late).
    fn serve(&mut self, what: u8, words: [u64; 3], who: Who) -> Option<[u64; 2]>;

    /// On the origin, while somebody waits for an answer: one that can be given now.
    fn serve_late(&mut self) -> Option<(Who, [u64; 2])> {
        None
    }

    /// On the origin, while somebody waits for an answer: how long until one is due that waits for its time.
    fn next_time(&self) -> Option<Duration> {
        None
    }

    /// On the origin: twins of the region of `code` took too much of some node's near memory.
    fn crowded(&mut self, _code: u64) {}

    /// A block of this node's heap was freed on another node.
    fn free(&mut self, block: usize);

    /// Workers are to map what another node has, by this descriptor.
    fn map_file(&mut self, map: &Mapped, fd: i32);

    /// Workers are to unmap `len` bytes at `at`, a file that another node had mapped.
    fn unmap_file(&mut self, at: usize, len: usize);

    /// On the origin: a signal came for the program on another node; `raised`: a worker of it sent it.
    fn raise(&mut self, signal: i32, raised: bool);

    /// On another node: a signal that somebody sent to the node's first process, and that is for the origin.
    fn take_signal(&mut self) -> Option<i32> {
        None
    }

    /// On another node, at the end: says what the origin is to know of this node.
    fn report(&mut self, _tell: Tell<'_>) {}

    /// The function that carries out calls from other nodes ([`calls::call`](crate::calls::call)), in threads of the node's first process.
    fn carry_out(&self) -> CarryOut;

    /// On the origin: a worker of another node called `exit`; what the program registered for its end is to run, in a thread other
    /// than the caller.
    fn exit(&mut self, status: i32);

    /// Ends the node's part of the program.
    fn end(&mut self, how: End) -> !;
}
