//! Errors of starting a node and of exchanging bytes with the others.
//!
//! `launch/trouble.rs` has those of the launcher.

use std::io;
use std::time::Duration;

/// The reasons why a node did not start, or an exchange did not take place. After an error the [`Start`](super::Start) must not
/// be used any more.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// More than [`LONGEST`](super::LONGEST) bytes.
    #[error("{0} bytes cannot be given in an exchange, at most {max}", max = super::LONGEST)]
    TooLong(usize),
    /// Other nodes did not come in time.
    #[error(
        "the other nodes did not all take part within {0:?}: see whether all of them run, or allow more time"
    )]
    Timeout(Duration),
    /// A node ended and will never take part.
    #[error("{0} ended without taking part in the exchange")]
    Gone(crate::Node),
    /// The process that started this node has ended.
    #[error("the launcher that started this node has ended")]
    LauncherGone,
    /// An earlier exchange failed.
    #[error("an earlier exchange failed; start the job again")]
    Failed,
    /// A frame came that is no part of the protocol.
    #[error(
        "the launcher sent a message that makes no sense here: {0}; are launcher and node of one version of atoll?"
    )]
    Nonsense(&'static str),
    /// The environment says that a launcher started this process, but its socket is not there.
    #[error(
        "{variable}={value} says that atoll started this process, but there is no such socket: a program between \
         closed it; start the node directly, or unset {variable} to run it alone"
    )]
    NoSocket {
        /// The name of the environment's variable.
        variable: &'static str,
        /// The variable's value.
        value: String,
    },
    /// A starter that atoll cannot talk to has started several processes.
    #[error(
        "{variable}={count} says that one of {count} processes is this, but not how they find each other: start them with \
         {instead}, or unset {variable} to run each alone"
    )]
    NotPmix {
        /// The name of the environment's variable.
        variable: &'static str,
        /// The variable's value.
        count: String,
        /// The starters to use instead.
        instead: &'static str,
    },
    /// PMIx reports an error.
    #[error(transparent)]
    Pmix(#[from] super::PmixError),
    /// The operating system refuses a call; the text names it.
    #[error("{0}: {1}")]
    Os(&'static str, #[source] io::Error),
}
