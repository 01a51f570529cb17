//! Keeps the last measured footprints of programs, so that `--near 50%` means half of what the program needs.
//!
//! `finish` keeps one of every run that ended well, and `near` looks it up. Each is a small JSON file in the user's cache
//! directory, `$XDG_CACHE_HOME/atoll/footprints` or `~/.cache/atoll/footprints`. If none can be kept, that is no error of the
//! run.

use std::ffi::OsString;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

/// The most files kept; the oldest are removed first.
const MOST: usize = 1000;

/// The near memory that a program needed in its last run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Footprint {
    /// The file that was executed, from the root, without links.
    program: PathBuf,
    /// The program's arguments, its name first.
    arguments: Vec<OsString>,
    /// The bytes of a page.
    pub(crate) page_bytes: u64,
    /// The number of workers of the run.
    pub(crate) workers: u32,
    /// The least near limit under which nothing is evicted.
    pub(crate) bytes: u64,
}

/// The key that tells runs apart: the file, its arguments and the page size.
#[derive(Debug, Clone)]
pub(crate) struct Key {
    program: PathBuf,
    arguments: Vec<OsString>,
    page_bytes: u64,
}

impl Key {
    /// Makes the key of the program at `path`, run with these words and pages.
    pub(crate) fn new(path: &Path, words: &[OsString], page_bytes: u64) -> Key {
        let program = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        Key { program, arguments: words.to_vec(), page_bytes }
    }

    fn file(&self, folder: &Path) -> PathBuf {
        let mut hasher = DefaultHasher::new();
        // The name may differ from run to run: `./cg` and `bin/cg` are one program.
        (&self.program, self.arguments.get(1..), self.page_bytes).hash(&mut hasher);
        let name = self.program.file_name().unwrap_or_default().to_string_lossy();
        let name: String = name.chars().filter(|c| c.is_ascii_alphanumeric()).take(40).collect();
        folder.join(format!("{name}-{:016x}.json", hasher.finish()))
    }

    fn is_of(&self, footprint: &Footprint) -> bool {
        self.program == footprint.program && self.arguments.get(1..) == footprint.arguments.get(1..)
    }
}

/// Returns the folder of footprints; `None` where the user has no directory of their own.
fn folder() -> Option<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")))?;
    Some(cache.join("atoll/footprints"))
}

/// Returns the last measured footprint, and its age in seconds; one with pages of this size before others.
pub(crate) fn find(key: &Key) -> Option<(Footprint, u64)> {
    find_in(&folder()?, key)
}

fn find_in(folder: &Path, key: &Key) -> Option<(Footprint, u64)> {
    let sizes = [key.page_bytes, 4 << 10, 64 << 10, 2 << 20];
    sizes.into_iter().find_map(|page_bytes| {
        let file = Key { page_bytes, ..key.clone() }.file(folder);
        let footprint: Footprint = serde_json::from_slice(&std::fs::read(&file).ok()?).ok()?;
        let age = file.metadata().and_then(|m| m.modified()).ok()?;
        let age = SystemTime::now().duration_since(age).unwrap_or_default().as_secs();
        (key.is_of(&footprint) && footprint.bytes > 0).then_some((footprint, age))
    })
}

/// Keeps a run's footprint in place of the earlier one.
pub(crate) fn keep(key: &Key, workers: u32, bytes: u64) {
    if let Some(folder) = folder() {
        // Without it the next run knows less, and says so.
        let _ = keep_in(&folder, key, workers, bytes);
    }
}

fn keep_in(folder: &Path, key: &Key, workers: u32, bytes: u64) -> io::Result<()> {
    let Key { program, arguments, page_bytes } = key.clone();
    let footprint = Footprint { program, arguments, page_bytes, workers, bytes };
    std::fs::create_dir_all(folder)?;
    // Other processes may be reading or writing it.
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    serde_json::to_writer(&mut file, &footprint)?;
    file.persist(key.file(folder)).map_err(|e| e.error)?;
    let mut files: Vec<_> = std::fs::read_dir(folder)?.flatten().collect();
    if files.len() > MOST {
        files.sort_by_key(|entry| entry.metadata().and_then(|m| m.modified()).ok());
        for entry in &files[..files.len() - MOST] {
            let _ = std::fs::remove_file(entry.path());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(words: &[&str], page_bytes: u64) -> Key {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        Key::new(Path::new("/bin/sh"), &words, page_bytes)
    }

    #[test]
    fn a_footprint_is_found_again_by_program_and_arguments() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("new");
        let find = |key: &Key| find_in(&folder, key).map(|(footprint, _)| footprint.bytes);
        assert_eq!(find(&key(&["sh", "A"], 4096)), None);
        keep_in(&folder, &key(&["sh", "A"], 4096), 2, 1000).unwrap();
        keep_in(&folder, &key(&["sh", "B"], 4096), 2, 2000).unwrap();
        assert_eq!(find(&key(&["/usr/../bin/sh", "A"], 4096)), Some(1000));
        assert_eq!(find(&key(&["sh", "C"], 4096)), None);
        keep_in(&folder, &key(&["sh", "A"], 4096), 2, 3000).unwrap();
        assert_eq!(find(&key(&["sh", "A"], 4096)), Some(3000));
        // With other page sizes, the known footprint is better than none.
        assert_eq!(find(&key(&["sh", "A"], 65536)), Some(3000));
        keep_in(&folder, &key(&["sh", "A"], 65536), 2, 4000).unwrap();
        assert_eq!(find(&key(&["sh", "A"], 65536)), Some(4000));
        assert_eq!(find(&key(&["sh", "A"], 4096)), Some(3000));
    }

    #[test]
    fn what_is_damaged_is_not_known() {
        let folder = tempfile::tempdir().unwrap();
        let key = key(&["sh"], 4096);
        std::fs::write(key.file(folder.path()), "{").unwrap();
        assert_eq!(find_in(folder.path(), &key), None);
    }

    #[test]
    fn no_more_are_kept_than_fit() {
        let folder = tempfile::tempdir().unwrap();
        for n in 0..MOST + 5 {
            std::fs::write(folder.path().join(n.to_string()), "").unwrap();
        }
        keep_in(folder.path(), &key(&["sh"], 4096), 1, 1).unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), MOST);
        assert!(find_in(folder.path(), &key(&["sh"], 4096)).is_some());
    }
}
