//! What is said to a spawning service, by its node's processes and by the services of other nodes.
//!
//! Plain requests with answers at once: who asked how a process is doing is rung for when that changes (`host/bell.rs`).

use serde::{Deserialize, Serialize};

use crate::interface;
use crate::spawn::order::{MOST_CAPABILITY, MOST_WORDS, Order, ProcessId};
use atoll_transport::Node;

/// Kind of a bell's message.
pub(super) const BELL: u16 = 1;

/// How a process ended.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Exit {
    /// It returned this.
    #[error("exit status {0}")]
    Status(i32),
    /// A signal ended it.
    #[error("signal {0}")]
    Signal(i32),
    /// Somebody else of the service's process was told.
    #[error("it is not known how")]
    Unknown,
    /// A worker that was not ready in time, and was killed.
    #[error("not ready in time, and killed")]
    Late,
}

impl Exit {
    /// It returned 0.
    pub fn success(self) -> bool {
        self == Exit::Status(0)
    }
}

/// How a process is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum State {
    /// A worker that has not called `parent` yet.
    Starting,
    /// It runs.
    Running,
    /// It has ended.
    Ended {
        /// How.
        exit: Exit,
        /// Its start was done before.
        ready: bool,
    },
}

/// Why nothing was started.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum SpawnError {
    /// There is no such program.
    #[error(
        "{program} cannot be started on {node}: it does not exist there, or the interpreter that it names does not"
    )]
    NotFound {
        /// The program.
        program: String,
        /// Where it should run.
        node: Node,
    },
    /// It must not be executed.
    #[error("{program} cannot be started on {node}: it is not executable there")]
    NotExecutable {
        /// The program.
        program: String,
        /// Where it should run.
        node: Node,
    },
    /// The system refuses it otherwise.
    #[error("{program} cannot be started on {node}: {why}")]
    Os {
        /// The program.
        program: String,
        /// Where it should run.
        node: Node,
        /// What was refused, and why.
        why: String,
    },
    /// A worker that ended before it was ready.
    #[error("{program} was started on {node} and ended before it was ready: {exit}")]
    DiedAtOnce {
        /// The program.
        program: String,
        /// Where it ran.
        node: Node,
        /// How it ended.
        exit: Exit,
    },
    /// Too many.
    #[error("{node} runs {most} processes already, and starts no more")]
    TooMany {
        /// Where it should run.
        node: Node,
        /// How many there may be.
        most: u32,
    },
    /// The order's words are too long.
    #[error("the arguments and the environment have {bytes} bytes, and {MOST_WORDS} are allowed")]
    LongOrder {
        /// How many there are.
        bytes: u64,
    },
    /// The capability is too long.
    #[error("the capability has {bytes} bytes, and {MOST_CAPABILITY} are allowed")]
    LongCapability {
        /// How many there are.
        bytes: u64,
    },
    /// The node's service cannot be reached.
    #[error("{0}")]
    Unreachable(#[from] Unreachable),
}

/// Another node's spawning service cannot be reached.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[error("the spawning service of {node} cannot be reached: {why}")]
pub struct Unreachable {
    /// The other node.
    pub node: Node,
    /// What became of the link.
    pub why: String,
}

/// Why nothing can be done with a process.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ProcessError {
    /// Some other process, or one whose orderer is gone.
    #[error("{0} was not started by a spawning service of this job, or its orderer is gone")]
    Unknown(ProcessId),
    /// It has ended.
    #[error("{id} has ended: {exit}")]
    Ended {
        /// The process.
        id: ProcessId,
        /// How it ended.
        exit: Exit,
    },
    /// There is no such signal.
    #[error("there is no signal {0}")]
    NoSignal(i32),
    /// It has its capability.
    #[error("{0} was given its capability already")]
    HandedOver(ProcessId),
    /// The capability is too long.
    #[error("the capability has {bytes} bytes, and {MOST_CAPABILITY} are allowed")]
    LongCapability {
        /// How many there are.
        bytes: u64,
    },
    /// The system refuses it.
    #[error("{id}: {why}")]
    Os {
        /// The process.
        id: ProcessId,
        /// What was refused, and why.
        why: String,
    },
    /// Its node's service cannot be reached.
    #[error("{0}")]
    Unreachable(#[from] Unreachable),
}

/// A spawning service.
#[interface(version = 1)]
pub(super) trait Spawning {
    /// Starts something; a worker is not ready then.
    fn spawn(&mut self, node: Node, order: Order) -> Result<ProcessId, SpawnError>;

    /// Gives a process its capability, for which it waits.
    fn hand_over(&mut self, id: ProcessId, capability: &[u8]) -> Result<(), ProcessError>;

    /// How a process is doing. If it has not ended, the bell rings when that changes.
    fn state(&mut self, id: ProcessId) -> Result<State, ProcessError>;

    /// Sends a signal to a process and those that it started.
    fn signal(&mut self, id: ProcessId, signal: i32) -> Result<(), ProcessError>;
}
