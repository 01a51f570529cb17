//! Errors of PMIx.

use std::ffi::c_int;

/// The reasons why PMIx does not start this node.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PmixError {
    /// The library is not installed, or cannot be loaded.
    #[error("this process was started through PMIx, whose library cannot be loaded: install libpmix2 ({0})")]
    NoLibrary(String),
    /// The library is of a version that was not tried.
    #[error(
        "this process was started through PMIx, whose library here says it is {0:?}: atoll was tried with PMIx 4 and 5"
    )]
    Version(String),
    /// A call failed.
    #[error("{call} failed with {status} ({text})")]
    Call {
        /// The function's name.
        call: &'static str,
        /// The status that it returned.
        status: c_int,
        /// The meaning of the status.
        text: String,
    },
    /// PMIx knows this process under another name than the environment, most likely because there is no server.
    #[error(
        "PMIx says that this process is rank {rank} of {namespace}, its environment something else; is what started it \
         still there? To run it alone, unset PMIX_NAMESPACE"
    )]
    Other {
        /// The namespace, as PMIx says.
        namespace: String,
        /// The rank, as PMIx says.
        rank: u32,
    },
    /// A value is not one that a node of atoll gave.
    #[error("a node gave an unexpected value through PMIx; do all nodes run the same program?")]
    Value,
}
