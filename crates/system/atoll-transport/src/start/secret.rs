//! The job's secret, whose knowledge a node proves before another accepts anything from it.
//!
//! The secret is made at start (`launch/`, or node 0 under PMIx) and handed to every node by its starter, never in an argument
//! or the environment, which other users of a host can see.

use std::fmt;
use std::io;

use crate::random;

/// 32 random bytes that only this job's nodes know.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; 32]);

impl Secret {
    /// A new secret.
    ///
    /// # Errors
    /// The system has no random bytes.
    pub fn random() -> io::Result<Secret> {
        random::bytes().map(Secret)
    }

    /// A secret that was handed over.
    pub(super) fn of(bytes: [u8; 32]) -> Secret {
        Secret(bytes)
    }

    /// The bytes, to prove that they are known; never to be sent or printed.
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
