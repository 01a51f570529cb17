//! Reports of a profile as one HTML file: which memory is hot, which worker touches it, when and from where.
//!
//! The crate uses `atoll-record` for the profile; the command `atoll report` calls [`write_html`]. `analysis` counts samples in
//! one pass. The other modules make the paper's figures from these counts (Roca Nonell and others, MCHPC'18, figures 4 to 7)
//! and the core maps of CMCP (HPDC'14, Figure 6). `html` puts everything into a file that opens offline, with the chart library
//! in it.

mod analysis;
mod cells;
mod content;
pub mod coverage;
mod findings;
mod heat;
mod html;
mod library;
mod pages;
mod placement;
mod reuse;
mod tables;
mod text;

use std::io::{self, Write};

use atoll_record::profile::{Profile, ProfileError};

/// The reason why there is no report.
#[derive(thiserror::Error, Debug)]
pub enum ReportError {
    /// The profile cannot be read.
    #[error("{0}")]
    Profile(#[from] ProfileError),
    /// The report cannot be written.
    #[error("the report cannot be written: {0}")]
    Write(#[from] io::Error),
    /// The counts cannot be made JSON.
    #[error("the report cannot be put together: {0}")]
    Json(#[from] serde_json::Error),
    /// The chart library that this atoll was built with is not one that the report knows.
    #[error(
        "the chart library that this atoll was built with has another form than expected: build it with its Cargo.lock"
    )]
    Library,
}

/// Writes the report of `profile` as one HTML file that needs nothing else.
///
/// # Errors
/// See [`ReportError`].
pub fn write_html(profile: &Profile, to: impl Write) -> Result<(), ReportError> {
    let analysis = analysis::Analysis::of(profile)?;
    let content = content::Content::of(profile, &analysis);
    html::write(&content, to)
}
