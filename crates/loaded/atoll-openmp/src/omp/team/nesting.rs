//! Where a team stands among others: the teams around it, its league, and its contention group.
//!
//! `parallel` and `target` set it; `routines` tells the program of it. The leader sets it while no member runs, and members read
//! it: the leader's release of a worker (`crew::Worker::send`) orders the two.

use super::super::contention::Contention;
use super::Team;
use std::cell::Cell;
use std::ptr;

/// A team's place among teams.
pub(crate) struct Nesting {
    /// The number of regions that the team's threads are in, one in another.
    pub(crate) level: Cell<u32>,
    /// The number of those that have more than one thread.
    pub(crate) active_level: Cell<u32>,
    /// Whether the team is within a region though its level is 0, as that of a `target` construct may be.
    within: Cell<bool>,
    /// The team that met the region; null at level 0.
    pub(super) parent: Cell<*const Team>,
    /// The number in it of the thread that did.
    pub(super) parent_id: Cell<u32>,
    /// The values of `omp_get_num_teams` and `omp_get_team_num`.
    pub(crate) teams: Cell<(u32, u32)>,
    /// The contention group of the team's threads; null if it is this team's own, whose leader is an initial thread.
    contention: Cell<*const Contention>,
    own_contention: Contention,
    /// The number of its threads that the group counts besides the leader.
    pub(crate) counted: Cell<u32>,
}

impl Nesting {
    pub(super) const fn new() -> Nesting {
        Nesting {
            level: Cell::new(0),
            active_level: Cell::new(0),
            within: Cell::new(false),
            parent: Cell::new(ptr::null()),
            parent_id: Cell::new(0),
            teams: Cell::new((1, 0)),
            contention: Cell::new(ptr::null()),
            own_contention: Contention::new(),
            counted: Cell::new(0),
        }
    }

    /// Puts the team within `parent`, whose member `id` met the region. `active` says whether the region has several threads.
    pub(crate) fn put_within(&self, parent: &Team, id: u32, active: bool) {
        self.level.set(parent.nesting.level.get() + 1);
        self.active_level.set(parent.nesting.active_level.get() + u32::from(active));
        self.parent.set(parent);
        self.parent_id.set(id);
        self.teams.set(parent.nesting.teams.get());
        self.contention.set(parent.contention());
        self.counted.set(0);
    }

    /// Puts the team at level 0, as an initial thread's; `within` says whether the thread is in a region all the same.
    pub(crate) fn put_outermost(&self, within: bool) {
        self.level.set(0);
        self.active_level.set(0);
        self.within.set(within);
        self.parent.set(ptr::null());
        self.teams.set((1, 0));
    }

    /// The contention group of the team's threads.
    pub(super) fn contention(&self) -> &Contention {
        // SAFETY: null, or that of an ancestor: teams are never freed.
        unsafe { self.contention.get().as_ref() }.unwrap_or(&self.own_contention)
    }

    /// Takes the team out of the region it was within.
    pub(super) fn leave(&self) {
        self.within.set(false);
        self.contention.set(ptr::null());
    }

    /// Whether a thread of the team is in a region.
    pub(super) fn is_within(&self) -> bool {
        self.level.get() > 0 || self.within.get()
    }
}
