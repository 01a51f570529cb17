//! Makes Parquet of a trace, where atoll was built for it.

use std::path::Path;

/// Why a trace was not exported.
#[derive(thiserror::Error, Debug)]
pub(crate) enum ExportError {
    /// Left out of this build.
    #[error("this atoll was built without Parquet: build it with cargo build --release --features parquet")]
    Absent,
}

/// Exports `from`.
///
/// # Errors
/// See [`ExportError`].
pub(crate) fn export(_from: &Path, _to: &Path) -> Result<(), ExportError> {
    Err(ExportError::Absent)
}
