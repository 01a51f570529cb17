//! Measures messages and gets through every transport, beside UCX's own test of the same.
//!
//! `mod.rs` prints the results. Both nodes are forked, as UCX must not be started before a fork.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use atoll_channel::Node;
use atoll_transport::transport::{
    Buffer, Event, Memory, Remote, Shm, ShmSettings, Transport, TransportError, Ucx, UcxSettings, mesh,
};

use super::super::BenchError;
use super::super::pair::{Cpus, Other};
use super::super::perftest::Over;
use super::super::statistics::percentile;
use super::failed;

/// The bytes of messages and gets.
pub(super) const SIZES: [usize; 3] = [8, 4 << 10, 64 << 10];
const ROUNDS: usize = 20_000;
const WARM: usize = 2_000;
/// The most time that a step may take; after that the measurement has failed.
const PATIENCE: Duration = Duration::from_secs(20);

/// A transport.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Network {
    /// atoll's own, over shared memory.
    Shm,
    /// UCX.
    Ucx(Over),
}

impl Network {
    pub(super) const ALL: [Network; 3] = [Network::Shm, Network::Ucx(Over::Memory), Network::Ucx(Over::Tcp)];

    pub(super) fn name(self) -> &'static str {
        match self {
            Network::Shm => "shared memory",
            Network::Ucx(Over::Memory) => "UCX over shared memory",
            Network::Ucx(Over::Tcp) => "UCX over TCP, loopback",
            Network::Ucx(Over::Link(_)) => "UCX over TCP, a link",
        }
    }
}

/// The medians in microseconds, by the index of the size.
pub(super) struct Found {
    /// The times of half a round trip of a message.
    pub(super) message: [f64; SIZES.len()],
    /// The times of a get from the other node's memory.
    pub(super) get: [f64; SIZES.len()],
}

/// Returns why UCX cannot be measured, if it cannot.
pub(super) fn ucx() -> Result<(), String> {
    Ucx::available().map(drop).map_err(|why| why.to_string())
}

/// Measures one transport.
pub(super) fn measure(cpus: Cpus, network: Network) -> Result<Found, BenchError> {
    let pair = || UnixStream::pair().map_err(failed("a pair of sockets"));
    let ((here, there), (mut results, mut tell)) = (pair()?, pair()?);
    let mut places = mesh(2).map_err(failed("sockets between nodes"))?;
    let (second, first) = (places.pop(), places.pop());
    let join = |node: u32, stream: UnixStream, place| -> Result<Box<dyn Transport>, BenchError> {
        match (network, place) {
            (Network::Shm, Some(place)) => {
                let shm = Shm::join(place, ShmSettings::default(), PATIENCE);
                Ok(Box::new(shm.map_err(failed("joining over shared memory"))?))
            }
            (Network::Ucx(over), _) => {
                let transports = if over == Over::Tcp { "tcp,self" } else { "posix,cma,self" };
                let settings = UcxSettings { transports: Some(transports.into()), ..UcxSettings::default() };
                let ucx = Ucx::join_pair(Node(node), settings, stream);
                Ok(Box::new(ucx.map_err(failed("joining over UCX"))?))
            }
            (Network::Shm, None) => Err(BenchError::Other("it has no place".into())),
        }
    };
    // The parent's copies of what the child does not take are dropped with this function.
    let answering = Other::start(cpus.there, || answer(&mut *join(1, there, second)?))?;
    let asking = Other::start(cpus.here, || {
        let found = ask(&mut *join(0, here, first)?)?;
        let numbers = found.message.iter().chain(&found.get);
        let bytes: Vec<u8> = numbers.flat_map(|us| us.to_le_bytes()).collect();
        tell.write_all(&bytes).map_err(failed("a pair of sockets"))
    })?;
    asking.wait()?;
    answering.wait()?;
    let mut bytes = [0; 16 * SIZES.len()];
    results.read_exact(&mut bytes).map_err(failed("a pair of sockets"))?;
    let number = |index: usize| {
        let (words, _) = bytes.as_chunks::<8>();
        f64::from_le_bytes(words[index])
    };
    Ok(Found {
        message: std::array::from_fn(number),
        get: std::array::from_fn(|index| number(SIZES.len() + index)),
    })
}

/// The kinds of messages between the two.
const PING: u16 = 1;
const KEY: u16 = 2;
const END: u16 = 3;

/// The last events of `progress`.
#[derive(Default)]
struct Heard {
    pings: usize,
    key: Option<Vec<u8>>,
    done: Option<Buffer>,
    ended: bool,
    failed: bool,
}

/// Makes progress once.
fn listen(transport: &mut dyn Transport, heard: &mut Heard) -> Result<(), BenchError> {
    let told = transport.progress(&mut |event| match event {
        Event::Message { kind: PING, .. } => heard.pings += 1,
        Event::Message { kind: KEY, bytes, .. } => heard.key = Some(bytes.to_vec()),
        Event::Message { .. } => heard.ended = true,
        Event::Done { buffer, result, .. } => {
            heard.done = buffer;
            heard.failed |= result.is_err();
        }
        // The node that announced the end may go.
        Event::Lost { .. } => heard.failed |= !heard.ended,
        Event::Joined(_) => {}
    });
    told.map_err(failed("moving messages on"))?;
    if heard.failed { Err(BenchError::Other("it was lost".into())) } else { Ok(()) }
}

/// Makes progress until there is a result.
fn until<T>(
    transport: &mut dyn Transport,
    heard: &mut Heard,
    mut look: impl FnMut(&mut Heard) -> Option<T>,
) -> Result<T, BenchError> {
    let mut turns = 0_u32;
    let begin = Instant::now();
    loop {
        if let Some(found) = look(heard) {
            return Ok(found);
        }
        listen(transport, heard)?;
        turns += 1;
        if turns.is_multiple_of(1 << 20) && begin.elapsed() > PATIENCE {
            return Err(BenchError::Other("it does not answer".into()));
        }
    }
}

fn send(
    transport: &mut dyn Transport,
    heard: &mut Heard,
    to: Node,
    kind: u16,
    bytes: &[u8],
) -> Result<(), BenchError> {
    loop {
        match transport.send(to, kind, bytes) {
            Err(TransportError::Full { .. }) => listen(transport, heard)?,
            sent => return sent.map_err(failed("sending")),
        }
    }
}

/// Runs the other node: gives out memory and answers.
fn answer(transport: &mut dyn Transport) -> Result<(), BenchError> {
    let asker = Node(0);
    let memory = Arc::new(Memory::new(SIZES[SIZES.len() - 1]).map_err(failed("memory"))?);
    let key = transport.register(memory).map_err(failed("registering memory"))?;
    let mut heard = Heard::default();
    send(transport, &mut heard, asker, KEY, &key)?;
    for bytes in SIZES {
        let payload = vec![7; bytes];
        for _ in 0..ROUNDS + WARM {
            until(transport, &mut heard, |heard| heard.pings.checked_sub(1).map(|left| heard.pings = left))?;
            send(transport, &mut heard, asker, PING, &payload)?;
        }
    }
    // Gets may need this node to make progress.
    let begin = Instant::now();
    while !heard.ended && begin.elapsed() < 3 * PATIENCE {
        listen(transport, &mut heard)?;
    }
    Ok(())
}

/// Runs the node that measures.
fn ask(transport: &mut dyn Transport) -> Result<Found, BenchError> {
    let other = Node(1);
    let mut heard = Heard::default();
    let key = until(transport, &mut heard, |heard| heard.key.take())?;
    let remote = transport.attach(other, &key).map_err(failed("attaching memory"))?;
    let mut found = Found { message: [0.0; SIZES.len()], get: [0.0; SIZES.len()] };
    for (index, bytes) in SIZES.into_iter().enumerate() {
        let payload = vec![7; bytes];
        let trip = median(|| {
            send(transport, &mut heard, other, PING, &payload)?;
            until(transport, &mut heard, |heard| heard.pings.checked_sub(1).map(|left| heard.pings = left))
        })?;
        found.message[index] = trip / 2.0;
    }
    for (index, bytes) in SIZES.into_iter().enumerate() {
        let mut buffer = Some(vec![0; bytes]);
        found.get[index] = median(|| {
            buffer = Some(get(transport, &mut heard, remote, buffer.take().unwrap_or_default())?);
            Ok(())
        })?;
    }
    send(transport, &mut heard, other, END, &[])?;
    Ok(found)
}

fn get(
    transport: &mut dyn Transport,
    heard: &mut Heard,
    remote: Remote,
    into: Vec<u8>,
) -> Result<Vec<u8>, BenchError> {
    transport.get(remote, 0, Buffer::Owned(into), 1).map_err(|refused| failed("a get")(refused.why))?;
    let done = until(transport, heard, |heard| heard.done.take())?;
    match done {
        Buffer::Owned(bytes) => Ok(bytes),
        Buffer::Piece(_) => Err(BenchError::Other("another buffer came back".into())),
    }
}

/// Returns the median microseconds of many calls.
fn median(mut call: impl FnMut() -> Result<(), BenchError>) -> Result<f64, BenchError> {
    let mut times = Vec::with_capacity(ROUNDS);
    for round in 0..ROUNDS + WARM {
        let begin = Instant::now();
        call()?;
        if round >= WARM {
            times.push(begin.elapsed().as_secs_f64() * 1e6);
        }
    }
    Ok(percentile(times, 50))
}
