//! `atoll export`: writes a profile in the formats of other tools.

mod csv;
mod firefox;
#[cfg_attr(not(feature = "parquet"), path = "no_parquet.rs")]
mod parquet;
mod perfetto;
mod row;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use atoll_memory::control::EXIT_SETUP;
use atoll_record::profile::{Profile, ProfileError};

use crate::cli::{ExportArgs, ExportForm};
use crate::report;

/// The reason why nothing was exported.
#[derive(thiserror::Error, Debug)]
enum ExportError {
    /// The profile cannot be read.
    #[error("{0}: {1}")]
    Profile(String, ProfileError),
    /// The file cannot be written.
    #[error("{0} cannot be written: {1}")]
    Write(String, io::Error),
    /// The profile cannot be written as Parquet.
    #[error("{0}")]
    Parquet(String),
}

/// Exports what the command line names.
pub(crate) fn export(args: &ExportArgs) -> ExitCode {
    match exported(args) {
        Ok(whole) => report::status(whole),
        Err(error) => {
            eprintln!("atoll: {error}");
            ExitCode::from(EXIT_SETUP as u8)
        }
    }
}

fn exported(args: &ExportArgs) -> Result<bool, ExportError> {
    let of = |error| ExportError::Profile(args.file.display().to_string(), error);
    let profile = report::open(&args.file).map_err(of)?;
    let whole = report::is_whole(&args.file, &profile);
    let name = args.output.as_ref().map_or("standard output".to_owned(), |path| path.display().to_string());
    let failed = |error| ExportError::Write(name.clone(), error);
    let form = args.form.form();
    if form == ExportForm::Parquet {
        let Some(path) = &args.output else {
            return Err(ExportError::Parquet("Parquet needs a file: add -o FILE".into()));
        };
        return parquet::write(&profile, path)
            .map(|()| whole)
            .map_err(|e| ExportError::Parquet(e.to_string()));
    }
    let mut to: Box<dyn Write> = match &args.output {
        Some(path) => Box::new(BufWriter::new(File::create(path).map_err(failed)?)),
        None => Box::new(BufWriter::new(io::stdout().lock())),
    };
    let written = match form {
        ExportForm::Firefox => firefox::write(&profile, &mut to),
        ExportForm::Perfetto => perfetto::write(&profile, &mut to),
        ExportForm::Csv | ExportForm::Parquet => csv::write(&profile, &mut to),
    };
    match written {
        Ok(()) => to.flush().map(|()| whole).map_err(failed),
        Err(Failed::Write(error)) => Err(failed(error)),
        Err(Failed::Profile(error)) => Err(of(error)),
    }
}

/// The errors of an export.
#[derive(thiserror::Error, Debug)]
enum Failed {
    /// The output cannot be written.
    #[error("{0}")]
    Write(#[from] io::Error),
    /// The profile cannot be read.
    #[error("{0}")]
    Profile(#[from] ProfileError),
}

impl From<serde_json::Error> for Failed {
    fn from(error: serde_json::Error) -> Self {
        Self::Write(error.into())
    }
}

/// Calls `each` with every sample of a profile and what it touched.
fn rows(profile: &Profile, mut each: impl FnMut(&row::Row<'_>) -> Result<(), Failed>) -> Result<(), Failed> {
    let mut locator = profile.locator();
    for batch in profile.batches()? {
        let batch = batch?;
        for sample in &batch.samples {
            each(&row::Row::new(profile, batch.sampler, *sample, locator.place(sample)))?;
        }
    }
    Ok(())
}
