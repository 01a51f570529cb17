//! What the pager decides: which pages leave, which are fetched, mapped and evicted together, and which are mapped writable. Pure
//! code, no clock, no thread, no system call.
//!
//! Driven by `atoll-memory` with real faults and by the simulator with traces. Nothing here allocates after
//! construction, and every structure works on slices its caller gives, so all of it can lie in shared memory
//! that is mapped at the same address in every worker, and be used from a signal handler under the caller's lock.
//!
//! Sources: `papers/cmcp.txt` (core maps in section 2.3, CMCP in section 3, LRU in section 5.1).
#![no_std]
#![forbid(unsafe_code)]

#[cfg(feature = "alloc")]
extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod adaptive;
mod blocks;
pub mod cmcp;
pub mod core_map;
pub mod event;
pub mod fifo;
pub mod habit;
pub mod huge;
pub mod links;
pub mod lru;
pub mod neighbours;
pub mod newest;
pub mod pacing;
pub mod page_size;
pub mod policy;
pub mod prefetch;
#[cfg(feature = "alloc")]
pub mod replay;
mod rhythm;
pub mod size;
pub mod spec;
mod stay;
pub mod storage;
pub mod victims;

pub use core_map::{CoreMap, CoreSet, MAX_WORKERS};
pub use event::Event;
pub use habit::{Guesses, Habit};
pub use page_size::PageSize;
pub use policy::{Foresight, Policy, Wants};
pub use prefetch::{Prefetcher, Window};
pub use size::Size;
pub use spec::{AnyPolicy, PolicySpec};
#[cfg(feature = "alloc")]
pub use storage::OwnedStorage;
pub use storage::Storage;
