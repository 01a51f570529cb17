//! A clock for what is measured within a node: nanoseconds since it was asked first.
//!
//! `duty` and the runtime ask it. Its times are never sent to other nodes.

use std::sync::OnceLock;
use std::time::Instant;

/// Nanoseconds since this process first asked; never 0.
pub fn now() -> u64 {
    static BEGIN: OnceLock<Instant> = OnceLock::new();
    // Not 0.
    BEGIN.get_or_init(Instant::now).elapsed().as_nanos() as u64 + 1
}
