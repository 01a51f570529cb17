//! What is chosen about several nodes, by runs and by simulations alike.
//!
//! `RunArgs` and `sim` have flags of these types.

use clap::ValueEnum;

/// Protocols between nodes.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConsistencyArg {
    /// Sequential consistency: one writer of a page at a time
    Sc,
    /// Many writers of a page in every region, merged at its end
    Mw,
    /// Many writers where that saves invalidations
    Smart,
}

/// Whether something is done.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnOff {
    /// It is
    On,
    /// It is not
    Off,
}
