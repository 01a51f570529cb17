//! From a trace's one order to a queue for each worker, and the meetings between them.
//!
//! [`engine`](crate::engine) takes from the queues in the order of virtual clocks; here is only as much of the trace as that
//! needs, at most [`WINDOW`] events.
//!
//! A worker's region begins and ends and the barriers it passes are its *marks*. Where a trace says that workers passed
//! one mark each, they met: none goes on before the last has come. Which of them met is seen when one comes to its next
//! mark: whoever passed one since the meeting began was there. That needs no knowledge of teams, holds whether a trace
//! notes a barrier when it is entered or when it is left, and cannot wait for somebody who never comes.

use std::collections::VecDeque;

use atoll_record::trace::Event;

/// Events held at most.
pub(crate) const WINDOW: usize = 4 << 20;

/// What an entry is, in its top bits.
pub(crate) const KIND_SHIFT: u32 = 61;
/// An access: [`WRITE`], the 4K page's number, and the instructions computed before it.
pub(crate) const ACCESS: u64 = 0;
/// Computing: the number of instructions.
pub(crate) const COMPUTE: u64 = 1;
/// A meeting: its number.
pub(crate) const MEET: u64 = 2;
/// The first worker passed a point that the program is known by: the low bits of its name.
pub(crate) const MARK: u64 = 3;
/// Pages come or go: the index of the range.
pub(crate) const RANGE: u64 = 4;
/// In an access: it writes.
pub(crate) const WRITE: u64 = 1 << 60;

const PAYLOAD: u64 = (1 << 60) - 1;
/// In an access: where the instructions are, above the page's number. One page lies behind all that there can be.
const INSTRUCTIONS_SHIFT: u32 = 36;
const NO_PAGE: u64 = (1 << INSTRUCTIONS_SHIFT) - 1;
const MOST_INSTRUCTIONS: u64 = PAYLOAD >> INSTRUCTIONS_SHIFT;

/// What an entry is.
pub(crate) fn kind(entry: u64) -> u64 {
    entry >> KIND_SHIFT
}

/// What it is of.
#[inline(always)]
pub(crate) fn payload(entry: u64) -> u64 {
    entry & PAYLOAD
}

/// An access's 4K page.
#[inline(always)]
pub(crate) fn page(entry: u64) -> u64 {
    entry & NO_PAGE
}

/// The instructions before an access.
#[inline(always)]
pub(crate) fn instructions(entry: u64) -> u64 {
    (entry & PAYLOAD) >> INSTRUCTIONS_SHIFT
}

/// An access without the instructions before it.
pub(crate) fn alone(entry: u64) -> u64 {
    entry & !(MOST_INSTRUCTIONS << INSTRUCTIONS_SHIFT)
}

/// A worker's entries still to come.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// The entries, some of them gone.
    pub(crate) entries: Vec<u64>,
    /// How many are gone.
    pub(crate) gone: usize,
    /// Instructions behind the last of them, which go with the next.
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

    /// How many are left.
    pub(crate) fn left(&self) -> usize {
        self.entries.len() - self.gone
    }
}

/// Workers that wait for each other.
#[derive(Debug, Default, Clone, Copy)]
struct Meeting {
    /// Who is known to come.
    expected: u32,
    /// Who has come.
    here: u32,
    /// The latest clock among them.
    latest: u64,
    /// Will nobody else come?
    closed: bool,
}

/// Pages that come or go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Range {
    /// The first 4K page.
    pub(crate) first: u64,
    /// How many.
    pub(crate) pages: u64,
    /// Do they come?
    pub(crate) map: bool,
}

/// The queues.
#[derive(Debug)]
pub(crate) struct Feed {
    /// One a worker.
    pub(crate) queues: Vec<Queue>,
    /// Entries in all of them.
    pub(crate) held: usize,
    /// Ranges of pages that come or go.
    pub(crate) ranges: Vec<Range>,
    meetings: VecDeque<Meeting>,
    /// Number of the first in `meetings`.
    first: u64,
    /// The meeting each worker's last mark was of; 0 for none, so numbers begin at 1.
    last: Vec<u64>,
    /// Whose event came last.
    current: usize,
}

/// A worker that the trace's header does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UnknownWorker(pub u16);

impl Feed {
    /// Empty queues.
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

    /// Takes the next event of the trace; hands out the worker whose queue has grown, and meetings that closed by it.
    ///
    /// # Errors
    /// It is of a worker there is none of.
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
                // As in a run: the first worker's marks, when the barrier has opened.
                if worker == 0 {
                    self.put(worker, MARK, name & u64::from(u32::MAX));
                }
            }
            Event::RegionEnd { .. } => closed = self.meet(worker),
            Event::Map { first, pages } => self.range(worker, Range { first, pages, map: true }),
            // No worker is named. It was the last one's, as far as the order tells.
            Event::Unmap { first, pages } => self.range(worker, Range { first, pages, map: false }),
        }
        Ok((worker, closed))
    }

    fn put(&mut self, worker: usize, kind: u64, payload: u64) {
        self.flush(worker);
        self.queues[worker].push(kind << KIND_SHIFT | payload);
        self.held += 1;
    }

    /// Instructions that no access follows become an entry of their own.
    fn flush(&mut self, worker: usize) {
        let pending = std::mem::take(&mut self.queues[worker].pending);
        if pending > 0 {
            self.queues[worker].push(COMPUTE << KIND_SHIFT | pending);
            self.held += 1;
        }
    }

    /// The trace is over: what was put off comes now.
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
            // Nobody is left who could come; that need not be found out by reading on.
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

    /// Closes the meeting that is open, if there is one: nobody else will come, or be waited for.
    pub(crate) fn close(&mut self) -> Option<u64> {
        let open = self.meetings.back().is_some_and(|meeting| !meeting.closed);
        self.close_last();
        open.then(|| self.first + self.meetings.len() as u64 - 1)
    }

    /// Does somebody wait at a meeting that others may still come to?
    pub(crate) fn is_undecided(&self) -> bool {
        self.meetings.back().is_some_and(|meeting| !meeting.closed && meeting.here > 0)
    }

    /// A worker comes to a meeting at `clock`.
    pub(crate) fn arrive(&mut self, number: u64, clock: u64) {
        let index = (number - self.first) as usize;
        if let Some(meeting) = self.meetings.get_mut(index) {
            meeting.here += 1;
            meeting.latest = meeting.latest.max(clock);
        }
    }

    /// When everybody has come to a meeting that is closed: the latest clock. It is over then.
    pub(crate) fn over(&mut self, number: u64) -> Option<u64> {
        let index = number.checked_sub(self.first)? as usize;
        let meeting = *self.meetings.get(index)?;
        if !meeting.closed || meeting.here < meeting.expected {
            return None;
        }
        // Meetings end in order but for those of different teams; what is over stays until all before it are.
        self.meetings[index].here = u32::MAX;
        while self.meetings.front().is_some_and(|meeting| meeting.here == u32::MAX) {
            self.meetings.pop_front();
            self.first += 1;
        }
        Some(meeting.latest)
    }
}
