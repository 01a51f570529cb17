//! How nodes of one machine find each other: over Unix sockets in a private directory, or over pairs of sockets that were made
//! before they were forked.
//!
//! `mod.rs` makes a transport of the channels that result. Every two nodes have a socket for a moment, over which they identify
//! themselves and make their channel.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};

use super::Settings;
use super::parcels::{self, Inbound, Outbound};
use crate::Node;
use crate::channel::{Channel, ConnectError, CreateError, WaitSet};
use crate::clock::Deadline;

/// The reasons why a node did not join the others on its machine.
#[derive(thiserror::Error, Debug)]
pub enum ShmError {
    /// A setting is out of range, or a node's number is invalid.
    #[error("{0}")]
    Setting(String),
    /// The directory is not this user's alone.
    #[error("{path} is not private: it must belong to this user and have mode 0700")]
    NotPrivate {
        /// The directory.
        path: PathBuf,
    },
    /// A node did not come in time.
    #[error("{0} did not come in time")]
    TimedOut(Node),
    /// The greeting is not that of a node of this job.
    #[error("the bytes from {0} are not the greeting of a node of this job")]
    Greeting(Node),
    /// The channel with a node could not be made.
    #[error("no channel with {node}: {why}")]
    Channel {
        /// The node.
        node: Node,
        /// The reason.
        #[source]
        why: ConnectError,
    },
    /// The wait set cannot be made.
    #[error("{0}")]
    Create(#[from] CreateError),
    /// The system refuses a call; the text names it.
    #[error("{0}: {1}")]
    Os(&'static str, #[source] io::Error),
}

/// A channel with another node, and that node's run.
pub(super) struct Met {
    pub(super) channel: Channel,
    pub(super) run: [u8; 16],
    pub(super) parcels: (Outbound, Inbound),
}

/// A node's sockets to the others, made before the nodes: see [`mesh`].
pub struct Place {
    pub(super) node: Node,
    /// The sockets by node; `None` at the node's own place.
    streams: Vec<Option<UnixStream>>,
}

/// The places of `nodes` nodes that will be threads, or processes forked from this one. Each is for one of them. A forked
/// process must drop the other places, or the loss of their nodes is noticed late at the start.
pub fn mesh(nodes: u32) -> io::Result<Vec<Place>> {
    let empty = || (0..nodes).map(|_| None).collect();
    let mut places: Vec<Place> =
        (0..nodes).map(|node| Place { node: Node(node), streams: empty() }).collect();
    for low in 0..nodes as usize {
        for high in low + 1..nodes as usize {
            let (one, other) = UnixStream::pair()?;
            places[low].streams[high] = Some(one);
            places[high].streams[low] = Some(other);
        }
    }
    Ok(places)
}

impl Place {
    /// The place of `node`, from its sockets to all nodes (`None` for itself), which [`Place::into_streams`] returned, perhaps
    /// in another process.
    pub fn from_streams(node: Node, streams: Vec<Option<OwnedFd>>) -> Place {
        Place { node, streams: streams.into_iter().map(|fd| fd.map(UnixStream::from)).collect() }
    }

    /// The sockets, for a process that is started to take the place.
    pub fn into_streams(self) -> Vec<Option<OwnedFd>> {
        self.streams.into_iter().map(|stream| stream.map(OwnedFd::from)).collect()
    }

    pub(super) fn len(&self) -> u32 {
        self.streams.len() as u32
    }
}

/// The settings of a node that meets the others.
pub(super) struct Meeting<'a> {
    pub(super) node: Node,
    pub(super) nodes: u32,
    pub(super) run: [u8; 16],
    pub(super) settings: &'a Settings,
    pub(super) set: &'a WaitSet,
    pub(super) end: Instant,
}

impl Meeting<'_> {
    /// Meets the others over the sockets of `place`, in the order of nodes, so that no circle of nodes waits for each other.
    pub(super) fn at(&self, place: Place) -> Result<Vec<Option<Met>>, ShmError> {
        let mut all = Vec::new();
        for (other, stream) in (0..).map(Node).zip(place.streams) {
            all.push(match stream {
                None => None,
                Some(stream) => Some(self.meet(&stream, Some(other))?.1),
            });
        }
        Ok(all)
    }

    /// Meets the others over sockets in `directory`: connects to all nodes below this one, and waits for those above.
    pub(super) fn in_directory(&self, directory: &Path) -> Result<Vec<Option<Met>>, ShmError> {
        let open = private(directory)?;
        // The path goes through the descriptor, so it works for any length and whatever replaces the directory.
        let path = |node: Node| format!("/proc/self/fd/{}/node-{}", open.as_raw_fd(), node.0);
        let mine = path(self.node);
        let listener = UnixListener::bind(&mine).map_err(|e| ShmError::Os("binding the node's socket", e))?;
        let met = self.meet_all(&listener, path);
        let _ = std::fs::remove_file(mine);
        met
    }

    fn meet_all(
        &self,
        listener: &UnixListener,
        path: impl Fn(Node) -> String,
    ) -> Result<Vec<Option<Met>>, ShmError> {
        let mut all: Vec<Option<Met>> = (0..self.nodes).map(|_| None).collect();
        for other in (0..self.node.0).map(Node) {
            let stream = loop {
                match UnixStream::connect(path(other)) {
                    Ok(stream) => break stream,
                    Err(_) if self.left().is_some() => std::thread::sleep(Duration::from_millis(5)),
                    Err(_) => return Err(ShmError::TimedOut(other)),
                }
            };
            all[other.0 as usize] = Some(self.meet(&stream, Some(other))?.1);
        }
        listener.set_nonblocking(true).map_err(|e| ShmError::Os("listening", e))?;
        while let Some(missing) = (self.node.0 + 1..self.nodes).find(|other| all[*other as usize].is_none()) {
            match listener.accept() {
                Ok((stream, _)) => {
                    let _ = stream.set_nonblocking(false);
                    // A connection that does not greet as a missing node above this one is dropped, and the next is taken.
                    if let Ok((other, met)) = self.meet(&stream, None) {
                        all[other.0 as usize].get_or_insert(met);
                    }
                }
                Err(_) if self.left().is_some() => std::thread::sleep(Duration::from_millis(2)),
                Err(_) => return Err(ShmError::TimedOut(Node(missing))),
            }
        }
        Ok(all)
    }

    /// The time left.
    fn left(&self) -> Option<Duration> {
        Some(self.end.saturating_duration_since(Instant::now())).filter(|left| !left.is_zero())
    }

    /// Greets the node at the other end and makes a channel; it must be `expected`, or any node above this one.
    fn meet(&self, stream: &UnixStream, expected: Option<Node>) -> Result<(Node, Met), ShmError> {
        let named = expected.unwrap_or(self.node);
        let left = || self.left().ok_or(ShmError::TimedOut(named));
        let failed = |e: io::Error| match e.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => ShmError::TimedOut(named),
            _ => ShmError::Os("greeting another node", e),
        };
        stream.set_read_timeout(Some(left()?)).map_err(failed)?;
        (&*stream).write_all(&self.greeting()).map_err(failed)?;
        let mut theirs = [0; GREETING];
        (&*stream).read_exact(&mut theirs).map_err(failed)?;
        stream.set_read_timeout(None).map_err(failed)?;
        let (other, run) = self.understand(&theirs).ok_or(ShmError::Greeting(named))?;
        if expected.map_or(other <= self.node, |expected| other != expected) {
            return Err(ShmError::Greeting(named));
        }
        let seat = self.set.seat().map_err(|e| ShmError::Setting(e.to_string()))?;
        let no_channel = |why| ShmError::Channel { node: other, why };
        let channel = Channel::connect(stream, self.settings.channel(), Some(seat), Some(left()?))
            .map_err(no_channel)?;
        let parcels = parcels::exchange(stream, &mut Deadline::new(Some(left()?))).map_err(no_channel)?;
        Ok((other, Met { channel, run, parcels }))
    }

    /// This node's greeting: magic (4), version (4), node (4), nodes (4), longest (8), run (16).
    fn greeting(&self) -> [u8; GREETING] {
        let mut bytes = [0; GREETING];
        bytes[..4].copy_from_slice(b"atsh");
        bytes[4..8].copy_from_slice(&2u32.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.node.0.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.nodes.to_le_bytes());
        bytes[16..24].copy_from_slice(&(self.settings.longest as u64).to_le_bytes());
        bytes[24..].copy_from_slice(&self.run);
        bytes
    }

    /// The other node's number and run, if it is of this job and version.
    fn understand(&self, theirs: &[u8; GREETING]) -> Option<(Node, [u8; 16])> {
        let mine = self.greeting();
        let mut number = [0; 4];
        number.copy_from_slice(&theirs[8..12]);
        let other = Node(u32::from_le_bytes(number));
        let mut run = [0; 16];
        run.copy_from_slice(&theirs[24..]);
        let same = theirs[..8] == mine[..8] && theirs[12..24] == mine[12..24];
        (same && other.0 < self.nodes).then_some((other, run))
    }
}

const GREETING: usize = 40;

/// Opens a directory, which must be this user's alone.
fn private(path: &Path) -> Result<OwnedFd, ShmError> {
    let flags = OFlags::DIRECTORY | OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let open = rustix::fs::open(path, flags, Mode::empty())
        .map_err(|e| ShmError::Os("opening the nodes' directory", e.into()))?;
    let about =
        rustix::fs::fstat(open.as_fd()).map_err(|e| ShmError::Os("the nodes' directory", e.into()))?;
    if about.st_uid != rustix::process::geteuid().as_raw() || about.st_mode & 0o077 != 0 {
        return Err(ShmError::NotPrivate { path: path.to_owned() });
    }
    Ok(open)
}
