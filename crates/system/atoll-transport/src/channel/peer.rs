//! The process at the other end, and whether it still lives.
//!
//! Every end holds its peer as a *pidfd*. A pidfd becomes readable when the process has ended, at whatever instruction and by
//! whatever signal. It means the same process for ever, while a process number may be given to another one. It can be passed
//! over a socket to processes that cannot see the number. A robust futex would name a thread, not the process, and a lock word
//! only the last moment the peer was well. As one cannot sleep on a futex and a pidfd at once, sleeps last at most `SLICE`, and
//! `Watch` checks the pidfd between them.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, WaitId, WaitIdOptions, getpid, pidfd_open, waitid};

use crate::channel::cache::Cache;
use crate::channel::error::AttachError;
use crate::clock::coarse;

/// The longest sleep, and how often the peer is checked while there is nothing else to do. A death is noticed within twice this
/// time.
pub(crate) const SLICE: Duration = Duration::from_millis(200);

/// A process that a channel may have at its other end. Copies stand for the same process.
#[derive(Clone, Debug)]
pub struct Peer {
    process: Arc<OwnedFd>,
}

/// The processes that this one holds, by number: each once, however many channels lead to it.
static KNOWN: Cache<u32, OwnedFd> = Cache::new();

impl Peer {
    /// This process. After a fork the value still means the same process, so a child knows its parent by it.
    pub fn this() -> io::Result<Peer> {
        Ok(Peer { process: Arc::new(pidfd_open(getpid(), PidfdFlags::empty())?) })
    }

    /// The process with number `process`: a child of this one that was not waited for, or one that is known to live.
    pub fn process(process: u32) -> io::Result<Peer> {
        let pid = i32::try_from(process).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        Ok(Peer { process: Arc::new(pidfd_open(pid, PidfdFlags::empty())?) })
    }

    /// The process of a descriptor that came from the peer itself.
    pub(crate) fn handed_over(process: OwnedFd) -> Result<Peer, AttachError> {
        // The call fails in one way for a process that is no child, and in another for a descriptor that is no process.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        match waitid(WaitId::PidFd(process.as_fd()), options) {
            Ok(_) | Err(rustix::io::Errno::CHILD) => {}
            Err(_) => return Err(AttachError::NotAProcess),
        }
        let process = Arc::new(process);
        let Some(number) = number(&process) else { return Ok(Peer { process }) };
        // A known process with this number that still lives, after the number was read, is the same process.
        let lives = |known: &OwnedFd| !ended(known);
        let process = KNOWN.get(number, lives, || Ok::<_, AttachError>(process.clone()))?;
        Ok(Peer { process })
    }

    /// The descriptor of the process, a pidfd.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.process.as_fd()
    }

    /// The peer's number as this process sees it, while the peer lives and is visible from here.
    pub fn number(&self) -> Option<u32> {
        number(&self.process)
    }

    /// A number that tells one process from another, while both are held.
    pub fn key(&self) -> u64 {
        Arc::as_ptr(&self.process).addr() as u64
    }

    /// Whether the process has ended. One that replaced its program (`exec`) has not.
    pub fn died(&self) -> bool {
        ended(&self.process)
    }
}

/// Whether the process behind a pidfd has ended.
fn ended(process: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(process, PollFlags::IN)];
    // An error of poll itself (no memory) tells nothing; the next call asks again.
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
}

/// The number of the process behind a pidfd, if it lives and is visible from here.
fn number(process: &OwnedFd) -> Option<u32> {
    let about = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", process.as_raw_fd())).ok()?;
    let number = about.lines().find_map(|line| line.strip_prefix("Pid:"))?;
    number.trim().parse().ok().filter(|number| *number > 0)
}

/// Checks whether a peer lives, by at most one system call every `SLICE`.
pub(crate) struct Watch {
    peer: Peer,
    next: Duration,
    died: bool,
}

impl Watch {
    /// Watches `peer`; the first check is a `SLICE` from now.
    pub(crate) fn new(peer: Peer) -> Watch {
        Watch { peer, next: coarse() + SLICE, died: false }
    }

    /// The watched peer.
    pub(crate) fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Whether the peer is known to have died; checks it if it is time to.
    #[inline]
    pub(crate) fn died(&mut self) -> bool {
        let now = coarse();
        if now >= self.next {
            self.next = now + SLICE;
            self.died |= self.peer.died();
        }
        self.died
    }

    /// Notes that the peer was found dead elsewhere.
    pub(crate) fn note_death(&mut self) {
        self.died = true;
    }

    /// Whether the peer is known to have died, without a check.
    pub(crate) fn known_dead(&self) -> bool {
        self.died
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_process_is_taken_for_one() {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(matches!(Peer::handed_over(file.into()), Err(AttachError::NotAProcess)));
        let this = Peer::this().unwrap().descriptor().try_clone_to_owned().unwrap();
        let this = Peer::handed_over(this).unwrap();
        assert!(!this.died());
        // The same process is the same peer, however it was handed over.
        let again = Peer::this().unwrap().descriptor().try_clone_to_owned().unwrap();
        assert_eq!(Peer::handed_over(again).unwrap().key(), this.key());
        assert!(Peer::process(0).is_err());
    }

    #[test]
    fn a_child_dies_once_and_for_all() {
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let peer = Peer::process(child.id()).unwrap();
        assert!(!peer.died());
        child.kill().unwrap();
        let end = std::time::Instant::now() + Duration::from_secs(5);
        while !peer.died() && std::time::Instant::now() < end {
            std::thread::yield_now();
        }
        assert!(peer.died());
        child.wait().unwrap();
        assert!(peer.died());
    }
}
