//! Where lenders and borrowers of one user find each other: a folder with a secret and a card for each lender.
//!
//! The folder is in the user's state directory, `$XDG_STATE_HOME/atoll/lenders` or `~/.local/state/atoll/lenders`, which the hosts of
//! a cluster mostly share; the variable `ATOLL_LENDERS` names another one. The secret keeps others out: it is read only if nobody
//! but its owner could have written or read it, as ssh does with its keys.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use atoll_memory::far::hosts::wire;
use atoll_transport::random;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::control::Control;

/// The environment variable with the folder.
pub(crate) const VARIABLE: &str = "ATOLL_LENDERS";
/// The secret's file.
const SECRET: &str = ".secret";
/// The file whose lock lets one process at a time change the folder.
const LOCK: &str = ".lock";
/// How long a lender may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Why the folder is of no use.
#[derive(thiserror::Error, Debug)]
pub enum DirectoryError {
    /// There is no folder.
    #[error("there is no folder for lenders: set HOME, or {VARIABLE} to a folder that all hosts see")]
    None,
    /// The system refuses something.
    #[error("{}: {}", .0.display(), .1)]
    Os(PathBuf, io::Error),
    /// Others could know the secret, or have made it.
    #[error("{}: {}; remove it to have a new one made (lenders that run keep the old one)", .0.display(), .1)]
    Open(PathBuf, &'static str),
    /// The name has characters that a file's name must not have.
    #[error(
        "`{0}` is no name for a lender: use up to 40 letters, digits, dots, dashes and underscores, and no dot in front"
    )]
    Name(String),
    /// Another lender has the name.
    #[error("a lender called `{0}` is at work on {1}: use another --name")]
    Taken(String, String),
}

/// A secret that lenders and borrowers share.
#[derive(Clone)]
pub struct Secret([u8; 32]);

impl Secret {
    /// A new one.
    ///
    /// # Errors
    /// The system has no random bytes.
    pub fn random() -> io::Result<Secret> {
        Ok(Secret(random::bytes()?))
    }

    /// One that was handed over.
    pub fn of(bytes: [u8; 32]) -> Secret {
        Secret(bytes)
    }

    /// The key of connections that begin a session.
    pub fn key(&self) -> [u8; 32] {
        wire::control_key(&self.0)
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Secret(hidden)")
    }
}

/// What a lender tells those who look for one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Card {
    /// Its name.
    pub name: String,
    /// Its host.
    pub host: String,
    /// Its process there.
    pub process: u32,
    /// Where it listens; the first that answers is used.
    pub addresses: Vec<SocketAddr>,
}

impl Card {
    /// What messages call the lender.
    pub fn label(&self) -> String {
        if self.name == self.host { self.name.clone() } else { format!("{} on {}", self.name, self.host) }
    }

    /// Begins a session at the first address that answers.
    ///
    /// # Errors
    /// That of the last address.
    pub fn open(&self, key: &[u8; 32]) -> Result<(Control, SocketAddr), crate::ControlError> {
        let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable).into();
        for address in &self.addresses {
            match Control::open(*address, key, PATIENCE) {
                Ok(control) => return Ok((control, *address)),
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

/// The folder.
#[derive(Clone, Debug)]
pub struct Directory {
    path: PathBuf,
}

/// Where the user's folder is.
fn place() -> Option<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let state = || variable("XDG_STATE_HOME").or_else(|| Some(variable("HOME")?.join(".local/state")));
    variable(VARIABLE).or_else(|| Some(state()?.join("atoll/lenders")))
}

fn os(path: &Path) -> impl Fn(io::Error) -> DirectoryError + '_ {
    |error| DirectoryError::Os(path.to_owned(), error)
}

impl Directory {
    /// The user's folder, which is made if it is not there.
    ///
    /// # Errors
    /// See [`DirectoryError`].
    pub fn open() -> Result<Directory, DirectoryError> {
        Self::at(place().ok_or(DirectoryError::None)?)
    }

    /// The user's folder, if it is there.
    pub fn find() -> Option<Directory> {
        let path = place().filter(|path| path.is_dir())?;
        Some(Directory { path })
    }

    /// The folder at `path`.
    ///
    /// # Errors
    /// See [`DirectoryError`].
    pub fn at(path: PathBuf) -> Result<Directory, DirectoryError> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&path).map_err(os(&path))?;
        Ok(Directory { path })
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
    pub fn secret(&self) -> Result<Secret, DirectoryError> {
        let _lock = self.lock()?;
        let path = self.path.join(SECRET);
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
    pub fn cards(&self) -> Result<Vec<Card>, DirectoryError> {
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
    pub fn enter(&self, card: &Card, key: &[u8; 32]) -> Result<(), DirectoryError> {
        let fits = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        let name = &card.name;
        if name.is_empty() || name.len() > 40 || name.starts_with('.') || !name.chars().all(fits) {
            return Err(DirectoryError::Name(name.clone()));
        }
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
    pub fn remove(&self, card: &Card) {
        if let Ok(_lock) = self.lock()
            && self.cards().is_ok_and(|cards| cards.contains(card))
        {
            let _ = fs::remove_file(self.path.join(&card.name));
        }
    }
}
