//! The meeting of the nodes: each joins the others, and they compare what they are.
//!
//! The runtime calls it before the program's memory is paged; `agent` works with what it found. `join` is how they are reached,
//! `identity` what is compared.

use std::time::{Duration, Instant};

use crate::heap::Inside;
use crate::identity::Identity;
use crate::numbers::Numbers;
use crate::peers::Peers;
use crate::wire::Packet;
use crate::{ORIGIN, cpus, join, mail};
use atoll_memory::managed;

/// A node that has met the others, before its agent's thread runs.
pub struct Meeting {
    pub(crate) peers: Peers,
    /// The processes of nodes on this machine.
    pub(crate) processes: Vec<Option<i32>>,
    origin: Option<Numbers>,
}

impl Meeting {
    /// On another node than the origin: the numbers of the origin's process.
    pub fn origin(&self) -> Option<&Numbers> {
        self.origin.as_ref()
    }
}

/// Joins the other nodes as `sockets`, from the launcher, says, and compares what they are: pages of `page_bytes` bytes, and where
/// `stack`, which the program needs at the same place everywhere, begins and ends.
///
/// # Errors
/// A sentence for the user.
pub fn meet(
    sockets: &str,
    (node, nodes): (u32, u32),
    page_bytes: usize,
    stack: (usize, usize),
) -> Result<Meeting, String> {
    // Whoever steps the agent changes what is made here.
    let _inside = Inside::enter();
    let control = managed::control().ok_or("an agent of a program that is not managed")?;
    let messenger = join::join(sockets, node, nodes)?;
    let peers = Peers::new(messenger, &control.nodes[node as usize]);
    cpus::set_apart(control.settings.near_bytes != u64::MAX || peers.doze().is_none());
    mail::set_waker(peers.waker());
    greet(peers, &Identity::new(page_bytes, stack))
}

/// Compares what the nodes are.
fn greet(mut peers: Peers, mine: &Identity) -> Result<Meeting, String> {
    peers.broadcast(|| Packet::Hello(mine.clone(), Numbers::own()));
    peers.flush();
    let (end, mut left) = (Instant::now() + join::MEETING, peers.nodes() - 1);
    // What came behind the others' greetings.
    let mut early = Vec::new();
    let (mut processes, mut origin) = (vec![None; peers.nodes() as usize], None);
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
                origin = Some(numbers);
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
    Ok(Meeting { peers, processes, origin })
}
