//! The reasons why a table refuses what a holder asks.
//!
//! Returned by `table.rs`; serialised, because the holder is mostly at another node.

use crate::capability::handle::Span;
use crate::capability::rights::Rights;
use atoll_transport::Node;

/// Why a request was refused. Nothing was changed.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub enum Refused {
    /// The handle belongs to another node's table.
    #[error("the handle is for memory of {theirs}, and this is {ours}: ask there")]
    OtherNode {
        /// The node in the handle.
        theirs: Node,
        /// The node of the table.
        ours: Node,
    },
    /// No table ever gave out this handle.
    #[error("this handle was never given out: it is forged or damaged")]
    Forged,
    /// The capability was revoked or deleted, or its holder died.
    #[error("the capability was revoked: ask its owner for a new one")]
    Revoked,
    /// Another process holds the capability.
    #[error("the capability is held by another process: have it granted to this one")]
    NotHolder,
    /// The capability does not give these rights.
    #[error("the capability does not allow this: missing is {missing}")]
    Rights {
        /// The rights that were asked for and are missing.
        missing: Rights,
    },
    /// The range is not inside the capability's, or it is empty where it must not be.
    #[error("{asked} are not inside a capability of {length} bytes")]
    Range {
        /// The range asked for.
        asked: Span,
        /// The capability's length in bytes.
        length: u64,
    },
    /// The holder has made as many capabilities as one holder may.
    #[error("this process made {most} capabilities, and may not have more: delete some")]
    TooMany {
        /// The greatest number.
        most: u32,
    },
    /// The table is full.
    #[error("the node's table of {most} capabilities is full")]
    Full {
        /// The greatest number.
        most: u32,
    },
}
