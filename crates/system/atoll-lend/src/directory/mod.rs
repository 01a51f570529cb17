//! Where lenders and borrowers of one user find each other: a folder that all hosts see, or names that lenders keep.
//!
//! The folder ([`folder`]) is in the user's state directory, `$XDG_STATE_HOME/atoll/lenders` or `~/.local/state/atoll/lenders`, which
//! the hosts of a cluster mostly share. The variable `ATOLL_LENDERS` names another folder; or the addresses of lenders that keep the
//! names of all others ([`keepers`]), for hosts that share no folder. The user's secret is in the folder in both cases.

mod folder;
mod keepers;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use atoll_memory::far::hosts::wire;
use atoll_transport::random;
use serde::{Deserialize, Serialize};

use self::folder::Folder;
use self::keepers::{Keepers, Kept};
use crate::control::{Control, ControlError};

/// The environment variable with the folder, or with the lenders that keep names.
pub(crate) const VARIABLE: &str = "ATOLL_LENDERS";
/// How long a lender may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// The most characters of a lender's name.
const LONGEST_NAME: usize = 40;

/// Why lenders and borrowers do not find each other.
#[derive(thiserror::Error, Debug)]
pub enum DirectoryError {
    /// There is no folder.
    #[error("there is no folder for lenders: set HOME, or {VARIABLE} to a folder that all hosts see")]
    None,
    /// The variable names neither a folder nor lenders.
    #[error(
        "{VARIABLE} is `{0}`: it needs an absolute path of a folder that all hosts see, or the addresses of lenders, \
         each HOST:PORT, with commas between them"
    )]
    Variable(String),
    /// The system refuses something.
    #[error("{}: {}", .0.display(), .1)]
    Os(PathBuf, io::Error),
    /// Others could know the secret, or have made it.
    #[error("{}: {}; remove it to have a new one made (lenders that run keep the old one)", .0.display(), .1)]
    Open(PathBuf, &'static str),
    /// The name has characters that a file's name must not have.
    #[error(
        "`{0}` is no name for a lender: use up to {LONGEST_NAME} letters, digits, dots, dashes and underscores, and no dot in front"
    )]
    Name(String),
    /// Another lender has the name.
    #[error("a lender called `{0}` is at work on {1}: use another --name")]
    Taken(String, String),
    /// None of the lenders that keep names can be asked.
    #[error("the lender at {0}, which {VARIABLE} names, cannot be asked who lends: {1}")]
    Keeper(String, String),
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
    /// A random number that no other lender has, nor this one when it is started anew; but a lender for one run keeps it.
    pub identity: u64,
    /// Where it listens; the first that answers is used.
    pub addresses: Vec<SocketAddr>,
}

impl Card {
    /// What messages call the lender.
    pub fn label(&self) -> String {
        if self.name == self.host { self.name.clone() } else { format!("{} on {}", self.name, self.host) }
    }

    /// Whether the name can be a lender's, and a file's.
    pub(crate) fn is_named_well(&self) -> bool {
        let fits = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        let name = &self.name;
        !name.is_empty() && name.len() <= LONGEST_NAME && !name.starts_with('.') && name.chars().all(fits)
    }

    /// Begins a session at the first address where this lender answers. Another one may answer: each host has its own loopback
    /// address, and a host's address and port may be another lender's by now.
    ///
    /// # Errors
    /// That of the last address.
    pub fn open(&self, key: &[u8; 32]) -> Result<(Control, SocketAddr), ControlError> {
        let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable).into();
        for address in &self.addresses {
            match self.open_at(*address, key) {
                Ok(control) => return Ok((control, *address)),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn open_at(&self, address: SocketAddr, key: &[u8; 32]) -> Result<Control, ControlError> {
        let mut control = Control::open(address, key, PATIENCE)?;
        if control.report()?.identity == self.identity { Ok(control) } else { Err(ControlError::Another) }
    }
}

/// Where the user's lenders are found.
#[derive(Clone, Debug)]
pub struct Directory {
    /// It has the secret, and the cards where no lender keeps them.
    folder: Folder,
    keepers: Option<Keepers>,
}

/// Where a lender is entered: it is found until this is dropped.
pub struct Entered {
    how: How,
}

enum How {
    Card(Folder, Card),
    Names(Kept),
}

impl Entered {
    /// The lenders that keep names and could not be told yet, each with the reason. They are told as soon as they can be.
    pub fn untold(&self) -> &[String] {
        match &self.how {
            How::Card(..) => &[],
            How::Names(kept) => kept.untold(),
        }
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        // The names that lenders keep go with the connections.
        if let How::Card(folder, card) = &self.how {
            folder.remove(card);
        }
    }
}

/// The user's folder, and what keeps the names if that is not the folder.
fn place() -> Result<(PathBuf, Option<Keepers>), DirectoryError> {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let state = || variable("XDG_STATE_HOME").or_else(|| Some(variable("HOME")?.join(".local/state")));
    let usual = || Some(state()?.join("atoll/lenders"));
    let named = std::env::var_os(VARIABLE).filter(|value| !value.is_empty());
    match named {
        None => Ok((usual().ok_or(DirectoryError::None)?, None)),
        Some(path) if PathBuf::from(&path).is_absolute() => Ok((path.into(), None)),
        Some(list) => {
            let list = list.to_string_lossy().into_owned();
            let keepers = Keepers::parse(&list).ok_or(DirectoryError::Variable(list))?;
            Ok((usual().ok_or(DirectoryError::None)?, Some(keepers)))
        }
    }
}

impl Directory {
    /// The user's, whose folder is made if it is not there.
    ///
    /// # Errors
    /// See [`DirectoryError`].
    pub fn open() -> Result<Directory, DirectoryError> {
        let (path, keepers) = place()?;
        Ok(Directory { folder: Folder::at(path)?, keepers })
    }

    /// The user's, if its folder is there.
    pub fn find() -> Option<Directory> {
        let (path, keepers) = place().ok()?;
        Some(Directory { folder: Folder::find(path)?, keepers })
    }

    /// The folder at `path`.
    ///
    /// # Errors
    /// See [`DirectoryError`].
    pub fn at(path: PathBuf) -> Result<Directory, DirectoryError> {
        Ok(Directory { folder: Folder::at(path)?, keepers: None })
    }

    /// The same with names that the lenders at these addresses keep, each `HOST:PORT` with commas between them; the folder has the
    /// secret.
    ///
    /// # Errors
    /// The list is none.
    pub fn kept_by(self, list: &str) -> Result<Directory, DirectoryError> {
        let keepers = Keepers::parse(list).ok_or_else(|| DirectoryError::Variable(list.to_owned()))?;
        Ok(Directory { keepers: Some(keepers), ..self })
    }

    /// The user's secret, which is made if there is none.
    ///
    /// # Errors
    /// See [`DirectoryError`].
    pub fn secret(&self) -> Result<Secret, DirectoryError> {
        self.folder.secret()
    }

    /// The cards of all lenders, living or not, by name.
    ///
    /// # Errors
    /// The folder cannot be read, or none of the lenders that keep names answers.
    pub fn cards(&self) -> Result<Vec<Card>, DirectoryError> {
        self.cards_within(2 * PATIENCE)
    }

    /// The same, from those that keep names and answer within this time.
    ///
    /// # Errors
    /// As `cards`.
    pub fn cards_within(&self, time: Duration) -> Result<Vec<Card>, DirectoryError> {
        match &self.keepers {
            None => self.folder.cards(),
            Some(keepers) => keepers.cards(self.secret()?.key(), &self.folder.secret_path(), time),
        }
    }

    /// Enters a lender. Where a living one has the name, that is an error.
    ///
    /// # Errors
    /// See [`DirectoryError`].
    pub fn enter(&self, card: &Card, key: &[u8; 32]) -> Result<Entered, DirectoryError> {
        if !card.is_named_well() {
            return Err(DirectoryError::Name(card.name.clone()));
        }
        let how = match &self.keepers {
            None => {
                self.folder.enter(card, key)?;
                How::Card(self.folder.clone(), card.clone())
            }
            Some(keepers) => How::Names(keepers.enter(card, *key, &self.folder.secret_path())?),
        };
        Ok(Entered { how })
    }
}
