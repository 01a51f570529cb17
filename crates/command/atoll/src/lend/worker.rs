//! The process that lends to one run, and the one that watches it: a lender that is killed, as the kernel does where memory runs short, is
//! started anew at the same address, and the run uses it again.
//!
//! `for_run` has a [`Watched`] lender on each host of `--hosts-far`. `atoll-channel` starts the process, hands the key over, says when it
//! ends, and kills it when its watcher is gone. The listening socket is the watcher's, so nobody else can have the address meanwhile.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use atoll_channel::Node;
use atoll_channel::host::NodeDirectory;
use atoll_channel::spawn::{Capability, Exit, Order, ProcessId, SpawnClient, SpawnService, State, parent};
use atoll_lend::{Card, Lender, Terms};
use atoll_memory::control::EXIT_SETUP;
use atoll_memory::far;
use atoll_transport::random;
use serde::{Deserialize, Serialize};

use super::for_run::TIMEOUT;
use super::{Ends, Error, PERIOD, addresses};

/// The number of the only node of a watcher's service.
const HERE: Node = Node(0);
/// How long the process may take to begin.
const BEGINS: Duration = Duration::from_secs(20);
/// How long a lender that was started anew waits for its run, which looks for it twice a second.
const AGAIN: Duration = Duration::from_secs(5);
/// A lender is started anew so many times at most: as often as a run takes it for a new one.
const MOST_STARTS: u32 = 16;

/// What the process must know.
#[derive(Serialize, Deserialize)]
struct Told {
    name: String,
    bytes: u64,
    key: [u8; 32],
    identity: u64,
    /// The inherited socket at which it listens.
    listener: RawFd,
    /// How long it waits for a run, in milliseconds.
    waits: u64,
}

/// A lender in a process of its own, which is started anew when it is killed. Dropping it kills the process.
pub(super) struct Watched {
    told: Told,
    listener: TcpListener,
    client: SpawnClient,
    id: ProcessId,
    /// Dropped last: all that it started ends with it.
    _service: SpawnService,
}

impl Watched {
    /// Starts a lender called `name` that lends up to `bytes` to those who know `key`, and listens at `listen`.
    pub(super) fn start(name: &str, bytes: u64, key: [u8; 32], listen: SocketAddr) -> Result<Watched, Error> {
        let failed = |error| atoll_lend::LendError::Listen(listen, error);
        let listener = TcpListener::bind(listen).map_err(failed)?;
        // The process inherits it under this number. Nothing else is started here.
        // SAFETY: no pointers.
        if unsafe { libc::fcntl(listener.as_raw_fd(), libc::F_SETFD, 0) } < 0 {
            return Err(failed(std::io::Error::last_os_error()).into());
        }
        let identity = random::bytes().map_err(|error| atoll_lend::LendError::Os("getrandom", error))?;
        let told = Told {
            name: name.to_owned(),
            bytes,
            key,
            identity: u64::from_le_bytes(identity),
            listener: listener.as_raw_fd(),
            waits: TIMEOUT.as_millis() as u64,
        };
        // Only this process connects to the service, so its socket's directory goes at once.
        let directory = NodeDirectory::create(&std::env::temp_dir())?;
        let service = SpawnService::start(HERE, directory.path(), 2)?;
        let mut client = SpawnClient::connect(directory.path())?;
        drop(directory);
        let id = spawn(&mut client, &told)?;
        Ok(Watched { told, listener, client, id, _service: service })
    }

    /// What the run must know of the lender, which is on `host`.
    pub(super) fn card(&self, host: String) -> Result<Card, Error> {
        let bound = self.listener.local_addr();
        let bound = bound.map_err(|error| atoll_lend::LendError::Os("getsockname", error))?;
        Ok(Card {
            name: self.told.name.clone(),
            host,
            process: self.id.process,
            identity: self.told.identity,
            addresses: addresses(bound),
        })
    }

    /// Watches the lender until it ends by itself, as its run has ended, or one of `signals` ends it.
    pub(super) fn watch(mut self, signals: &Ends) -> Result<(), Error> {
        let mut starts = 0;
        while !signals.came_within(PERIOD) {
            let State::Ended { exit, .. } = self.client.state(self.id)? else { continue };
            match exit {
                Exit::Signal(_) if starts < MOST_STARTS => {}
                exit if exit.success() => return Ok(()),
                exit => return Err(Error::Ended(self.told.name, exit)),
            }
            starts += 1;
            eprintln!("atoll: the lender {} was ended by {exit}, and is started anew", self.told.name);
            self.told.waits = AGAIN.as_millis() as u64;
            self.id = spawn(&mut self.client, &self.told)?;
        }
        Ok(())
    }
}

fn spawn(client: &mut SpawnClient, told: &Told) -> Result<ProcessId, Error> {
    let atoll = std::env::current_exe().map_err(Error::Own)?;
    // All parts of what it is told have an encoding.
    let letter = serde_json::to_vec(told).unwrap_or_default();
    let order = Order::worker(atoll, BEGINS).argument("lend-worker").capability(Capability::Now(letter));
    Ok(client.spawn(HERE, &order)?)
}

/// The process itself: lends until its run has ended.
pub(crate) fn work() -> ExitCode {
    match try_to_work() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("atoll: a lender of --hosts-far: {error}");
            ExitCode::from(EXIT_SETUP as u8)
        }
    }
}

fn try_to_work() -> Result<(), Error> {
    // Its connection to the service stays as long as it works.
    let parent = parent()?;
    let told: Told = serde_json::from_slice(&parent.capability).map_err(|_| Error::Letter)?;
    // SAFETY: the watcher left the socket open under this number for this process, and nothing else here has it.
    let listener = unsafe { TcpListener::from_raw_fd(told.listener) };
    let terms = Terms {
        files: far::default_dir().ok(),
        identity: Some(told.identity),
        ..Terms::new(&told.name, told.bytes, told.key)
    };
    let lender = Lender::start_at(terms, listener)?;
    let (began, waits) = (Instant::now(), Duration::from_millis(told.waits));
    loop {
        std::thread::sleep(Duration::from_millis(PERIOD as u64));
        match lender.sessions() {
            (0, 0) if began.elapsed() > waits => return Ok(()),
            (0, 1..) => return Ok(()),
            _ => {}
        }
    }
}
