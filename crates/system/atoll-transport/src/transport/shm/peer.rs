//! One other node of this machine: its channel's sending end, messages that wait for room in it, and the message that arrives
//! in parts.
//!
//! `mod.rs` has one of these for each other node. A longer message goes as a parcel (`parcels.rs`) or, if there is no room for
//! one, in parts, so that sending never waits.

use std::collections::VecDeque;

use super::parcels::{Inbound, Outbound, WORDS};
use crate::channel::{Peer as Process, SendError, Sender, Token};
use crate::transport::LostReason;

/// The first byte of a message in the channel, which tells how the rest is to be read.
const WHOLE: u8 = 0;
const PART: u8 = 1;
const END: u8 = 2;
/// The rest tells where the whole message lies: see `parcels.rs`.
const PARCEL: u8 = 3;

/// Another node.
pub(super) struct Peer {
    /// The sending end; `None` once nothing can be sent any more.
    sender: Option<Sender>,
    /// The token of its receiver in the wait set.
    pub(super) token: Token,
    pub(super) process: Process,
    pub(super) run: [u8; 16],
    outbound: Outbound,
    inbound: Inbound,
    /// The messages that found no room in the ring yet, and their bytes.
    queue: VecDeque<(u16, Vec<u8>)>,
    pub(super) queued: usize,
    /// The most bytes of a part, with its first byte.
    part: usize,
    /// The message of which some parts have not come yet.
    coming: Option<(u16, Vec<u8>)>,
    scratch: Vec<u8>,
    pub(super) lost: Option<LostReason>,
}

impl Peer {
    pub(super) fn new(
        sender: Sender,
        token: Token,
        run: [u8; 16],
        (outbound, inbound): (Outbound, Inbound),
        part: usize,
    ) -> Peer {
        Peer {
            process: sender.peer().clone(),
            sender: Some(sender),
            token,
            run,
            outbound,
            inbound,
            queue: VecDeque::new(),
            queued: 0,
            part,
            coming: None,
            scratch: Vec::new(),
            lost: None,
        }
    }

    /// Whether something waits for room.
    pub(super) fn waits(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Sends a message, or as much of it as has room, and keeps the rest. Fails if the peer broke the channel; a peer that
    /// closed or died is noticed at the receiving end, after the messages that it sent before.
    pub(super) fn send(&mut self, kind: u16, bytes: &[u8]) -> Result<(), LostReason> {
        if let Some(words) = self.outbound.put(bytes) {
            self.scratch.clear();
            self.scratch.push(PARCEL);
            self.scratch.extend_from_slice(&words);
            return self.send_part(kind);
        }
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
            self.send_part(kind)?;
            if later.is_empty() {
                return Ok(());
            }
            rest = later;
        }
    }

    /// Sends the bytes in `scratch`, or keeps them until there is room.
    fn send_part(&mut self, kind: u16) -> Result<(), LostReason> {
        if !self.queue.is_empty() || !try_send(&mut self.sender, kind, &self.scratch)? {
            self.queued += self.scratch.len();
            self.queue.push_back((kind, std::mem::take(&mut self.scratch)));
        }
        Ok(())
    }

    /// Sends waiting messages, as far as there is room.
    pub(super) fn pump(&mut self) -> Result<(), LostReason> {
        while let Some((kind, bytes)) = self.queue.front() {
            if !try_send(&mut self.sender, *kind, bytes)? {
                return Ok(());
            }
            self.queued -= bytes.len();
            self.queue.pop_front();
        }
        Ok(())
    }

    /// Handles bytes that came through the channel: `bytes` become the message, if it is whole now.
    pub(super) fn take(
        &mut self,
        kind: u16,
        bytes: &mut Vec<u8>,
        longest: usize,
    ) -> Result<bool, LostReason> {
        let Some((class, data)) = bytes.split_first() else {
            return Err(LostReason::Broken("an empty part"));
        };
        match (*class, &mut self.coming) {
            (WHOLE, None) if data.len() <= longest => Ok(true),
            (PARCEL, None) => {
                let mut words = [0; WORDS];
                if data.len() != WORDS {
                    return Err(LostReason::Broken("a parcel that is nowhere"));
                }
                words.copy_from_slice(data);
                bytes.truncate(1);
                let taken = self.inbound.take(&words, bytes);
                if taken.is_none() || bytes.len() - 1 > longest {
                    return Err(LostReason::Broken("a parcel that is nowhere"));
                }
                Ok(true)
            }
            (PART, None) => {
                self.coming = Some((kind, data.to_vec()));
                Ok(false)
            }
            (PART | END, Some((first, coming))) => {
                if *first != kind || coming.len() + data.len() > longest {
                    return Err(LostReason::Broken("parts that make no message"));
                }
                coming.extend_from_slice(data);
                if *class == PART {
                    return Ok(false);
                }
                // The message gets a first byte that is not part of it, as a whole one has.
                bytes.truncate(1);
                bytes.append(coming);
                self.coming = None;
                Ok(true)
            }
            _ => Err(LostReason::Broken("parts that make no message")),
        }
    }

    /// Closes the sending end.
    pub(super) fn close(&mut self) {
        self.sender = None;
        self.queue.clear();
        self.queued = 0;
    }
}

/// Returns true if the message was sent, or never can be because the peer is gone.
fn try_send(sender: &mut Option<Sender>, kind: u16, bytes: &[u8]) -> Result<bool, LostReason> {
    let Some(open) = sender else { return Ok(true) };
    match open.try_send(kind, bytes) {
        Ok(()) => Ok(true),
        Err(SendError::Full) => Ok(false),
        Err(SendError::Closed | SendError::PeerDied) => {
            *sender = None;
            Ok(true)
        }
        Err(_) => Err(LostReason::Broken("it acknowledged a message that was never sent")),
    }
}
