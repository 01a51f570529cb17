//! `atoll report --against`: compares a profile with the exact trace of the same program.

use std::path::Path;

use atoll_record::profile::ProfileError;

use super::agreement::Agreement;
use super::truth::{Truth, TruthError};
use super::{is_whole, open};

/// The reason why nothing can be compared.
#[derive(thiserror::Error, Debug)]
pub(super) enum AgainstError {
    /// The profile cannot be read.
    #[error("{0}: {1}")]
    Profile(String, ProfileError),
    /// The trace cannot be used.
    #[error("{0}")]
    Truth(#[from] TruthError),
    /// Nothing brings their addresses together.
    #[error("trace and profile have no region in common: are they of the same program?")]
    Apart,
}

/// Compares and prints; returns `false` if the profile is not whole.
///
/// # Errors
/// See [`AgainstError`].
pub(super) fn against(file: &Path, trace: &Path) -> Result<bool, AgainstError> {
    let failed = |e| AgainstError::Profile(file.display().to_string(), e);
    let profile = open(file).map_err(failed)?;
    let whole = is_whole(file, &profile);
    let truth = Truth::read(trace)?;
    let agreement = Agreement::of(&profile, &truth).map_err(failed)?.ok_or(AgainstError::Apart)?;
    print!("{}", agreement.text());
    Ok(whole)
}
