//! The credentials of the process at the other end of a Unix socket, as the system reports them.
//!
//! `door.rs` admits processes by them, `spawn/parent.rs` recognises its parent by them. The system reports 0 for a process of
//! another container, and where there is no peer, so rustix's type for this, whose process is never 0, is not used.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use rustix::process::Pid;

/// The process that connected a socket, or made it as one of a pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Credentials {
    /// The process, if it is visible from here.
    pub(crate) process: Option<Pid>,
    /// The number of its user at that time; `None` if there is no peer.
    pub(crate) user: Option<u32>,
}

/// The credentials of `socket`'s other end. Fails if it is not a socket.
pub(crate) fn credentials(socket: impl AsFd) -> io::Result<Credentials> {
    let mut peer = libc::ucred { pid: 0, uid: libc::uid_t::MAX, gid: libc::gid_t::MAX };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the system writes at most `length` bytes, which `peer` has, and any bytes are a value of its integers.
    let done = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut length,
        )
    };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Credentials {
        process: Pid::from_raw(peer.pid),
        user: (peer.uid != libc::uid_t::MAX).then_some(peer.uid),
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use rustix::process::{geteuid, getpid};

    use super::*;

    #[test]
    fn a_socket_without_a_peer_has_no_process() {
        let (one, _other) = UnixStream::pair().unwrap();
        let this = Credentials { process: Some(getpid()), user: Some(geteuid().as_raw()) };
        assert_eq!(credentials(&one).unwrap(), this);
        let network = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(credentials(&network).unwrap(), Credentials { process: None, user: None });
        assert!(credentials(std::fs::File::open("/dev/null").unwrap()).is_err());
    }
}
