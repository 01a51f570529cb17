//! Stands in place of `export` where atoll was built without Parquet.

use std::path::Path;

/// The reason why a trace was not exported.
#[derive(thiserror::Error, Debug)]
#[error("this atoll was built without Parquet: build it with cargo build --release --features atoll/parquet")]
pub(crate) struct ExportError;

/// Exports nothing.
///
/// # Errors
/// This always fails.
pub(crate) fn export(_from: &Path, _to: &Path) -> Result<(), ExportError> {
    Err(ExportError)
}
