//! The way into the job: this node joins the others by what its launcher left, over shared memory or UCX.
//!
//! `meeting` calls it, before the program's memory is paged. The launcher's side is `crates/command/atoll/src/run/nodes.rs` (local
//! nodes, whose sockets are inherited) and `run/job.rs` (nodes that something else started: a socket to the launcher).
//!
//! UCX is loaded apart from the program's libraries: its `malloc`, its system calls and its variables are none of the
//! program's, so they are neither paged nor shared with workers, and the nodes' link maps stay the same.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::{Duration, Instant};

use atoll_memory::signals::SignalsBlocked;
use atoll_transport::Node;
use atoll_transport::start::relay::{Meeting, MeetingPlace, Relay};
use atoll_transport::transport::{
    Event, Faults, Faulty, Place, Proven, Secret, Shm, ShmSettings, Transport, Ucx, UcxSettings,
};

use crate::cpus;
use crate::messenger::Messenger;

/// Nodes wait so long for each other at the start.
pub(crate) const MEETING: Duration = Duration::from_secs(30);
/// Lines of the rings between nodes on one machine: room for some pages.
const LINES: u32 = 4096;
/// Bytes of the longest message over shared memory.
const LONGEST: usize = 64 << 20;
/// Bytes that may wait there for a node that is busy.
const QUEUE: usize = 256 << 20;
/// The longest message and the longest queue over UCX, which keeps in memory what is under way.
const LONGEST_UCX: usize = 4 << 20;
const QUEUE_UCX: usize = 64 << 20;
/// A host that lost its power or its cable is taken for lost after this: within five seconds every node is to end.
const SILENCE: Duration = Duration::from_millis(3500);

/// The settings of shared memory for `nodes` nodes that share this machine's CPUs.
fn shm_settings(nodes: u32) -> ShmSettings {
    cpus::share(nodes);
    // Who spins takes the CPU of whom it waits for, unless there are enough.
    let spins = if cpus::of_workers(cpus::available()) == 0 { 0 } else { atoll_transport::DEFAULT_SPINS };
    ShmSettings { lines: LINES, longest: LONGEST, queue: QUEUE, spins, linger: Duration::from_secs(1) }
}

/// Joins the others as `text`, from the launcher, says: numbers of sockets to each node, or `relay:` and that of a socket to the
/// launcher.
///
/// # Errors
/// A sentence for the user.
pub(crate) fn join(text: &str, node: u32, nodes: u32) -> Result<Messenger, String> {
    if let Some(number) = text.strip_prefix("relay:") {
        let socket = socket(number).flatten().ok_or_else(|| untold(node))?;
        return by_launcher(UnixStream::from(socket), node, nodes);
    }
    let streams: Option<Vec<_>> = text.split(',').map(socket).collect();
    let streams = streams.filter(|streams| streams.len() == nodes as usize);
    let place = Place::from_streams(Node(node), streams.ok_or_else(|| untold(node))?);
    let transport = Shm::join(place, shm_settings(nodes), MEETING);
    over_memory(transport.map_err(|e| cannot(node, &e))?, node)
}

/// Names a seed: messages over shared memory are then late, refused and sent twice, for tests of the runtime (`soak --faults`).
const FAULTS: &str = "ATOLL_TEST_FAULTS";

/// The messenger over shared memory, in trouble if a test wants it: below what tells a message that comes twice.
fn over_memory(transport: Shm, node: u32) -> Result<Messenger, String> {
    let seed = std::env::var(FAULTS).ok().and_then(|seed| seed.parse().ok());
    let Some(seed) = seed else { return Ok(Messenger::new(Box::new(transport), VecDeque::new())) };
    let faults = Faults { seed, delayed: 100, full: 50, duplicated: 50, cut: None };
    let secret = Secret::new(&[1; 32]).ok_or_else(|| untold(node))?;
    prove(Faulty::new(transport, faults), secret, node)
}

/// Lets nobody in who does not know `secret`.
fn prove(transport: impl Transport + 'static, secret: Secret, node: u32) -> Result<Messenger, String> {
    let mut transport = Proven::new(transport, secret).map_err(|e| cannot(node, &e))?;
    let mut early = VecDeque::new();
    transport
        .join_all(MEETING, &mut |event| {
            if let Event::Message { from, kind, bytes } = event {
                early.push_back((from, kind, bytes.to_vec()));
            }
        })
        .map_err(|e| cannot(node, &e))?;
    Ok(Messenger::new(Box::new(transport), early))
}

fn untold(node: u32) -> String {
    format!("node {node} was not told how to reach the others")
}

fn cannot(node: u32, why: &dyn std::fmt::Display) -> String {
    format!("node {node} cannot join the others: {why}")
}

/// A socket of this process by its number; `-`: none.
fn socket(number: &str) -> Option<Option<OwnedFd>> {
    if number == "-" {
        return Some(None);
    }
    let fd = number.parse().ok().filter(|fd| *fd > 2)?;
    // SAFETY: the launcher left it for this alone.
    Some(Some(unsafe { OwnedFd::from_raw_fd(fd) }))
}

/// Joins as the launcher says, at the other end of `socket`.
fn by_launcher(socket: UnixStream, node: u32, nodes: u32) -> Result<Messenger, String> {
    let (relay, meeting) = Relay::new(socket, MEETING).map_err(|e| cannot(node, &e))?;
    if (meeting.node, meeting.nodes) != (node, nodes) {
        return Err(untold(node));
    }
    let Meeting { secret, place, .. } = meeting;
    match place {
        MeetingPlace::Memory(name) => {
            let streams = meet_here(&name, node, nodes).map_err(|why| cannot(node, &why))?;
            let transport = Shm::join(Place::from_streams(Node(node), streams), shm_settings(nodes), MEETING);
            over_memory(transport.map_err(|e| cannot(node, &e))?, node)
        }
        MeetingPlace::Network { devices, transports } => {
            over_network(relay, &secret, (devices, transports), (node, nodes))
        }
    }
}

/// Joins over UCX, and lets nobody in who does not know the job's secret.
fn over_network(
    mut relay: Relay,
    secret: &[u8; 32],
    (devices, transports): (Option<String>, Option<String>),
    (node, nodes): (u32, u32),
) -> Result<Messenger, String> {
    // UCX starts a thread, which inherits this: signals are for the program's.
    let _blocked = SignalsBlocked::new();
    // What each needs is asked for first, so that a node that lacks it does not let the others wait.
    let loaded = Ucx::load_apart().map_err(|e| cannot(node, &e))?;
    let settings = UcxSettings {
        devices,
        transports,
        longest: LONGEST_UCX,
        queue: QUEUE_UCX,
        silence: Some(SILENCE),
        linger: Duration::from_secs(1),
        ..UcxSettings::default()
    };
    let transport = Ucx::join(Node(node), nodes, settings, |mine| Ok(relay.exchange(&mine)?));
    let transport = transport.map_err(|e| {
        let (major, minor, release) = loaded;
        cannot(node, &format_args!("{e} (UCX {major}.{minor}.{release})"))
    })?;
    let secret = Secret::new(secret).ok_or_else(|| untold(node))?;
    prove(transport, secret, node)
}

/// Sockets to all nodes on this machine: each listens at a name that is no file, connects to those below it, and waits for those
/// above.
fn meet_here(name: &[u8; 16], node: u32, nodes: u32) -> Result<Vec<Option<OwnedFd>>, String> {
    let end = Instant::now() + MEETING;
    let says = |what: &'static str| move |e: std::io::Error| format!("{what}: {e}");
    let hex: String = name.iter().map(|byte| format!("{byte:02x}")).collect();
    let at = |node: u32| SocketAddr::from_abstract_name(format!("atoll-{hex}-{node}"));
    let mine = at(node).map_err(says("the name of its socket"))?;
    let listener = UnixListener::bind_addr(&mine).map_err(says("its socket"))?;
    let mut all: Vec<Option<OwnedFd>> = (0..nodes).map(|_| None).collect();
    for other in 0..node {
        let address = at(other).map_err(says("the name of a socket"))?;
        let mut stream = loop {
            match UnixStream::connect_addr(&address) {
                Ok(stream) if is_this_users(&stream) => break stream,
                Ok(_) => return Err(format!("another user has taken the place of node {other}")),
                Err(_) if Instant::now() < end => std::thread::sleep(Duration::from_millis(5)),
                Err(e) => return Err(format!("node {other} is not there: {e}")),
            }
        };
        stream.write_all(&node.to_le_bytes()).map_err(says("greeting a node"))?;
        all[other as usize] = Some(stream.into());
    }
    listener.set_nonblocking(true).map_err(says("listening"))?;
    while let Some(missing) = (node + 1..nodes).find(|other| all[*other as usize].is_none()) {
        match listener.accept() {
            Ok((stream, _)) => {
                if let Some(other) = greeted(&stream)
                    && other > node
                    && let Some(place) = all.get_mut(other as usize)
                {
                    place.get_or_insert(stream.into());
                }
            }
            Err(_) if Instant::now() < end => std::thread::sleep(Duration::from_millis(2)),
            Err(e) => return Err(format!("node {missing} did not come: {e}")),
        }
    }
    Ok(all)
}

/// The number of the node that connected, if it is this user's.
fn greeted(mut stream: &UnixStream) -> Option<u32> {
    stream.set_nonblocking(false).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(1))).ok()?;
    let mut number = [0; 4];
    stream.read_exact(&mut number).ok()?;
    stream.set_read_timeout(None).ok()?;
    is_this_users(stream).then(|| u32::from_le_bytes(number))
}

/// Is the process at the other end one of this process's user?
fn is_this_users(stream: &UnixStream) -> bool {
    let mut who = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: valid for writes of its length.
    let result = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut who).cast(),
            &raw mut length,
        )
    };
    // SAFETY: no pointers.
    result == 0 && who.uid == unsafe { libc::geteuid() }
}

/// The calling thread is going to use the messenger.
pub(crate) fn enter_thread() {
    Ucx::enter_thread();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_on_one_machine_meet_without_files() {
        let mut name = [7; 16];
        name[..4].copy_from_slice(&std::process::id().to_le_bytes());
        let nodes: Vec<_> =
            (0..3).map(|node| std::thread::spawn(move || meet_here(&name, node, 3).unwrap())).collect();
        let all: Vec<Vec<bool>> = nodes
            .into_iter()
            .map(|node| node.join().unwrap().iter().map(Option::is_some).collect())
            .collect();
        assert_eq!(all, [[false, true, true], [true, false, true], [true, true, false]]);
    }

    #[test]
    fn what_no_launcher_says_is_an_error() {
        for text in ["", "relay:", "relay:x", "relay:1", "-", "-,x"] {
            let error = join(text, 0, 2).err().unwrap();
            assert!(error.contains("was not told"), "{text}: {error}");
        }
    }
}
