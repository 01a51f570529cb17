//! What can go wrong with PMIx.

use std::ffi::c_int;

/// Why PMIx does not start this node.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PmixError {
    /// It is not installed, or cannot be loaded.
    #[error("this process was started through PMIx, whose library cannot be loaded: install libpmix2 ({0})")]
    NoLibrary(String),
    /// Not one that was tried.
    #[error(
        "this process was started through PMIx, whose library here says it is {0:?}: atoll was tried with PMIx 4 and 5"
    )]
    Version(String),
    /// A call failed.
    #[error("{call} failed with {status} ({text})")]
    Call {
        /// The function.
        call: &'static str,
        /// What it returned.
        status: c_int,
        /// What that means.
        text: String,
    },
    /// Another process than the environment says, so most likely one without a server.
    #[error(
        "PMIx says that this process is rank {rank} of {namespace}, its environment something else; is what started it \
         still there? To run it alone, unset PMIX_NAMESPACE"
    )]
    Other {
        /// As PMIx says.
        namespace: String,
        /// As PMIx says.
        rank: u32,
    },
    /// Something that no node of atoll gave.
    #[error("what a node gave through PMIx is not what was asked for; do all nodes run the same program?")]
    Value,
}
