//! Faults that come while the node's workers are at a barrier: of a handler of signals, of a thread that is in no team, of who ends
//! the program; and of workers that wait there on a stack that is paged.
//!
//! The others have been told what this node wrote, so nothing may be written any more: what comes late waits until the barrier is
//! over. It may be what the other nodes wait for; so after a while this node counts as not having come
//! (`Agent::withdraw`), serves what is late, and comes again. `faults` and `barriers` come here.

use std::time::{Duration, Instant};

use super::Server;
use crate::mail::Question;

/// A fault waits so long for the barrier's end.
const PATIENCE: Duration = Duration::from_millis(2);
/// The node stays away so long after the last fault, as more may follow.
const LINGER: Duration = Duration::from_millis(1);

#[derive(Default)]
pub(super) struct Late {
    questions: Vec<Question>,
    /// The time at which the first of them came; where the node is away, the last one.
    since: Option<Instant>,
}

impl Late {
    pub(super) fn push(&mut self, question: Question) {
        self.questions.push(question);
        self.since.get_or_insert_with(Instant::now);
    }

    /// Takes the questions that may be served, as the barrier is over.
    pub(super) fn take(&mut self) -> Vec<Question> {
        self.since = None;
        std::mem::take(&mut self.questions)
    }
}

impl Server {
    /// The time until something is to be done for late faults.
    pub(super) fn late_sleep(&self) -> Option<Duration> {
        let limit = if self.agent.is_out() { LINGER } else { PATIENCE };
        self.barriers.late.since.map(|since| limit.saturating_sub(since.elapsed()))
    }

    /// Does what is due for late faults; returns how much that was.
    pub(super) fn serve_late(&mut self) -> usize {
        let Some(since) = self.barriers.late.since else { return 0 };
        if self.agent.is_out() {
            if !self.barriers.late.questions.is_empty() {
                let late = self.barriers.late.take();
                self.barriers.late.since = Some(Instant::now());
                let count = late.len();
                late.into_iter().for_each(|question| self.asked(question));
                return count;
            }
            if !self.faults.waiting.is_empty() {
                self.barriers.late.since = Some(Instant::now());
            } else if since.elapsed() > LINGER {
                self.barriers.late.since = None;
                let result = self.agent.arrive(&mut self.pages);
                self.step(result);
                return 1;
            }
        } else if !self.barriers.late.questions.is_empty() && since.elapsed() > PATIENCE {
            let result = self.agent.withdraw(&mut self.pages).map(drop);
            self.step(result);
            return usize::from(self.agent.is_out());
        }
        0
    }
}
