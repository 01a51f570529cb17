//! Starts a job's nodes, on this machine and others, and tells each at start: its number, the number of nodes, which nodes
//! share a machine, the job's secret, and bytes that the others give, for instance their addresses.
//!
//! Transports call it before they can talk themselves. A node finds out by [`Start::detect`] which starter it has: atoll's own
//! [`Launch`] (a list of hosts, over ssh), PMIx (`mpirun`, `prterun`, `srun`), or none, in which case it is alone.
//!
//! There is no network protocol here, and nothing listens: the launcher talks through the pipes of the ssh that it started,
//! which authenticates and encrypts; PMIx through its library and the server that the job's starter runs on each host.
//!
//! Who can read the secret depends on the starter. With [`Launch`] the secret goes through ssh and a socket pair, to the job's
//! processes alone. Under PMIx node 0 makes the secret and gives it to all nodes by the first exchange, which passes through
//! the job starter's daemons. The library's connection to them is authenticated as this user's. Whether the daemons encrypt
//! their messages between hosts is up to the starter: Open MPI's and PRRTE's do not, so somebody who can read the cluster's
//! network learns the secret.
//!
//! A command that starts a job on two hosts, and is its agents:
//!
//! ```no_run
//! use atoll_transport::start::{Launch, agent_main};
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     if std::env::args().nth(1).is_some_and(|word| word == "agent") {
//!         agent_main();
//!     }
//!     let agent = vec![std::env::current_exe()?.into(), "agent".into()];
//!     let outcome = Launch::new(vec!["localhost".into(), "far".into()], "./node", agent).run()?;
//!     if let Some(failure) = &outcome.failure {
//!         eprintln!("{failure}");
//!     }
//!     std::process::exit(outcome.status().into())
//! }
//! ```
//!
//! And `./node`, which `mpirun` starts as well:
//!
//! ```no_run
//! use std::time::Duration;
//! use atoll_transport::start::Start;
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let minute = Some(Duration::from_secs(60));
//!     let mut start = Start::detect(minute)?;
//!     let addresses = start.exchange(b"my address", minute)?;
//!     for (node, address) in addresses.iter().enumerate() {
//!         println!("{} can call {node} at {}", start.node(), address.escape_ascii());
//!     }
//!     Ok(start.finish()?)
//! }
//! ```

mod agent;
mod error;
mod frame;
mod keeper;
mod launch;
mod launched;
mod machine;
mod pmix;
pub mod relay;
mod secret;

use std::time::Duration;

use self::launched::Launched;
use self::pmix::Pmix;
use crate::Node;
use crate::clock::Deadline;

pub use self::agent::agent_main;
pub use self::error::StartError;
pub use self::launch::{Failure, FailureReason, Launch, LaunchError, Outcome, Rsh};
pub use self::launched::VARIABLE as LAUNCH_VARIABLE;
pub use self::pmix::PmixError;
pub use self::secret::Secret;

/// The most bytes that a node gives in one exchange.
pub const LONGEST: usize = 64 << 10;

/// A node that has started.
pub struct Start {
    node: Node,
    nodes: u32,
    /// The number of each node's machine, by node.
    machines: Vec<u32>,
    secret: Secret,
    starter: Starter,
    failed: bool,
}

/// The starter of this node.
enum Starter {
    Alone,
    Launched(Launched),
    Pmix(Box<Pmix>),
}

impl Start {
    /// Finds out which starter started this process and, if there is one, waits for at most `timeout` (`None`: for ever) until
    /// all its nodes have called this.
    ///
    /// One process of a node calls it: children of that process get an error instead of being taken for the node.
    pub fn detect(timeout: Option<Duration>) -> Result<Start, StartError> {
        let mut deadline = Deadline::new(timeout);
        let mut start = if let Some(socket) = Launched::find()? {
            let (launched, welcome) = Launched::greet(socket, &mut deadline)?;
            let secret = Secret::of(welcome.secret);
            Start::new(welcome.node, welcome.nodes, secret, Starter::Launched(launched))
        } else if let Some(pmix) = Pmix::join()? {
            Start::under_pmix(pmix, &mut deadline)?
        } else {
            Start::alone()?
        };
        let identity = machine::identity().map_err(|e| StartError::Os("what tells machines apart", e))?;
        let identities = start.exchange_until(&identity, &mut deadline)?;
        start.machines = machine::number(&identities);
        Ok(start)
    }

    /// Whether the environment says that a starter started this process as one of several. [`Start::detect`] finds out more.
    pub fn is_expected() -> bool {
        launched::is_expected() || pmix::is_expected()
    }

    /// A job of this node alone, whatever the environment says.
    pub fn alone() -> Result<Start, StartError> {
        let secret = Secret::random().map_err(|e| StartError::Os("getrandom", e))?;
        Ok(Start { machines: vec![0], ..Start::new(0, 1, secret, Starter::Alone) })
    }

    fn under_pmix(mut pmix: Pmix, deadline: &mut Deadline) -> Result<Start, StartError> {
        let mine = if pmix.node() == 0 {
            Secret::random().map_err(|e| StartError::Os("getrandom", e))?.bytes().to_vec()
        } else {
            Vec::new()
        };
        let all = pmix.exchange(&mine, deadline)?;
        let secret = all.first().and_then(|first| first.as_slice().try_into().ok());
        let secret = Secret::of(secret.ok_or(PmixError::Value)?);
        Ok(Start::new(pmix.node(), pmix.nodes(), secret, Starter::Pmix(Box::new(pmix))))
    }

    fn new(node: u32, nodes: u32, secret: Secret, starter: Starter) -> Start {
        Start { node: Node(node), nodes, machines: Vec::new(), secret, starter, failed: false }
    }

    /// This node's number.
    pub fn node(&self) -> Node {
        self.node
    }

    /// The number of nodes of the job.
    pub fn nodes(&self) -> u32 {
        self.nodes
    }

    /// A number, from 0, for the machine of `node`; `None` if there is no such node. Nodes in different network, process, IPC
    /// or user namespaces count as on different machines.
    pub fn machine(&self, node: Node) -> Option<u32> {
        self.machines.get(node.0 as usize).copied()
    }

    /// The nodes on this machine, this one among them, with which memory can be shared.
    pub fn neighbours(&self) -> impl Iterator<Item = Node> {
        let here = self.machine(self.node);
        (0..self.nodes).map(Node).filter(move |&node| self.machine(node) == here)
    }

    /// The job's secret.
    pub fn secret(&self) -> &Secret {
        &self.secret
    }

    /// Gives `mine`, at most [`LONGEST`] bytes, to all nodes, and returns the bytes of each, in the order of their numbers. All
    /// nodes must call it equally often; it returns in none before all have called it. Waits for at most `timeout` (`None`: for
    /// ever); after an error the job cannot exchange any more.
    pub fn exchange(&mut self, mine: &[u8], timeout: Option<Duration>) -> Result<Vec<Vec<u8>>, StartError> {
        self.exchange_until(mine, &mut Deadline::new(timeout))
    }

    /// Leaves the job in order. Dropping does the same, without reporting an error.
    pub fn finish(self) -> Result<(), StartError> {
        match self.starter {
            Starter::Alone | Starter::Launched(_) => Ok(()),
            Starter::Pmix(pmix) => pmix.finish(),
        }
    }

    fn exchange_until(&mut self, mine: &[u8], deadline: &mut Deadline) -> Result<Vec<Vec<u8>>, StartError> {
        if mine.len() > LONGEST {
            return Err(StartError::TooLong(mine.len()));
        }
        if self.failed {
            return Err(StartError::Failed);
        }
        let all = match &mut self.starter {
            Starter::Alone => Ok(vec![mine.to_vec()]),
            Starter::Launched(launched) => launched.exchange(mine, deadline),
            Starter::Pmix(pmix) => pmix.exchange(mine, deadline),
        };
        self.failed = all.is_err();
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_alone_exchanges_with_itself() {
        let mut start = Start::alone().unwrap();
        assert_eq!((start.node(), start.nodes()), (Node(0), 1));
        assert_eq!(start.exchange(b"mine", None).unwrap(), [b"mine"]);
        assert_eq!(start.neighbours().collect::<Vec<_>>(), [Node(0)]);
        assert_eq!(start.machine(Node(1)), None);
        let long = start.exchange(&[0; LONGEST + 1], None);
        assert!(matches!(long, Err(StartError::TooLong(_))));
        assert_eq!(start.exchange(&[0; LONGEST], None).unwrap()[0].len(), LONGEST);
    }
}
