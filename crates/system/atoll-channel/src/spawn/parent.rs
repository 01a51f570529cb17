//! The data that a process gets from the spawning service that started it.
//!
//! `child.rs` is the other side. The socket is inherited under a number that an environment variable announces. Grandchildren
//! inherit the variable, too, so it counts only if the socket was made by this process's parent.

use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::getppid;

use crate::host::credentials;
use crate::spawn::client::{ClientError, SpawnClient};
use crate::spawn::letter::{Letter, VARIABLE};
use crate::spawn::order::ProcessId;

/// The reasons why a process does not know its parent.
#[derive(thiserror::Error, Debug)]
pub enum ParentError {
    /// This process was not started by a spawning service.
    #[error("this process was not started by a spawning service of atoll's")]
    None,
    /// This process has called `parent` before.
    #[error("this process has already taken the letter of its spawning service")]
    Taken,
    /// The letter in the inherited socket cannot be read.
    #[error("the letter of the spawning service to this process cannot be read: {0}")]
    Letter(#[source] io::Error),
    /// The service makes no channels with it.
    #[error("{0}")]
    Client(#[from] ClientError),
}

/// The data that a process was given by the service that started it.
pub struct Parent {
    /// The id of this process.
    pub id: ProcessId,
    /// This process's capability; empty if it was given none.
    pub capability: Vec<u8>,
    /// The connection to the service that started it, at this node; only a worker has one from the start.
    pub service: Option<SpawnClient>,
}

/// Takes the data that the spawning service gave to this process; a worker is then ready. Waits until its orderer has handed
/// the capability over, if that comes later.
pub fn parent() -> Result<Parent, ParentError> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    let number = std::env::var(VARIABLE).ok().and_then(|text| text.parse::<RawFd>().ok());
    let number = number.filter(|number| *number > 2).ok_or(ParentError::None)?;
    if TAKEN.swap(true, Ordering::Relaxed) {
        return Err(ParentError::Taken);
    }
    // SAFETY: only used by calls that fail if it is not open, or not a socket.
    let inherited = unsafe { BorrowedFd::borrow_raw(number) };
    let made_by = credentials(inherited).map_err(|_| ParentError::None)?.process;
    if made_by.is_none() || made_by != getppid() {
        return Err(ParentError::None);
    }
    // SAFETY: the socket that the variable announces was left open for this, and is taken once.
    let socket = unsafe { OwnedFd::from_raw_fd(number) };
    // Processes that this one starts do not get it.
    fcntl_setfd(&socket, FdFlags::CLOEXEC).map_err(|e| ParentError::Letter(e.into()))?;
    let socket = UnixStream::from(socket);
    let letter = Letter::read(&socket).map_err(ParentError::Letter)?;
    let service = if letter.worker { Some(SpawnClient::over(&socket)?) } else { None };
    Ok(Parent { id: letter.id, capability: letter.capability, service })
}
