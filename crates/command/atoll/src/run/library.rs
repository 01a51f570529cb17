//! Finds the runtime library.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The library's file name.
pub(crate) const NAME: &str = "libatoll_openmp.so";
/// The environment variable that names the library, before any other place.
pub(crate) const ENVIRONMENT: &str = "ATOLL_LIBRARY";

/// The reason why there is no library.
#[derive(thiserror::Error, Debug, PartialEq, Eq)]
pub(crate) enum LibraryError {
    /// The environment names no file.
    #[error("{ENVIRONMENT}={0} is not a file: correct it or unset it")]
    Named(String),
    /// The library is not where it should be.
    #[error(
        "the runtime {NAME} is neither in {0} nor in {1}: build it (cargo build -p atoll-openmp) or set {ENVIRONMENT}"
    )]
    Absent(String, String),
    /// The path has a character at which the dynamic linker splits LD_PRELOAD.
    #[error("the runtime's path {0} has a space or colon in it, which LD_PRELOAD cannot hold: move it")]
    Separator(String),
}

/// Returns the path of the library that is loaded into the program.
///
/// # Errors
/// See [`LibraryError`].
pub(crate) fn find(named: Option<&OsStr>, executable: &Path) -> Result<PathBuf, LibraryError> {
    let path = match named {
        Some(named) => {
            std::fs::canonicalize(named).map_err(|_| LibraryError::Named(named.display().to_string()))?
        }
        None => {
            let [beside, installed] = places(executable);
            beside_or_installed(NAME, executable).ok_or_else(|| {
                LibraryError::Absent(beside.display().to_string(), installed.display().to_string())
            })?
        }
    };
    if cannot_be_preloaded(&path) {
        return Err(LibraryError::Separator(path.display().to_string()));
    }
    Ok(path)
}

/// Returns the places of atoll's libraries: beside the command, or where it is installed.
pub(crate) fn places(executable: &Path) -> [PathBuf; 2] {
    let beside = executable.parent().unwrap_or(Path::new("/"));
    [beside.to_owned(), beside.join("../lib/atoll")]
}

/// Returns the library of atoll's that has this name.
pub(crate) fn beside_or_installed(name: &str, executable: &Path) -> Option<PathBuf> {
    places(executable).iter().find_map(|place| std::fs::canonicalize(place.join(name)).ok())
}

/// Whether the path has a character at which the dynamic linker splits LD_PRELOAD.
pub(crate) fn cannot_be_preloaded(path: &Path) -> bool {
    path.as_os_str().as_bytes().iter().any(|b| b" :\t\n".contains(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_beside_or_installed() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let (bin, lib) = (root.join("bin"), root.join("lib/atoll"));
        std::fs::create_dir_all(&bin).unwrap();
        std::fs::create_dir_all(&lib).unwrap();
        let executable = bin.join("atoll");
        assert!(matches!(find(None, &executable), Err(LibraryError::Absent(..))));
        std::fs::write(lib.join(NAME), "").unwrap();
        assert_eq!(find(None, &executable), Ok(lib.join(NAME)));
        std::fs::write(bin.join(NAME), "").unwrap();
        assert_eq!(find(None, &executable), Ok(bin.join(NAME)));
        let named = lib.join(NAME);
        assert_eq!(find(Some(named.as_os_str()), &executable), Ok(named));
        assert!(matches!(find(Some(OsStr::new("/absent")), &executable), Err(LibraryError::Named(_))));
        let spaced = root.join("a b");
        std::fs::write(&spaced, "").unwrap();
        assert!(matches!(find(Some(spaced.as_os_str()), &executable), Err(LibraryError::Separator(_))));
    }
}
