//! Types of the flags about several nodes, which `atoll run` (`RunArgs`) and `atoll sim` share.

use clap::ValueEnum;

/// The protocol that keeps copies of pages coherent between nodes.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConsistencyArg {
    /// Sequential consistency: one writer of a page at a time
    Sc,
    /// Many writers of a page in every region, merged at its end
    Mw,
    /// Many writers where that saves invalidations
    Smart,
}

/// A flag's value `on` or `off`.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnOff {
    /// Do it
    On,
    /// Do not do it
    Off,
}
