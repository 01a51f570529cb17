//! The three channels between a process and a service of its node, made at both ends in the same order over one socket: for
//! calls to each of the service's two loops, and for its bell.
//!
//! `names/` and `spawn/` have such services; `door.rs` lets the process in.

use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::host::bell::{BELL_HELLO, Bell, SET_UP, bell_settings};
use atoll_transport::Node;
use atoll_transport::{Channel, ConnectError, Message, Receiver, Seat, Settings};

/// The process's end of the three channels.
pub(crate) struct Connected {
    /// The service's node.
    pub(crate) node: Node,
    /// The channels to be bound to the interfaces of the loops.
    pub(crate) calls: [Channel; 2],
    /// The bell's end, which rings when there is something to fetch.
    pub(crate) bell: Receiver,
}

/// The service's end of the three channels.
pub(crate) struct Admitted {
    /// The channels for each loop, at the seats that the loops gave.
    pub(crate) calls: [Box<Channel>; 2],
    /// The bell, for ringing.
    pub(crate) bell: Bell,
}

/// The reasons why there is no connection.
pub(crate) enum NotConnected {
    /// A channel was not made.
    Connect(ConnectError),
    /// The service does not tell which node this is.
    NoNode,
}

/// Connects to the service at the other end of `stream`.
pub(crate) fn connect(stream: &UnixStream) -> Result<Connected, NotConnected> {
    let channel = |settings| Channel::connect(stream, settings, None, SET_UP).map_err(NotConnected::Connect);
    let calls = [channel(Settings::default())?, channel(Settings::default())?];
    let mut bell = channel(bell_settings())?.receiver;
    let mut message = Message::default();
    let node = match bell.recv(&mut message, SET_UP) {
        Ok(()) if message.kind == BELL_HELLO => message.bytes.as_slice().try_into().ok(),
        _ => None,
    };
    let node = Node(u32::from_le_bytes(node.ok_or(NotConnected::NoNode)?));
    Ok(Connected { node, calls, bell })
}

/// Admits the process at the other end of `stream` to the service of `node`, whose loops give `seats`. The process must begin
/// within the time `within`. `None` if there is no seat, or the process does not make the channels; the process notices by its
/// socket.
pub(crate) fn admit(
    stream: &UnixStream,
    node: Node,
    seats: [&dyn Fn() -> Option<Seat>; 2],
    within: Option<Duration>,
) -> Option<Admitted> {
    let channel = |settings, seat, within| Channel::connect(stream, settings, seat, within).ok();
    let first = channel(Settings::default(), Some(seats[0]()?), within)?;
    let second = channel(Settings::default(), Some(seats[1]()?), SET_UP)?;
    let mut sender = channel(bell_settings(), None, SET_UP)?.sender;
    sender.try_send(BELL_HELLO, &node.0.to_le_bytes()).ok()?;
    Some(Admitted { calls: [Box::new(first), Box::new(second)], bell: Bell::new(sender) })
}
