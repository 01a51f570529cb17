//! Orders, which say what process to start, and the ids of started processes.
//!
//! A client fills an order in, `child.rs` carries it out.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::capability::Holder;
use atoll_transport::Node;

/// The most bytes of a capability.
pub const MOST_CAPABILITY: usize = 4096;
/// The most bytes of an order's program, arguments, environment and paths together.
pub const MOST_WORDS: usize = 256 << 10;

/// A process that a spawning service has started, unique in the whole job: the paper's extended domain id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct ProcessId {
    /// The node where it runs.
    pub node: Node,
    /// The process's number among all that were started there, from 1. No other process gets it.
    pub serial: u64,
    /// The system's process number there. Another process may get it later.
    pub process: u32,
}

/// The holder of a process for capabilities. A process that no service started, such as a node's first, can be number 0 there.
impl From<ProcessId> for Holder {
    fn from(id: ProcessId) -> Holder {
        Holder { node: id.node, process: id.serial }
    }
}

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} on {}", self.process, self.node)
    }
}

/// A word of an order: any bytes, which are sent unchanged.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Word(#[serde(with = "serde_bytes")] Vec<u8>);

impl Word {
    pub(super) fn new(word: impl AsRef<OsStr>) -> Word {
        Word(word.as_ref().as_bytes().to_owned())
    }

    pub(super) fn os(&self) -> OsString {
        OsString::from_vec(self.0.clone())
    }

    pub(super) fn path(&self) -> PathBuf {
        PathBuf::from(self.os())
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", String::from_utf8_lossy(&self.0))
    }
}

/// The destination of a process's standard output or error.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Output(pub(super) To);

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(super) enum To {
    #[default]
    Inherit,
    Nowhere,
    File(Word),
}

impl Output {
    /// The spawning service's own.
    pub fn inherit() -> Output {
        Output(To::Inherit)
    }

    /// No destination: the output is dropped.
    pub fn nowhere() -> Output {
        Output(To::Nowhere)
    }

    /// A file on the process's node, which is emptied first; a path that does not begin with `/` is relative to the process's
    /// working directory. Both outputs may go to one file.
    pub fn file(path: impl AsRef<Path>) -> Output {
        Output(To::File(Word::new(path.as_ref())))
    }
}

/// The capability by which a process reaches others' memory: a handle as bytes, at most [`MOST_CAPABILITY`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Capability {
    /// The bytes themselves, which may be empty.
    Now(#[serde(with = "serde_bytes")] Vec<u8>),
    /// The bytes that [`SpawnClient::hand_over`](super::SpawnClient::hand_over) gives, once its orderer knows its id; the
    /// process waits for them.
    Later,
}

/// The order to start a process.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Order {
    pub(super) program: Word,
    pub(super) arguments: Vec<Word>,
    pub(super) environment: Vec<(Word, Word)>,
    pub(super) directory: Option<Word>,
    pub(super) output: Output,
    pub(super) error: Output,
    pub(super) capability: Capability,
    /// The milliseconds that a worker may take to call `parent`; `None` for a program.
    pub(super) ready_within: Option<u64>,
}

impl Order {
    /// Any program: a path, or a name that is found in the service's `PATH`. Its start is complete when it runs.
    pub fn program(program: impl AsRef<OsStr>) -> Order {
        Order {
            program: Word::new(program),
            arguments: Vec::new(),
            environment: Vec::new(),
            directory: None,
            output: Output::default(),
            error: Output::default(),
            capability: Capability::Now(Vec::new()),
            ready_within: None,
        }
    }

    /// A program that calls [`parent`](super::parent) within the time `within`, counted from when it has its capability. Its
    /// start is complete then; one that is late is killed.
    pub fn worker(program: impl AsRef<OsStr>, within: Duration) -> Order {
        let within = u64::try_from(within.as_millis()).unwrap_or(u64::MAX);
        Order { ready_within: Some(within), ..Order::program(program) }
    }

    /// Adds an argument.
    #[must_use]
    pub fn argument(mut self, argument: impl AsRef<OsStr>) -> Order {
        self.arguments.push(Word::new(argument));
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn arguments(self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Order {
        arguments.into_iter().fold(self, Order::argument)
    }

    /// Sets a variable in addition to those of the service's own environment.
    #[must_use]
    pub fn variable(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Order {
        self.environment.push((Word::new(name), Word::new(value)));
        self
    }

    /// Sets the working directory; the default is the service's.
    #[must_use]
    pub fn directory(mut self, directory: impl AsRef<Path>) -> Order {
        self.directory = Some(Word::new(directory.as_ref()));
        self
    }

    /// Sets the destination of its standard output.
    #[must_use]
    pub fn output(mut self, output: Output) -> Order {
        self.output = output;
        self
    }

    /// Sets the destination of its standard error.
    #[must_use]
    pub fn error(mut self, error: Output) -> Order {
        self.error = error;
        self
    }

    /// Sets its capability.
    #[must_use]
    pub fn capability(mut self, capability: Capability) -> Order {
        self.capability = capability;
        self
    }

    /// The program's name in errors.
    pub(super) fn program_name(&self) -> String {
        shown(&self.program.to_string())
    }

    /// The bytes of all its words.
    pub(super) fn bytes(&self) -> usize {
        let pairs = self.environment.iter().flat_map(|(name, value)| [name, value]);
        let outputs = [&self.output, &self.error].into_iter().filter_map(|output| match &output.0 {
            To::File(path) => Some(path),
            _ => None,
        });
        let words = self.arguments.iter().chain(pairs).chain(&self.directory).chain(outputs);
        self.program.len() + words.map(|word| word.len() + 1).sum::<usize>()
    }
}

/// The part of a text that an error shows: an answer must fit into an empty ring, so that no service waits for a client to take
/// it.
pub(super) fn shown(text: &str) -> String {
    const MOST: usize = 200;
    match text.char_indices().nth(MOST) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}
