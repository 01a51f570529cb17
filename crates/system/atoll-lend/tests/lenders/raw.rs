//! A borrower that says what a test wants, record by record.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use atoll_lend::{Control, Lender, Terms};
use atoll_memory::far::hosts::wire::{
    self, ANSWER, Entry, Handle, Hello, Purpose, Reply, Request, Side, Status, VERSION, Verb, Welcome,
};

pub(crate) const KEY: [u8; 32] = [7; 32];
pub(crate) const SOON: Duration = Duration::from_secs(10);

pub(crate) fn lender(bytes: u64) -> Lender {
    let terms = Terms::new("test", bytes, KEY);
    Lender::start(terms, "127.0.0.1:0".parse().unwrap()).unwrap()
}

pub(crate) fn session(lender: &Lender) -> Control {
    Control::open(lender.address(), &KEY, SOON).unwrap()
}

/// A connection for pages.
pub(crate) struct Raw {
    pub(crate) stream: TcpStream,
    sequence: u32,
}

impl Raw {
    pub(crate) fn unproven(address: SocketAddr) -> Raw {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        stream.set_nodelay(true).unwrap();
        Raw { stream, sequence: 0 }
    }

    /// Connects to the lender of a session.
    pub(crate) fn of(lender: &Lender, control: &Control) -> Raw {
        let mut raw = Raw::unproven(lender.address());
        assert_eq!(raw.greet(VERSION, control.session(), &control.key()), Status::Done);
        raw
    }

    /// Greets, and proves this key.
    pub(crate) fn greet(&mut self, version: u32, session: u64, key: &[u8; 32]) -> Status {
        let hello = Hello { version, purpose: Purpose::Pages, session, challenge: [3; 32] }.encode();
        self.stream.write_all(&hello).unwrap();
        let mut welcome = [0; Welcome::BYTES];
        self.stream.read_exact(&mut welcome).unwrap();
        let status = Welcome::decode(&welcome).unwrap().status;
        if status != Status::Done {
            return status;
        }
        let mut answer = [0; ANSWER];
        self.stream.read_exact(&mut answer).unwrap();
        let ours = wire::answer(key, Side::Borrower, &hello, &welcome);
        self.stream.write_all(ours.as_bytes()).unwrap();
        self.reply().status
    }

    fn reply(&mut self) -> Reply {
        let mut reply = [0; Reply::BYTES];
        self.stream.read_exact(&mut reply).unwrap();
        Reply::decode(&reply).unwrap()
    }

    fn ask(&mut self, verb: Verb, entries: &[Entry], data: &[u8]) -> (Status, Vec<u8>) {
        self.sequence += 1;
        let head = Request {
            verb,
            sequence: self.sequence,
            entries: entries.len() as u32,
            bytes: data.len() as u64,
        };
        self.stream.write_all(&head.encode()).unwrap();
        entries.iter().for_each(|entry| self.stream.write_all(&entry.encode()).unwrap());
        self.stream.write_all(data).unwrap();
        let reply = self.reply();
        assert_eq!(reply.sequence, self.sequence);
        let mut data = vec![0; reply.bytes as usize];
        self.stream.read_exact(&mut data).unwrap();
        (reply.status, data)
    }

    pub(crate) fn read(&mut self, handle: Handle, offset: u64, length: u64) -> (Status, Vec<u8>) {
        self.ask(Verb::Read, &[Entry { handle, offset, length }], &[])
    }

    pub(crate) fn write(&mut self, handle: Handle, offset: u64, data: &[u8]) -> Status {
        let entry = Entry { handle, offset, length: data.len() as u64 };
        self.ask(Verb::Write, &[entry], data).0
    }

    /// Writes data to an entry that says another length.
    pub(crate) fn write_as(&mut self, entry: Entry, data: &[u8]) -> Status {
        self.ask(Verb::Write, &[entry], data).0
    }

    pub(crate) fn borrow(&mut self) -> (Status, Handle) {
        let (status, data) = self.ask(Verb::Borrow, &[], &[]);
        (status, data.as_slice().try_into().map(Handle::decode).unwrap_or_default())
    }

    pub(crate) fn resize(&mut self, data: &[u8]) -> Status {
        self.ask(Verb::Resize, &[], data).0
    }

    pub(crate) fn give_back(&mut self, handle: Handle) -> Status {
        self.ask(Verb::GiveBack, &[Entry { handle, offset: 0, length: 0 }], &[]).0
    }
}
