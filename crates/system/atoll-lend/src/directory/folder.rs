//! The folder by which lenders and borrowers of one user find each other: a secret, and a card for each lender.
//!
//! The secret keeps others out: it is read only if nobody but its owner could have written or read it, as ssh does with its keys.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use super::{Card, DirectoryError, Secret};

/// The secret's file.
const SECRET: &str = ".secret";
/// The file whose lock lets one process at a time change the folder.
const LOCK: &str = ".lock";

/// The folder.
#[derive(Clone, Debug)]
pub(super) struct Folder {
    path: PathBuf,
}

fn os(path: &Path) -> impl Fn(io::Error) -> DirectoryError + '_ {
    |error| DirectoryError::Os(path.to_owned(), error)
}

impl Folder {
    /// The folder at `path`, if it is there.
    pub(super) fn find(path: PathBuf) -> Option<Folder> {
        path.is_dir().then_some(Folder { path })
    }

    /// Where the secret is.
    pub(super) fn secret_path(&self) -> PathBuf {
        self.path.join(SECRET)
    }

    /// The folder at `path`.
    ///
    /// # Errors
    /// See [`DirectoryError`].
    pub(super) fn at(path: PathBuf) -> Result<Folder, DirectoryError> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&path).map_err(os(&path))?;
        Ok(Folder { path })
    }

    /// One process at a time has this.
    fn lock(&self) -> Result<File, DirectoryError> {
        let path = self.path.join(LOCK);
        let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path);
        let file = file.map_err(os(&path))?;
        // A file system without locks has two processes race in the worst case, for a name.
        let _ = flock(&file, FlockOperation::LockExclusive);
        Ok(file)
    }

    /// Writes a file that only its owner can read, whole or not at all.
    fn write(&self, name: &str, bytes: &[u8]) -> Result<(), DirectoryError> {
        let new = self.path.join(format!(".{name}.{}", std::process::id()));
        let to = self.path.join(name);
        let write = || {
            let mut file =
                OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&new)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            fs::rename(&new, &to)
        };
        write().map_err(os(&to))
    }

    /// The user's secret, which is made if there is none.
    ///
    /// # Errors
    /// See [`DirectoryError`].
    pub(super) fn secret(&self) -> Result<Secret, DirectoryError> {
        let _lock = self.lock()?;
        let path = self.secret_path();
        let open = |path: &Path| OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(path);
        let file = match open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let secret = Secret::random().map_err(os(&path))?;
                self.write(SECRET, &secret.0)?;
                open(&path)
            }
            file => file,
        };
        let mut file = file.map_err(os(&path))?;
        let meta = file.metadata().map_err(os(&path))?;
        if meta.uid() != rustix::process::geteuid().as_raw() {
            return Err(DirectoryError::Open(path, "another user's secret"));
        }
        if meta.mode() & 0o077 != 0 {
            return Err(DirectoryError::Open(path, "a secret that others may read or write"));
        }
        let mut bytes = Vec::new();
        io::Read::read_to_end(&mut file, &mut bytes).map_err(os(&path))?;
        let bytes = bytes.try_into().map_err(|_| DirectoryError::Open(path, "no secret of atoll's"))?;
        Ok(Secret(bytes))
    }

    /// The cards of all lenders, living or not, by name.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub(super) fn cards(&self) -> Result<Vec<Card>, DirectoryError> {
        let entries = fs::read_dir(&self.path).map_err(os(&self.path))?;
        let names = entries.flatten().map(|entry| entry.file_name());
        let mut cards: Vec<Card> = names
            .filter(|name| !name.as_encoded_bytes().starts_with(b"."))
            .filter_map(|name| serde_json::from_slice(&fs::read(self.path.join(name)).ok()?).ok())
            .collect();
        cards.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(cards)
    }

    /// Enters a lender. Where a living one has the name, that is an error.
    ///
    /// # Errors
    /// See [`DirectoryError`].
    pub(super) fn enter(&self, card: &Card, key: &[u8; 32]) -> Result<(), DirectoryError> {
        let name = &card.name;
        let _lock = self.lock()?;
        if let Some(other) = self.cards()?.into_iter().find(|other| other.name == *name)
            && other != *card
            && other.open(key).is_ok()
        {
            return Err(DirectoryError::Taken(name.clone(), other.host));
        }
        let bytes = serde_json::to_vec_pretty(card).map_err(|e| os(&self.path)(e.into()))?;
        self.write(name, &bytes)
    }

    /// Removes a lender's card, if it is still this one.
    pub(super) fn remove(&self, card: &Card) {
        if let Ok(_lock) = self.lock()
            && self.cards().is_ok_and(|cards| cards.contains(card))
        {
            let _ = fs::remove_file(self.path.join(&card.name));
        }
    }
}
