//! The job's secret: what a node proves to know before another accepts anything from it.
//!
//! Made at start (`launch/`, or node 0 under PMIx) and handed to every node over what started it, never in an argument
//! or the environment, which other users of a host can see.

use std::fmt;
use std::io;

use crate::random;

/// 32 random bytes that only this job's nodes know.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; 32]);

impl Secret {
    /// A new one.
    pub(super) fn random() -> io::Result<Secret> {
        random::bytes().map(Secret)
    }

    /// One that was handed over.
    pub(super) fn of(bytes: [u8; 32]) -> Secret {
        Secret(bytes)
    }

    /// For a proof of knowing it; never to be sent or printed.
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(hidden)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_differ_and_neither_is_printed() {
        let (one, other) = (Secret::random().unwrap(), Secret::random().unwrap());
        assert_ne!(one, other);
        assert_eq!(format!("{one:?}"), "Secret(hidden)");
    }
}
