//! Finds the file of a program's name, as a shell would find it.

use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The reason why a name leads to no program.
#[derive(thiserror::Error, Debug, PartialEq, Eq)]
pub(crate) enum PathError {
    /// There is no such file.
    #[error("there is no program {0}: check its name{1}")]
    NotFound(String, &'static str),
    /// The file lacks the permission to be executed, or is a directory.
    #[error("{0} cannot be executed: it {1}")]
    NotExecutable(String, &'static str),
}

/// Returns the file of `name`.
///
/// # Errors
/// There is none, or none that may be executed.
pub(crate) fn find(name: &OsStr, search: Option<&OsStr>) -> Result<PathBuf, PathError> {
    let shown = name.display().to_string();
    if name.as_bytes().contains(&b'/') {
        let path = Path::new(name);
        return check(path).map(|()| path.to_owned()).map_err(|why| match why {
            Some(why) => PathError::NotExecutable(shown, why),
            None => PathError::NotFound(shown, ""),
        });
    }
    let search = search.unwrap_or(OsStr::new("/usr/local/bin:/usr/bin:/bin"));
    let mut found = None;
    for dir in std::env::split_paths(search) {
        let path = if dir.as_os_str().is_empty() { Path::new(".").join(name) } else { dir.join(name) };
        match check(&path) {
            Ok(()) => return Ok(path),
            Err(Some(why)) => found = found.or(Some((path, why))),
            Err(None) => {}
        }
    }
    match found {
        Some((path, why)) => Err(PathError::NotExecutable(path.display().to_string(), why)),
        None => Err(PathError::NotFound(shown, ", or write ./ in front of it if it is in this directory")),
    }
}

/// Returns `Err(None)` where the file is not there, and `Err(Some(why))` where it is there but may not be executed.
fn check(path: &Path) -> Result<(), Option<&'static str>> {
    let Ok(metadata) = path.metadata() else { return Err(None) };
    if metadata.is_dir() {
        return Err(Some("is a directory"));
    }
    if !metadata.is_file() {
        return Err(Some("is not a regular file"));
    }
    let Ok(c_path) = CString::new(path.as_os_str().as_bytes()) else { return Err(None) };
    // SAFETY: a C string.
    if unsafe { libc::access(c_path.as_ptr(), libc::X_OK) } != 0 {
        return Err(Some("has no execute permission (chmod +x gives it)"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn names_are_found_as_a_shell_does() {
        let dir = tempfile::tempdir().unwrap();
        let (plain, program) = (dir.path().join("plain"), dir.path().join("program"));
        std::fs::write(&plain, "").unwrap();
        std::fs::write(&program, "").unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let search = format!("/nowhere:{}", dir.path().display());
        let find = |name: &str| find(OsStr::new(name), Some(OsStr::new(&search)));
        assert_eq!(find("program"), Ok(program.clone()));
        assert_eq!(find(program.to_str().unwrap()), Ok(program));
        assert!(matches!(find("absent"), Err(PathError::NotFound(..))));
        assert!(matches!(find("./absent"), Err(PathError::NotFound(..))));
        assert!(matches!(find(dir.path().to_str().unwrap()), Err(PathError::NotExecutable(..))));
    }
}
