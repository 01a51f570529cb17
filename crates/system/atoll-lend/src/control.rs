//! The connection by which a run's session with a lender begins and ends.
//!
//! `keeper` has one for each lender of a run; `atoll lenders` makes one to ask.

use std::io::{self, IoSlice, Read};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use atoll_memory::far::hosts::wire::{
    self, ANSWER, Hello, Purpose, Reply, Request, Side, Status, VERSION, Verb, Welcome,
};
use atoll_transport::{decode, random};
use serde::{Deserialize, Serialize};

use crate::directory::Card;
use crate::line;

/// Bytes of pieces that make sense.
const PIECES: std::ops::RangeInclusive<u64> = 4096..=1 << 40;

/// How often the patience for an answer may pass within one.
const MOST_LATE: u32 = 40;

/// Why there is no session, or no more.
#[derive(thiserror::Error, Debug)]
pub enum ControlError {
    /// Nothing answers there.
    #[error("{0}")]
    Os(#[from] io::Error),
    /// What answers is no lender.
    #[error("what answers there is no lender")]
    Nonsense,
    /// The lender refused, for a reason.
    #[error("{}", .0.words())]
    Refused(Status),
    /// What answers did not prove that it knows the secret.
    #[error("what answers there does not know this user's secret")]
    Unproven,
    /// It is another lender than the one that was meant.
    #[error("another lender answers there")]
    Another,
    /// The lender has another version of the protocol.
    #[error(
        "it speaks version {0} of the lenders' protocol, and this is {VERSION}: install the same atoll on both hosts"
    )]
    Version(u32),
}

/// What a lender says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Its name.
    pub name: String,
    /// The random number by which it is told from others; see [`Card`].
    pub identity: u64,
    /// Bytes that it lends at most.
    pub bytes: u64,
    /// Bytes that it could lend now.
    pub free_bytes: u64,
    /// Who has what.
    pub loans: Vec<Loan>,
}

/// What one run has of a lender.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loan {
    /// Who it says that it is.
    pub borrower: String,
    /// Bytes that it has.
    pub bytes: u64,
    /// Bytes of these that lie in files of the lender's host, as the run did not give them back in time.
    pub filed_bytes: u64,
    /// Bytes of these that the lender wants back.
    pub wanted_bytes: u64,
}

/// A session with a lender, which ends when this is dropped.
pub struct Control {
    stream: TcpStream,
    sequence: u32,
    session: u64,
    key: [u8; 32],
    piece_bytes: u64,
}

impl Control {
    /// Begins a session with the lender at `address`, whose key this is. Every step may take `timeout`.
    ///
    /// # Errors
    /// See [`ControlError`].
    pub fn open(address: SocketAddr, key: &[u8; 32], timeout: Duration) -> Result<Control, ControlError> {
        let stream = TcpStream::connect_timeout(&address, timeout)?;
        line::ready(&stream)?;
        line::notice_cut(&stream)?;
        stream.set_read_timeout(Some(timeout))?;
        stream.set_write_timeout(Some(timeout))?;
        let challenge = random::bytes()?;
        let hello = Hello { version: VERSION, purpose: Purpose::Control, session: 0, challenge }.encode();
        line::send(&stream, &mut [IoSlice::new(&hello)])?;
        let (mut reading, mut welcome_bytes) = (&stream, [0; Welcome::BYTES]);
        line::receive(&mut reading, &mut welcome_bytes)?;
        let welcome = Welcome::decode(&welcome_bytes).ok_or(ControlError::Nonsense)?;
        if welcome.version != VERSION {
            return Err(ControlError::Version(welcome.version));
        }
        if welcome.status != Status::Done {
            return Err(ControlError::Refused(welcome.status));
        }
        let mut answer = [0; ANSWER];
        line::receive(&mut reading, &mut answer)?;
        if wire::answer(key, Side::Lender, &hello, &welcome_bytes) != answer {
            return Err(ControlError::Unproven);
        }
        if !PIECES.contains(&welcome.piece_bytes) {
            return Err(ControlError::Nonsense);
        }
        let ours = wire::answer(key, Side::Borrower, &hello, &welcome_bytes);
        line::send(&stream, &mut [IoSlice::new(ours.as_bytes())])?;
        let mut reply = [0; Reply::BYTES];
        line::receive(&mut reading, &mut reply)?;
        match Reply::decode(&reply).ok_or(ControlError::Nonsense)?.status {
            Status::Done => {}
            status => return Err(ControlError::Refused(status)),
        }
        let session_key = *wire::answer(key, Side::Session, &hello, &welcome_bytes).as_bytes();
        Ok(Control {
            stream,
            sequence: 0,
            session: welcome.session,
            key: session_key,
            piece_bytes: welcome.piece_bytes,
        })
    }

    /// The session's number.
    pub fn session(&self) -> u64 {
        self.session
    }

    /// The key by which the run's workers prove that they belong to the session.
    pub fn key(&self) -> [u8; 32] {
        self.key
    }

    /// Bytes of each piece that the lender lends.
    pub fn piece_bytes(&self) -> u64 {
        self.piece_bytes
    }

    /// Sets how long an answer may take; `None`: for ever.
    pub(crate) fn set_patience(&self, patience: Option<Duration>) -> io::Result<()> {
        self.stream.set_read_timeout(patience)
    }

    pub(crate) fn send(&mut self, verb: Verb, data: &[u8]) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let request =
            Request { verb, sequence: self.sequence, entries: 0, bytes: data.len() as u64 }.encode();
        line::send(&self.stream, &mut [IoSlice::new(&request), IoSlice::new(data)])
    }

    pub(crate) fn receive(&mut self) -> Result<(u64, Vec<u8>), ControlError> {
        let (mut reading, mut head) = (&self.stream, [0; Reply::BYTES]);
        // A first byte that does not come in time leaves the stream as it was; see `Keeper`.
        line::receive(&mut reading, &mut head[..1])?;
        receive_rest(&mut reading, &mut head[1..])?;
        let reply = Reply::decode(&head).filter(|reply| reply.sequence == self.sequence);
        let reply = reply.ok_or(ControlError::Nonsense)?;
        if reply.bytes > 1 << 20 {
            return Err(ControlError::Nonsense);
        }
        let mut data = vec![0; reply.bytes as usize];
        receive_rest(&mut reading, &mut data)?;
        if reply.status != Status::Done {
            return Err(ControlError::Refused(reply.status));
        }
        Ok((reply.detail, data))
    }

    fn ask(&mut self, verb: Verb, data: &[u8]) -> Result<(u64, Vec<u8>), ControlError> {
        self.send(verb, data)?;
        self.receive()
    }

    /// Tells the lender who borrows.
    ///
    /// # Errors
    /// The connection's.
    pub fn introduce(&mut self, borrower: &str) -> Result<(), ControlError> {
        let mut end = borrower.len().min(200);
        while !borrower.is_char_boundary(end) {
            end -= 1;
        }
        self.ask(Verb::Introduce, &borrower.as_bytes()[..end]).map(drop)
    }

    /// Asks whether the lender is there: how long that took, and the bytes that it could lend.
    ///
    /// # Errors
    /// The connection's.
    pub fn ping(&mut self) -> Result<(Duration, u64), ControlError> {
        let began = Instant::now();
        let (free, _) = self.ask(Verb::Ping, &[])?;
        Ok((began.elapsed(), free))
    }

    /// Measures the round trip: the median of so many.
    ///
    /// # Errors
    /// The connection's.
    pub fn measure(&mut self, count: usize) -> Result<(Duration, u64), ControlError> {
        let mut all = (0..count.max(1)).map(|_| self.ping()).collect::<Result<Vec<_>, _>>()?;
        all.sort();
        Ok(all[all.len() / 2])
    }

    /// Has the lender lend at most so many bytes from now on.
    ///
    /// # Errors
    /// The connection's, or [`Status::Range`] where that is less than a piece.
    pub fn resize(&mut self, bytes: u64) -> Result<(), ControlError> {
        self.ask(Verb::Resize, &bytes.to_le_bytes()).map(drop)
    }

    /// Asks what the lender has lent.
    ///
    /// # Errors
    /// The connection's.
    pub fn report(&mut self) -> Result<Report, ControlError> {
        let (_, data) = self.ask(Verb::Report, &[])?;
        decode(&data).map_err(|_| ControlError::Nonsense)
    }

    /// Enters the lender of `card` among the names that this one keeps, until the session ends; or returns the card of another
    /// lender that has the name.
    ///
    /// # Errors
    /// The connection's, or [`Status::Range`] where this lender keeps too many names, or takes the card for none.
    pub(crate) fn register(&mut self, card: &Card) -> Result<Option<Card>, ControlError> {
        let card = serde_json::to_vec(card).map_err(|_| ControlError::Nonsense)?;
        let (_, other) = self.ask(Verb::Register, &card)?;
        let card = |bytes: &[u8]| serde_json::from_slice(bytes).map_err(|_| ControlError::Nonsense);
        if other.is_empty() { Ok(None) } else { card(&other).map(Some) }
    }

    /// Asks for the cards of all lenders whose names this one keeps.
    ///
    /// # Errors
    /// The connection's.
    pub(crate) fn names(&mut self) -> Result<Vec<Card>, ControlError> {
        let (_, data) = self.ask(Verb::Names, &[])?;
        let all: Vec<Vec<u8>> = decode(&data).map_err(|_| ControlError::Nonsense)?;
        // A card that is none is another lender's fault.
        Ok(all.iter().filter_map(|card| serde_json::from_slice(card).ok()).collect())
    }

    /// Borrows a piece and returns its handle: for measurements and tests, as a run's workers borrow over their own connections.
    ///
    /// # Errors
    /// The lender's refusal, or the connection's.
    pub fn borrow(&mut self) -> Result<wire::Handle, ControlError> {
        let (_, data) = self.ask(Verb::Borrow, &[])?;
        let bytes = data.as_slice().try_into().map_err(|_| ControlError::Nonsense)?;
        Ok(wire::Handle::decode(bytes))
    }
}

/// Receives the rest of a reply that has begun. A lender that is stopped in the midst of it is waited for a while.
fn receive_rest(stream: &mut &TcpStream, mut rest: &mut [u8]) -> io::Result<()> {
    let mut late = 0;
    while !rest.is_empty() {
        match stream.read(rest) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(have) => rest = &mut rest[have..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && late < MOST_LATE => late += 1,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
