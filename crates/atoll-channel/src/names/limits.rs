//! What a client may take of a name service, so that none can exhaust it.
//!
//! Kept by `registry.rs`; `name.rs` knows the length of a name.

/// Bytes of a service's name at most.
pub const MOST_SERVICE: usize = 64;
/// Bytes of an entry's value at most: room for an address of a transport, and for a capability. An answer with one entry
/// fits into an empty ring, so no service waits for a client to take it.
pub const MOST_VALUE: usize = 2048;

/// How much a registry holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Entries of all owners together.
    pub entries: usize,
    /// Entries of one owner.
    pub entries_each: usize,
    /// Look-ups of one owner that wait, or whose answers it has not fetched.
    pub waiters_each: usize,
    /// Watches of one owner.
    pub watches_each: usize,
    /// Changes of one watch that its owner has not fetched.
    pub changes_each: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { entries: 65_536, entries_each: 1024, waiters_each: 64, watches_each: 64, changes_each: 256 }
    }
}
