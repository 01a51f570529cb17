//! One other node of this machine: its channel's sending end, what waits for room in it, and the message that comes in parts.
//!
//! `mod.rs` has one of these for each other node. A message that does not fit into the ring at once goes in parts, so that sending never
//! waits.

use std::collections::VecDeque;

use crate::channel::{Peer as Process, SendError, Sender, Token};
use crate::transport::LostWhy;

/// The first byte of what goes through the channel.
const WHOLE: u8 = 0;
const PART: u8 = 1;
const END: u8 = 2;

/// Another node.
pub(super) struct Peer {
    /// None once nothing can be sent any more.
    sender: Option<Sender>,
    /// Its receiver in the wait set.
    pub(super) token: Token,
    pub(super) process: Process,
    pub(super) run: [u8; 16],
    /// What found no room in the ring yet, and how many bytes these are.
    queue: VecDeque<(u16, Vec<u8>)>,
    pub(super) queued: usize,
    /// Most bytes of a part, with its first.
    part: usize,
    /// The message of which not all parts came yet.
    coming: Option<(u16, Vec<u8>)>,
    scratch: Vec<u8>,
    pub(super) lost: Option<LostWhy>,
}

impl Peer {
    pub(super) fn new(sender: Sender, token: Token, run: [u8; 16], part: usize) -> Peer {
        Peer {
            process: sender.peer().clone(),
            sender: Some(sender),
            token,
            run,
            queue: VecDeque::new(),
            queued: 0,
            part,
            coming: None,
            scratch: Vec::new(),
            lost: None,
        }
    }

    /// Something waits for room.
    pub(super) fn waits(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Sends a message, or as much of it as has room, and keeps the rest. An error if the peer broke the channel; one that closed or died
    /// shows at the receiving end, behind what it sent before.
    pub(super) fn send(&mut self, kind: u16, bytes: &[u8]) -> Result<(), LostWhy> {
        let mut rest = bytes;
        let mut class = if bytes.len() < self.part { WHOLE } else { PART };
        loop {
            let (now, later) = rest.split_at(rest.len().min(self.part - 1));
            if class == PART && later.is_empty() {
                class = END;
            }
            self.scratch.clear();
            self.scratch.push(class);
            self.scratch.extend_from_slice(now);
            if !self.queue.is_empty() || !try_send(&mut self.sender, kind, &self.scratch)? {
                self.queued += self.scratch.len();
                self.queue.push_back((kind, std::mem::take(&mut self.scratch)));
            }
            if later.is_empty() {
                return Ok(());
            }
            rest = later;
        }
    }

    /// Sends what waits, as far as there is room.
    pub(super) fn pump(&mut self) -> Result<(), LostWhy> {
        while let Some((kind, bytes)) = self.queue.front() {
            if !try_send(&mut self.sender, *kind, bytes)? {
                return Ok(());
            }
            self.queued -= bytes.len();
            self.queue.pop_front();
        }
        Ok(())
    }

    /// Takes what came through the channel: `bytes` become the message, if it is whole now.
    pub(super) fn take(&mut self, kind: u16, bytes: &mut Vec<u8>, longest: usize) -> Result<bool, LostWhy> {
        let Some((class, data)) = bytes.split_first() else { return Err(LostWhy::Broken("an empty part")) };
        match (*class, &mut self.coming) {
            (WHOLE, None) if data.len() <= longest => Ok(true),
            (PART, None) => {
                self.coming = Some((kind, data.to_vec()));
                Ok(false)
            }
            (PART | END, Some((first, coming))) => {
                if *first != kind || coming.len() + data.len() > longest {
                    return Err(LostWhy::Broken("parts that make no message"));
                }
                coming.extend_from_slice(data);
                if *class == PART {
                    return Ok(false);
                }
                // As a whole one: with a first byte that is none of it.
                bytes.truncate(1);
                bytes.append(coming);
                self.coming = None;
                Ok(true)
            }
            _ => Err(LostWhy::Broken("parts that make no message")),
        }
    }

    /// Nothing is sent any more.
    pub(super) fn close(&mut self) {
        self.sender = None;
        self.queue.clear();
        self.queued = 0;
    }
}

/// True if it is on its way, or never will be as the peer is gone.
fn try_send(sender: &mut Option<Sender>, kind: u16, bytes: &[u8]) -> Result<bool, LostWhy> {
    let Some(open) = sender else { return Ok(true) };
    match open.try_send(kind, bytes) {
        Ok(()) => Ok(true),
        Err(SendError::Full) => Ok(false),
        Err(SendError::Closed | SendError::PeerDied) => {
            *sender = None;
            Ok(true)
        }
        Err(_) => Err(LostWhy::Broken("acknowledging what was never sent")),
    }
}
