//! The lender: listens, and has a thread for each connection.
//!
//! `atoll lend` runs one. `serve` is a connection, `holdings` the memory.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicUsize, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};
use std::thread::JoinHandle;
use std::time::Duration;

use atoll_transport::random;

use crate::directory::Card;
use crate::filing::Filing;
use crate::holdings::Holdings;
use crate::names::Names;
use crate::serve;

/// The least and the most bytes of a piece.
const PIECES: [u64; 2] = [4 << 20, 256 << 20];
/// Pieces of a lender, about.
const PIECE_COUNT: u64 = 1024;
/// The time between two looks at the host's memory.
const LOOK: Duration = Duration::from_millis(250);
/// Connections at once at most: each has a thread.
const MOST_CONNECTIONS: usize = 8192;

/// What a lender lends, to whom.
#[derive(Clone, Debug)]
pub struct Terms {
    /// The lender's name.
    pub name: String,
    /// Bytes that it lends at most.
    pub bytes: u64,
    /// The key that borrowers must know; see [`Secret::key`](crate::Secret::key).
    pub key: [u8; 32],
    /// Bytes of the host's memory that stay free: nothing is lent of them, and some is wanted back when there is less. `None`: a
    /// twentieth of the host's memory.
    pub free_bytes: Option<u64>,
    /// How long a run that is to give memory back may give nothing back. Then what it is to give back moves to `files`.
    pub patience: Duration,
    /// The folder on a disk for that. `None`: there is none, and the run loses all that it has. It does so, too, when the lender ends.
    pub files: Option<PathBuf>,
    /// The number by which borrowers know that it is the lender they look for; see [`Card::identity`]. `None`: a new one.
    pub identity: Option<u64>,
}

impl Terms {
    /// The usual [`patience`](Self::patience).
    pub const PATIENCE: Duration = Duration::from_secs(30);

    /// A lender with this name of so many bytes, for those who know the key.
    pub fn new(name: &str, bytes: u64, key: [u8; 32]) -> Terms {
        Terms {
            name: name.to_owned(),
            bytes,
            key,
            free_bytes: None,
            patience: Self::PATIENCE,
            files: None,
            identity: None,
        }
    }
}

/// Why there is no lender.
#[derive(thiserror::Error, Debug)]
pub enum LendError {
    /// It would lend nothing.
    #[error("{0} bytes are too little to lend: a lender lends {least} at least", least = PIECES[0])]
    TooLittle(u64),
    /// The address is not to be had.
    #[error("cannot listen at {0}: {1}")]
    Listen(SocketAddr, io::Error),
    /// The system refuses something.
    #[error("{0}: {1}")]
    Os(&'static str, io::Error),
}

/// What a lender's connections share.
pub(crate) struct Service {
    pub(crate) terms: Terms,
    pub(crate) holdings: Arc<Holdings>,
    /// The lenders that told this one who they are.
    pub(crate) names: Names,
    /// A random number that no other lender has.
    pub(crate) identity: u64,
}

/// A lender that is at work. Dropping it takes all memory back.
pub struct Lender {
    service: Arc<Service>,
    holdings: Arc<Holdings>,
    address: SocketAddr,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    /// Looks after the host's memory and those who are to give some back.
    looks: Option<JoinHandle<()>>,
}

impl Lender {
    /// Begins to lend at `address`; port 0 leaves the port to the system.
    ///
    /// # Errors
    /// See [`LendError`].
    pub fn start(terms: Terms, address: SocketAddr) -> Result<Lender, LendError> {
        let listener = TcpListener::bind(address).map_err(|error| LendError::Listen(address, error))?;
        Lender::start_at(terms, listener)
    }

    /// Begins to lend to those who connect to `listener`.
    ///
    /// # Errors
    /// See [`LendError`].
    pub fn start_at(terms: Terms, listener: TcpListener) -> Result<Lender, LendError> {
        if terms.bytes < PIECES[0] {
            return Err(LendError::TooLittle(terms.bytes));
        }
        let piece_bytes = (terms.bytes / PIECE_COUNT).next_power_of_two().clamp(PIECES[0], PIECES[1]);
        raise_descriptor_limit();
        let os = |what| move |error| LendError::Os(what, error);
        let holdings = Holdings::new(piece_bytes, &terms).map_err(os("getrandom"))?;
        let holdings = Arc::new(holdings);
        let bound = listener.local_addr().map_err(os("getsockname"))?;
        let ends = Arc::new(AtomicBool::new(false));
        let identity = match terms.identity {
            Some(identity) => identity,
            None => u64::from_le_bytes(random::bytes().map_err(os("getrandom"))?),
        };
        let names = Names::new();
        let service = Arc::new(Service { terms, holdings: Arc::clone(&holdings), names, identity });
        let (shared, flag) = (Arc::clone(&service), Arc::clone(&ends));
        let accept = move || accept(&shared, &listener, &flag);
        let thread =
            std::thread::Builder::new().name("lender".into()).spawn(accept).map_err(os("a thread"))?;
        let mut lender =
            Lender { service, holdings, address: bound, ends, thread: Some(thread), looks: None };
        let (shared, flag) = (Arc::clone(&lender.holdings), Arc::clone(&lender.ends));
        let folder = lender.service.terms.files.clone();
        let look = move || {
            let mut filing = folder.map(Filing::new);
            while !flag.load(Acquire) {
                shared.look_after(&mut filing);
                std::thread::park_timeout(LOOK);
            }
        };
        let looks = std::thread::Builder::new().name("lender looks".into()).spawn(look);
        lender.looks = Some(looks.map_err(os("a thread"))?);
        Ok(lender)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The lender as others see it, on this host and at the addresses where it can be reached.
    pub fn card(&self, host: String, addresses: Vec<SocketAddr>) -> Card {
        let (name, identity) = (self.service.terms.name.clone(), self.service.identity);
        Card { name, host, process: std::process::id(), identity, addresses }
    }

    /// Enters this lender's own card among the names that it keeps.
    pub fn keep_name(&self, card: &Card) {
        // A card that is none is refused by whatever else it is told to as well.
        let _ = serde_json::to_vec(card).map(|bytes| self.service.names.register(0, &bytes));
    }

    /// Lends nothing more from now on, and has runs give back what they have.
    pub fn close(&self) {
        self.holdings.close();
    }

    /// Whether all runs with a session have heard that the lender ends.
    pub fn end_is_known(&self) -> bool {
        self.holdings.end_is_known()
    }

    /// Lends at most so many bytes from now on, and has runs give back what they have above that; `false` where that is too little.
    pub fn resize(&self, bytes: u64) -> bool {
        self.holdings.resize(bytes)
    }

    /// Bytes of what is lent that lie in files.
    pub fn filed_bytes(&self) -> u64 {
        self.holdings.filed_bytes()
    }

    /// Bytes that were taken from runs which did not give them back in time.
    pub fn taken_bytes(&self) -> u64 {
        self.holdings.taken_bytes()
    }

    /// Sessions that there are now, and those that there ever were.
    pub fn sessions(&self) -> (usize, u64) {
        self.holdings.sessions()
    }

    /// Nanoseconds in which its connections looked for requests before they slept: whoever wants the processor gets it meanwhile.
    pub fn looked_ns(&self) -> u64 {
        self.holdings.looked_ns.load(Relaxed)
    }

    /// Bytes that are lent now.
    pub fn lent_bytes(&self) -> u64 {
        self.holdings.lent_bytes()
    }
}

impl Drop for Lender {
    fn drop(&mut self) {
        self.ends.store(true, Release);
        if let Some(thread) = self.looks.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
        // The listening thread looks at the flag when somebody connects.
        let local = SocketAddr::new(
            match self.address.ip() {
                ip if !ip.is_unspecified() => ip,
                std::net::IpAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
                std::net::IpAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
            },
            self.address.port(),
        );
        let woken = TcpStream::connect_timeout(&local, Duration::from_secs(1)).is_ok();
        if let Some(thread) = self.thread.take().filter(|_| woken) {
            let _ = thread.join();
        }
        self.holdings.end_all();
    }
}

/// Each piece is a file in memory, and each connection a socket.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
}

fn accept(service: &Arc<Service>, listener: &TcpListener, ends: &AtomicBool) {
    let connections = Arc::new(AtomicUsize::new(0));
    while !ends.load(Acquire) {
        let Ok((stream, _)) = listener.accept() else {
            // Out of descriptors, or a connection that went before it was taken.
            std::thread::sleep(Duration::from_millis(10));
            continue;
        };
        if ends.load(Acquire) || connections.load(Acquire) >= MOST_CONNECTIONS {
            continue;
        }
        connections.fetch_add(1, AcqRel);
        let (service, count) = (Arc::clone(service), Arc::clone(&connections));
        let work = move || {
            serve::serve(&service, stream);
            count.fetch_sub(1, AcqRel);
        };
        if std::thread::Builder::new().name("borrower".into()).stack_size(256 << 10).spawn(work).is_err() {
            connections.fetch_sub(1, AcqRel);
        }
    }
}
