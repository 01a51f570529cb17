//! Pieces that move to a file: what a run is to give back and does not, as it is stopped or its host is cut off for a while.
//!
//! `holdings` asks for it. Nothing is lost so, and the lender has its memory. The bytes are copied by the bulk transfer of `atoll-channel`, and
//! requests reach the piece at the same address afterwards, by the page cache.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Acquire;

use atoll_channel::bulk::Manager;
use atoll_channel::capability::{Memory, MoveError};

use crate::holdings::{Holdings, THIS};

/// Where pieces move, and what copies them.
pub(crate) struct Filing {
    folder: PathBuf,
    /// Made when it is first needed: a machine's first one measures its engines.
    manager: Option<Manager>,
}

/// Why a piece does not move.
#[derive(thiserror::Error, Debug)]
pub(crate) enum FilingError {
    #[error("{}: {}", .0.display(), .1)]
    File(PathBuf, std::io::Error),
    #[error("{}: {}", .0.display(), .1)]
    Move(PathBuf, MoveError),
}

impl Filing {
    /// Files in `folder`, without names.
    pub(crate) fn new(folder: PathBuf) -> Filing {
        Filing { folder, manager: None }
    }

    fn store(&mut self, memory: &Arc<Memory>) -> Result<(), FilingError> {
        let file = tempfile::tempfile_in(&self.folder);
        let file = file.map_err(|error| FilingError::File(self.folder.clone(), error))?;
        let moved = memory.move_to_file(file.into(), self.manager.get_or_insert_default());
        moved.map_err(|error| FilingError::Move(self.folder.clone(), error))
    }
}

impl Holdings {
    /// Moves pieces of a session to files, as many as it is to give back; `false` where it is to lose all instead. Requests of the session wait
    /// while a piece moves. If one is under way that uses pieces, none moves now, and this is asked again.
    pub(crate) fn file_away(&self, session: u64, filing: &mut Option<Filing>) -> bool {
        let Some(filing) = filing else { return false };
        loop {
            let (slot, memory) = {
                let mut state = self.state();
                if state.closed {
                    return false;
                }
                let Some(kept) = state.kept().get(&session).copied() else { return true };
                let Some(of) = state.sessions.get(&session) else { return true };
                // Acquire: pairs with the Release of a request's end.
                if of.held(state.closed) <= kept || of.uses.load(Acquire) > 0 {
                    return true;
                }
                let in_memory = of.pieces.iter().find(|(_, piece)| !piece.is_filed);
                let Some((slot, own)) = in_memory.map(|(slot, piece)| (*slot, piece.own)) else {
                    return true;
                };
                let Ok(memory) = state.owner.memory(THIS, own) else { return false };
                if let Some(of) = state.sessions.get_mut(&session) {
                    of.is_moving = true;
                }
                (slot, memory)
            };
            let moved = filing.store(&memory);
            let mut guard = self.state();
            let state = &mut *guard;
            if let Some(of) = state.sessions.get_mut(&session) {
                of.is_moving = false;
                // It may have been given back meanwhile, and another have its place in the table.
                let piece = of.pieces.get_mut(&slot).filter(|piece| {
                    state.owner.memory(THIS, piece.own).is_ok_and(|now| Arc::ptr_eq(&now, &memory))
                });
                if let (Ok(()), Some(piece)) = (&moved, piece) {
                    piece.is_filed = true;
                    state.filed += 1;
                }
            }
            drop(guard);
            self.moved.notify_all();
            if let Err(error) = moved {
                eprintln!("atoll: what a run does not give back cannot move to a file: {error}");
                return false;
            }
        }
    }
}
