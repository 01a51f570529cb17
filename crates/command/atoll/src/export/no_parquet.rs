//! Stands in place of `parquet` where atoll was built without it.

use std::path::Path;

use atoll_record::profile::Profile;

/// The reason why a profile was not exported.
#[derive(thiserror::Error, Debug)]
#[error("this atoll was built without Parquet: build it with cargo build --release --features atoll/parquet")]
pub(super) struct NoParquet;

/// Exports nothing.
///
/// # Errors
/// This always fails.
pub(super) fn write(_profile: &Profile, _to: &Path) -> Result<(), NoParquet> {
    Err(NoParquet)
}
