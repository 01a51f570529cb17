//! A worker's connection to one lender: made at its first use, proven in both directions, one request at a time.
//!
//! `store` uses it on the fault path; `wire` has the format. While a worker waits it looks at the lender's state, which the
//! launcher keeps: a lender that is stopped is waited for, one that is lost is not.
//!
//! Fault path: no allocation, no lock the program could hold, no arena access, no panic.

use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::io_uring::iovec;
use rustix::net::{self, AddressFamily, SendAncillaryBuffer, SendFlags, SocketFlags, SocketType, sockopt};
use rustix::rand::{GetRandomFlags, getrandom};
use rustix::time::{ClockId, clock_gettime};

use super::lenders::{LenderFigures, LenderSettings, LenderState};
use super::wire::{self, Hello, Purpose, Reply, Request, Side, Status, Verb, Welcome};
use crate::far::descriptor::Descriptor;
use crate::far::file::out_of_the_way;

/// How long a worker looks for a reply again and again before it sleeps, in nanoseconds: waking it takes longer than most replies.
const SPIN_NS: u64 = 60_000;
/// How long it sleeps before it looks at the lender's state, in nanoseconds.
const LOOK_NS: i64 = 50_000_000;
/// How long a lender may take to accept a connection and to prove itself, in nanoseconds.
const GREETING_NS: u64 = 15_000_000_000;

/// Why a lender did not do as asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LenderTrouble {
    /// The connection is closed, or cannot be made: the system's error number.
    Gone(i32),
    /// The launcher has lost it.
    Lost,
    /// The lender refused.
    Refused(Status),
    /// It sent something that is no reply.
    Nonsense,
    /// It did not prove that it knows the run's key.
    Unproven,
    /// It does not answer.
    Silent,
    /// A page came back with other bytes.
    Damaged,
}

impl LenderTrouble {
    /// What a message says of it.
    pub(crate) fn write(self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Gone(0) => out.write_str("it closed the connection"),
            Self::Gone(errno) => write!(out, "{}", std::io::Error::from_raw_os_error(errno)),
            Self::Lost => out.write_str("it does not answer any more"),
            Self::Refused(status) => out.write_str(status.words()),
            Self::Nonsense => out.write_str("it sent bytes that are no answer"),
            Self::Unproven => out.write_str("what answers there does not know this run's secret"),
            Self::Silent => out.write_str("it did not answer in time"),
            Self::Damaged => out.write_str("it gave back other bytes than it was sent: check its memory"),
        }
    }
}

fn gone(errno: Errno) -> LenderTrouble {
    LenderTrouble::Gone(errno.raw_os_error())
}

/// Nanoseconds of a clock that only goes forward.
pub(super) fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

/// A lender and its state.
#[derive(Clone, Copy)]
pub(super) struct To<'a> {
    pub(super) settings: &'a LenderSettings,
    pub(super) figures: &'a LenderFigures,
}

/// A connection, which is made when it is used.
pub(crate) struct Connection {
    socket: Option<Descriptor>,
    sequence: u32,
}

impl Connection {
    /// A connection that is still to be made.
    pub(crate) const NONE: Connection = Connection { socket: None, sequence: 0 };

    /// Closes it. The next request makes it again.
    pub(super) fn close(&mut self) {
        self.socket = None;
    }

    /// Sends a request: its entries are in `entries`, and its data in `buffers`, whose fields are changed. The first buffer is the
    /// connection's own. Returns the request's number.
    ///
    /// # Safety
    /// The buffers are valid for reads.
    pub(super) unsafe fn send(
        &mut self,
        to: To<'_>,
        (verb, bytes): (Verb, u64),
        entries: &[u8],
        buffers: &mut [iovec],
    ) -> Result<(), LenderTrouble> {
        if self.socket.is_none() {
            self.socket = Some(connect(to)?);
        }
        let Some(socket) = &self.socket else { return Err(LenderTrouble::Lost) };
        self.sequence = self.sequence.wrapping_add(1);
        let entry_count = (entries.len() / wire::Entry::BYTES) as u32;
        let head = Request { verb, sequence: self.sequence, entries: entry_count, bytes }.encode();
        let mut first = [0; Request::BYTES + wire::MOST_ENTRIES * wire::Entry::BYTES];
        let length = head.len() + entries.len();
        for (to, from) in first.iter_mut().zip(head.iter().chain(entries)) {
            *to = *from;
        }
        if let Some(buffer) = buffers.first_mut() {
            *buffer = iovec { iov_base: first.as_mut_ptr().cast(), iov_len: length.min(first.len()) };
        }
        // SAFETY: the caller's promise, and the buffer above.
        unsafe { send_all(socket.as_fd(), to, buffers) }
    }

    /// Receives the reply to the last request, and its data, which must be as long as `buffers`, into them. Their fields are
    /// changed. `full` hears how many of them are full whenever some are. A reply that refuses has no data. Returns the reply's
    /// detail.
    ///
    /// # Safety
    /// The buffers are valid for writes.
    pub(super) unsafe fn receive(
        &mut self,
        to: To<'_>,
        buffers: &mut [iovec],
        full: &mut dyn FnMut(usize),
    ) -> Result<u64, LenderTrouble> {
        let Some(socket) = &self.socket else { return Err(LenderTrouble::Lost) };
        let mut head = [0; Reply::BYTES];
        receive_bytes(socket.as_fd(), to, &mut head, u64::MAX)?;
        let Some(reply) = Reply::decode(&head).filter(|reply| reply.sequence == self.sequence) else {
            return Err(LenderTrouble::Nonsense);
        };
        let expected: usize = buffers.iter().map(|buffer| buffer.iov_len).sum();
        if reply.status != Status::Done {
            return Err(match reply.bytes {
                0 => LenderTrouble::Refused(reply.status),
                _ => LenderTrouble::Nonsense,
            });
        }
        if reply.bytes != expected as u64 {
            return Err(LenderTrouble::Nonsense);
        }
        // SAFETY: the caller's promise.
        unsafe { receive_all(socket.as_fd(), to, buffers, u64::MAX, full)? };
        Ok(reply.detail)
    }
}

/// Sleeps until the socket is ready, but not longer than the lender is there, or until `deadline`.
fn wait(socket: BorrowedFd<'_>, to: To<'_>, flags: PollFlags, deadline: u64) -> Result<(), LenderTrouble> {
    loop {
        if to.figures.state() == LenderState::Lost {
            return Err(LenderTrouble::Lost);
        }
        if deadline != u64::MAX && now() > deadline {
            return Err(LenderTrouble::Silent);
        }
        let mut fds = [PollFd::from_borrowed_fd(socket, flags)];
        let time = Timespec { tv_sec: 0, tv_nsec: LOOK_NS };
        match poll(&mut fds, Some(&time)) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(errno) => return Err(gone(errno)),
        }
    }
}

/// Goes forward in `buffers` by as many bytes as were moved; the rest.
fn advance(buffers: &mut [iovec], mut moved: usize) -> &mut [iovec] {
    let mut first = 0;
    for buffer in buffers.iter_mut() {
        if buffer.iov_len > moved {
            // SAFETY: inside the buffer.
            buffer.iov_base = unsafe { buffer.iov_base.cast::<u8>().add(moved) }.cast();
            buffer.iov_len -= moved;
            break;
        }
        moved -= buffer.iov_len;
        first += 1;
    }
    buffers.get_mut(first..).unwrap_or_default()
}

/// # Safety
/// The buffers are valid for reads.
unsafe fn send_all(
    socket: BorrowedFd<'_>,
    to: To<'_>,
    mut buffers: &mut [iovec],
) -> Result<(), LenderTrouble> {
    while !buffers.is_empty() {
        // SAFETY: IoSlice is an iovec by its documentation; the memory is valid by the caller's promise.
        let slices =
            unsafe { std::slice::from_raw_parts(buffers.as_ptr().cast::<IoSlice<'_>>(), buffers.len()) };
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        match net::sendmsg(socket, slices, &mut SendAncillaryBuffer::default(), flags) {
            Ok(moved) => buffers = advance(buffers, moved),
            Err(Errno::AGAIN) => wait(socket, to, PollFlags::OUT, u64::MAX)?,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(gone(errno)),
        }
    }
    Ok(())
}

/// # Safety
/// The buffers are valid for writes.
unsafe fn receive_all(
    socket: BorrowedFd<'_>,
    to: To<'_>,
    mut buffers: &mut [iovec],
    deadline: u64,
    full: &mut dyn FnMut(usize),
) -> Result<(), LenderTrouble> {
    let (all, mut spin_until) = (buffers.len(), 0);
    while !buffers.is_empty() {
        // SAFETY: IoSliceMut is an iovec by its documentation; the memory is valid by the caller's promise.
        let slices = unsafe {
            std::slice::from_raw_parts_mut(buffers.as_mut_ptr().cast::<IoSliceMut<'_>>(), buffers.len())
        };
        match rustix::io::readv(socket, slices) {
            Ok(0) => return Err(LenderTrouble::Gone(0)),
            Ok(moved) => {
                buffers = advance(buffers, moved);
                full(all - buffers.len());
                spin_until = 0;
            }
            Err(Errno::AGAIN) => {
                let now = now();
                if spin_until == 0 {
                    spin_until = now + SPIN_NS;
                }
                if now < spin_until {
                    rustix::thread::sched_yield();
                } else {
                    wait(socket, to, PollFlags::IN, deadline)?;
                }
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(gone(errno)),
        }
    }
    Ok(())
}

fn send_bytes(socket: BorrowedFd<'_>, to: To<'_>, bytes: &[u8]) -> Result<(), LenderTrouble> {
    let mut buffers = [iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }];
    // SAFETY: the buffer is the slice.
    unsafe { send_all(socket, to, &mut buffers) }
}

fn receive_bytes(
    socket: BorrowedFd<'_>,
    to: To<'_>,
    bytes: &mut [u8],
    deadline: u64,
) -> Result<(), LenderTrouble> {
    let mut buffers = [iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() }];
    // SAFETY: the buffer is the slice.
    unsafe { receive_all(socket, to, &mut buffers, deadline, &mut |_| {}) }
}

/// Makes a connection for pages of the run's session.
fn connect(to: To<'_>) -> Result<Descriptor, LenderTrouble> {
    if to.figures.state() == LenderState::Lost {
        return Err(LenderTrouble::Lost);
    }
    let deadline = now() + GREETING_NS;
    let address = to.settings.address();
    let family =
        if matches!(address, SocketAddr::V4(_)) { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = out_of_the_way(net::socket_with(family, SocketType::STREAM, flags, None).map_err(gone)?);
    match net::connect(&socket, &address) {
        Ok(()) => {}
        Err(Errno::INPROGRESS | Errno::INTR) => {
            wait(socket.as_fd(), to, PollFlags::OUT, deadline)?;
            sockopt::socket_error(&socket).map_err(gone)?.map_err(gone)?;
        }
        Err(errno) => return Err(gone(errno)),
    }
    let _ = sockopt::set_tcp_nodelay(&socket, true);
    greet(socket.as_fd(), to, deadline)?;
    Ok(socket)
}

/// Proves the session's key, and has the lender prove it.
fn greet(socket: BorrowedFd<'_>, to: To<'_>, deadline: u64) -> Result<(), LenderTrouble> {
    let (session, key) = (to.settings.session, &to.settings.key);
    let mut challenge = [0; 32];
    if getrandom(&mut challenge, GetRandomFlags::empty()) != Ok(challenge.len()) {
        return Err(LenderTrouble::Unproven);
    }
    let hello = Hello { version: wire::VERSION, purpose: Purpose::Pages, session, challenge }.encode();
    send_bytes(socket, to, &hello)?;
    let mut welcome_bytes = [0; Welcome::BYTES];
    receive_bytes(socket, to, &mut welcome_bytes, deadline)?;
    let welcome = Welcome::decode(&welcome_bytes).ok_or(LenderTrouble::Nonsense)?;
    if welcome.status != Status::Done {
        return Err(LenderTrouble::Refused(welcome.status));
    }
    let mut answer = [0; wire::ANSWER];
    receive_bytes(socket, to, &mut answer, deadline)?;
    // The comparison takes the same time wherever they differ.
    if wire::answer(key, Side::Lender, &hello, &welcome_bytes) != answer || welcome.session != session {
        return Err(LenderTrouble::Unproven);
    }
    send_bytes(socket, to, wire::answer(key, Side::Borrower, &hello, &welcome_bytes).as_bytes())?;
    let mut reply = [0; Reply::BYTES];
    receive_bytes(socket, to, &mut reply, deadline)?;
    match Reply::decode(&reply) {
        Some(Reply { status: Status::Done, bytes: 0, .. }) => Ok(()),
        Some(Reply { status, .. }) => Err(LenderTrouble::Refused(status)),
        None => Err(LenderTrouble::Nonsense),
    }
}
