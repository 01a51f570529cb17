//! In place of `export`, where atoll was built without Parquet.

use std::path::Path;

/// Why a trace was not exported.
#[derive(thiserror::Error, Debug)]
#[error("this atoll was built without Parquet: build it with cargo build --release --features atoll/parquet")]
pub(crate) struct ExportError;

/// Exports nothing.
///
/// # Errors
/// Always.
pub(crate) fn export(_from: &Path, _to: &Path) -> Result<(), ExportError> {
    Err(ExportError)
}
