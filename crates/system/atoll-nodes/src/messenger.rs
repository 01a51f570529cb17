//! The messenger between nodes: a transport, over which messages of any length pass.
//!
//! `join` makes it, `agent` uses it as it would a transport. A message longer than the transport takes, such as the list of all
//! pages that a large region wrote, goes in parts, which arrive in order. Each has a number, so that one that a transport brought twice
//! is told, and one that it lost: a transport promises that neither happens, and the protocols stand on it.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use atoll_transport::Node;
use atoll_transport::transport::{Doze, Event, Transport, TransportError, Waker};

/// The kind of all messages but parts that others follow. Above it is the message's number, of those to one node.
const WHOLE: u16 = 1;
const PART: u16 = 2;
const KINDS: u32 = 2;
/// Numbers before they begin anew.
const NUMBERS: u16 = 1 << 13;

/// The place of a message in their order, by its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    Next,
    Again,
    /// Messages before it are lost.
    Ahead,
}

fn place(kind: u16, next: u16) -> Place {
    match next.wrapping_sub(kind >> KINDS) % NUMBERS {
        0 => Place::Next,
        behind if behind <= NUMBERS / 2 => Place::Again,
        _ => Place::Ahead,
    }
}

/// Messages that came while the nodes joined, with their kinds.
pub(crate) type Early = VecDeque<(Node, u16, Vec<u8>)>;
/// Bytes of the longest message that is put together: more than all pages of a node say at once.
const MOST: usize = 4 << 30;

/// The messenger between this node and the others.
pub(crate) struct Messenger {
    transport: Box<dyn Transport>,
    early: Early,
    /// By node: the number of the next message to it, and from it.
    next_to: Vec<u16>,
    next_from: Vec<u16>,
    /// From each node: the parts of a message that came so far.
    coming: Vec<Vec<u8>>,
    /// To each node: the rest of a message that had no room.
    going: Vec<VecDeque<(u16, Vec<u8>)>>,
    lost: Vec<bool>,
    /// The program has ended, and what the transport stands on may be taken down by libc at any moment: it is not touched any
    /// more.
    over: bool,
}

/// A look at what is asked for, when nothing comes from other nodes any more.
const LAST_LOOKS: Duration = Duration::from_millis(1);

impl Messenger {
    pub(crate) fn new(transport: Box<dyn Transport>, early: Early) -> Messenger {
        let nodes = transport.nodes() as usize;
        Messenger {
            transport,
            early,
            next_to: vec![0; nodes],
            next_from: vec![0; nodes],
            coming: vec![Vec::new(); nodes],
            going: vec![VecDeque::new(); nodes],
            lost: vec![false; nodes],
            over: false,
        }
    }

    pub(crate) fn node(&self) -> Node {
        self.transport.node()
    }

    pub(crate) fn nodes(&self) -> u32 {
        self.transport.nodes()
    }

    pub(crate) fn waker(&self) -> Waker {
        self.transport.waker()
    }

    /// The transport's bell.
    pub(crate) fn doze(&self) -> Option<Doze> {
        self.transport.doze()
    }

    /// Does a message wait for room, or a part of one?
    pub(crate) fn is_behind(&self) -> bool {
        !self.over && (self.transport.is_behind() || self.going.iter().any(|going| !going.is_empty()))
    }

    /// Sends `bytes`. `Full` refuses all of it, as with a transport.
    pub(crate) fn send(&mut self, to: Node, bytes: &[u8]) -> Result<(), TransportError> {
        if self.over {
            return Err(TransportError::Lost(to));
        }
        self.push(to.0 as usize)?;
        if self.going.get(to.0 as usize).is_some_and(|going| !going.is_empty()) {
            return Err(TransportError::Full(to));
        }
        let longest = self.transport.longest();
        if bytes.len() <= longest {
            return self.put(to, WHOLE, bytes);
        }
        let count = bytes.len().div_ceil(longest);
        let mut parts = (1..).map(|n| if n == count { WHOLE } else { PART }).zip(bytes.chunks(longest));
        let mut begun = false;
        while let Some((kind, part)) = parts.next() {
            match self.put(to, kind, part) {
                Ok(()) => begun = true,
                Err(TransportError::Full(_)) if begun => {
                    let Some(going) = self.going.get_mut(to.0 as usize) else { break };
                    going.push_back((kind, part.to_vec()));
                    going.extend(parts.map(|(kind, part)| (kind, part.to_vec())));
                    break;
                }
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Sends a message with its number.
    fn put(&mut self, to: Node, kind: u16, bytes: &[u8]) -> Result<(), TransportError> {
        let Some(next) = self.next_to.get_mut(to.0 as usize) else { return Err(TransportError::Lost(to)) };
        self.transport.send(to, *next << KINDS | kind, bytes)?;
        *next = (*next + 1) % NUMBERS;
        Ok(())
    }

    /// Sends what had no room to node `to`, as far as it has now.
    fn push(&mut self, to: usize) -> Result<(), TransportError> {
        while let Some((kind, part)) = self.going.get_mut(to).and_then(VecDeque::pop_front) {
            match self.put(Node(to as u32), kind, &part) {
                Ok(()) => {}
                Err(TransportError::Lost(_)) => self.going[to].clear(),
                Err(e) => {
                    self.going[to].push_front((kind, part));
                    return if matches!(e, TransportError::Full(_)) { Ok(()) } else { Err(e) };
                }
            }
        }
        Ok(())
    }

    /// Gives what has come to `handler`, as a transport does, in whole messages.
    pub(crate) fn progress(&mut self, handler: &mut dyn FnMut(Event<'_>)) -> Result<usize, TransportError> {
        if self.over {
            return Ok(0);
        }
        let mut told = self.early.len();
        for to in 0..self.going.len() {
            self.push(to)?;
        }
        let (coming, lost, next) = (&mut self.coming, &mut self.lost, &mut self.next_from);
        let mut wrong = None;
        let mut hear = |event: Event<'_>| match event {
            Event::Message { from, kind, bytes } => {
                let (Some(before), Some(next)) =
                    (coming.get_mut(from.0 as usize), next.get_mut(from.0 as usize))
                else {
                    return;
                };
                match place(kind, *next) {
                    Place::Next => *next = (*next + 1) % NUMBERS,
                    Place::Again => return,
                    Place::Ahead => {
                        wrong = Some(from);
                        return;
                    }
                }
                let kind = kind & ((1 << KINDS) - 1);
                if before.len() + bytes.len() > MOST {
                    wrong = Some(from);
                } else if kind == PART {
                    before.extend_from_slice(bytes);
                } else if before.is_empty() {
                    handler(Event::Message { from, kind, bytes });
                } else {
                    before.extend_from_slice(bytes);
                    handler(Event::Message { from, kind, bytes: before });
                    *before = Vec::new();
                }
            }
            Event::Lost { node, why } => {
                if let Some(lost) = lost.get_mut(node.0 as usize) {
                    *lost = true;
                }
                handler(Event::Lost { node, why });
            }
            event => handler(event),
        };
        for (from, kind, bytes) in self.early.drain(..) {
            hear(Event::Message { from, kind, bytes: &bytes });
        }
        told += self.transport.progress(&mut hear)?;
        if let Some(from) = wrong {
            self.transport.cut(from);
        }
        Ok(told)
    }

    /// Sleeps until something comes, as a transport does.
    pub(crate) fn wait(&mut self, timeout: Option<Duration>) -> Result<(), TransportError> {
        if self.over {
            std::thread::sleep(LAST_LOOKS);
            return Ok(());
        }
        if self.early.is_empty() { self.transport.wait(timeout) } else { Ok(()) }
    }

    /// Waits until all others have ended, at most `timeout`: what was said to them has arrived then, wherever it lay. After
    /// it nothing is sent and nothing comes.
    pub(crate) fn outlast(&mut self, timeout: Duration) {
        let (end, me) = (Instant::now() + timeout, self.node().0 as usize);
        loop {
            let moved = self.progress(&mut |_| ());
            let left = end.saturating_duration_since(Instant::now());
            let all = self.lost.iter().enumerate().all(|(node, lost)| *lost || node == me);
            if moved.is_err() || all || left.is_zero() || self.wait(Some(left)).is_err() {
                break;
            }
        }
        self.over = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_transport::transport::{Shm, ShmSettings, mesh};

    /// Two messengers over rings that take messages of 1000 bytes, and three of them.
    fn messengers() -> [Messenger; 2] {
        let settings = ShmSettings { lines: 64, longest: 1000, queue: 3000, ..ShmSettings::default() };
        let places = mesh(2).unwrap();
        let joining = places.into_iter().map(|place| {
            let settings = settings.clone();
            std::thread::spawn(move || Shm::join(place, settings, Duration::from_secs(10)).unwrap())
        });
        let joining: Vec<_> = joining.collect();
        let mut joined = joining.into_iter().map(|thread| thread.join().unwrap());
        [(); 2].map(|()| Messenger::new(Box::new(joined.next().unwrap()), VecDeque::new()))
    }

    #[test]
    fn messages_longer_than_the_transport_takes_arrive_whole_and_in_order() {
        let [mut here, mut there] = messengers();
        let message = |n: usize| -> Vec<u8> { (0..n * 1700).map(|i| (i * n) as u8).collect() };
        let (mut sent, mut heard) = (0, 0);
        while heard < 40 {
            if sent < 40 {
                match here.send(Node(1), &message(sent)) {
                    Ok(()) => sent += 1,
                    Err(TransportError::Full(_)) => {}
                    Err(e) => panic!("{e}"),
                }
            }
            here.progress(&mut |_| ()).unwrap();
            there
                .progress(&mut |event| {
                    if let Event::Message { bytes, .. } = event {
                        assert!(bytes == message(heard), "message {heard}");
                        heard += 1;
                    }
                })
                .unwrap();
        }
    }

    #[test]
    fn what_comes_twice_is_heard_once_and_a_gap_is_told() {
        let kind = |number: u16| (number % NUMBERS) << KINDS | WHOLE;
        for next in [0, 1, 5000, NUMBERS - 1] {
            assert_eq!(place(kind(next), next), Place::Next);
            assert_eq!(place(kind(next.wrapping_sub(1)), next), Place::Again);
            assert_eq!(place(kind(next + 1), next), Place::Ahead);
        }
        let [mut here, mut there] = messengers();
        let mut heard = Vec::new();
        for (number, bytes) in [(0, b"a"), (0, b"a"), (1, b"b"), (0, b"a"), (2, b"c")] {
            here.transport.send(Node(1), kind(number), bytes).unwrap();
        }
        while heard.len() < 3 {
            here.progress(&mut |_| ()).unwrap();
            there
                .progress(&mut |event| {
                    if let Event::Message { bytes, .. } = event {
                        heard.extend_from_slice(bytes);
                    }
                })
                .unwrap();
        }
        assert_eq!(heard, b"abc");
    }

    #[test]
    fn what_came_while_nodes_joined_comes_first() {
        let [mut here, there] = messengers();
        here.next_to[1] = 1;
        here.send(Node(1), b"second").unwrap();
        let mut there = Messenger { early: [(Node(0), WHOLE, b"first".to_vec())].into(), ..there };
        there.wait(None).unwrap();
        let mut heard = Vec::new();
        while heard.len() < 2 {
            there
                .progress(&mut |event| {
                    if let Event::Message { bytes, .. } = event {
                        heard.push(bytes.to_vec());
                    }
                })
                .unwrap();
        }
        assert_eq!(heard, [b"first".to_vec(), b"second".to_vec()]);
        drop(here);
        there.outlast(Duration::from_secs(10));
        assert_eq!(there.lost, [true, false]);
    }
}
