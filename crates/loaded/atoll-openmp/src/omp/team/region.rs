//! The region that a team executes: its code, its name in counts, and what its members start with.
//!
//! `parallel` fills it in. The leader sets it while no member runs, and members read it: the leader's release of a worker
//! (`crew::Worker::send`) orders the two.

use super::super::icv::Icv;
use super::super::task::Group;
use atoll_memory::region_counts::Key;
use std::cell::Cell;
use std::ptr;

/// An outlined function of the program.
pub(crate) type Function = extern "C" fn(*mut u8);

/// The code that each member of a region executes.
#[derive(Clone, Copy)]
pub(crate) struct Body {
    pub(crate) function: Function,
    pub(crate) data: *mut u8,
    /// The program's own function, which tells the region apart: `function` itself, or a function that it calls.
    pub(crate) outlined: usize,
}

impl Body {
    /// A body that is the program's function itself.
    pub(crate) fn plain(function: Function, data: *mut u8) -> Body {
        Body { function, data, outlined: function as usize }
    }
}

/// The region that a team executes.
pub(crate) struct Region {
    /// The code of the members; none where the leader calls its part itself.
    pub(crate) body: Cell<Option<Body>>,
    pub(crate) call_site: Cell<usize>,
    /// The region's extent, as `region_counts::Key::extent` defines it.
    pub(crate) extent: Cell<u64>,
    /// The control variables that members start with.
    pub(crate) icv: Cell<Icv>,
    /// The binding policy.
    pub(crate) bind: Cell<u8>,
    /// The leader's place when the region began.
    pub(crate) leader_place: Cell<i32>,
    /// The task group of the region's reductions.
    pub(crate) group: Cell<*const Group>,
}

impl Region {
    pub(super) fn new() -> Region {
        Region {
            body: Cell::new(None),
            call_site: Cell::new(0),
            extent: Cell::new(0),
            icv: Cell::new(Icv::initial(1)),
            bind: Cell::new(0),
            leader_place: Cell::new(-1),
            group: Cell::new(ptr::null()),
        }
    }

    /// Prepares for the next region.
    pub(super) fn settle(&self, icv: Icv) {
        self.icv.set(icv);
        self.group.set(ptr::null());
    }

    /// The region's key in counts.
    pub(super) fn key(&self) -> Key {
        let function = self.body.get().map_or(0, |body| body.outlined as u64);
        Key { function, call_site: self.call_site.get() as u64, extent: self.extent.get() }
    }
}
