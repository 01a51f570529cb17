//! Turns a trace's one order into a queue for each worker, and finds the meetings between workers.
//!
//! [`engine`](crate::engine) takes from the queues in the order of virtual clocks. This module holds only as much of the trace
//! as that needs, at most [`WINDOW`] events.
//!
//! The begins and ends of a worker's regions and the barriers it passes are its *marks*. Where a trace says that workers passed
//! one mark each, they met: none goes on before the last has come. Which of them met is known when one comes to its next mark:
//! every worker that passed one since the meeting began was there. That needs no knowledge of teams, holds whether a trace
//! notes a barrier when it is entered or when it is left, and cannot wait for a worker that never comes.

use std::collections::VecDeque;

use atoll_record::trace::Event;

/// The most events that are held.
pub(crate) const WINDOW: usize = 4 << 20;

/// The lowest of an entry's top bits, which hold its kind.
pub(crate) const KIND_SHIFT: u32 = 61;
/// An access: [`WRITE`], the 4K page's number, and the instructions computed before it.
pub(crate) const ACCESS: u64 = 0;
/// Computing: the number of instructions.
pub(crate) const COMPUTE: u64 = 1;
/// A meeting: its number.
pub(crate) const MEET: u64 = 2;
/// A mark of the first worker, by which the program's position is known: the low bits of its name.
pub(crate) const MARK: u64 = 3;
/// Pages are mapped or unmapped: the index of the range.
pub(crate) const RANGE: u64 = 4;
/// The bit of an access that says that it writes.
pub(crate) const WRITE: u64 = 1 << 60;

const PAYLOAD: u64 = (1 << 60) - 1;
/// The lowest bit of the instructions in an access, above the page's number. One page lies behind all that there can be.
const INSTRUCTIONS_SHIFT: u32 = 36;
const NO_PAGE: u64 = (1 << INSTRUCTIONS_SHIFT) - 1;
const MOST_INSTRUCTIONS: u64 = PAYLOAD >> INSTRUCTIONS_SHIFT;

/// Returns an entry's kind.
pub(crate) fn kind(entry: u64) -> u64 {
    entry >> KIND_SHIFT
}

/// Returns an entry's value.
#[inline(always)]
pub(crate) fn payload(entry: u64) -> u64 {
    entry & PAYLOAD
}

/// Returns an access's 4K page.
#[inline(always)]
pub(crate) fn page(entry: u64) -> u64 {
    entry & NO_PAGE
}

/// Returns the instructions before an access.
#[inline(always)]
pub(crate) fn instructions(entry: u64) -> u64 {
    (entry & PAYLOAD) >> INSTRUCTIONS_SHIFT
}

/// Returns an access without the instructions before it.
pub(crate) fn alone(entry: u64) -> u64 {
    entry & !(MOST_INSTRUCTIONS << INSTRUCTIONS_SHIFT)
}

/// A worker's entries that are still to come.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// The entries; the first of them may have been taken.
    pub(crate) entries: Vec<u64>,
    /// The number of entries that were taken.
    pub(crate) gone: usize,
    /// The instructions behind the last entry, which go with the next.
    pending: u64,
}

impl Queue {
    #[inline]
    fn push(&mut self, entry: u64) {
        if self.gone > 4096 && self.gone * 2 > self.entries.len() {
            self.entries.drain(..self.gone);
            self.gone = 0;
        }
        self.entries.push(entry);
    }

    /// Returns the number of entries that are left.
    pub(crate) fn left(&self) -> usize {
        self.entries.len() - self.gone
    }
}

/// A meeting of workers that wait for each other.
#[derive(Debug, Default, Clone, Copy)]
struct Meeting {
    /// The number of workers known to come.
    expected: u32,
    /// The number of workers that have come.
    here: u32,
    /// The latest clock among these.
    latest: u64,
    /// Whether no other worker will come.
    closed: bool,
}

/// Pages that are mapped or unmapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Range {
    /// The first 4K page.
    pub(crate) first: u64,
    /// The number of pages.
    pub(crate) pages: u64,
    /// Whether they are mapped.
    pub(crate) map: bool,
}

/// The queues and the open meetings.
#[derive(Debug)]
pub(crate) struct Feed {
    /// The queue of each worker.
    pub(crate) queues: Vec<Queue>,
    /// The number of entries in all queues.
    pub(crate) held: usize,
    /// The ranges of pages that are mapped or unmapped.
    pub(crate) ranges: Vec<Range>,
    meetings: VecDeque<Meeting>,
    /// The number of the first meeting in `meetings`.
    first: u64,
    /// The meeting of each worker's last mark; 0 for none, so numbers begin at 1.
    last: Vec<u64>,
    /// The worker of the last event.
    current: usize,
}

/// A worker that the trace's header does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UnknownWorker(pub u16);

impl Feed {
    /// Makes empty queues.
    pub(crate) fn new(workers: usize) -> Self {
        Self {
            queues: (0..workers).map(|_| Queue::default()).collect(),
            held: 0,
            ranges: Vec::new(),
            meetings: VecDeque::new(),
            first: 1,
            last: vec![0; workers],
            current: 0,
        }
    }

    /// Takes the next event of the trace; returns the worker whose queue has grown, and the meeting that it closed.
    ///
    /// # Errors
    /// The event's worker does not exist.
    #[inline]
    pub(crate) fn push(&mut self, event: &Event) -> Result<(usize, Option<u64>), UnknownWorker> {
        if let Some(worker) = event.worker() {
            if usize::from(worker) >= self.queues.len() {
                return Err(UnknownWorker(worker));
            }
            self.current = usize::from(worker);
        }
        let worker = self.current;
        let mut closed = None;
        match *event {
            Event::Access { page, write, .. } => {
                let queue = &mut self.queues[worker];
                if queue.pending > MOST_INSTRUCTIONS {
                    self.flush(worker);
                }
                let queue = &mut self.queues[worker];
                let instructions = std::mem::take(&mut queue.pending) << INSTRUCTIONS_SHIFT;
                let write = if write { WRITE } else { 0 };
                queue.push(ACCESS << KIND_SHIFT | write | instructions | page.min(NO_PAGE));
                self.held += 1;
            }
            Event::Compute { instructions, .. } => {
                let queue = &mut self.queues[worker];
                if queue.pending > 0 {
                    self.flush(worker);
                }
                self.queues[worker].pending = instructions.min(1 << 40);
            }
            Event::RegionBegin { name, .. } | Event::Barrier { name, .. } => {
                closed = self.meet(worker);
                // As in a run, the first worker's marks come when the barrier has opened.
                if worker == 0 {
                    self.put(worker, MARK, name & u64::from(u32::MAX));
                }
            }
            Event::RegionEnd { .. } => closed = self.meet(worker),
            Event::Map { first, pages } => self.range(worker, Range { first, pages, map: true }),
            // No worker is named. As far as the order tells, it was the worker of the last event.
            Event::Unmap { first, pages } => self.range(worker, Range { first, pages, map: false }),
        }
        Ok((worker, closed))
    }

    fn put(&mut self, worker: usize, kind: u64, payload: u64) {
        self.flush(worker);
        self.queues[worker].push(kind << KIND_SHIFT | payload);
        self.held += 1;
    }

    /// Makes instructions that no access follows an entry of their own.
    fn flush(&mut self, worker: usize) {
        let pending = std::mem::take(&mut self.queues[worker].pending);
        if pending > 0 {
            self.queues[worker].push(COMPUTE << KIND_SHIFT | pending);
            self.held += 1;
        }
    }

    /// Ends the trace: entries that were put off come now.
    pub(crate) fn finish(&mut self) {
        (0..self.queues.len()).for_each(|worker| self.flush(worker));
    }

    fn range(&mut self, worker: usize, range: Range) {
        self.put(worker, RANGE, self.ranges.len() as u64);
        self.ranges.push(range);
    }

    fn meet(&mut self, worker: usize) -> Option<u64> {
        let open = self.first + self.meetings.len() as u64 - 1;
        let mut closed = None;
        let is_open = self.meetings.back().is_some_and(|meeting| !meeting.closed);
        if !is_open || self.last[worker] == open {
            if is_open {
                self.close_last();
                closed = Some(open);
            }
            self.meetings.push_back(Meeting::default());
        }
        let number = self.first + self.meetings.len() as u64 - 1;
        let all = self.queues.len() as u32;
        if let Some(meeting) = self.meetings.back_mut() {
            meeting.expected += 1;
            // No other worker could come, so that need not be found out by reading on.
            meeting.closed = meeting.expected == all;
        }
        self.last[worker] = number;
        self.put(worker, MEET, number);
        closed
    }

    fn close_last(&mut self) {
        if let Some(meeting) = self.meetings.back_mut() {
            meeting.closed = true;
        }
    }

    /// Closes the meeting that is open, if there is one: no other worker will come or be waited for.
    pub(crate) fn close(&mut self) -> Option<u64> {
        let open = self.meetings.back().is_some_and(|meeting| !meeting.closed);
        self.close_last();
        open.then(|| self.first + self.meetings.len() as u64 - 1)
    }

    /// Whether a worker waits at a meeting that others may still come to.
    pub(crate) fn is_undecided(&self) -> bool {
        self.meetings.back().is_some_and(|meeting| !meeting.closed && meeting.here > 0)
    }

    /// Notes that a worker comes to a meeting at `clock`.
    pub(crate) fn arrive(&mut self, number: u64, clock: u64) {
        let index = (number - self.first) as usize;
        if let Some(meeting) = self.meetings.get_mut(index) {
            meeting.here += 1;
            meeting.latest = meeting.latest.max(clock);
        }
    }

    /// Returns the latest clock once every worker has come to a meeting that is closed. The meeting is then over.
    pub(crate) fn over(&mut self, number: u64) -> Option<u64> {
        let index = number.checked_sub(self.first)? as usize;
        let meeting = *self.meetings.get(index)?;
        if !meeting.closed || meeting.here < meeting.expected {
            return None;
        }
        // Meetings end in order, except those of different teams. A meeting that is over stays until all before it are over.
        self.meetings[index].here = u32::MAX;
        while self.meetings.front().is_some_and(|meeting| meeting.here == u32::MAX) {
            self.meetings.pop_front();
            self.first += 1;
        }
        Some(meeting.latest)
    }
}
