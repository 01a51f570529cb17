//! Measures the bare round trip of a message between two local nodes, over what their agents talk through.
//!
//! It is measured twice: with nodes that look all the time, and with nodes that sleep until they are woken, as agents do where
//! there are fewer CPUs than agents and workers. It is also measured over UCX, with a page as answer, for nodes that share no
//! memory.

use std::io::{Read, Write};
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use atoll_transport::Node;
use atoll_transport::transport::{
    Event, Place, Shm, ShmSettings, Transport, TransportError, Ucx, UcxSettings, mesh,
};

use crate::error::Error;
use crate::shaped::Route;
use crate::stats::median;

/// The bytes of a message.
const BYTES: usize = 64;
const ROUNDS: usize = 2_000;
const WARM: usize = 200;
/// The most time of the measurement before it has failed.
const PATIENCE: Duration = Duration::from_secs(20);
const KIND: u16 = 1;

/// The microseconds of a round trip.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Trips {
    pub(crate) looking: f64,
    pub(crate) sleeping: f64,
}

/// Measures both kinds of nodes.
///
/// # Errors
/// If the nodes cannot meet.
pub(crate) fn trips() -> Result<Trips, Error> {
    Ok(Trips { looking: trip(false)?, sleeping: trip(true)? })
}

fn pipe() -> Result<(std::fs::File, OwnedFd), Error> {
    let mut ends: [RawFd; 2] = [0; 2];
    // SAFETY: an array of two, ours.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } < 0 {
        return Err(Error::said(format!("no pipe: {}", std::io::Error::last_os_error())));
    }
    // SAFETY: just made, and nobody else has them.
    unsafe { Ok((std::fs::File::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1]))) }
}

fn trip(sleeping: bool) -> Result<f64, Error> {
    let mut places = mesh(2).map_err(|e| Error::said(format!("no sockets between nodes: {e}")))?.into_iter();
    let (Some(first), Some(second)) = (places.next(), places.next()) else {
        return Err(Error::said("no sockets between nodes"));
    };
    pair(|| answer(End::join(second, sleeping)?, BYTES), || ask(End::join(first, sleeping)?))
}

/// Returns the microseconds of a round trip over UCX: a short message there, `bytes` back.
///
/// # Errors
/// If the nodes cannot meet.
pub(crate) fn page_trip(route: &Route, bytes: usize) -> Result<f64, Error> {
    let (first, second) = UnixStream::pair().map_err(|e| Error::said(e.to_string()))?;
    pair(|| answer(End::over(route, 1, second)?, bytes), || ask(End::over(route, 0, first)?))
}

/// Runs both ends, each in a process of its own, and returns the result of the one that asks.
fn pair(
    answering: impl FnOnce() -> Result<(), Error>,
    asking: impl FnOnce() -> Result<f64, Error>,
) -> Result<f64, Error> {
    let (mut result, tell) = pipe()?;
    let answering = child(answering)?;
    let asking = child(|| {
        let us = asking()?;
        std::fs::File::from(tell).write_all(&us.to_le_bytes()).map_err(|e| Error::said(e.to_string()))
    })?;
    for pid in [answering, asking] {
        let mut status = 0;
        // SAFETY: a child of ours that nobody else waits for.
        unsafe { libc::waitpid(pid, &raw mut status, 0) };
        if status != 0 {
            return Err(Error::said("two nodes could not exchange messages"));
        }
    }
    let mut bytes = [0; 8];
    result.read_exact(&mut bytes).map_err(|e| Error::said(format!("a round trip was not told: {e}")))?;
    Ok(f64::from_le_bytes(bytes))
}

/// Runs `work` in a process of its own, which has copies of everything that `work` holds.
fn child(work: impl FnOnce() -> Result<(), Error>) -> Result<libc::pid_t, Error> {
    // SAFETY: no other threads run: runs of programs have ended, and their readers with them.
    match unsafe { libc::fork() } {
        -1 => Err(Error::said(format!("cannot fork: {}", std::io::Error::last_os_error()))),
        0 => {
            let result = work();
            if let Err(e) = &result {
                eprintln!("nodes: {e}");
            }
            // SAFETY: ends the child alone.
            unsafe { libc::_exit(i32::from(result.is_err())) }
        }
        pid => {
            drop(work);
            Ok(pid)
        }
    }
}

/// One end of the measurement.
struct End {
    transport: Box<dyn Transport>,
    sleeping: bool,
    came: usize,
    lost: bool,
}

impl End {
    fn join(place: Place, sleeping: bool) -> Result<End, Error> {
        let settings = ShmSettings {
            spins: if sleeping { 0 } else { ShmSettings::default().spins },
            ..ShmSettings::default()
        };
        let transport = Shm::join(place, settings, PATIENCE).map_err(|e| Error::said(e.to_string()))?;
        Ok(End { transport: Box::new(transport), sleeping, came: 0, lost: false })
    }

    /// Makes an end over UCX; `stream` goes to the other node.
    fn over(route: &Route, node: u32, stream: UnixStream) -> Result<End, Error> {
        if let Route::Link(link) = route {
            link.enter(node as usize).map_err(|e| Error::said(format!("cannot enter a namespace: {e}")))?;
        }
        let settings = UcxSettings {
            devices: Some(route.device().into()),
            transports: Some("tcp,self".into()),
            ..UcxSettings::default()
        };
        let transport = Ucx::join_pair(Node(node), settings, stream);
        let transport = transport.map_err(|e| Error::said(e.to_string()))?;
        Ok(End { transport: Box::new(transport), sleeping: false, came: 0, lost: false })
    }

    fn progress(&mut self) -> Result<(), Error> {
        let (came, lost) = (&mut self.came, &mut self.lost);
        let moved = self.transport.progress(&mut |event| match event {
            Event::Message { .. } => *came += 1,
            Event::Lost { .. } => *lost = true,
            Event::Done { .. } | Event::Joined(_) => {}
        });
        moved.map(drop).map_err(|e| Error::said(e.to_string()))
    }

    /// Waits for a message.
    fn receive(&mut self, until: Instant) -> Result<(), Error> {
        let mut turns = 0_u32;
        while self.came == 0 {
            self.progress()?;
            if self.came > 0 {
                break;
            }
            turns += 1;
            if self.lost || ((self.sleeping || turns.is_multiple_of(1 << 16)) && Instant::now() > until) {
                return Err(Error::said("the other node does not answer"));
            }
            if self.sleeping {
                self.transport.wait(Some(Duration::from_secs(1))).map_err(|e| Error::said(e.to_string()))?;
            }
        }
        self.came -= 1;
        Ok(())
    }

    fn send(&mut self, to: Node, message: &[u8]) -> Result<(), Error> {
        loop {
            match self.transport.send(to, KIND, message) {
                Err(TransportError::Full(_)) => self.progress()?,
                sent => return sent.map_err(|e| Error::said(e.to_string())),
            }
        }
    }
}

fn answer(mut end: End, bytes: usize) -> Result<(), Error> {
    let message = vec![7; bytes];
    let until = Instant::now() + PATIENCE;
    for _ in 0..ROUNDS + WARM {
        end.receive(until)?;
        end.send(Node(0), &message)?;
    }
    Ok(())
}

fn ask(mut end: End) -> Result<f64, Error> {
    let until = Instant::now() + PATIENCE;
    let mut times = Vec::with_capacity(ROUNDS);
    for round in 0..ROUNDS + WARM {
        let begin = Instant::now();
        end.send(Node(1), &[7; BYTES])?;
        end.receive(until)?;
        if round >= WARM {
            times.push(begin.elapsed().as_secs_f64() * 1e6);
        }
    }
    median(times).ok_or_else(|| Error::said("no round trips"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_meet_and_a_trip_takes_time() {
        let trips = trips().unwrap();
        assert!(trips.looking > 0.0 && trips.sleeping > 0.0);
    }
}
