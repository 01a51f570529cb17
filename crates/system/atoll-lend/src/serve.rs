//! One connection of a lender: the proof, and then one request after the other.
//!
//! `lender` starts a thread for each; `holdings` decides what a request may do. Nothing that comes is believed: a record that is
//! none ends the connection, and a capability is checked at each use.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use atoll_channel::capability::Direct;
use atoll_channel::names::MOST_VALUE;
use atoll_memory::far::hosts::wire::{
    self, ANSWER, Entry, Hello, MOST_BYTES, MOST_ENTRIES, Purpose, Reply, Request, Side, Status, VERSION,
    Verb, Welcome,
};
use atoll_transport::random;

use crate::control::Report;
use crate::lender::Service;
use crate::line;
use crate::names::Refused;

/// How long a peer may take to prove that it knows the key.
const PROOF_TIME: Duration = Duration::from_secs(5);
/// Bytes of a borrower's name at most.
const MOST_NAME: u64 = 256;
/// Bytes of a lender's card at most.
const MOST_CARD: u64 = MOST_VALUE as u64;

/// What both ends agreed on.
struct Proven {
    purpose: Purpose,
    session: u64,
}

/// Serves a connection to its end.
pub(crate) fn serve(service: &Service, stream: TcpStream) {
    let holdings = &service.holdings;
    let stream = Arc::new(stream);
    let begin = || {
        line::ready(&stream)?;
        stream.set_read_timeout(Some(PROOF_TIME))?;
        let proven = prove(service, &stream)?;
        stream.set_read_timeout(None)?;
        Ok::<_, io::Error>(proven)
    };
    let Ok(Some(proven)) = begin() else { return };
    let session = proven.session;
    if let Some(number) = holdings.join(session, &stream) {
        // An error is the end of the connection, whatever it was.
        let purpose = proven.purpose;
        let _ = Served { service, stream: &stream, session, purpose }.requests();
        holdings.leave(session, number);
    }
    if proven.purpose == Purpose::Control {
        service.names.gone(session);
        holdings.end(session);
    }
}

/// Proves the key in both directions; `None` if the borrower did not.
fn prove(service: &Service, stream: &TcpStream) -> io::Result<Option<Proven>> {
    let Service { terms, holdings, .. } = service;
    let mut reading = stream;
    let mut hello_bytes = [0; Hello::BYTES];
    line::receive(&mut reading, &mut hello_bytes)?;
    let Some(hello) = Hello::decode(&hello_bytes) else { return Ok(None) };
    let (session, key) = match hello.purpose {
        Purpose::Control => (holdings.number()?, Some(terms.key)),
        Purpose::Pages => (hello.session, holdings.key(hello.session)),
    };
    let status = match (hello.version, &key) {
        (VERSION, Some(_)) => Status::Done,
        (VERSION, None) => Status::NoSession,
        _ => Status::Version,
    };
    let (challenge, piece_bytes) = (random::bytes()?, holdings.piece_bytes);
    let welcome = Welcome { version: VERSION, status, session, piece_bytes, challenge }.encode();
    let Some(key) = key.filter(|_| status == Status::Done) else {
        line::send(stream, &mut [IoSlice::new(&welcome)])?;
        return Ok(None);
    };
    let ours = wire::answer(&key, Side::Lender, &hello_bytes, &welcome);
    line::send(stream, &mut [IoSlice::new(&welcome), IoSlice::new(ours.as_bytes())])?;
    let mut theirs = [0; ANSWER];
    line::receive(&mut reading, &mut theirs)?;
    // The comparison takes the same time wherever they differ.
    let right = wire::answer(&key, Side::Borrower, &hello_bytes, &welcome) == theirs;
    let status = if right { Status::Done } else { Status::Unproven };
    if right && hello.purpose == Purpose::Control {
        line::notice_cut(stream)?;
        let session_key = wire::answer(&key, Side::Session, &hello_bytes, &welcome);
        holdings.begin(session, *session_key.as_bytes());
    }
    let reply = Reply { status, sequence: 0, bytes: 0, detail: 0 }.encode();
    line::send(stream, &mut [IoSlice::new(&reply)])?;
    Ok(right.then_some(Proven { purpose: hello.purpose, session }))
}

/// What a reply says: its status, its detail and its data.
type Answer = (Status, u64, Vec<u8>);

fn refuse(status: Status) -> Option<Answer> {
    Some((status, 0, Vec::new()))
}

fn reply(stream: &TcpStream, sequence: u32, status: Status, detail: u64, data: &[u8]) -> io::Result<()> {
    let head = Reply { status, sequence, bytes: data.len() as u64, detail }.encode();
    line::send(stream, &mut [IoSlice::new(&head), IoSlice::new(data)])
}

/// The bytes of all entries together; `None` if they are more than a request may move.
fn total(entries: &[Entry]) -> Option<u64> {
    let sum = entries.iter().try_fold(0_u64, |sum, entry| sum.checked_add(entry.length))?;
    (sum <= MOST_BYTES).then_some(sum)
}

/// A connection whose borrower has proven the key, and what its requests are about.
#[derive(Clone, Copy)]
struct Served<'a> {
    service: &'a Service,
    stream: &'a TcpStream,
    session: u64,
    purpose: Purpose,
}

impl Served<'_> {
    /// Answers requests until the connection ends.
    fn requests(self) -> io::Result<()> {
        let mut reading = self.stream;
        let (mut entries, mut memory) = (Vec::new(), Vec::new());
        let mut bytes = [0; MOST_ENTRIES * Entry::BYTES];
        loop {
            let mut head = [0; Request::BYTES];
            let have = line::await_record(&mut reading, &mut head, &self.service.holdings.looked_ns)?;
            line::receive(&mut reading, &mut head[have..])?;
            let request = Request::decode(&head).ok_or(io::ErrorKind::InvalidData)?;
            let bytes = &mut bytes[..request.entries as usize * Entry::BYTES];
            line::receive(&mut reading, bytes)?;
            let (records, _) = bytes.as_chunks::<{ Entry::BYTES }>();
            entries.clear();
            entries.extend(records.iter().map(Entry::decode));
            let done = match request.verb {
                Verb::Read => self.read(request, &entries, &mut memory)?,
                Verb::Write => self.write(request, &entries, &mut memory)?,
                verb => Some(self.other(verb, request.bytes, &entries)?),
            };
            if let Some((status, detail, data)) = done {
                reply(self.stream, request.sequence, status, detail, &data)?;
            }
            // Memory is held no longer than a request lasts.
            memory.clear();
        }
    }

    fn read(
        self,
        request: Request,
        entries: &[Entry],
        memory: &mut Vec<Direct>,
    ) -> io::Result<Option<Answer>> {
        line::skip(&mut &*self.stream, request.bytes)?;
        let Some(bytes) = total(entries) else { return Ok(refuse(Status::Range)) };
        // Until the answer is sent.
        let _use = match self.service.holdings.check(self.session, entries, false, memory) {
            Ok(until) => until,
            Err(status) => return Ok(refuse(status)),
        };
        let head = Reply { status: Status::Done, sequence: request.sequence, bytes, detail: 0 }.encode();
        let mut parts = Vec::with_capacity(memory.len() + 1);
        parts.push(IoSlice::new(&head));
        for direct in &*memory {
            // SAFETY: mapped as long as `memory` has it. Another connection of the same session may write to it meanwhile: the kernel
            // then copies some bytes of each, and nothing here looks at them.
            parts.push(IoSlice::new(unsafe { std::slice::from_raw_parts(direct.as_ptr(), direct.length()) }));
        }
        line::send(self.stream, &mut parts)?;
        Ok(None)
    }

    fn write(
        self,
        request: Request,
        entries: &[Entry],
        memory: &mut Vec<Direct>,
    ) -> io::Result<Option<Answer>> {
        let checked = match total(entries) {
            Some(bytes) if bytes == request.bytes => {
                self.service.holdings.check(self.session, entries, true, memory)
            }
            _ => Err(Status::Range),
        };
        // Until the pages are there.
        let _use = match checked {
            Ok(until) => until,
            Err(status) => {
                line::skip(&mut &*self.stream, request.bytes)?;
                return Ok(refuse(status));
            }
        };
        let mut parts = Vec::with_capacity(memory.len());
        for direct in &*memory {
            let at = direct.as_mut_ptr().ok_or(io::ErrorKind::PermissionDenied)?;
            // SAFETY: mapped as long as `memory` has it, and only the kernel writes there; see `read`.
            parts.push(IoSliceMut::new(unsafe { std::slice::from_raw_parts_mut(at, direct.length()) }));
        }
        line::receive_parts(&mut &*self.stream, &mut parts)?;
        Ok(Some((Status::Done, 0, Vec::new())))
    }

    fn other(self, verb: Verb, bytes: u64, entries: &[Entry]) -> io::Result<Answer> {
        let most = match verb {
            Verb::Introduce | Verb::Resize => MOST_NAME,
            Verb::Register => MOST_CARD,
            _ => 0,
        };
        if bytes > most {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut data = vec![0; bytes as usize];
        line::receive(&mut &*self.stream, &mut data)?;
        let Service { terms, holdings, .. } = self.service;
        Ok(match verb {
            Verb::Borrow => match holdings.lend(self.session) {
                Ok(handle) => (Status::Done, holdings.free_bytes(), handle.encode().to_vec()),
                Err(status) => (status, 0, Vec::new()),
            },
            Verb::GiveBack => {
                let given =
                    entries.iter().try_for_each(|entry| holdings.take_back(self.session, entry.handle));
                (given.err().unwrap_or(Status::Done), 0, Vec::new())
            }
            Verb::Introduce => {
                let name = String::from_utf8_lossy(&data);
                holdings.introduce(self.session, name.chars().filter(|c| !c.is_control()).collect());
                (Status::Done, 0, Vec::new())
            }
            Verb::Report => {
                let report = Report {
                    name: terms.name.clone(),
                    identity: self.service.identity,
                    bytes: holdings.most_bytes(),
                    free_bytes: holdings.free_bytes(),
                    loans: holdings.loans(),
                };
                (Status::Done, 0, postcard::to_stdvec(&report).unwrap_or_default())
            }
            Verb::Resize => {
                let bytes = data.as_slice().try_into().map(u64::from_le_bytes);
                let status = match bytes {
                    _ if self.purpose != Purpose::Control => Status::NotAllowed,
                    Ok(bytes) if holdings.resize(bytes) => Status::Done,
                    _ => Status::Range,
                };
                (status, 0, Vec::new())
            }
            Verb::Register if self.purpose != Purpose::Control => (Status::NotAllowed, 0, Vec::new()),
            Verb::Register => match self.service.names.register(self.session, &data) {
                Ok(()) => (Status::Done, 0, Vec::new()),
                Err(Refused::Taken(other)) => (Status::Done, 0, other),
                Err(Refused::Not) => (Status::Range, 0, Vec::new()),
            },
            Verb::Names => {
                let all = self.service.names.all();
                (Status::Done, 0, postcard::to_stdvec(&all).unwrap_or_default())
            }
            Verb::Ping | Verb::Read | Verb::Write => {
                let wish = holdings.wish(self.session).encode();
                (Status::Done, holdings.free_bytes(), wish.to_vec())
            }
        })
    }
}
