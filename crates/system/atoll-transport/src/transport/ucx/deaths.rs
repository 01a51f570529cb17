//! The deaths of peers on this machine, as the kernel reports them.
//!
//! UCX notices the end of a process by its connections, or by checking whether there is a process of that number; over shared
//! memory it takes one that its parent has not waited for yet to be alive. A descriptor of the process reports sooner, and
//! always. `mod.rs` checks it now and then in `progress`, and sleeps on it.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{Timespec, epoll};

use crate::channel::Peer;
use crate::clock::coarse;
use crate::process::process_started;

/// The identity of a process among those of all machines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Identity {
    /// The machine's boot, and the name space of process numbers. Zeros if not known.
    pub(super) host: [u8; 16],
    pub(super) process: u32,
    /// The time when the process was started, by its machine's clock, since process numbers are used again.
    pub(super) started: u64,
}

impl Identity {
    /// This process.
    pub(super) fn this() -> Identity {
        let process = std::process::id();
        let unknown = Identity { host: [0; 16], process, started: 0 };
        let boot = std::fs::read("/proc/sys/kernel/random/boot_id");
        let space = std::fs::read_link("/proc/self/ns/pid");
        let (Ok(boot), Ok(space), Some(started)) = (boot, space, process_started(process)) else {
            return unknown;
        };
        let hash =
            blake3::Hasher::new().update(&boot).update(space.as_os_str().as_encoded_bytes()).finalize();
        let mut host = [0; 16];
        host.copy_from_slice(&hash.as_bytes()[..16]);
        Identity { host, process, started }
    }
}

/// The time between two checks while there is other work.
const SLICE: Duration = Duration::from_millis(100);

/// The peers whose death the kernel reports.
pub(super) struct Deaths {
    epoll: OwnedFd,
    watched: HashMap<u32, Peer>,
    next: Duration,
}

impl Deaths {
    pub(super) fn new() -> std::io::Result<Deaths> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Deaths { epoll, watched: HashMap::new(), next: coarse() })
    }

    /// Watches the process of `node`, if it is on this machine. A process that has ended already is reported at the next check.
    pub(super) fn watch(&mut self, node: u32, process: Identity, this: &Identity) -> bool {
        if process.host != this.host || this.host == [0; 16] {
            return false;
        }
        let Ok(peer) = Peer::process(process.process) else { return false };
        // The number may have passed to another process by now.
        if process_started(process.process) != Some(process.started) {
            return false;
        }
        let data = epoll::EventData::new_u64(node.into());
        let added = epoll::add(&self.epoll, peer.descriptor(), data, epoll::EventFlags::IN);
        added.is_ok() && self.watched.insert(node, peer).is_none()
    }

    /// The descriptor that is readable when a peer has died.
    pub(super) fn event(&self) -> &OwnedFd {
        &self.epoll
    }

    /// The peers that have died since the last check, if it is time for one.
    pub(super) fn look(&mut self) -> Vec<u32> {
        let now = coarse();
        if now < self.next || self.watched.is_empty() {
            return Vec::new();
        }
        self.next = now + SLICE;
        let mut events = Vec::with_capacity(64);
        let none = Timespec { tv_sec: 0, tv_nsec: 0 };
        // An error tells nothing; the next check asks again.
        let _ = epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&none));
        let nodes: Vec<u32> = events.iter().map(|event| event.data.u64() as u32).collect();
        for node in &nodes {
            self.forget(*node);
        }
        nodes
    }

    /// Makes the next check happen at once.
    pub(super) fn hurry(&mut self) {
        self.next = Duration::ZERO;
    }

    /// Stops watching the process of `node`.
    pub(super) fn forget(&mut self, node: u32) {
        if let Some(peer) = self.watched.remove(&node) {
            // An error means that the kernel has forgotten it already.
            let _ = epoll::delete(&self.epoll, peer.descriptor());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_process_of_this_machine_is_watched_and_its_death_told_once() {
        let this = Identity::this();
        assert_ne!(this.host, [0; 16]);
        assert_eq!(this, Identity::this());
        let mut child =
            std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let process = child.id();
        let identity = Identity { process, started: process_started(process).unwrap(), ..this };
        let mut deaths = Deaths::new().unwrap();
        assert!(!deaths.watch(3, Identity { host: [1; 16], ..identity }, &this));
        assert!(!deaths.watch(3, Identity { started: identity.started + 1, ..identity }, &this));
        assert!(deaths.watch(3, identity, &this));
        assert!(deaths.look().is_empty());
        // The child is dead, and was not waited for.
        child.kill().unwrap();
        let told: Vec<u32> = std::iter::repeat_with(|| {
            deaths.hurry();
            deaths.look()
        })
        .find(|dead| !dead.is_empty())
        .unwrap();
        assert_eq!(told, [3]);
        deaths.hurry();
        assert!(deaths.look().is_empty());
        child.wait().unwrap();
    }
}
