//! What can go wrong when a node is started or exchanges bytes with the others.
//!
//! `launch/trouble.rs` has what the launcher says.

use std::io;
use std::time::Duration;

/// Why a node did not start, or an exchange did not take place. After one the [`Start`](super::Start) is of no use.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// More than [`LONGEST`](super::LONGEST) bytes.
    #[error("{0} bytes cannot be given in an exchange, at most {max}", max = super::LONGEST)]
    TooLong(usize),
    /// The others did not come.
    #[error(
        "the other nodes did not all take part within {0:?}: see whether all of them run, or allow more time"
    )]
    Timeout(Duration),
    /// A node ended and will never take part.
    #[error("{0} ended without taking part in the exchange")]
    Gone(crate::Node),
    /// What started this node is gone.
    #[error("what started this node has ended")]
    LauncherGone,
    /// An earlier exchange failed.
    #[error("an earlier exchange failed; start the job again")]
    Failed,
    /// Something that is no part of the protocol came.
    #[error(
        "the launcher said what makes no sense here: {0}; are launcher and node of one version of atoll?"
    )]
    Nonsense(&'static str),
    /// The environment says that a launcher started this process, but its socket is not there.
    #[error(
        "{variable}={value} says that atoll started this process, but there is no such socket: a program between \
         closed it; start the node directly, or unset {variable} to run it alone"
    )]
    NoSocket {
        /// The environment's variable.
        variable: &'static str,
        /// What it is set to.
        value: String,
    },
    /// Another kind of starter than atoll can ask started several processes.
    #[error(
        "{variable}={count} says that one of {count} processes is this, but not how they find each other: start them with \
         {instead}, or unset {variable} to run each alone"
    )]
    NotPmix {
        /// The environment's variable.
        variable: &'static str,
        /// What it is set to.
        count: String,
        /// What to start them with.
        instead: &'static str,
    },
    /// PMIx did.
    #[error(transparent)]
    Pmix(#[from] super::PmixError),
    /// The operating system refused something.
    #[error("{0}: {1}")]
    Os(&'static str, #[source] io::Error),
}
