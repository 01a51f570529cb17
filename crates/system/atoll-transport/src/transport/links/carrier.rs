//! The thread that moves a node's transport: sends the frames of links, and puts incoming ones in their queues.
//!
//! The thread waits for the transport alone, never for the users of links.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::super::{Event, LostReason, Transport, TransportError};
use super::Shared;
use super::wire::{Frame, Word};
use crate::Node;
use crate::link::LinkError;

/// The time after which a transport that had no room is tried again.
const RETRY: Duration = Duration::from_millis(10);
/// The time that other nodes have, after the end, to make room for what was sent.
const LINGER: Duration = Duration::from_secs(2);

/// The state of the thread.
pub(super) struct Carrier {
    shared: Arc<Shared>,
    transport: Box<dyn Transport>,
    /// The frames to be sent to each node.
    out: Vec<VecDeque<Frame>>,
    /// The nodes that broke the rules in the last progress.
    cuts: Vec<Node>,
}

impl Carrier {
    pub(super) fn new(shared: Arc<Shared>, transport: Box<dyn Transport>) -> Carrier {
        let out = (0..transport.nodes()).map(|_| VecDeque::new()).collect();
        Carrier { shared, transport, out, cuts: Vec::new() }
    }

    /// Carries frames until it is told to stop, or the transport fails.
    pub(super) fn run(mut self) {
        let mut end = None;
        let why = loop {
            let stop = self.fetch();
            let full = self.send();
            if stop {
                let end = *end.get_or_insert_with(|| Instant::now() + LINGER);
                if !full || Instant::now() >= end {
                    break LinkError::Closed;
                }
            }
            match self.progress() {
                Ok(0) => {}
                Ok(_) => continue,
                Err(why) => break LinkError::Broken(why.to_string()),
            }
            if let Err(why) = self.transport.wait(full.then_some(RETRY)) {
                break LinkError::Broken(why.to_string());
            }
        };
        for node in 0..self.out.len() as u32 {
            self.shared.lock().lose(Node(node), why.clone());
        }
        self.shared.opened.notify_all();
    }

    /// Takes the frames that links want to send. Returns true when it is told to stop.
    fn fetch(&mut self) -> bool {
        let mut state = self.shared.lock();
        for frame in state.out.drain(..) {
            if let Some(out) = self.out.get_mut(frame.to.0 as usize) {
                out.push_back(frame);
            }
        }
        state.stop
    }

    /// Sends as much as there is room for. Returns true if something is left.
    fn send(&mut self) -> bool {
        let mut full = false;
        for out in &mut self.out {
            while let Some(Frame { to, kind, bytes }) = out.front() {
                match self.transport.send(*to, *kind, bytes) {
                    Ok(()) => drop(out.pop_front()),
                    // The node is still joining, or has no room.
                    Err(TransportError::Full(_) | TransportError::NotProven(_)) => {
                        full = true;
                        break;
                    }
                    Err(TransportError::Lost(_)) => out.clear(),
                    Err(why) => {
                        self.shared.lock().lose(*to, LinkError::Broken(why.to_string()));
                        self.shared.opened.notify_all();
                        self.cuts.push(*to);
                        out.clear();
                    }
                }
            }
        }
        full
    }

    fn progress(&mut self) -> Result<usize, TransportError> {
        let Carrier { shared, transport, out, cuts } = self;
        let told = transport.progress(&mut |event| match event {
            Event::Message { from, kind, bytes } => {
                let mut state = shared.lock();
                let Some(streams) = state.streams(from) else { return };
                if streams.end().is_some() {
                    return;
                }
                let word = Word::read(kind, bytes);
                let opens = matches!(word, Some(Word::Open { .. }));
                match streams.take(word) {
                    Ok(Some(stream)) => state.rouse(from, stream),
                    Ok(None) if opens => shared.opened.notify_all(),
                    Ok(None) => {}
                    Err(what) => {
                        state.lose(from, LinkError::Broken(what.to_owned()));
                        shared.opened.notify_all();
                        cuts.push(from);
                    }
                }
            }
            Event::Lost { node, why } => {
                let why = match why {
                    LostReason::Closed => LinkError::Closed,
                    LostReason::Broken(what) => LinkError::Broken(what.to_owned()),
                    LostReason::WrongSecret => LinkError::Broken(why.to_string()),
                    LostReason::Died(_) | LostReason::Cut | LostReason::CutByPeer => LinkError::Died,
                };
                shared.lock().lose(node, why);
                shared.opened.notify_all();
                if let Some(out) = out.get_mut(node.0 as usize) {
                    out.clear();
                }
            }
            Event::Joined(_) | Event::Done { .. } => {}
        })?;
        for node in cuts.drain(..) {
            transport.cut(node);
        }
        Ok(told)
    }
}
