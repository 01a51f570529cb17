//! A process of a measurement that is ended where the measurement is over, however that comes.
//!
//! Used by `perftest` for UCX's server, and by `far` for a namespace's keeper and a lender. `pair` has the other process of a
//! measurement that is a part of this program.

use std::process::Child;

/// A process that is killed and waited for when this value is dropped.
pub(super) struct Held(pub(super) Child);

impl Drop for Held {
    fn drop(&mut self) {
        // The process may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
