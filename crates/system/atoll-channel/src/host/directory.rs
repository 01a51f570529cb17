//! The directory in which a node's services have their sockets: private to the user, and found through the environment.
//!
//! `door.rs` makes the sockets; the program that starts a node makes the directory.

use std::ffi::OsString;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::{Pid, geteuid, getpid};

/// The environment variable that holds the directory's path, for all processes of a node.
pub const NODE_DIRECTORY: &str = "ATOLL_NODE_DIRECTORY";

/// The reasons why there is no directory, or none that can be trusted.
#[derive(thiserror::Error, Debug)]
pub enum DirectoryError {
    /// This process was not started at a node.
    #[error("{NODE_DIRECTORY} is not set: this process does not belong to a node, or lost its environment")]
    NotSet,
    /// Other users could reach its content.
    #[error("{0} is not a directory of this user's alone (mode 0700)")]
    NotPrivate(PathBuf),
    /// The system refuses a call on this path.
    #[error("{0}: {1}")]
    Os(PathBuf, #[source] io::Error),
}

/// A directory for the sockets of one node's services. Dropping it removes it with its content.
#[derive(Debug)]
pub struct NodeDirectory {
    path: PathBuf,
    /// The process that may remove it; a child that inherited this value over a fork may not.
    owner: Pid,
}

impl NodeDirectory {
    /// Makes a directory in `base`, for this user alone.
    pub fn create(base: &Path) -> Result<NodeDirectory, DirectoryError> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = base.join(format!("atoll-node-{}-{number}", std::process::id()));
            match std::fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(NodeDirectory { path, owner: getpid() }),
                // A process with this one's number was killed and left it behind.
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(DirectoryError::Os(path, e)),
            }
        }
    }

    /// The directory's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The environment variable, and its value, by which processes find it.
    pub fn variable(&self) -> (&'static str, OsString) {
        (NODE_DIRECTORY, self.path.clone().into_os_string())
    }
}

impl Drop for NodeDirectory {
    fn drop(&mut self) {
        if getpid() == self.owner {
            // The directory may have been removed already.
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

/// The directory of the node that this process belongs to.
pub(crate) fn from_environment() -> Result<PathBuf, DirectoryError> {
    std::env::var_os(NODE_DIRECTORY).map(PathBuf::from).ok_or(DirectoryError::NotSet)
}

/// Checks that `path` is a directory that only this user can use.
pub(crate) fn check(path: &Path) -> Result<(), DirectoryError> {
    let about = std::fs::symlink_metadata(path).map_err(|e| DirectoryError::Os(path.into(), e))?;
    let private = about.is_dir() && about.uid() == geteuid().as_raw() && about.mode() & 0o077 == 0;
    if private { Ok(()) } else { Err(DirectoryError::NotPrivate(path.into())) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_directory_that_others_can_open_is_refused() {
        let directory = NodeDirectory::create(&std::env::temp_dir()).unwrap();
        let path = directory.path().to_owned();
        check(&path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o750)).unwrap();
        assert!(matches!(check(&path), Err(DirectoryError::NotPrivate(_))));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
        let link = path.join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(matches!(check(&link), Err(DirectoryError::NotPrivate(_))));
        drop(directory);
        assert!(matches!(check(&path), Err(DirectoryError::Os(..))));
    }
}
