//! The order in which a wait set's members are served: the members, a queue of those with something to read, and a list of
//! those to be armed again.
//!
//! `wait_set.rs` puts receivers in it, the model checker (`model.rs`) consumers; it stands on `ready.rs`. A member is at any
//! time armed (its sender will mark its seat), queued, or unarmed; one that was handed out is unarmed until the next call.

use std::collections::VecDeque;

use crate::ring::ready::ReadySet;

/// A possible member of a wait set.
pub(crate) trait Watched {
    /// Whether there is something to read.
    fn ready(&self) -> bool;
    /// Asks the sender to notify the set; returns false if there is something to read already.
    fn arm(&self) -> bool;
    /// Takes back the request of `arm`.
    fn disarm(&self);
}

struct Member<W> {
    watched: W,
    /// Whether the member is in the queue.
    queued: bool,
    /// Whether the member is in the list of unarmed ones.
    unarmed: bool,
}

/// The members of a set, by their seats.
pub(crate) struct Turns<W> {
    members: Vec<Option<Member<W>>>,
    count: usize,
    /// The seats with something to read, in turn.
    queue: VecDeque<u32>,
    /// The seats whose senders do not notify the set.
    unarmed: Vec<u32>,
    /// The seat at which [`look_round`](Turns::look_round) continues.
    round: usize,
}

impl<W: Watched> Turns<W> {
    /// A set of `seats` empty seats.
    pub(crate) fn new(seats: u32) -> Turns<W> {
        let members = (0..seats).map(|_| None).collect();
        Turns { members, count: 0, queue: VecDeque::new(), unarmed: Vec::new(), round: 0 }
    }

    /// The number of members.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Puts a member on an empty seat.
    pub(crate) fn insert(&mut self, seat: u32, watched: W) {
        self.members[seat as usize] = Some(Member { watched, queued: false, unarmed: true });
        self.count += 1;
        self.unarmed.push(seat);
    }

    /// The member at `seat`. The caller may change it in ways that cancel the request to its sender, so it counts as unarmed.
    pub(crate) fn get(&mut self, seat: u32) -> Option<&mut W> {
        let member = self.members.get_mut(seat as usize)?.as_mut()?;
        if !member.unarmed {
            member.unarmed = true;
            self.unarmed.push(seat);
        }
        Some(&mut member.watched)
    }

    /// Takes the member from `seat`.
    pub(crate) fn remove(&mut self, seat: u32) -> Option<W> {
        let member = self.members.get_mut(seat as usize)?.take()?;
        self.count -= 1;
        if member.queued {
            self.queue.retain(|other| *other != seat);
        }
        if member.unarmed {
            self.unarmed.retain(|other| *other != seat);
        }
        member.watched.disarm();
        Some(member.watched)
    }

    /// Queues the member at `seat`, if there is one, after an event that no sender reports.
    pub(crate) fn rouse(&mut self, seat: u32, happened: impl FnOnce(&mut W)) {
        if let Some(Some(member)) = self.members.get_mut(seat as usize) {
            happened(&mut member.watched);
            enqueue(&mut self.members, &mut self.queue, seat);
        }
    }

    /// Checks `most` seats, at each call the next ones, and queues those that are ready. A sender's mark can be lost: every
    /// sender of a set can write to all its marks, and a broken one may clear them.
    pub(crate) fn look_round(&mut self, most: usize) {
        let Turns { members, queue, round, .. } = self;
        for _ in 0..most.min(members.len()) {
            *round = (*round + 1) % members.len();
            if members[*round].as_ref().is_some_and(|member| member.watched.ready()) {
                enqueue(members, queue, *round as u32);
            }
        }
    }

    /// The next ready seat in turn. If there is none, all members are armed, and `set` will be notified of the first that
    /// becomes ready.
    pub(crate) fn next(&mut self, set: &ReadySet) -> Option<u32> {
        loop {
            self.arm();
            let Turns { members, queue, .. } = self;
            set.collect(|seat| enqueue(members, queue, seat));
            while let Some(seat) = self.queue.pop_front() {
                let Some(Some(member)) = self.members.get_mut(seat as usize) else { continue };
                member.queued = false;
                // The member's sender may have answered already, and will not notify the set again.
                if !member.unarmed {
                    member.unarmed = true;
                    self.unarmed.push(seat);
                }
                if member.watched.ready() {
                    return Some(seat);
                }
            }
            if self.unarmed.is_empty() {
                return None;
            }
        }
    }

    /// Arms the unarmed members, or queues those that are ready.
    fn arm(&mut self) {
        let Turns { members, queue, unarmed, .. } = self;
        for seat in unarmed.drain(..) {
            let Some(Some(member)) = members.get_mut(seat as usize) else { continue };
            member.unarmed = false;
            if !member.watched.arm() {
                enqueue(members, queue, seat);
            }
        }
    }
}

fn enqueue<W>(members: &mut [Option<Member<W>>], queue: &mut VecDeque<u32>, seat: u32) {
    if let Some(Some(member)) = members.get_mut(seat as usize)
        && !member.queued
    {
        member.queued = true;
        queue.push_back(seat);
    }
}
