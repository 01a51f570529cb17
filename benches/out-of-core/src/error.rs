//! The reason why a measurement cannot go on, or why a part of it is left out.

use std::fmt::Display;
use std::path::Path;

/// An error that ends a measurement.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// Ctrl-C, or a signal like it.
    #[error("interrupted")]
    Interrupted,
    /// An error of one sentence.
    #[error("{0}")]
    Said(String),
}

impl Error {
    pub(crate) fn said(what: impl Into<String>) -> Error {
        Error::Said(what.into())
    }

    /// Makes the error `cannot WHAT PATH: why`.
    pub(crate) fn at(what: &str, path: &Path, why: impl Display) -> Error {
        Error::Said(format!("cannot {what} {}: {why}", path.display()))
    }
}
