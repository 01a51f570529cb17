//! Barriers: the team's members meet, and execute the team's tasks until none is left.
//!
//! `parallel` ends regions with one of these; `tasks` reports when the last task is complete.

use super::hooks;
use super::spread::{self, travel};
use super::tasks;
use super::team::{Team, Thread, me};
use crate::wrap::replay;
use atoll_libgomp::with_caller;
use std::sync::atomic::{AtomicU32, Ordering};

/// Counts the members that arrive. It opens by advancing its generation, once all members have come and no task is pending.
/// That state lasts until a member opens the barrier, since only tasks make tasks while all members wait.
pub(crate) struct Barrier {
    arrived: Line<AtomicU32>,
    /// One more than the last generation that a member has claimed; only the member that claims a generation opens the barrier.
    claimed: AtomicU32,
    generation: Line<AtomicU32>,
    /// The generation at the region's start. Generations continue from region to region, because a member may be late to see
    /// the last one.
    base: AtomicU32,
}

#[repr(align(64))]
struct Line<T>(T);

impl Barrier {
    pub(crate) const fn new() -> Self {
        Barrier {
            arrived: Line(AtomicU32::new(0)),
            claimed: AtomicU32::new(0),
            generation: Line(AtomicU32::new(0)),
            base: AtomicU32::new(0),
        }
    }

    /// Forgets arrivals. Only the leader calls this, between regions.
    pub(crate) fn restart(&self) {
        self.arrived.0.store(0, Ordering::Relaxed);
        let generation = self.generation.0.load(Ordering::Relaxed);
        self.base.store(generation, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn generation(&self) -> u32 {
        self.generation.0.load(Ordering::Acquire)
    }

    /// Whether the caller is the one member that opens the barrier, once all have arrived in generation `seen` and no task is
    /// pending. A member that is late to see it opened, and may find the team's next region half made, is refused, because that
    /// generation has been claimed.
    #[inline]
    fn claim(&self, team: &Team, seen: u32) -> bool {
        let rounds = seen.wrapping_sub(self.base.load(Ordering::Relaxed)).wrapping_add(1);
        let full = team.size.get().wrapping_mul(rounds);
        // Other side of both loads: the addition in `wait`, the subtraction in `tasks::complete`. Arrivals are read first: no
        // task can appear once all members have come and no task is pending.
        self.arrived.0.load(Ordering::SeqCst) == full
            && team.tasks.pending.load(Ordering::SeqCst) == 0
            && self
                .claimed
                .compare_exchange(seen, seen.wrapping_add(1), Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
    }

    /// Opens the barrier if all have arrived in generation `seen`, no task is pending, and no other member opens it. Returns false if
    /// a task has come from another node meanwhile: the caller executes it unless another does, and tries again.
    #[inline]
    fn try_open(&self, team: &Team, seen: u32) -> bool {
        if !self.claim(team, seen) {
            return true;
        }
        // The region lasts while the barrier is closed, so `spans` is asked of this region and not of the next.
        if team.spans() {
            // One member meets the other nodes for all; the others wait for the generation.
            let site = team.barriers.site.load(Ordering::Relaxed);
            travel::want_tasks(team);
            if !spread::barrier(site, std::ptr::eq(self, &team.barriers.join)) {
                travel::was_at_barrier(false);
                self.claimed.store(seen, Ordering::Release);
                return false;
            }
            travel::was_at_barrier(true);
            team.barriers.site.store(0, Ordering::Relaxed);
        }
        // Other side: the load in `generation`.
        self.generation.0.store(seen.wrapping_add(1), Ordering::Release);
        team.gate.notify();
        true
    }

    /// Waits for all members and executes tasks meanwhile. With `cancellable`, returns true as soon as the region is cancelled.
    pub(crate) fn wait(&self, thread: &Thread, team: &'static Team, cancellable: bool) -> bool {
        // The generation cannot advance before this member arrives.
        let seen = self.generation.0.load(Ordering::Relaxed);
        // Other side: `try_open`; all that members did before it is visible after it.
        self.arrived.0.fetch_add(1, Ordering::SeqCst);
        let open = || self.generation() != seen;
        loop {
            // Read before the checks below. Other side: `tasks::omp_fulfill_event`, for the last pending task; a member that completes
            // the last one comes here itself.
            let events = team.tasks.events.load(Ordering::Acquire);
            // Only members that wait here open the barrier: others may be late, and the team in another region.
            let tried = self.try_open(team, seen);
            if open() {
                return cancellable && team.is_cancelled();
            }
            if cancellable && team.is_cancelled() {
                return true;
            }
            // A member late to see that the region is over may find tasks of the next one, which it must not execute: taking a
            // queue's lock shows it everything that came before the task.
            if tasks::execute_any(thread, team, || !open()) || travel::work(thread, team) || !tried {
                continue;
            }
            let goes_on = || {
                open()
                    || team.tasks.queued.load(Ordering::SeqCst) != 0
                    || team.tasks.events.load(Ordering::SeqCst) != events
                    || travel::has_work_for(team)
                    || (cancellable && team.is_cancelled())
            };
            travel::wait_idle(team, || atoll_nodes::region::wait_parked(|| team.gate.wait_until(goes_on)));
        }
    }
}

/// Waits at the barrier inside a region, or outside of any. Memory that a member mapped before it is mapped in all members
/// behind it.
pub(crate) fn meet(thread: &Thread) {
    let team = thread.team();
    team.barriers.inner.wait(thread, team, false);
    replay::catch_up();
}

/// Waits at the barrier that ends a cancellable construct; returns true if the region is cancelled.
pub(crate) fn meet_cancellable(thread: &Thread) -> bool {
    let team = thread.team();
    team.barriers.inner.wait(thread, team, true)
}

/// Ends the region for one member: tells the hooks, then waits for all members.
pub(crate) fn join(thread: &Thread, team: &'static Team) {
    hooks::region_leave();
    if team.spans() {
        team.barriers.site.store(team.region.call_site.get(), Ordering::Relaxed);
    }
    let state = thread.state.get();
    // Other side: `workshare::close`, after the join.
    team.members[state.id as usize].last_share.store(state.share.cast_mut(), Ordering::Relaxed);
    thread.leaving.set(true);
    team.barriers.join.wait(thread, team, false);
    thread.leaving.set(false);
}

/// Waits at a barrier that the program asks for, and from which it goes on at `site`.
pub(crate) extern "C" fn meet_from(site: usize) {
    let thread = me();
    let team = thread.team();
    if team.spans() {
        // All members come from the same call site.
        team.barriers.site.store(site, Ordering::Relaxed);
    }
    meet(thread);
    hooks::barrier_passed(site);
}

with_caller! {
    /// `void GOMP_barrier(void)`: passes its return address on.
    GOMP_barrier to meet_from as argument 0;
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_barrier_cancel() -> bool {
    meet_cancellable(me())
}

#[cfg(test)]
mod tests {
    use super::super::icv::Icv;
    use super::*;

    #[test]
    fn a_member_late_to_leave_a_region_does_not_meet_other_nodes_for_the_next() {
        let team = Team::with_capacity(2);
        team.settle(2, Icv::initial(2));
        for _ in 0..3 {
            let seen = team.barriers.join.generation();
            team.barriers.join.arrived.0.store(1, Ordering::SeqCst);
            assert!(!team.barriers.join.claim(team, seen), "not all have come");
            team.barriers.join.arrived.0.store(2, Ordering::SeqCst);
            assert!(team.barriers.join.try_open(team, seen));
            assert_eq!(team.barriers.join.generation(), seen.wrapping_add(1));
            // The leader is making the team's next region; the other member looks once more.
            assert!(!team.barriers.join.claim(team, seen));
            team.settle(1, Icv::initial(2));
            assert!(!team.barriers.join.claim(team, seen));
            team.settle(2, Icv::initial(2));
        }
    }
}
