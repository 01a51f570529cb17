//! The launcher: starts a job's nodes on a list of hosts, and stays until all have ended.
//!
//! For each node it starts an agent (`agent.rs`), directly on this machine and through the remote shell on others, and talks to
//! it over the pipes: nothing listens, and no host needs to reach another for this. The launcher carries the nodes' output and
//! input, their exchanges, and signals. A node that fails ends the job.
//!
//! Nothing is left behind when the launcher, a connection, an agent or a program is killed. If the launcher's host loses its
//! power or its network, the other hosts notice when their sshd does (`ClientAliveInterval`, or TCP's own keep-alive after
//! hours).

mod input;
mod job;
mod link;
mod output;
mod rounds;
mod rsh;
mod trouble;

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::mpsc::Sender;
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use self::job::Job;
use super::frame::{self, Frame, Order, Welcome};
use super::secret::Secret;

pub use self::rsh::Rsh;
pub use self::trouble::{Failure, FailureReason, LaunchError, Outcome};

/// The most nodes of one launcher, which needs three threads for each.
const MOST: usize = 4096;

/// A job to be started from a list of hosts.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The host of each node: `localhost` or `.` for this machine without a remote shell, else a name that the remote shell
    /// takes. A host may be listed several times.
    pub hosts: Vec<String>,
    /// The program, found on each host as that host finds programs, or by its path.
    pub program: OsString,
    /// The program's arguments, the same for all nodes.
    pub arguments: Vec<OsString>,
    /// Variables to set in its environment, on top of those of each host.
    pub environment: Vec<(OsString, OsString)>,
    /// The directory in which it starts, on each host; `None` leaves that to the host.
    pub directory: Option<PathBuf>,
    /// A command on each host that calls [`agent_main`](super::agent_main).
    pub agent: Vec<OsString>,
    /// The remote shell by which other hosts are reached.
    pub rsh: Rsh,
    /// The time in which all nodes must start.
    pub timeout: Duration,
    /// The time that programs have to end after a signal, before they are killed.
    pub grace: Duration,
    /// The job's secret, for a launcher that talks to the nodes itself; `None`: a new one that only the nodes know.
    pub secret: Option<Secret>,
    /// Who hears what the nodes gave in each exchange. The first is the one that [`Start::detect`](super::Start::detect) makes.
    pub gathered: Option<Sender<Vec<Vec<u8>>>>,
}

impl Launch {
    /// A job of `program` on `hosts`, with one minute to start and ten seconds to end.
    pub fn new(hosts: Vec<String>, program: impl Into<OsString>, agent: Vec<OsString>) -> Launch {
        Launch {
            hosts,
            program: program.into(),
            arguments: Vec::new(),
            environment: Vec::new(),
            directory: None,
            agent,
            rsh: Rsh::default(),
            timeout: Duration::from_secs(60),
            grace: Duration::from_secs(10),
            secret: None,
            gathered: None,
        }
    }

    /// Runs the job to its end. This process's standard input goes to node 0. The nodes' output is printed here, in whole lines
    /// of each (or as it comes where there is one node). SIGINT, SIGTERM and SIGHUP are passed on to the programs, which are
    /// killed if they have not ended after the grace time, or at a second signal.
    ///
    /// This process ignores the three signals after the call.
    pub fn run(&self) -> Result<Outcome, LaunchError> {
        if self.hosts.is_empty() {
            return Err(LaunchError::NoHosts);
        }
        if self.hosts.len() > MOST {
            return Err(LaunchError::TooMany(self.hosts.len()));
        }
        if self.program.is_empty() {
            return Err(LaunchError::NoProgram);
        }
        link::check(&self.hosts, &self.agent)?;
        let secret = match &self.secret {
            Some(secret) => secret.clone(),
            None => Secret::random().map_err(|e| LaunchError::Os("getrandom", e))?,
        };
        // Checked with the longest order that any node gets.
        frame::encode(&self.order(self.hosts.len() - 1, &secret)).map_err(|_| LaunchError::TooLong)?;

        let signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(|e| LaunchError::Os("sigaction", e))?;
        let signals_end = signals.handle();
        let outcome = Job::start(self, secret, signals).map(Job::run);
        signals_end.close();
        outcome
    }

    fn order(&self, node: usize, secret: &Secret) -> Frame {
        let bytes = |word: &OsString| word.clone().into_vec();
        Frame::Order(Order {
            welcome: Welcome {
                node: node as u32,
                nodes: self.hosts.len() as u32,
                secret: *secret.bytes(),
                round: 0,
            },
            words: [&self.program].into_iter().chain(&self.arguments).map(bytes).collect(),
            environment: self.environment.iter().map(|(name, value)| (bytes(name), bytes(value))).collect(),
            directory: self.directory.as_ref().map(|path| bytes(&path.clone().into_os_string())),
        })
    }
}

/// An event that the launcher's threads report to its loop.
enum Event {
    /// An event of a node.
    Node(usize, Heard),
    /// Bytes of standard input, empty at its end.
    Input(Vec<u8>),
    /// A signal to pass on.
    Signal(u8),
}

/// An event of a node.
enum Heard {
    /// The agent's opening came.
    Opening,
    Frame(Frame),
    /// The connection is closed; the reason applies if no end was reported before.
    Closed(FailureReason),
}
