//! Both ends of a channel as files, made by one process: for threads, and for children, which inherit them over a
//! fork.
//!
//! `connect.rs` makes a channel with a process that does not descend from this one, and lets each end make the rings placed
//! with it.
//!
//! Source: the barrelfish paper, section 6.7.1 (set up a shared frame, then a channel over it).

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use crate::channel::ends::{Channel, Parts};
use crate::channel::error::{AttachError, CreateError};
use crate::channel::peer::Peer;
use crate::channel::ring_file;
use crate::channel::settings::Settings;
use crate::channel::wait_set::Seat;

/// One end of a channel that no process has attached to yet: descriptors that are inherited over a fork and closed on exec.
pub struct End {
    outgoing: Arc<OwnedFd>,
    incoming: Arc<OwnedFd>,
    seat: Option<Seat>,
    /// A copy of the set's descriptor, as the set may be dropped before.
    peers_set: Option<(OwnedFd, u32)>,
    settings: Settings,
}

/// Makes a channel and returns its two ends, the near and the far one. `settings` are the near one's view, and with a `seat`
/// the near end's receiver is made for that wait set. All memory is this process's, whatever the placements in the settings
/// say.
pub fn pair(settings: Settings, seat: Option<Seat>) -> Result<(End, End), CreateError> {
    settings.check()?;
    let ring =
        || ring_file::create(&settings).map(Arc::new).map_err(|e| CreateError::Os("a ring's memory", e));
    let (there, back) = (ring()?, ring()?);
    let peers_set = match &seat {
        None => None,
        Some(seat) => {
            let file = seat.file().try_clone_to_owned();
            Some((file.map_err(|e| CreateError::Os("a wait set's descriptor", e))?, seat.number()))
        }
    };
    let near = End { outgoing: there.clone(), incoming: back.clone(), seat, peers_set: None, settings };
    let far = End { outgoing: back, incoming: there, seat: None, peers_set, settings: settings.mirrored() };
    Ok((near, far))
}

impl End {
    /// Both rings, as a hostile peer can use them.
    #[cfg(test)]
    #[allow(clippy::unwrap_used, reason = "a helper of tests")]
    pub(crate) fn rings(&self) -> (crate::ring::memory::Ring, crate::ring::memory::Ring) {
        let ring = |file: &OwnedFd| ring_file::attach(file.as_fd(), &self.settings).unwrap();
        (ring(&self.outgoing), ring(&self.incoming))
    }

    /// Attaches this process as this end, with `peer` at the other one: in a child, `Peer::this` taken before the fork; in its
    /// parent, `Peer::process` of the child. Each end can be attached to once, in one process.
    pub fn attach(self, peer: Peer) -> Result<Channel, AttachError> {
        let parts = Parts {
            outgoing: self.outgoing.as_fd(),
            incoming: self.incoming.as_fd(),
            peers_set: self.peers_set.as_ref().map(|(file, seat)| (file.as_fd(), *seat)),
            seat: self.seat,
            peer,
        };
        Channel::attach(parts, &self.settings)
    }
}
