//! The interface of a spawning service, for its node's processes and for the services of other nodes.
//!
//! The service has plain requests that are answered at once. A client that asked for the state of a process gets a ring of its
//! bell when the state changes (`host/bell.rs`).

use serde::{Deserialize, Serialize};

use crate::interface;
use crate::spawn::order::{MOST_CAPABILITY, MOST_WORDS, Order, ProcessId};
use atoll_transport::Node;

/// The kind of a bell's message.
pub(super) const BELL: u16 = 1;

/// The ways in which a process ended.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Exit {
    /// The process returned this status.
    #[error("exit status {0}")]
    Status(i32),
    /// This signal ended the process.
    #[error("signal {0}")]
    Signal(i32),
    /// Other code of the service's process waited for the process and took the status.
    #[error("it is not known how")]
    Unknown,
    /// The process was a worker that was not ready in time, and was killed.
    #[error("not ready in time, and killed")]
    Late,
}

impl Exit {
    /// Whether it returned 0.
    pub fn success(self) -> bool {
        self == Exit::Status(0)
    }
}

/// The states of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum State {
    /// The process is a worker that has not called `parent` yet.
    Starting,
    /// The process runs.
    Running,
    /// The process has ended.
    Ended {
        /// The process's exit.
        exit: Exit,
        /// Whether its start had been completed.
        ready: bool,
    },
}

/// The reasons why no process was started.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum SpawnError {
    /// There is no such program.
    #[error(
        "{program} cannot be started on {node}: it does not exist there, or the interpreter that it names does not"
    )]
    NotFound {
        /// The program.
        program: String,
        /// The node where it should run.
        node: Node,
    },
    /// The program is not executable.
    #[error("{program} cannot be started on {node}: it is not executable there")]
    NotExecutable {
        /// The program.
        program: String,
        /// The node where it should run.
        node: Node,
    },
    /// The system refuses to start it for another reason.
    #[error("{program} cannot be started on {node}: {why}")]
    Os {
        /// The program.
        program: String,
        /// The node where it should run.
        node: Node,
        /// The call that was refused, and the reason.
        why: String,
    },
    /// The process was a worker that ended before it was ready.
    #[error("{program} was started on {node} and ended before it was ready: {exit}")]
    DiedAtOnce {
        /// The program.
        program: String,
        /// The node where it ran.
        node: Node,
        /// The process's exit.
        exit: Exit,
    },
    /// The node runs as many processes as it may.
    #[error("{node} runs {most} processes already, and starts no more")]
    TooMany {
        /// The node where it should run.
        node: Node,
        /// The greatest number of processes.
        most: u32,
    },
    /// The order's words are too long.
    #[error("the arguments and the environment have {bytes} bytes, and {MOST_WORDS} are allowed")]
    LongOrder {
        /// The bytes of the words.
        bytes: u64,
    },
    /// The capability is too long.
    #[error("the capability has {bytes} bytes, and {MOST_CAPABILITY} are allowed")]
    LongCapability {
        /// The bytes of the capability.
        bytes: u64,
    },
    /// The node's service cannot be reached.
    #[error("{0}")]
    Unreachable(#[from] Unreachable),
}

/// The error that another node's spawning service cannot be reached.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[error("the spawning service of {node} cannot be reached: {why}")]
pub struct Unreachable {
    /// The other node.
    pub node: Node,
    /// The reason why there is no link.
    pub why: String,
}

/// The reasons why a request for a process failed.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ProcessError {
    /// The process was not started by this job's services, or its orderer is gone.
    #[error("{0} was not started by a spawning service of this job, or its orderer is gone")]
    Unknown(ProcessId),
    /// The process has ended.
    #[error("{id} has ended: {exit}")]
    Ended {
        /// The process.
        id: ProcessId,
        /// The process's exit.
        exit: Exit,
    },
    /// There is no such signal.
    #[error("there is no signal {0}")]
    NoSignal(i32),
    /// The process was given its capability already.
    #[error("{0} was given its capability already")]
    HandedOver(ProcessId),
    /// The capability is too long.
    #[error("the capability has {bytes} bytes, and {MOST_CAPABILITY} are allowed")]
    LongCapability {
        /// The bytes of the capability.
        bytes: u64,
    },
    /// The system refuses the request.
    #[error("{id}: {why}")]
    Os {
        /// The process.
        id: ProcessId,
        /// The call that was refused, and the reason.
        why: String,
    },
    /// The process's node cannot be reached.
    #[error("{0}")]
    Unreachable(#[from] Unreachable),
}

/// The requests to a spawning service.
#[interface(version = 1)]
pub(super) trait Spawning {
    /// Starts a process; a worker is not ready after the call.
    fn spawn(&mut self, node: Node, order: Order) -> Result<ProcessId, SpawnError>;

    /// Gives a process the capability for which it waits.
    fn hand_over(&mut self, id: ProcessId, capability: &[u8]) -> Result<(), ProcessError>;

    /// The state of a process. If it has not ended, the bell rings when the state changes.
    fn state(&mut self, id: ProcessId) -> Result<State, ProcessError>;

    /// Sends a signal to a process and to those that it started.
    fn signal(&mut self, id: ProcessId, signal: i32) -> Result<(), ProcessError>;
}
