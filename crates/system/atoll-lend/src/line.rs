//! A stream of bytes to the other end, as both ends of a session's connections use it: whole records, no signal, no buffer.
//!
//! `serve` and `control` use it.

use std::io::{self, IoSlice, IoSliceMut, Read};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, sockopt};

/// How long a quiet peer's host may be unreachable before the connection is given up.
const CUT_OFF: Duration = Duration::from_secs(4);
/// How long a receiver looks for bytes again and again before it sleeps: waking it takes longer than most pauses.
const SPIN: Duration = Duration::from_micros(40);
/// What one look takes at most. In a longer one the kernel did something else, such as sending the last reply.
const ONE_LOOK: Duration = Duration::from_micros(3);

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

/// Receives bytes of a record that may not have begun: looks for its first ones for a while before it sleeps, and counts the
/// time of looking in `looked_ns`. How many came, at least one.
pub(crate) fn await_record(
    stream: &mut &TcpStream,
    record: &mut [u8],
    looked_ns: &AtomicU64,
) -> io::Result<usize> {
    let began = Instant::now();
    let (mut now, mut looked) = (began, Duration::ZERO);
    let have = loop {
        match rustix::net::recv(*stream, &mut *record, RecvFlags::DONTWAIT) {
            Ok((_, 0)) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok((_, have)) => break Some(have),
            Err(rustix::io::Errno::AGAIN) => std::thread::yield_now(),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let last = std::mem::replace(&mut now, Instant::now());
        if now - last < ONE_LOOK {
            looked += now - last;
        }
        if now - began > SPIN {
            break None;
        }
    };
    looked_ns.fetch_add(looked.as_nanos() as u64, Relaxed);
    match have {
        Some(have) => Ok(have),
        None => match stream.read(record)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            have => Ok(have),
        },
    }
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
