//! What a lender has lent to whom: sessions, and the pieces of memory of each, as capabilities.
//!
//! `lender` makes it, and `serve` asks it for each request. A piece is memory of its own, made of zeros when it is lent and given
//! back to the system when its capability goes and no request uses it any more: nobody sees what another left, and no request
//! of an ended session writes to what another has.
//!
//! A lender wants memory back when it is to lend less, when it is to end, and when its host is short of memory. It asks those who
//! have most, which give pieces back when they have moved their pages. Of who has given nothing back for a while, `filing` moves pieces to
//! files; where that cannot be, or the lender ends, it loses all.
//!
//! Source: the barrelfish paper, section 3.2.

use std::collections::{BinaryHeap, HashMap};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::Release};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use atoll_channel::Node;
use atoll_channel::capability::{
    Direct, Handle, Holder, Limits, Memory, Owner, Refused, Rights, Shared, Sharing, Span,
};
use atoll_memory::far::hosts::wire::{self, Status, Wish};
use atoll_memory::far::pressure::{MachineMemory, machine_memory};
use atoll_transport::random;

use crate::control::Loan;
use crate::filing::Filing;
use crate::lender::Terms;

/// The lender itself as a holder.
pub(crate) const THIS: Holder = Holder { node: Node(0), process: 0 };
/// Of the machine's memory, the part in this many that stays free unless told otherwise: a lender that took the last would slow its
/// own host.
const SPARE_PART: u64 = 20;
/// A session whose pieces could not move to files within so many times the patience, as it is stopped in the midst of a request, loses all.
const HOPELESS: u32 = 4;

/// A piece of memory that is lent.
pub(crate) struct Piece {
    /// The lender's own capability to it.
    pub(crate) own: Handle,
    /// Whether it lies in a file.
    pub(crate) is_filed: bool,
}

/// A session: what one run has.
pub(crate) struct Session {
    key: [u8; 32],
    /// Who the borrower says that it is.
    borrower: String,
    /// Its pieces, by the place in the table of the capability that was lent.
    pub(crate) pieces: HashMap<u32, Piece>,
    /// Requests that use pieces now.
    pub(crate) uses: Arc<AtomicUsize>,
    /// Whether a piece moves to a file: no request begins meanwhile.
    pub(crate) is_moving: bool,
    /// Its connections, by number, to end them with it.
    connections: HashMap<u64, Arc<TcpStream>>,
    /// Since when pieces are wanted of it and none came back, and how many it had then.
    asked: Option<(Instant, usize)>,
    /// Whether it has heard that the lender ends.
    knows_end: bool,
}

impl Session {
    /// Pieces that lie in files.
    fn filed(&self) -> usize {
        self.pieces.values().filter(|piece| piece.is_filed).count()
    }

    /// Pieces that its lender may want back: one that goes on, and is not `closed`, needs none back that lies in a file.
    pub(crate) fn held(&self, closed: bool) -> usize {
        self.pieces.len() - if closed { 0 } else { self.filed() }
    }
}

/// A request that uses pieces, until this is dropped.
pub(crate) struct Use(Arc<AtomicUsize>);

impl Drop for Use {
    fn drop(&mut self) {
        // Release: pairs with the Acquire of who moves a piece, and reads what the request wrote.
        self.0.fetch_sub(1, Release);
    }
}

pub(crate) struct State {
    pub(crate) owner: Owner,
    pub(crate) sessions: HashMap<u64, Session>,
    /// Pieces that are lent, or about to be.
    lent: u64,
    /// Those of them that lie in files.
    pub(crate) filed: u64,
    /// The number of the next connection.
    next: u64,
    /// Sessions that ever began.
    begun: u64,
    /// Whether the lender ends, and wants everything back.
    pub(crate) closed: bool,
    /// Pieces that it lends at most.
    most: u64,
    /// Pieces that may stay lent while the host is short of memory.
    pressed: Option<u64>,
    /// Bytes that were taken from sessions which did not give them back.
    taken_bytes: u64,
}

impl State {
    /// Pieces that may be lent now.
    fn goal(&self) -> u64 {
        if self.closed { 0 } else { self.most.min(self.pressed.unwrap_or(u64::MAX)) }
    }

    /// Pieces in memory that are lent, or about to be.
    fn in_memory(&self) -> u64 {
        self.lent - self.filed
    }

    /// How many of the pieces that may be wanted back each session may keep that is to give some back: those that have most give first.
    pub(crate) fn kept(&self) -> HashMap<u64, usize> {
        let held = if self.closed { self.lent } else { self.in_memory() };
        let mut over = held.saturating_sub(self.goal());
        let mut kept = HashMap::new();
        if over > 0 {
            let all = self.sessions.iter().map(|(number, session)| (session.held(self.closed), *number));
            let mut most: BinaryHeap<(usize, u64)> = all.collect();
            while over > 0
                && let Some((pieces, number)) = most.pop()
                && pieces > 0
            {
                kept.insert(number, pieces - 1);
                most.push((pieces - 1, number));
                over -= 1;
            }
        }
        kept
    }
}

/// All of it.
pub(crate) struct Holdings {
    state: Mutex<State>,
    /// A piece has moved.
    pub(crate) moved: Condvar,
    pub(crate) piece_bytes: u64,
    /// Bytes of the host's memory that stay free; `None`: a part of it.
    free_bytes: Option<u64>,
    /// How long a session may take to give something back.
    patience: Duration,
    /// Nanoseconds in which connections looked for requests.
    pub(crate) looked_ns: AtomicU64,
}

fn pieces_of(session: &Session) -> u64 {
    session.pieces.len() as u64
}

fn holder(session: u64) -> Holder {
    Holder { node: Node(1), process: session }
}

fn told(handle: Handle) -> wire::Handle {
    wire::Handle {
        node: handle.node.0,
        slot: handle.slot,
        generation: handle.generation,
        check: handle.check,
    }
}

fn claimed(handle: wire::Handle) -> Handle {
    Handle { node: Node(handle.node), slot: handle.slot, generation: handle.generation, check: handle.check }
}

fn status(refused: Refused) -> Status {
    match refused {
        Refused::OtherNode { .. } | Refused::Forged => Status::Forged,
        Refused::Revoked => Status::Revoked,
        Refused::NotHolder | Refused::Rights { .. } => Status::NotAllowed,
        Refused::Range { .. } => Status::Range,
        Refused::TooMany { .. } | Refused::Full { .. } => Status::Full,
    }
}

impl Holdings {
    pub(crate) fn new(piece_bytes: u64, terms: &Terms) -> std::io::Result<Holdings> {
        let state = State {
            owner: Owner::new(THIS, Limits::default())?,
            sessions: HashMap::new(),
            lent: 0,
            filed: 0,
            next: 0,
            begun: 0,
            closed: false,
            most: terms.bytes / piece_bytes,
            pressed: None,
            taken_bytes: 0,
        };
        Ok(Holdings {
            state: Mutex::new(state),
            moved: Condvar::new(),
            piece_bytes,
            free_bytes: terms.free_bytes,
            patience: terms.patience,
            looked_ns: AtomicU64::new(0),
        })
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        // A thread that panicked left no half of a change: each is one call of the table.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A number for a session that no other session has, of this lender or an earlier one.
    pub(crate) fn number(&self) -> std::io::Result<u64> {
        loop {
            let number = u64::from_le_bytes(random::bytes()?);
            if number != 0 && !self.state().sessions.contains_key(&number) {
                return Ok(number);
            }
        }
    }

    /// Begins a session.
    pub(crate) fn begin(&self, session: u64, key: [u8; 32]) {
        let new = Session {
            key,
            borrower: String::new(),
            pieces: HashMap::new(),
            uses: Arc::default(),
            is_moving: false,
            connections: HashMap::new(),
            asked: None,
            knows_end: false,
        };
        let mut state = self.state();
        state.sessions.insert(session, new);
        state.begun += 1;
    }

    /// Sessions that there are, and those that ever were.
    pub(crate) fn sessions(&self) -> (usize, u64) {
        let state = self.state();
        (state.sessions.len(), state.begun)
    }

    /// The key of a session.
    pub(crate) fn key(&self, session: u64) -> Option<[u8; 32]> {
        Some(self.state().sessions.get(&session)?.key)
    }

    /// Notes a connection of a session, to end it with the session. Its number; `None` if the session has ended.
    pub(crate) fn join(&self, session: u64, stream: &Arc<TcpStream>) -> Option<u64> {
        let mut state = self.state();
        let number = state.next;
        state.next += 1;
        state.sessions.get_mut(&session)?.connections.insert(number, Arc::clone(stream));
        Some(number)
    }

    /// Forgets a connection.
    pub(crate) fn leave(&self, session: u64, number: u64) {
        if let Some(session) = self.state().sessions.get_mut(&session) {
            session.connections.remove(&number);
        }
    }

    /// Notes who the borrower of a session says that it is.
    pub(crate) fn introduce(&self, session: u64, borrower: String) {
        if let Some(session) = self.state().sessions.get_mut(&session) {
            session.borrower = borrower;
        }
    }

    /// Ends a session: its connections are cut, and its memory is free as soon as requests that began have ended.
    pub(crate) fn end(&self, session: u64) {
        let mut state = self.state();
        let Some(ended) = state.sessions.remove(&session) else { return };
        state.lent -= pieces_of(&ended);
        state.filed -= ended.filed() as u64;
        for connection in ended.connections.values() {
            let _ = connection.shutdown(Shutdown::Both);
        }
        let mut gone = Vec::new();
        for piece in ended.pieces.into_values() {
            gone.extend(state.owner.delete(THIS, piece.own).unwrap_or_default());
        }
        // Memory is given back outside of the lock.
        drop(state);
        drop(gone);
        // A request that waits for a piece to have moved is refused.
        self.moved.notify_all();
    }

    /// Ends all sessions.
    pub(crate) fn end_all(&self) {
        let all: Vec<u64> = self.state().sessions.keys().copied().collect();
        all.into_iter().for_each(|session| self.end(session));
    }

    /// Lends nothing more, and wants everything back.
    pub(crate) fn close(&self) {
        self.state().closed = true;
    }

    /// Whether all sessions have heard that the lender ends.
    pub(crate) fn end_is_known(&self) -> bool {
        self.state().sessions.values().all(|session| session.knows_end)
    }

    /// Lends at most so many bytes from now on; `false` where that is not a piece.
    pub(crate) fn resize(&self, bytes: u64) -> bool {
        let most = bytes / self.piece_bytes;
        if most > 0 {
            self.state().most = most;
        }
        most > 0
    }

    /// Bytes that are lent at most.
    pub(crate) fn most_bytes(&self) -> u64 {
        self.state().most * self.piece_bytes
    }

    /// Bytes that were taken from sessions which did not give them back.
    pub(crate) fn taken_bytes(&self) -> u64 {
        self.state().taken_bytes
    }

    /// Bytes of the host's memory that are to stay free.
    fn to_stay_free(&self, memory: MachineMemory) -> u64 {
        self.free_bytes.unwrap_or(memory.total / SPARE_PART)
    }

    /// Bytes that could be lent now.
    pub(crate) fn free_bytes(&self) -> u64 {
        let left = {
            let state = self.state();
            state.goal().saturating_sub(state.in_memory()) * self.piece_bytes
        };
        let spare = |memory: MachineMemory| memory.available.saturating_sub(self.to_stay_free(memory));
        let spare = machine_memory().map_or(left, spare);
        left.min(spare / self.piece_bytes * self.piece_bytes)
    }

    /// What is wanted of a session, which hears of it now.
    pub(crate) fn wish(&self, session: u64) -> Wish {
        let mut state = self.state();
        let (kept, leaves) = (state.kept().get(&session).copied(), state.closed);
        // The run counts all that it has.
        let others = state.sessions.get(&session).map_or(0, |it| it.pieces.len() - it.held(leaves));
        if let Some(session) = state.sessions.get_mut(&session) {
            session.knows_end = leaves;
        }
        Wish { keep_bytes: kept.map(|pieces| (pieces + others) as u64 * self.piece_bytes), leaves }
    }

    /// Looks whether the host is short of memory, and whether sessions have given nothing back for too long: pieces of theirs move to files,
    /// or are taken from them.
    pub(crate) fn look_after(&self, filing: &mut Option<Filing>) {
        let short = machine_memory().map_or(0, |memory| {
            self.to_stay_free(memory).saturating_sub(memory.available).div_ceil(self.piece_bytes)
        });
        let mut late = Vec::new();
        {
            let mut state = self.state();
            state.pressed = (short > 0).then(|| state.in_memory().saturating_sub(short));
            let kept = state.kept();
            let closed = state.closed;
            for (number, session) in &mut state.sessions {
                let has = session.held(closed);
                match session.asked {
                    _ if !kept.contains_key(number) => session.asked = None,
                    Some((since, had)) if has >= had => {
                        let waited = since.elapsed();
                        if waited > self.patience {
                            late.push((*number, waited > self.patience * HOPELESS));
                        }
                    }
                    _ => session.asked = Some((Instant::now(), has)),
                }
            }
        }
        for (session, is_hopeless) in late {
            if is_hopeless || !self.file_away(session, filing) {
                self.take_all(session);
            }
        }
    }

    /// Takes everything from a session.
    fn take_all(&self, session: u64) {
        {
            let mut state = self.state();
            let taken = state.sessions.get(&session).map_or(0, pieces_of);
            state.taken_bytes += taken * self.piece_bytes;
        }
        self.end(session);
    }

    /// Lends one more piece to a session.
    pub(crate) fn lend(&self, session: u64) -> Result<wire::Handle, Status> {
        if self.free_bytes() < self.piece_bytes {
            return Err(Status::Full);
        }
        {
            let mut state = self.state();
            // Another borrower may have taken the last one meanwhile.
            if state.in_memory() >= state.goal() {
                return Err(Status::Full);
            }
            state.lent += 1;
        }
        let memory = Shared::new(self.piece_bytes as usize, Sharing::ReadWrite);
        let mut state = self.state();
        let lent = memory.map_err(|_| Status::Full).and_then(|memory| {
            if !state.sessions.contains_key(&session) {
                return Err(Status::NoSession);
            }
            let own = state.owner.add(Memory::Shared(memory)).map_err(status)?;
            let whole = Span { offset: 0, length: self.piece_bytes };
            let rights = Rights::COPY_FROM | Rights::COPY_TO;
            let lent = match state.owner.grant(THIS, own, holder(session), whole, rights) {
                Ok(handle) => told(handle),
                Err(refused) => {
                    drop(state.owner.delete(THIS, own));
                    return Err(status(refused));
                }
            };
            if let Some(session) = state.sessions.get_mut(&session) {
                session.pieces.insert(lent.slot, Piece { own, is_filed: false });
            }
            Ok(lent)
        });
        if lent.is_err() {
            state.lent -= 1;
        }
        lent
    }

    /// Takes a piece back that its session gives up.
    pub(crate) fn take_back(&self, session: u64, handle: wire::Handle) -> Result<(), Status> {
        let mut state = self.state();
        // Who does not hold it may not give it back.
        state.owner.view(holder(session), claimed(handle)).map_err(status)?;
        let piece = state.sessions.get_mut(&session).and_then(|session| session.pieces.remove(&handle.slot));
        let piece = piece.ok_or(Status::Revoked)?;
        state.lent -= 1;
        state.filed -= u64::from(piece.is_filed);
        let gone = state.owner.delete(THIS, piece.own).map_err(status)?;
        drop(state);
        drop(gone);
        Ok(())
    }

    /// The memory of a request's entries, if the session may use all of it: to read, or to write. It stays until the request has
    /// ended, whatever becomes of the session, and does not move as long as the result is there. Waits while a piece of the session moves.
    pub(crate) fn check(
        &self,
        session: u64,
        entries: &[wire::Entry],
        write: bool,
        into: &mut Vec<Direct>,
    ) -> Result<Use, Status> {
        let moves = |state: &mut State| state.sessions.get(&session).is_some_and(|it| it.is_moving);
        let state = self.moved.wait_while(self.state(), moves).unwrap_or_else(PoisonError::into_inner);
        let rights = if write { Rights::COPY_TO } else { Rights::COPY_FROM };
        for entry in entries {
            let part = Span { offset: entry.offset, length: entry.length };
            let direct = state.owner.local(holder(session), claimed(entry.handle), part, rights);
            into.push(direct.map_err(status)?);
        }
        let uses = Arc::clone(&state.sessions.get(&session).ok_or(Status::NoSession)?.uses);
        // Counted under the lock, under which who moves a piece looks.
        uses.fetch_add(1, Relaxed);
        Ok(Use(uses))
    }

    /// Who has how much.
    pub(crate) fn loans(&self) -> Vec<Loan> {
        let state = self.state();
        let kept = state.kept();
        let of = |(number, session): (&u64, &Session)| {
            let wanted = kept.get(number).map_or(0, |kept| session.held(state.closed) - kept);
            Loan {
                borrower: session.borrower.clone(),
                bytes: pieces_of(session) * self.piece_bytes,
                filed_bytes: session.filed() as u64 * self.piece_bytes,
                wanted_bytes: wanted as u64 * self.piece_bytes,
            }
        };
        state.sessions.iter().map(of).filter(|loan| !loan.borrower.is_empty()).collect()
    }

    /// Bytes of what is lent that lie in files.
    pub(crate) fn filed_bytes(&self) -> u64 {
        self.state().filed * self.piece_bytes
    }

    /// Bytes that are lent.
    pub(crate) fn lent_bytes(&self) -> u64 {
        self.state().lent * self.piece_bytes
    }
}
