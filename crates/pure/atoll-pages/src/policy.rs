//! What a replacement policy is: it orders the resident frames and names the next victim.
//!
//! `fifo`, `lru`, `cmcp`, `adaptive` and `newest` implement it, one file each; `spec` chooses one by name; `replay` and
//! `atoll-memory` drive it. To add a policy, write its file and add its line to `policies!` in `spec` (and its
//! `mod`).
//!
//! The set of events is what a runtime with per-worker page tables sees for nothing (`papers/cmcp.txt`, section 3): a
//! page becomes resident, another worker maps it, a page is evicted or freed. Uses of a mapped page are
//! invisible; a policy that wants to see them must have mappings dropped in `scan`, and pays for it. Not in the paper
//! are the token that a far page keeps for the policy, and the marks that tell it where the program is.

/// What a policy needs of the pager that drives it. Each costs time, so a pager does only what its policy wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wants {
    /// [`Policy::mapped`] is called when one more worker maps a page.
    pub mapped: bool,
    /// [`Policy::mark`] is called when a region begins or a barrier opens.
    pub marks: bool,
    /// [`Policy::scan`] drops mappings, so somebody must call it every 10 ms and unmap what it names in all workers.
    pub dropped_mappings: bool,
    /// Core-map counts are exact: no page is mapped in a worker that has not used it, as its neighbours otherwise are.
    pub exact_counts: bool,
    /// A victim that is used between being chosen and leaving stays: [`Policy::rescued`].
    pub second_chance: bool,
}

impl Wants {
    /// Nothing beside pages that come and go.
    pub const NOTHING: Wants = Wants {
        mapped: false,
        marks: false,
        dropped_mappings: false,
        exact_counts: false,
        second_chance: false,
    };
}

/// What a policy knows of the next uses of pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Foresight {
    /// Nothing: it goes by the past.
    Nothing,
    /// That pages return, as in a sweep that comes back to them.
    Returns,
    /// When pages are used next.
    NextUses,
}

/// A replacement policy over frames numbered from 0 to its capacity.
///
/// All calls are O(1), except `scan`, which is bounded as each policy documents. None allocates. The caller's
/// lock makes calls exclusive. Inserting a frame at or beyond the capacity panics; of all other
/// calls such a frame is one that is not held.
pub trait Policy {
    /// A page became resident in `frame`. `mappers` is the page's core-map count: how many workers map it, 0 for a
    /// page fetched ahead of its use. Of a frame that is already held this is the same as `mapped`.
    fn insert(&mut self, frame: u32, mappers: u32);

    /// A page that was evicted before became resident again, and the caller has kept the `token` of its eviction.
    /// Only policies that learn from early returns tell this from `insert`.
    fn insert_again(&mut self, frame: u32, mappers: u32, token: u32) {
        let _ = token;
        self.insert(frame, mappers);
    }

    /// A huge page of `pages` pages became resident, which `frame` stands for; the token is that of its eviction, if it was evicted before. Policies
    /// that count pages count so many.
    fn insert_huge(&mut self, frame: u32, pages: u32, token: Option<u32>) {
        let _ = pages;
        match token {
            Some(token) => self.insert_again(frame, 1, token),
            None => self.insert(frame, 1),
        }
    }

    /// The huge page that `frame` stands for is single pages from now on, of which it is one. Held or not.
    fn split_huge(&mut self, frame: u32) {
        let _ = frame;
    }

    /// A worker mapped the page in `frame`: one more of them, or one that had lost its mapping to `scan`, which is
    /// how a use is seen. `mappers` is the new core-map count. Of a frame that is not held, without effect.
    fn mapped(&mut self, frame: u32, mappers: u32);

    /// The next victim; `None` when no frame is held. Changes nothing, so that a caller may look before it decides.
    fn peek(&self) -> Option<u32>;

    /// Removes the victim that `peek` names and returns it.
    fn evict(&mut self) -> Option<u32>;

    /// Removes `frame` as well if it is held and about as good a victim as the one `evict` returned last. A caller asks
    /// for that victim's neighbours, as runs of pages leave more cheaply than single ones. A policy with a strict
    /// order, as those of the paper are, has no such victims.
    fn evict_also(&mut self, frame: u32) -> bool {
        let _ = frame;
        false
    }

    /// Removes `frame` as well if it is held, however good a victim it is: it leaves with a neighbour that `evict` returned. Returns whether it
    /// was held.
    fn evict_this(&mut self, frame: u32) -> bool {
        let is_held = self.contains(frame);
        self.remove(frame);
        is_held
    }

    /// Asked of a victim, a huge page, that was used while it was about to leave: whether it leaves all the same, as single pages that are fetched need
    /// its frames. How the program comes to it then tells whether it walks through all of it.
    fn lets_go(&mut self) -> bool {
        false
    }

    /// What to remember of the page whose frame `evict`, `evict_also` or `evict_this` removed last, for `insert_again`. A far page has no
    /// frame, so the place of the frame's number in its page-table entry is free to keep it.
    fn token(&self) -> u32 {
        0
    }

    /// The program freed the page in `frame`. Of a frame that is not held, without effect.
    fn remove(&mut self, frame: u32);

    /// A victim that turned out to be pinned or busy comes back, with its present core-map count. It is placed like
    /// a new page, so it can be the next victim again when everything else ranks above it: a caller sets such
    /// victims aside and restores them when its batch is complete.
    fn restore(&mut self, frame: u32, mappers: u32) {
        self.insert(frame, mappers);
    }

    /// A victim was used before it left, and stays, with its present core-map count. `token`: that of its eviction.
    fn rescued(&mut self, frame: u32, mappers: u32, token: u32) {
        let _ = token;
        self.restore(frame, mappers);
    }

    /// The periodic tick, every 10 ms of running time (`papers/cmcp.txt`, section 5.1). Calls `unmap` for every frame
    /// whose mappings are to be dropped in all workers so that its next use is seen. Each such call costs
    /// remote TLB invalidations; policies that need none never call it.
    fn scan(&mut self, unmap: &mut dyn FnMut(u32));

    /// The program passed a point that it is known by: a parallel region began, or a barrier in one opened. Programs
    /// repeat themselves, and so do these numbers; policies that know time only by faults ignore them.
    fn mark(&mut self, id: u32) {
        let _ = id;
    }

    /// What the order of victims comes from. Without any foresight victims are named long ahead of need, so that uses meanwhile are seen; see
    /// [`Wants::second_chance`].
    fn foresight(&self) -> Foresight {
        Foresight::Nothing
    }

    /// How many frames are held.
    fn len(&self) -> usize;

    /// Whether no frame is held.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether `frame` is held.
    fn contains(&self, frame: u32) -> bool;

    /// The policy's name as users write it.
    fn name(&self) -> &'static str;
}
