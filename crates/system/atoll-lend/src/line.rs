//! A stream of bytes to the other end, as both ends of a session's connections use it: whole records, no signal, no buffer.
//!
//! `serve` and `control` use it.

use std::io::{self, IoSlice, IoSliceMut, Read};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, sockopt};

/// How long a quiet peer's host may be unreachable before the connection is given up.
const CUT_OFF: Duration = Duration::from_secs(4);
/// How long a receiver looks for bytes again and again before it sleeps: waking it takes longer than most pauses.
const SPIN: Duration = Duration::from_micros(40);

/// Readies a stream: records leave at once, and a host that has gone away is noticed within seconds. A peer that is only stopped is
/// not given up, as its host still answers.
pub(crate) fn ready(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, Duration::from_secs(1))?;
    sockopt::set_tcp_keepintvl(stream, Duration::from_secs(1))?;
    sockopt::set_tcp_keepcnt(stream, 3)?;
    Ok(())
}

/// Has the kernel give a connection up whose bytes are not confirmed for seconds. Only for connections with short records: a peer
/// that is stopped takes no more once its buffers are full.
pub(crate) fn notice_cut(stream: &TcpStream) -> io::Result<()> {
    Ok(sockopt::set_tcp_user_timeout(stream, CUT_OFF.as_millis() as u32)?)
}

/// Sends all of the parts.
pub(crate) fn send(stream: &TcpStream, parts: &mut [IoSlice<'_>]) -> io::Result<()> {
    let mut parts = parts;
    while !parts.is_empty() {
        match rustix::net::sendmsg(stream, parts, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL) {
            Ok(sent) => IoSlice::advance_slices(&mut parts, sent),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Receives as many bytes as the record has. Fails at the stream's end.
pub(crate) fn receive(stream: &mut &TcpStream, record: &mut [u8]) -> io::Result<()> {
    stream.read_exact(record)
}

/// Receives a record as [`receive`] does, and looks for its first bytes for a while before it sleeps.
pub(crate) fn await_record(stream: &mut &TcpStream, record: &mut [u8]) -> io::Result<()> {
    let until = Instant::now() + SPIN;
    while Instant::now() < until {
        match rustix::net::recv(*stream, &mut *record, RecvFlags::DONTWAIT) {
            Ok((_, 0)) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok((_, have)) => return receive(stream, &mut record[have..]),
            Err(rustix::io::Errno::AGAIN) => std::thread::yield_now(),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    receive(stream, record)
}

/// Receives into all of the parts.
pub(crate) fn receive_parts(stream: &mut &TcpStream, parts: &mut [IoSliceMut<'_>]) -> io::Result<()> {
    let mut parts = parts;
    while !parts.is_empty() {
        match stream.read_vectored(parts) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(have) => IoSliceMut::advance_slices(&mut parts, have),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Receives and forgets so many bytes.
pub(crate) fn skip(stream: &mut &TcpStream, bytes: u64) -> io::Result<()> {
    match io::copy(&mut stream.take(bytes), &mut io::sink())? {
        skipped if skipped == bytes => Ok(()),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}
