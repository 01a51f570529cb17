//! Measures single steps with small programs, which are built here, run on the nodes and print their measurements.
//!
//! The programs are in `programs/` beside this crate's sources.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::Error;
use crate::places::Places;
use crate::setting::Setting;
use crate::stats::median;

/// A program, and the settings in which it is run.
struct Source {
    name: &'static str,
    text: &'static str,
    settings: &'static [Setting],
}

const SOURCES: [Source; 3] = [
    // These settings show faults alone: nothing is fetched ahead by plan.
    Source { name: "faults", text: include_str!("../programs/faults.c"), settings: &[Setting::Sc] },
    Source {
        name: "barrier",
        text: include_str!("../programs/barrier.c"),
        settings: &[Setting::One, Setting::SmartPrefetch],
    },
    Source {
        name: "fetch",
        text: include_str!("../programs/fetch.c"),
        settings: &[Setting::Smart, Setting::SmartPrefetch],
    },
];

/// All small programs, built.
pub(crate) struct Micro {
    programs: Vec<(PathBuf, &'static Source)>,
    samples: BTreeMap<(&'static str, String), Vec<f64>>,
    pub(crate) wrong: Vec<String>,
    /// The programs' folder, which is removed with this value.
    _folder: tempfile::TempDir,
}

impl Micro {
    /// Builds the programs.
    ///
    /// # Errors
    /// If there is no compiler.
    pub(crate) fn build() -> Result<Micro, Error> {
        let folder = tempfile::tempdir().map_err(|e| Error::said(format!("no temporary folder: {e}")))?;
        let mut programs = Vec::new();
        for source in &SOURCES {
            programs.push((compile(folder.path(), source)?, source));
        }
        Ok(Micro { programs, samples: BTreeMap::new(), wrong: Vec::new(), _folder: folder })
    }

    /// Runs each program once in each of its settings.
    ///
    /// # Errors
    /// If a program cannot be started.
    pub(crate) fn round(&mut self, places: &Places) -> Result<(), Error> {
        for (path, source) in &self.programs {
            for &setting in source.settings {
                let outcome = places.run(setting, path, &[])?;
                if let Some(why) = outcome.failure_or_cut() {
                    places.say(&format!("{}, {setting}: {why}", source.name));
                    self.wrong.push(format!("{}, {setting}: {why}", source.name));
                    continue;
                }
                for (name, value) in numbers(&outcome.stdout) {
                    self.samples.entry((setting.name(), name)).or_default().push(value);
                }
            }
        }
        Ok(())
    }

    /// Returns a program's file.
    pub(crate) fn program(&self, name: &str) -> Option<&Path> {
        self.programs.iter().find(|(_, source)| source.name == name).map(|(path, _)| path.as_path())
    }

    /// Returns the median of a program's measurement.
    pub(crate) fn get(&self, setting: Setting, name: &str) -> Option<f64> {
        median(self.samples.get(&(setting.name(), name.to_owned()))?.iter().copied())
    }

    /// Returns all measurements: setting, name, and values.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&str, &str, &[f64])> {
        self.samples.iter().map(|((setting, name), values)| (*setting, name.as_str(), values.as_slice()))
    }
}

/// Returns the names and numbers that a program printed, one a line.
pub(crate) fn numbers(said: &str) -> Vec<(String, f64)> {
    let number = |line: &str| {
        let (name, value) = line.split_once(' ')?;
        Some((name.to_owned(), value.trim().parse().ok()?))
    };
    said.lines().filter_map(number).collect()
}

fn compile(folder: &Path, source: &Source) -> Result<PathBuf, Error> {
    let (text, program) = (folder.join(source.name).with_extension("c"), folder.join(source.name));
    std::fs::write(&text, source.text).map_err(|e| Error::at("write", &text, e))?;
    let flags = ["-O2", "-fopenmp", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-o"];
    let output = Command::new("gcc").args(flags).arg(&program).arg(&text).output();
    let output = output.map_err(|e| Error::said(format!("gcc cannot be started: {e}")))?;
    if output.status.success() {
        return Ok(program);
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(Error::said(format!("{} does not compile: {said}", source.name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_programs_compile() {
        if Command::new("gcc").arg("--version").output().is_err() {
            eprintln!("skipped: no gcc");
            return;
        }
        assert_eq!(Micro::build().unwrap().programs.len(), SOURCES.len());
    }
}
