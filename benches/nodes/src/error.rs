//! The reason why a measurement cannot be made.

use std::fmt::Display;
use std::path::Path;

/// An error of one sentence.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Error(String);

impl Error {
    pub(crate) fn said(what: impl Into<String>) -> Error {
        Error(what.into())
    }

    /// Makes the error `cannot WHAT PATH: why`.
    pub(crate) fn at(what: &str, path: &Path, why: impl Display) -> Error {
        Error(format!("cannot {what} {}: {why}", path.display()))
    }
}
