//! Stands in place of [`parquet`](super::parquet) where atoll was built without that feature.

use std::path::Path;

use super::table::Value;

/// The reason why nothing is written.
#[derive(thiserror::Error, Debug)]
#[error("this atoll was built without Parquet: cargo build --release --features parquet, or use --csv")]
pub(super) struct NoParquet;

/// Writes nothing, and always fails.
pub(super) fn write(_path: &Path, _lines: &[Vec<(String, Value)>]) -> Result<(), NoParquet> {
    Err(NoParquet)
}
