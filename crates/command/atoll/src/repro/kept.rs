//! The file of results of simulations: what was simulated once is not simulated again, and a run that was ended goes on.
//!
//! [`store`](super::store) asks it before it simulates. A result is known by the trace, the parameters and costs of its
//! simulation, and the executable that made it: another build simulates anew.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use atoll_machine::Outcome;
use serde::{Deserialize, Serialize};

use super::ReproError;

/// A line of the file.
#[derive(Debug, Serialize, Deserialize)]
struct Line {
    /// The executable that made the result.
    build: String,
    key: String,
    outcome: Outcome,
}

/// The results that are kept in a file.
#[derive(Debug)]
pub(super) struct Kept {
    path: PathBuf,
    build: String,
    known: HashMap<String, Outcome>,
    file: Mutex<File>,
}

/// Returns a hash that is the same in every run and build: FNV-1a, folded to 32 bits.
pub(super) fn hash(bytes: &[u8]) -> u32 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325, step);
    (hash ^ hash >> 32) as u32
}

/// Returns what tells this executable from others: its size and the time at which it was built.
fn build() -> String {
    match fs::metadata("/proc/self/exe") {
        Ok(own) => format!("{} {}.{}", own.len(), own.mtime(), own.mtime_nsec()),
        Err(_) => String::new(),
    }
}

impl Kept {
    /// Opens the file, and makes it where it is not there. Results of other builds, and a last line that was cut off, are dropped.
    pub(super) fn open(path: &Path) -> Result<Self, ReproError> {
        Self::of(path, build())
    }

    fn of(path: &Path, build: String) -> Result<Self, ReproError> {
        let wrong = |e| ReproError::Write(path.display().to_string(), e);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(wrong)?;
        }
        let text = fs::read_to_string(path).unwrap_or_default();
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Line>(line).ok());
        let known: HashMap<String, Outcome> =
            lines.filter(|line| line.build == build).map(|line| (line.key, line.outcome)).collect();
        let file = Mutex::new(File::create(path).map_err(wrong)?);
        let kept = Self { path: path.to_owned(), build, known, file };
        for (key, outcome) in &kept.known {
            kept.write(key, outcome)?;
        }
        Ok(kept)
    }

    /// Returns the number of results that are known.
    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    /// Returns the file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the result of the simulation that `key` names.
    pub(super) fn get(&self, key: &str) -> Option<&Outcome> {
        self.known.get(key)
    }

    /// Adds a result to the file.
    pub(super) fn write(&self, key: &str, outcome: &Outcome) -> Result<(), ReproError> {
        let wrong = |e| ReproError::Write(self.path.display().to_string(), e);
        let line = Line { build: self.build.clone(), key: key.to_owned(), outcome: outcome.clone() };
        let mut text = serde_json::to_vec(&line).map_err(|e| wrong(e.into()))?;
        text.push(b'\n');
        // No thread panics while it holds the lock.
        let mut file = self.file.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        file.write_all(&text).map_err(wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(elapsed: u64) -> Outcome {
        let (workers, distribution) = (Vec::new(), vec![0, elapsed]);
        Outcome { workers, elapsed, scanned: 0, distribution, frames: None, settled: true }
    }

    #[test]
    fn a_run_that_was_killed_goes_on_where_it_stopped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/results.jsonl");
        let open = |build: &str| Kept::of(&path, build.to_owned()).unwrap();
        let kept = open("one");
        kept.write("a", &outcome(1)).unwrap();
        kept.write("b", &outcome(2)).unwrap();
        drop(kept);
        // The last line was cut off.
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, &text[..text.len() - 9]).unwrap();
        let kept = open("one");
        assert_eq!((kept.len(), kept.get("a"), kept.get("b")), (1, Some(&outcome(1)), None));
        kept.write("b", &outcome(3)).unwrap();
        assert_eq!(open("one").get("b"), Some(&outcome(3)));
        // Another build may simulate otherwise.
        assert_eq!(open("two").len(), 0);
    }
}
