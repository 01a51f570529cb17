//! The other process of a measurement: a lender, and a server of bare requests, over the loopback interface or over a link.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;

use atoll_lend::{Lender, Terms};

use super::link::{self, ADDRESSES, Link};
use super::{BATCH, PAGE, failed};
use crate::bench::BenchError;
use crate::bench::pair::{Cpus, Other};

/// Bytes that the lender lends.
const LENDS: u64 = 512 << 20;

/// What the lender's process spent, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Spent {
    /// Processor time of all of its threads.
    processor: u64,
    /// The part of it in which they looked for a next request.
    looking: u64,
}

impl Spent {
    /// The microseconds by which this is more than `before`, by unit of `count`: of serving requests, and of looking for them.
    pub(super) fn since(self, before: Spent, count: usize) -> [f64; 2] {
        let looking = self.looking.saturating_sub(before.looking);
        let serving = self.processor.saturating_sub(before.processor).saturating_sub(looking);
        [serving, looking].map(|ns| ns as f64 / 1e3 / count as f64)
    }
}

/// The other process.
pub(super) struct Peer {
    other: Other,
    line: UnixStream,
    /// Where the lender listens.
    pub(super) lender: SocketAddr,
    /// Where the server of bare requests listens.
    pub(super) bare: SocketAddr,
}

impl Peer {
    /// Starts it over the loopback interface.
    pub(super) fn local(cpus: Cpus, key: [u8; 32]) -> Result<Peer, BenchError> {
        let (line, theirs) = UnixStream::pair().map_err(failed("a pair of sockets"))?;
        let other = Other::start(cpus.there, || serve(theirs, key, Ipv4Addr::LOCALHOST))?;
        Peer::of(other, line, Ipv4Addr::LOCALHOST)
    }

    /// Starts it in the second namespace of `link`, whose limit is in Gbit/s.
    pub(super) fn over(link: &Link, gigabits: u32, cpus: Cpus, key: [u8; 32]) -> Result<Peer, BenchError> {
        let (mut line, mut theirs) = UnixStream::pair().map_err(failed("a pair of sockets"))?;
        let there = ADDRESSES[1];
        let other = Other::start(cpus.there, move || {
            link::leave().map_err(failed("the link's other end"))?;
            theirs.write_all(&[1]).map_err(failed("a pair of sockets"))?;
            theirs.read_exact(&mut [0]).map_err(failed("a pair of sockets"))?;
            serve(theirs, key, there)
        })?;
        line.read_exact(&mut [0]).map_err(failed("a pair of sockets"))?;
        link.connect(other.pid(), gigabits).map_err(failed("the link"))?;
        line.write_all(&[1]).map_err(failed("a pair of sockets"))?;
        Peer::of(other, line, there)
    }

    fn of(other: Other, mut line: UnixStream, ip: Ipv4Addr) -> Result<Peer, BenchError> {
        let mut ports = [[0; 2]; 2];
        for port in &mut ports {
            line.read_exact(port).map_err(failed("a pair of sockets"))?;
        }
        let [lender, bare] = ports.map(|port| SocketAddr::from((ip, u16::from_le_bytes(port))));
        Ok(Peer { other, line, lender, bare })
    }

    /// Its process.
    pub(super) fn pid(&self) -> u32 {
        self.other.pid()
    }

    /// What it has spent until now.
    pub(super) fn spent(&mut self) -> Result<Spent, BenchError> {
        let mut looking = [0; 8];
        self.line
            .write_all(&[1])
            .and_then(|()| self.line.read_exact(&mut looking))
            .map_err(failed("a pair of sockets"))?;
        Ok(Spent { processor: processor_time(self.pid()), looking: u64::from_le_bytes(looking) })
    }
}

/// Nanoseconds of processor time that all threads of a process have had.
fn processor_time(process: u32) -> u64 {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{process}/task")) else { return 0 };
    let time = |task: std::fs::DirEntry| -> Option<u64> {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse().ok()
    };
    tasks.flatten().filter_map(time).sum()
}

/// Serves until the first process goes. Tells where lender and server listen, then for each byte how long the lender has looked.
fn serve(mut line: UnixStream, key: [u8; 32], ip: Ipv4Addr) -> Result<(), BenchError> {
    let terms = Terms::new("bench", LENDS, key);
    let any = SocketAddr::from((ip, 0));
    let lender = Lender::start(terms, any).map_err(failed("a lender"))?;
    let bare = TcpListener::bind(any).map_err(failed("a socket"))?;
    for port in [lender.address().port(), bare.local_addr().map_err(failed("a socket"))?.port()] {
        line.write_all(&port.to_le_bytes()).map_err(failed("a pair of sockets"))?;
    }
    std::thread::spawn(move || {
        for stream in bare.incoming().flatten() {
            let _ = answer(stream);
        }
    });
    while line.read_exact(&mut [0]).is_ok() {
        line.write_all(&lender.looked_ns().to_le_bytes()).map_err(failed("a pair of sockets"))?;
    }
    Ok(())
}

/// Answers each request of 64 bytes, which begin with a number, by as many bytes.
fn answer(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut request, data) = ([0; 64], vec![7; BATCH * PAGE]);
    loop {
        stream.read_exact(&mut request)?;
        let mut left = u32::from_le_bytes([request[0], request[1], request[2], request[3]]) as usize;
        while left > 0 {
            let part = left.min(data.len());
            stream.write_all(&data[..part])?;
            left -= part;
        }
    }
}
