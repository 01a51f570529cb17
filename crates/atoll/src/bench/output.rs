//! Where a measurement's table and drawing go: printed always, and as files where a directory was named.
//!
//! The subcommands of `atoll bench` that compare with the barrelfish paper end here.

use std::path::Path;

use super::BenchError;
use super::table::Table;

/// A directory for what is measured, or none.
pub(super) struct Output<'a> {
    directory: Option<&'a Path>,
}

impl<'a> Output<'a> {
    /// Makes the directory now: not to be found impossible after the measurement.
    pub(super) fn new(directory: Option<&'a Path>) -> Result<Self, BenchError> {
        if let Some(path) = directory {
            std::fs::create_dir_all(path).map_err(|e| BenchError::Write(path.display().to_string(), e))?;
        }
        Ok(Self { directory })
    }

    /// Prints `table`; writes it to `NAME.csv`.
    pub(super) fn table(&self, name: &str, table: &Table) -> Result<(), BenchError> {
        println!("{}", table.text());
        let Some(directory) = self.directory else { return Ok(()) };
        let path = directory.join(format!("{name}.csv"));
        std::fs::write(&path, table.csv()).map_err(|e| BenchError::Write(path.display().to_string(), e))
    }

    /// Has `draw` write `NAME.svg`.
    pub(super) fn drawing(
        &self,
        name: &str,
        draw: impl FnOnce(&Path) -> Result<(), String>,
    ) -> Result<(), BenchError> {
        let Some(directory) = self.directory else { return Ok(()) };
        let path = directory.join(format!("{name}.svg"));
        draw(&path).map_err(|why| BenchError::Draw(path.display().to_string(), why))
    }

    /// Says where the files are.
    pub(super) fn end(&self) {
        if let Some(directory) = self.directory {
            println!("\ntables and figures: {}", directory.display());
        }
    }
}

/// The end of a line about something with a target.
pub(super) fn verdict(met: bool) -> &'static str {
    if met { "met" } else { "not met" }
}

/// The end of a line about something the paper found.
pub(super) fn held(held: bool) -> &'static str {
    if held { "held" } else { "not held" }
}
