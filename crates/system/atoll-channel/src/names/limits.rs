//! The limits of a name service's clients, so that none can exhaust it.
//!
//! `registry.rs` enforces them; `name.rs` checks the length of a name.

/// The most bytes of a service's name.
pub const MOST_SERVICE: usize = 64;
/// The most bytes of an entry's value: enough for an address of a transport, and for a capability. An answer with one entry
/// fits into an empty ring, so no service waits for a client to take it.
pub const MOST_VALUE: usize = 2048;

/// The limits of a registry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The most entries of all owners together.
    pub entries: usize,
    /// The most entries of one owner.
    pub entries_each: usize,
    /// The most look-ups of one owner that wait, or whose answers it has not fetched.
    pub waiters_each: usize,
    /// The most watches of one owner.
    pub watches_each: usize,
    /// The most changes of one watch that its owner has not fetched.
    pub changes_each: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { entries: 65_536, entries_each: 1024, waiters_each: 64, watches_each: 64, changes_each: 256 }
    }
}
