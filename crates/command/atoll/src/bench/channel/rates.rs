//! Measures messages a second: one way by size, and through a set of many channels.
//!
//! `mod.rs` prints the results.

use std::os::unix::net::UnixStream;
use std::time::Instant;

use atoll_channel::{Channel, Message, RecvError, Settings, WaitSet};

use super::super::BenchError;
use super::super::pair::{Cpus, Other};
use super::trips::PATIENCE;
use super::{failed, with_other};

/// Returns the number of messages of `bytes` in one measurement.
pub(super) fn count(bytes: usize) -> usize {
    (200_000_000 / (bytes + 200)).clamp(100, 500_000)
}

/// Returns the messages a second from this process to the other.
pub(super) fn one_way(cpus: Cpus, settings: Settings, bytes: usize) -> Result<f64, BenchError> {
    let count = count(bytes);
    let (other, mut channel) = with_other(cpus, settings, |mut channel| {
        let mut message = Message::default();
        for _ in 0..count {
            channel.recv(&mut message, PATIENCE).map_err(failed("receiving"))?;
        }
        channel.send(0, b"all here", PATIENCE).map_err(failed("sending"))?;
        until_closed(&mut channel)
    })?;
    let payload = vec![7; bytes];
    let begin = Instant::now();
    for _ in 0..count {
        channel.send(0, &payload, PATIENCE).map_err(failed("sending"))?;
    }
    channel.recv(&mut Message::default(), PATIENCE).map_err(failed("receiving"))?;
    let rate = count as f64 / begin.elapsed().as_secs_f64();
    drop(channel);
    other.wait()?;
    Ok(rate)
}

fn until_closed(channel: &mut Channel) -> Result<(), BenchError> {
    match channel.recv(&mut Message::default(), PATIENCE) {
        Err(RecvError::Closed) => Ok(()),
        Err(other) => Err(failed("waiting for the end")(other)),
        Ok(()) => Err(BenchError::Other("it sent more than it should".into())),
    }
}

/// Returns the nanoseconds of a message in a set of `channels`, to each of which the other process sends now and then.
pub(super) fn served(cpus: Cpus, channels: u32) -> Result<f64, BenchError> {
    const MESSAGES: u32 = 300_000;
    let (here, there) = UnixStream::pair().map_err(failed("a pair of sockets"))?;
    let connect = |stream: &UnixStream, seat| {
        Channel::connect(stream, Settings::default(), seat, PATIENCE).map_err(failed("connecting"))
    };
    let other = Other::start(cpus.there, || {
        let mut ends = (0..channels).map(|_| connect(&there, None)).collect::<Result<Vec<_>, _>>()?;
        let mut random = 1u32;
        for number in 0..MESSAGES {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let end = &mut ends[((random >> 8) % channels) as usize];
            end.send(0, &number.to_le_bytes(), PATIENCE).map_err(failed("sending"))?;
        }
        until_closed(&mut ends[0])
    })?;
    let mut set = WaitSet::new(channels).map_err(failed("a wait set"))?;
    let mut senders = Vec::new();
    for _ in 0..channels {
        let seat = set.seat().map_err(failed("a seat in the wait set"))?;
        let channel = connect(&here, Some(seat))?;
        senders.push(channel.sender);
        set.add(channel.receiver).map_err(failed("adding to the wait set"))?;
    }
    let mut message = Message::default();
    let begin = Instant::now();
    for _ in 0..MESSAGES {
        let ready = set.wait(PATIENCE).and_then(|token| set.get(token));
        let Some(receiver) = ready else { return Err(BenchError::Other("it stopped sending".into())) };
        receiver.try_recv(&mut message).map_err(failed("receiving"))?;
    }
    let each = begin.elapsed().as_nanos() as f64 / f64::from(MESSAGES);
    drop(senders);
    other.wait()?;
    Ok(each)
}
