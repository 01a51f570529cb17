//! Lets in only nodes that know the job's secret: every two nodes prove it to each other before anything else passes.
//!
//! [`Proven`] stands on any transport and is one itself. Each node sends each other a fresh random challenge; the other answers
//! with a keyed hash (BLAKE3) over both challenges and both nodes' numbers. So an answer fits no other pair, direction or time,
//! and the secret is never sent. Answers are compared in constant time. Both sides then know two tags (hashes, too) that nobody
//! else knows; a transport that strangers can send to puts them on all messages ([`Transport::tag`]).
//!
//! # What it protects from
//!
//! [`Proven`] protects from nodes of another job, and from processes that find a node's address but not the secret: their
//! messages are dropped, and a node that fails the proof, or sends something else before it, is cut and reported as lost. Keys
//! of memory are taken from proven nodes only, and reach nobody else, as nothing can be sent to others. It does not protect
//! from anybody who can read or change messages on the wire: they are not encrypted, and a tag that is read there can be used
//! by the reader. Nor does it protect from anybody who speaks the protocol of the transport below: for UCX's puts and gets see
//! `ucx/`. A stranger who knows addresses can keep a job from starting, which is reported.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{
    Buffer, Event, LostReason, Memory, RESERVED_KINDS, Refused, Remote, Tags, Transport, TransportError,
    Waker,
};
use crate::Node;

const CHALLENGE: u16 = 0xffff;
const ANSWER: u16 = 0xfffe;

/// A job's secret. The starter of the job makes it and hands it to all nodes, and to nobody else.
#[derive(Clone)]
pub struct Secret([u8; 32]);

impl Secret {
    /// A secret of at least 16 random bytes; `None` if there are fewer.
    pub fn new(bytes: &[u8]) -> Option<Secret> {
        (bytes.len() >= 16).then(|| Secret(blake3::derive_key("atoll 1 proof between nodes", bytes)))
    }

    /// A new secret, as the bytes to hand to all nodes.
    pub fn random() -> std::io::Result<[u8; 32]> {
        crate::random::bytes()
    }

    /// The keyed hash for the purpose `use_`, by node `from` for node `to`.
    fn hash(&self, use_: &str, nodes: u32, from: (Node, &[u8; 32]), to: (Node, &[u8; 32])) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        // All parts but the first have fixed lengths, and the first has one of two.
        hasher.update(use_.as_bytes()).update(&nodes.to_le_bytes());
        for (node, challenge) in [from, to] {
            hasher.update(&node.0.to_le_bytes()).update(challenge);
        }
        hasher.finalize()
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

/// The state of the proof with a peer.
struct Peer {
    mine: [u8; 32],
    theirs: Option<[u8; 32]>,
    challenged: bool,
    answered: bool,
    proven: bool,
    /// Whether both have proven the secret, and this was reported.
    joined: bool,
    /// The reason why this node cut the peer, if it did.
    failed: Option<LostReason>,
    lost: bool,
}

/// A transport that lets in only nodes that know the secret. Reports [`Event::Joined`] for each node that has proven it.
pub struct Proven<T: Transport> {
    inner: T,
    secret: Secret,
    peers: Vec<Option<Peer>>,
    /// Whether a peer's proof has something to be sent or set.
    due: bool,
}

/// The reasons why not all nodes have proven the secret.
#[derive(thiserror::Error, Debug)]
pub enum JoinError {
    /// A node did not prove it in time.
    #[error("{0} has not proven the job's secret in time")]
    TimedOut(Node),
    /// A node is lost.
    #[error("{node} was lost before the job began: {why}")]
    Lost {
        /// The node.
        node: Node,
        /// The reason.
        why: LostReason,
    },
    /// This node's transport failed.
    #[error("{0}")]
    Transport(#[from] TransportError),
}

impl<T: Transport> Proven<T> {
    /// Begins the proof with all other nodes over `inner`, over which nothing was sent yet. `progress` continues it.
    pub fn new(inner: T, secret: Secret) -> std::io::Result<Proven<T>> {
        let peer = |number| {
            if Node(number) == inner.node() {
                return Ok(None);
            }
            let mine = crate::random::bytes()?;
            let peer = Peer {
                mine,
                theirs: None,
                challenged: false,
                answered: false,
                proven: false,
                joined: false,
                failed: None,
                lost: false,
            };
            Ok::<_, std::io::Error>(Some(peer))
        };
        let peers = (0..inner.nodes()).map(peer).collect::<Result<_, _>>()?;
        let mut this = Proven { inner, secret, peers, due: true };
        this.send_due();
        Ok(this)
    }

    /// The transport below.
    pub fn inner(&self) -> &T {
        &self.inner
    }

    /// Waits until all nodes have joined, for at most `timeout`. Nodes may send as soon as they joined: their events go to
    /// `handler`.
    pub fn join_all(
        &mut self,
        timeout: Duration,
        handler: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), JoinError> {
        let end = Instant::now().checked_add(timeout);
        loop {
            let mut lost = None;
            self.progress(&mut |event| {
                if let Event::Lost { node, why } = &event {
                    lost.get_or_insert((*node, why.clone()));
                }
                handler(event);
            })?;
            if let Some((node, why)) = lost {
                return Err(JoinError::Lost { node, why });
            }
            let missing = (0..).zip(&self.peers).find(|(_, peer)| peer.as_ref().is_some_and(|p| !p.joined));
            let Some((missing, _)) = missing else { return Ok(()) };
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(JoinError::TimedOut(Node(missing)));
            }
            self.inner.wait(left)?;
        }
    }

    /// Whether the node has joined and is not lost: it and this node have proven the secret to each other.
    pub fn joined(&self, node: Node) -> bool {
        self.peers.get(node.0 as usize).and_then(Option::as_ref).is_some_and(|peer| peer.joined && !peer.lost)
    }

    /// Reports nodes that joined by this node's answer, which could not be sent before. Nothing more came from such a node,
    /// which waits for the answer.
    fn tell_joined(&mut self, handler: &mut dyn FnMut(Event<'_>)) -> usize {
        let mut told = 0;
        for (number, peer) in (0..).zip(&mut self.peers) {
            let Some(peer) = peer.as_mut().filter(|peer| !peer.joined && !peer.lost) else { continue };
            if peer.proven && peer.answered && peer.failed.is_none() {
                peer.joined = true;
                told += 1;
                handler(Event::Joined(Node(number)));
            }
        }
        told
    }

    /// Refuses a node that has not proven the secret.
    fn check(&self, node: Node) -> Result<(), TransportError> {
        match self.peers.get(node.0 as usize).and_then(Option::as_ref) {
            None => Err(TransportError::NoSuchNode { node, nodes: self.nodes() }),
            Some(peer) if peer.lost || peer.failed.is_some() => Err(TransportError::Lost(node)),
            Some(peer) if !peer.joined => Err(TransportError::NotProven(node)),
            Some(_) => Ok(()),
        }
    }

    /// Sends challenges and answers, as far as there is room, and sets tags and cuts that became due in the last progress.
    fn send_due(&mut self) {
        if !std::mem::take(&mut self.due) {
            return;
        }
        let this = (self.inner.node(), self.inner.nodes());
        for (number, peer) in (0..).zip(&mut self.peers) {
            let (Some(peer), node) = (peer, Node(number)) else { continue };
            if peer.lost {
                continue;
            }
            if peer.failed.is_some() {
                self.inner.cut(node);
                continue;
            }
            if !peer.challenged {
                peer.challenged = self.inner.send(node, CHALLENGE, &peer.mine).is_ok();
            }
            // The challenge comes first, since the other node needs it to check the answer.
            let Some(theirs) = peer.theirs.filter(|_| peer.challenged) else {
                self.due |= !peer.challenged;
                continue;
            };
            let (mine, theirs) = ((this.0, &peer.mine), (node, &theirs));
            if !peer.answered {
                let answer = self.secret.hash("answer", this.1, mine, theirs);
                if self.inner.send(node, ANSWER, answer.as_bytes()).is_err() {
                    self.due = true;
                    continue;
                }
                peer.answered = true;
                let outgoing = Some(tag(&self.secret.hash("tag", this.1, mine, theirs)));
                self.inner.tag(node, Tags { outgoing, incoming: None });
            }
            if peer.proven {
                let incoming = Some(tag(&self.secret.hash("tag", this.1, theirs, mine)));
                self.inner.tag(node, Tags { outgoing: None, incoming });
            }
        }
    }
}

fn tag(hash: &blake3::Hash) -> [u8; 16] {
    let mut tag = [0; 16];
    tag.copy_from_slice(&hash.as_bytes()[..16]);
    tag
}

/// Handles a message of the proof.
fn take(
    peer: &mut Peer,
    secret: &Secret,
    (this, nodes): (Node, u32),
    (from, kind, bytes): (Node, u16, &[u8]),
) -> Result<(), LostReason> {
    match (kind, <&[u8; 32]>::try_from(bytes)) {
        // Only the first challenge counts: an answer to another one could be used elsewhere.
        (CHALLENGE, Ok(challenge)) => {
            peer.theirs.get_or_insert(*challenge);
            Ok(())
        }
        (ANSWER, Ok(_)) if peer.proven => Ok(()),
        (ANSWER, Ok(answer)) => {
            let theirs = peer.theirs.ok_or(LostReason::Broken("it answered before it challenged"))?;
            let right = secret.hash("answer", nodes, (from, &theirs), (this, &peer.mine));
            // blake3's hashes are compared in constant time.
            if right != blake3::Hash::from_bytes(*answer) {
                return Err(LostReason::WrongSecret);
            }
            peer.proven = true;
            Ok(())
        }
        _ => Err(LostReason::Broken("it did not prove the secret before it sent something else")),
    }
}

impl<T: Transport> Transport for Proven<T> {
    fn node(&self) -> Node {
        self.inner.node()
    }

    fn nodes(&self) -> u32 {
        self.inner.nodes()
    }

    fn longest(&self) -> usize {
        self.inner.longest()
    }

    fn send(&mut self, to: Node, kind: u16, bytes: &[u8]) -> Result<(), TransportError> {
        self.check(to)?;
        if kind >= RESERVED_KINDS {
            return Err(TransportError::Kind(kind));
        }
        self.inner.send(to, kind, bytes)
    }

    fn register(&mut self, memory: Arc<Memory>) -> Result<Vec<u8>, TransportError> {
        self.inner.register(memory)
    }

    fn attach(&mut self, owner: Node, key: &[u8]) -> Result<Remote, TransportError> {
        self.check(owner)?;
        self.inner.attach(owner, key)
    }

    fn detach(&mut self, remote: Remote) {
        self.inner.detach(remote);
    }

    fn put(&mut self, to: Remote, offset: u64, from: Buffer, token: u64) -> Result<(), Refused> {
        // The memory was attached, so its owner has proven the secret.
        self.inner.put(to, offset, from, token)
    }

    fn get(&mut self, from: Remote, offset: u64, into: Buffer, token: u64) -> Result<(), Refused> {
        self.inner.get(from, offset, into, token)
    }

    fn flush(&mut self, node: Node, token: u64) -> Result<(), TransportError> {
        self.check(node)?;
        self.inner.flush(node, token)
    }

    fn progress(&mut self, handler: &mut dyn FnMut(Event<'_>)) -> Result<usize, TransportError> {
        let mut told = 0;
        if self.due {
            self.send_due();
            told += self.tell_joined(handler);
        }
        let this = (self.inner.node(), self.inner.nodes());
        let (peers, secret, due) = (&mut self.peers, &self.secret, &mut self.due);
        let mut hidden = 0;
        told += self.inner.progress(&mut |event| {
            let peer = match &event {
                Event::Message { from: node, .. } | Event::Lost { node, .. } => {
                    peers.get_mut(node.0 as usize).and_then(Option::as_mut)
                }
                _ => return handler(event),
            };
            let Some(peer) = peer else {
                hidden += 1;
                return;
            };
            match event {
                Event::Message { from, kind, bytes } if peer.failed.is_none() => {
                    if peer.joined && kind < RESERVED_KINDS {
                        return handler(Event::Message { from, kind, bytes });
                    }
                    *due = true;
                    if let Err(why) = take(peer, secret, this, (from, kind, bytes)) {
                        peer.failed = Some(why);
                    } else if peer.proven && peer.answered && !peer.joined {
                        peer.joined = true;
                        return handler(Event::Joined(from));
                    }
                }
                Event::Lost { node, why } => {
                    peer.lost = true;
                    return handler(Event::Lost { node, why: peer.failed.take().unwrap_or(why) });
                }
                _ => {}
            }
            hidden += 1;
        })?;
        told -= hidden;
        if self.due {
            self.send_due();
            told += self.tell_joined(handler);
        }
        Ok(told)
    }

    fn wait(&mut self, timeout: Option<Duration>) -> Result<(), TransportError> {
        if self.due {
            return Ok(());
        }
        self.inner.wait(timeout)
    }

    fn waker(&self) -> Waker {
        self.inner.waker()
    }

    fn cut(&mut self, node: Node) {
        self.inner.cut(node);
    }

    fn tag(&mut self, _node: Node, _tags: Tags) {
        // The proof sets the tags, not its user.
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(text: &[u8]) -> Secret {
        Secret::new(text).unwrap()
    }

    fn peer(mine: u8, theirs: Option<u8>) -> Peer {
        let theirs = theirs.map(|byte| [byte; 32]);
        Peer {
            mine: [mine; 32],
            theirs,
            challenged: true,
            answered: false,
            proven: false,
            joined: false,
            failed: None,
            lost: false,
        }
    }

    /// The result of node 1's `answer` at node 0, which sent challenge 1s and received 2s.
    fn take_answer(answer: &[u8]) -> Result<(), LostReason> {
        let from = (Node(1), ANSWER, answer);
        take(&mut peer(1, Some(2)), &secret(b"the secret of the job"), (Node(0), 2), from)
    }

    /// The answer by `from` to `to`, with their challenges.
    fn answer(text: &[u8], nodes: u32, from: (u32, u8), to: (u32, u8)) -> [u8; 32] {
        let (from, to) = ((Node(from.0), &[from.1; 32]), (Node(to.0), &[to.1; 32]));
        *secret(text).hash("answer", nodes, from, to).as_bytes()
    }

    #[test]
    fn only_the_right_answer_is_taken() {
        let right = b"the secret of the job";
        assert_eq!(take_answer(&answer(right, 2, (1, 2), (0, 1))), Ok(()));
        // In turn: another secret; a mirrored answer; one from an earlier proof; another node's; another job's size; one cut
        // off.
        let wrong = [
            answer(b"the secret of a job!!", 2, (1, 2), (0, 1)),
            answer(right, 2, (0, 1), (1, 2)),
            answer(right, 2, (1, 2), (0, 9)),
            answer(right, 2, (1, 9), (0, 1)),
            answer(right, 2, (2, 2), (0, 1)),
            answer(right, 3, (1, 2), (0, 1)),
        ];
        for wrong in wrong {
            assert_eq!(take_answer(&wrong), Err(LostReason::WrongSecret));
        }
        assert!(matches!(take_answer(b"short"), Err(LostReason::Broken(_))));
        assert!(Secret::new(b"too short").is_none());
    }

    #[test]
    fn an_early_or_second_word_changes_nothing() {
        let key = secret(b"the secret of the job");
        let mut early = peer(1, None);
        assert!(matches!(
            take(&mut early, &key, (Node(0), 2), (Node(1), ANSWER, &[0; 32])),
            Err(LostReason::Broken(_))
        ));
        assert!(matches!(
            take(&mut early, &key, (Node(0), 2), (Node(1), 5, b"hello")),
            Err(LostReason::Broken(_))
        ));
        let mut twice = peer(1, None);
        for challenge in [[2; 32], [3; 32]] {
            assert_eq!(take(&mut twice, &key, (Node(0), 2), (Node(1), CHALLENGE, &challenge)), Ok(()));
        }
        assert_eq!(twice.theirs, Some([2; 32]));
        let right = answer(b"the secret of the job", 2, (1, 2), (0, 1));
        assert_eq!(take(&mut twice, &key, (Node(0), 2), (Node(1), ANSWER, &right)), Ok(()));
        assert!(twice.proven);
        assert_eq!(take(&mut twice, &key, (Node(0), 2), (Node(1), ANSWER, &[0; 32])), Ok(()));
    }
}
