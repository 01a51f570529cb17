//! A node in a test: a transport, the events that it has reported, and waiting for more with a time limit.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use atoll_transport::Node;
use atoll_transport::transport::{Buffer, Event, LostReason, Remote, Transport, TransportError};

use crate::nodes::Spot;

/// The time that anything may take, as the machine may be busy.
pub(crate) const LONG: Duration = Duration::from_secs(15);

pub(crate) type Done = (Option<Buffer>, Result<(), TransportError>);

pub(crate) struct Run<'a> {
    pub(crate) spot: &'a Spot,
    pub(crate) transport: Box<dyn Transport>,
    pub(crate) inbox: VecDeque<(Node, u16, Vec<u8>)>,
    pub(crate) done: HashMap<u64, Done>,
    pub(crate) joined: Vec<Node>,
    pub(crate) lost: HashMap<Node, LostReason>,
    tokens: u64,
}

impl<'a> Run<'a> {
    pub(crate) fn new(spot: &'a Spot, transport: Box<dyn Transport>) -> Run<'a> {
        assert_eq!((transport.node(), transport.nodes()), (spot.node, spot.nodes));
        Run {
            spot,
            transport,
            inbox: VecDeque::new(),
            done: HashMap::new(),
            joined: Vec::new(),
            lost: HashMap::new(),
            tokens: 0,
        }
    }

    pub(crate) fn others(&self) -> Vec<Node> {
        (0..self.spot.nodes).map(Node).filter(|node| *node != self.spot.node).collect()
    }

    /// A token that was not used yet.
    pub(crate) fn token(&mut self) -> u64 {
        self.tokens += 1;
        self.tokens
    }

    /// Adds the messages that came before the suite began.
    pub(crate) fn early(mut self, messages: Vec<(Node, u16, Vec<u8>)>) -> Run<'a> {
        self.inbox.extend(messages);
        self
    }

    /// Makes one progress, and checks all that the trait promises of each event.
    pub(crate) fn pump(&mut self) -> usize {
        let Run { transport, inbox, done, joined, lost, .. } = self;
        let mut told = 0;
        let events = transport.progress(&mut |event| {
            told += 1;
            match event {
                Event::Message { from, kind, bytes } => {
                    assert!(!lost.contains_key(&from), "a message of {from} after its loss");
                    inbox.push_back((from, kind, bytes.to_vec()));
                }
                Event::Done { token, buffer, result } => {
                    assert!(done.insert(token, (buffer, result)).is_none(), "token {token} ended twice");
                }
                Event::Joined(node) => joined.push(node),
                Event::Lost { node, why } => {
                    assert!(lost.insert(node, why).is_none(), "{node} was lost twice");
                }
            }
        });
        assert_eq!(events, Ok(told));
        told
    }

    /// Makes progress until the condition returns a value.
    #[track_caller]
    pub(crate) fn until<R>(&mut self, what: &str, mut so: impl FnMut(&mut Run<'a>) -> Option<R>) -> R {
        let end = Instant::now() + LONG;
        loop {
            if let Some(result) = so(self) {
                return result;
            }
            let left = end.saturating_duration_since(Instant::now());
            let lost = &self.lost;
            assert!(!left.is_zero(), "{} waited too long for {what}; lost: {lost:?}", self.spot.node);
            if self.pump() == 0 {
                self.transport.wait(Some(left.min(Duration::from_millis(500)))).unwrap();
            }
        }
    }

    /// Sends, and retries while there is no room.
    #[track_caller]
    pub(crate) fn send(&mut self, to: Node, kind: u16, bytes: &[u8]) {
        self.until("room for a message", |run| match run.transport.send(to, kind, bytes) {
            Ok(()) => Some(()),
            Err(TransportError::Full(node)) if node == to => None,
            Err(why) => panic!("{why}"),
        });
    }

    /// Waits for the next message of `from`.
    #[track_caller]
    pub(crate) fn receive(&mut self, from: Node) -> (u16, Vec<u8>) {
        self.until("a message", |run| {
            let at = run.inbox.iter().position(|(sender, _, _)| *sender == from)?;
            run.inbox.remove(at).map(|(_, kind, bytes)| (kind, bytes))
        })
    }

    /// Sends `bytes` to all, and returns the bytes that all sent, by node.
    #[track_caller]
    pub(crate) fn share(&mut self, bytes: &[u8]) -> HashMap<Node, Vec<u8>> {
        for to in self.others() {
            self.send(to, 999, bytes);
        }
        let mut all = HashMap::new();
        for from in self.others() {
            let (kind, bytes) = self.receive(from);
            assert_eq!(kind, 999);
            all.insert(from, bytes);
        }
        all
    }

    /// Starts a put or get, and retries while there is no room. Returns its token.
    #[track_caller]
    fn start(&mut self, put: bool, remote: Remote, offset: u64, buffer: Buffer) -> u64 {
        let token = self.token();
        let mut buffer = Some(buffer);
        self.until("room for an operation", |run| {
            let given = buffer.take()?;
            let started = match put {
                true => run.transport.put(remote, offset, given, token),
                false => run.transport.get(remote, offset, given, token),
            };
            match started {
                Ok(()) => Some(token),
                Err(refused) if matches!(refused.why, TransportError::Full(_)) => {
                    buffer = Some(refused.buffer);
                    None
                }
                Err(refused) => panic!("{}", refused.why),
            }
        })
    }

    #[track_caller]
    pub(crate) fn put(&mut self, remote: Remote, offset: u64, buffer: Buffer) -> u64 {
        self.start(true, remote, offset, buffer)
    }

    #[track_caller]
    pub(crate) fn get(&mut self, remote: Remote, offset: u64, buffer: Buffer) -> u64 {
        self.start(false, remote, offset, buffer)
    }

    #[track_caller]
    pub(crate) fn flush(&mut self, node: Node) {
        let token = self.token();
        self.until("room for a flush", |run| match run.transport.flush(node, token) {
            Ok(()) => Some(()),
            Err(TransportError::Full(_)) => None,
            Err(why) => panic!("{why}"),
        });
        assert!(self.ended(token).is_none());
    }

    /// Waits for an operation that must end well; returns its buffer.
    #[track_caller]
    pub(crate) fn ended(&mut self, token: u64) -> Option<Buffer> {
        let (buffer, result) = self.until("the end of an operation", |run| run.done.remove(&token));
        assert_eq!(result, Ok(()));
        buffer
    }

    /// Ends together with the others, after each has received what the others sent.
    #[track_caller]
    pub(crate) fn finish(mut self) {
        self.share(b"the end");
        assert_eq!(self.inbox.len(), 0);
        self.meet();
        let spot = self.spot;
        drop(self);
        spot.meet(pause);
    }

    /// Waits for all nodes, making progress meanwhile, as others may need it.
    pub(crate) fn meet(&mut self) {
        let spot = self.spot;
        spot.meet(|| {
            if self.pump() == 0 {
                self.transport.wait(Some(Duration::from_millis(2))).unwrap();
            }
        });
    }
}

/// Pauses briefly between two looks.
pub(crate) fn pause() {
    std::thread::sleep(Duration::from_millis(1));
}
