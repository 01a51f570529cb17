//! Loop constructs: their iterations are dealt out to the members of a team.
//!
//! A `Plan` counts iterations from 0, whatever the program's bounds. `loop_calls` is the ABI on top of it, for signed and
//! unsigned bounds; `ordered` and `doacross` add order between iterations.

use super::env;
use super::icv::{
    SCHED_ANY_ORDER, SCHED_DYNAMIC, SCHED_GUIDED, SCHED_GUIDED_EVEN, SCHED_MONOTONIC, SCHED_STATIC,
};
use super::spread;
use super::spread::division::Share;
use super::stealing::Blocks;
use super::team::{State, Team, Thread};
use super::workshare::WorkShare;
use std::sync::atomic::Ordering;

/// The ways to deal out iterations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deal {
    /// One block of iterations for each member.
    Blocks,
    /// Chunks in turn to the members.
    Turns,
    /// Chunks to whichever member asks.
    Dynamic,
    /// Shrinking chunks to whichever member asks.
    Guided,
    /// Shrinking chunks to whichever member asks, all multiples of the smallest.
    GuidedEven,
    /// Chunks in any order to whichever member asks: from its own block, then from others' (`stealing`).
    Stealing,
}

/// One loop: `count` iterations from `start` by `step`, up to `end`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) start: u64,
    pub(crate) step: u64,
    pub(crate) end: u64,
    pub(crate) count: u64,
    pub(crate) chunk: u64,
    pub(crate) deal: Deal,
}

impl Plan {
    pub(crate) const fn empty() -> Plan {
        Plan { start: 0, step: 1, end: 0, count: 0, chunk: 1, deal: Deal::Blocks }
    }

    /// The plan as words, for other nodes.
    pub(crate) fn to_words(self) -> [u64; 6] {
        [self.start, self.step, self.end, self.count, self.chunk, self.deal as u64]
    }

    /// The plan in another node's words.
    pub(crate) fn from_words([start, step, end, count, chunk, deal]: [u64; 6]) -> Plan {
        let deal = match deal {
            1 => Deal::Turns,
            2 => Deal::Dynamic,
            3 => Deal::Guided,
            4 => Deal::GuidedEven,
            5 => Deal::Stealing,
            _ => Deal::Blocks,
        };
        Plan { start, step, end, count, chunk: chunk.max(1), deal }
    }

    /// A loop over signed numbers.
    pub(crate) fn signed(start: i64, end: i64, step: i64, schedule: u32, chunk: i64) -> Plan {
        let count = if step > 0 && start < end {
            (end.wrapping_sub(start) as u64 - 1) / step as u64 + 1
        } else if step < 0 && start > end {
            (start.wrapping_sub(end) as u64 - 1) / step.unsigned_abs() + 1
        } else {
            0
        };
        Plan::new(start as u64, end as u64, step as u64, count, schedule, chunk.max(0) as u64)
    }

    /// A loop over unsigned numbers, upwards or downwards.
    pub(crate) fn unsigned(up: bool, start: u64, end: u64, step: u64, schedule: u32, chunk: u64) -> Plan {
        let count = if up && start < end {
            (end - start - 1) / step + 1
        } else if !up && start > end {
            (start - end - 1) / step.wrapping_neg() + 1
        } else {
            0
        };
        Plan::new(start, end, step, count, schedule, chunk)
    }

    /// A loop of `count` iterations over numbers of any type.
    pub(crate) fn counted(start: u64, step: i64, count: u64, schedule: u32, chunk: u64) -> Plan {
        let step = step as u64;
        Plan::new(start, start.wrapping_add(count.wrapping_mul(step)), step, count, schedule, chunk)
    }

    fn new(start: u64, end: u64, step: u64, count: u64, schedule: u32, chunk: u64) -> Plan {
        // Monotonic wins, as a user may ask for it where the program leaves the order open.
        let any_order = schedule & (SCHED_MONOTONIC | SCHED_ANY_ORDER) == SCHED_ANY_ORDER;
        let deal = match schedule & !(SCHED_MONOTONIC | SCHED_ANY_ORDER) {
            SCHED_DYNAMIC if any_order => Deal::Stealing,
            SCHED_DYNAMIC => Deal::Dynamic,
            SCHED_GUIDED => Deal::Guided,
            SCHED_GUIDED_EVEN => Deal::GuidedEven,
            SCHED_STATIC if chunk > 0 => Deal::Turns,
            _ => Deal::Blocks,
        };
        Plan { start, step, end, count, chunk: chunk.clamp(1, count.max(1)), deal }
    }

    /// The same loop with its chunks in order.
    pub(crate) fn in_order(self) -> Plan {
        let deal = if self.deal == Deal::Stealing { Deal::Dynamic } else { self.deal };
        Plan { deal, ..self }
    }

    fn chunks(&self) -> u64 {
        self.count.div_ceil(self.chunk)
    }

    /// The iterations of a member's block.
    pub(crate) fn block(&self, id: u64, size: u64) -> (u64, u64) {
        block(self.count, id, size)
    }

    /// The iterations of a member's block in a team over several nodes: the node's part by its weight, in blocks for its
    /// members.
    fn block_of_part(&self, id: u64, size: u64, part: Share) -> (u64, u64) {
        let at =
            |weight: u32| (u128::from(self.count) * u128::from(weight) / u128::from(part.of.max(1))) as u64;
        let (first, end) = (at(part.first), at(part.first + part.count));
        let (from, to) = block(end - first, id, size);
        (first + from, first + to)
    }

    /// The bounds of iterations `from` to `to`, as the program counts.
    pub(crate) fn bounds(&self, (from, to): (u64, u64)) -> (u64, u64) {
        let at = |iteration: u64| self.start.wrapping_add(iteration.wrapping_mul(self.step));
        // The last chunk ends where the program says, because one step further might overflow.
        (at(from), if to == self.count { self.end } else { at(to) })
    }
}

/// Block `id` of `size` blocks of `count` iterations.
fn block(count: u64, id: u64, size: u64) -> (u64, u64) {
    let (each, more) = (count / size, count % size);
    let from = each * id + id.min(more);
    (from, from + each + u64::from(id < more))
}

/// Puts a team's next loop into its share, before the other members see it.
pub(crate) fn lay_out(team: &Team, share: &WorkShare, plan: Plan) {
    if plan.deal != Deal::Stealing {
        share.plan.set(plan);
        return;
    }
    let members = team.size.get();
    // A loop that is cancelled where it finds something has less to do if its first iterations come first.
    if team.spans() || env::cancellation() || !Blocks::suit(plan.chunks(), members) {
        share.plan.set(plan.in_order());
        return;
    }
    share.plan.set(plan);
    // SAFETY: no other thread can reach the share yet.
    unsafe { &mut *share.blocks.get() }.divide(plan.chunks(), members);
}

/// Takes the calling member's next iterations; `None` when none are left.
#[inline]
pub(crate) fn next(thread: &Thread, team: &Team, share: &WorkShare) -> Option<(u64, u64)> {
    // These cases are the ones that programs ask for most often.
    match share.plan.get().deal {
        Deal::Stealing => next_stealing(thread, share),
        Deal::Dynamic if !team.spans() => next_dynamic(team, share),
        _ => next_otherwise(thread, team, share),
    }
}

#[inline(never)]
fn next_otherwise(thread: &Thread, team: &Team, share: &WorkShare) -> Option<(u64, u64)> {
    let plan = share.plan.get();
    match plan.deal {
        Deal::Guided | Deal::GuidedEven if team.spans() => {
            let threads = team.threads().min(u16::MAX.into()) as u16;
            spread::take_chunk(share.number.get(), plan.count, plan.chunk, threads, true)
        }
        Deal::Stealing => next_stealing(thread, share),
        Deal::Dynamic => next_over_nodes(team, share, &plan),
        Deal::Guided | Deal::GuidedEven => next_guided(team, share, &plan),
        Deal::Blocks if team.spans() => {
            let State { trip, .. } = thread.state.get();
            thread.update(|state| state.trip += 1);
            spread::measure::deals();
            let part = team.span.get().iterations;
            let (from, to) = plan.block_of_part(thread.id().into(), team.size.get().into(), part);
            (trip == 0 && from < to).then_some((from, to))
        }
        Deal::Blocks | Deal::Turns => {
            let State { trip, .. } = thread.state.get();
            thread.update(|state| state.trip += 1);
            next_static(&plan, u64::from(thread.number()), u64::from(team.threads()), trip)
        }
    }
}

fn next_static(plan: &Plan, id: u64, size: u64, trip: u64) -> Option<(u64, u64)> {
    if plan.deal == Deal::Blocks {
        let (from, to) = plan.block(id, size);
        return (trip == 0 && from < to).then_some((from, to));
    }
    let from = trip.checked_mul(size)?.checked_add(id)?.checked_mul(plan.chunk)?;
    (from < plan.count).then(|| (from, from + plan.chunk.min(plan.count - from)))
}

/// Takes iterations that go to whichever member asks, in a team over several nodes: the node takes enough for its workers from
/// the origin and deals them out.
fn next_over_nodes(team: &Team, share: &WorkShare, plan: &Plan) -> Option<(u64, u64)> {
    let mut batch = share.batch.lock();
    if batch.0 == batch.1 {
        let workers = u64::from(team.size.get());
        // Chunks are limited so that near the loop's end all nodes have something left to do.
        let fair = (plan.count / (u64::from(team.threads()) * 16)).max(1);
        // A node takes at most four times the most workers of a node.
        let chunks = workers.saturating_mul(4).min(fair.max(workers)) as u16;
        *batch = spread::take_chunk(share.number.get(), plan.count, plan.chunk, chunks, false)?;
    }
    let (from, end) = *batch;
    let to = from + plan.chunk.min(end - from);
    batch.0 = to;
    Some((from, to))
}

#[inline]
fn next_stealing(thread: &Thread, share: &WorkShare) -> Option<(u64, u64)> {
    // SAFETY: the blocks were made before the share was published; since then they are only read, and their words are atomic.
    let blocks = unsafe { &*share.blocks.get() };
    let Plan { count, chunk, .. } = share.plan.get();
    let from = u64::from(blocks.take(thread.id())?) * chunk;
    Some((from, from + chunk.min(count - from)))
}

#[inline]
fn next_dynamic(team: &Team, share: &WorkShare) -> Option<(u64, u64)> {
    let Plan { count, chunk, .. } = share.plan.get();
    let cursor = &share.cursor.next;
    if team.size.get() == 1 {
        // Nobody else takes any, and an atomic addition takes longer than all the rest.
        let from = cursor.load(Ordering::Relaxed);
        let to = from + chunk.min(count - from);
        cursor.store(to, Ordering::Relaxed);
        return (from < to).then_some((from, to));
    }
    // Every member adds once too often, which must not overflow.
    if count >> 62 != 0 || chunk >> (62 - MEMBERS_BITS) != 0 {
        return next_of_many(share);
    }
    // Relaxed: members order nothing by this; the plan came with the share itself.
    let from = cursor.fetch_add(chunk, Ordering::Relaxed);
    (from < count).then(|| (from, from + chunk.min(count - from)))
}

/// A team has fewer members than two to the power of this: 1,024 at most.
const MEMBERS_BITS: u32 = u16::BITS;

/// Takes iterations of a loop with nearly as many of them as there are numbers.
#[cold]
fn next_of_many(share: &WorkShare) -> Option<(u64, u64)> {
    let Plan { count, chunk, .. } = share.plan.get();
    let cursor = &share.cursor.next;
    let mut from = cursor.load(Ordering::Relaxed);
    loop {
        if from >= count {
            return None;
        }
        let to = from + chunk.min(count - from);
        match cursor.compare_exchange_weak(from, to, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return Some((from, to)),
            Err(now) => from = now,
        }
    }
}

fn next_guided(team: &Team, share: &WorkShare, plan: &Plan) -> Option<(u64, u64)> {
    let cursor = &share.cursor.next;
    let mut from = cursor.load(Ordering::Relaxed);
    loop {
        if from >= plan.count {
            return None;
        }
        let left = plan.count - from;
        let mut part = left.div_ceil(u64::from(team.size.get())).max(plan.chunk);
        if plan.deal == Deal::GuidedEven {
            part = part.next_multiple_of(plan.chunk);
        }
        let to = from + part.min(left);
        match cursor.compare_exchange_weak(from, to, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return Some((from, to)),
            Err(now) => from = now,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Deal, Plan, Share, next_static};
    use crate::omp::icv::SCHED_STATIC;

    #[test]
    fn counts_reach_the_ends_of_the_types() {
        assert_eq!(Plan::signed(i64::MIN, i64::MAX, 1, 1, 0).count, u64::MAX);
        assert_eq!(Plan::signed(10, 0, -3, 1, 0).count, 4);
        assert_eq!(Plan::signed(0, 0, 1, 1, 0).count, 0);
        assert_eq!(Plan::unsigned(true, 0, u64::MAX, 1, 1, 0).count, u64::MAX);
        assert_eq!(Plan::unsigned(false, 10, 0, 3u64.wrapping_neg(), 1, 0).count, 4);
    }

    #[test]
    fn blocks_of_unequal_nodes_cover_each_iteration_once() {
        for (count, weights, sizes) in [
            (100, [96_u32, 32], [1_u64, 1]),
            (7, [64, 640], [3, 2]),
            (1, [5, 5], [2, 2]),
            (0, [1, 1], [1, 1]),
        ] {
            let plan = Plan::signed(0, count, 1, SCHED_STATIC, 0);
            let (mut next, mut first) = (0, 0);
            for (weight, size) in weights.into_iter().zip(sizes) {
                let part = Share { first, count: weight, of: weights.iter().sum() };
                first += weight;
                for id in 0..size {
                    let (from, to) = plan.block_of_part(id, size, part);
                    assert_eq!(from, next);
                    next = to;
                }
            }
            assert_eq!(next, count as u64);
        }
    }

    #[test]
    fn static_chunks_cover_each_iteration_once() {
        for (count, size, chunk) in [(0, 3, 0), (1, 3, 0), (10, 3, 0), (10, 3, 2), (7, 8, 1), (100, 7, 9)] {
            let plan = Plan::signed(0, count, 1, SCHED_STATIC, chunk);
            assert_eq!(plan.deal == Deal::Blocks, chunk == 0);
            let mut seen = vec![0; count as usize];
            for id in 0..size {
                let mut trip = 0;
                while let Some((from, to)) = next_static(&plan, id, size, trip) {
                    seen[from as usize..to as usize].iter_mut().for_each(|times| *times += 1);
                    trip += 1;
                }
            }
            assert!(seen.iter().all(|times| *times == 1), "{count} {size} {chunk}");
        }
    }
}
