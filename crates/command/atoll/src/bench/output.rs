//! Prints a measurement's table, and writes table and drawing to files where a directory was named.
//!
//! The subcommands of `atoll bench` that compare with the barrelfish paper use it.

use std::path::Path;

use super::BenchError;
use super::table::Table;

/// The directory for results, or none.
pub(super) struct Output<'a> {
    directory: Option<&'a Path>,
}

impl<'a> Output<'a> {
    /// Makes the directory now, so that an error does not come only after the measurement.
    pub(super) fn new(directory: Option<&'a Path>) -> Result<Self, BenchError> {
        if let Some(path) = directory {
            std::fs::create_dir_all(path).map_err(|e| BenchError::Write(path.display().to_string(), e))?;
        }
        Ok(Self { directory })
    }

    /// Prints `table` and writes it to `NAME.csv`.
    pub(super) fn table(&self, name: &str, table: &Table) -> Result<(), BenchError> {
        println!("{}", table.text());
        let Some(directory) = self.directory else { return Ok(()) };
        let path = directory.join(format!("{name}.csv"));
        std::fs::write(&path, table.csv()).map_err(|e| BenchError::Write(path.display().to_string(), e))
    }

    /// Makes `draw` write `NAME.svg`.
    pub(super) fn drawing(
        &self,
        name: &str,
        draw: impl FnOnce(&Path) -> Result<(), String>,
    ) -> Result<(), BenchError> {
        let Some(directory) = self.directory else { return Ok(()) };
        let path = directory.join(format!("{name}.svg"));
        draw(&path).map_err(|why| BenchError::Draw(path.display().to_string(), why))
    }

    /// Prints where the files are.
    pub(super) fn end(&self) {
        if let Some(directory) = self.directory {
            println!("\ntables and figures: {}", directory.display());
        }
    }
}

/// Returns the end of a line about a target.
pub(super) fn verdict(met: bool) -> &'static str {
    if met { "met" } else { "not met" }
}

/// Returns the end of a line about a claim of the paper.
pub(super) fn held(held: bool) -> &'static str {
    if held { "held" } else { "not held" }
}
