//! Runs programs under several translations of addresses, side by side: 4K pages, 2M pages, 1G pages, segments.
//!
//! `translation` is a translation with the command that starts a program under it, and `outcome` is what a run printed. `rounds` runs
//! all of them in turns with huge pages reserved. `walks` counts page walks where the processor does. `atoll bench segment` and
//! `atoll repro segmentation` use it.

pub(crate) mod outcome;
pub(crate) mod rounds;
pub(crate) mod translation;
pub(crate) mod walks;

pub(crate) use outcome::Noise;
pub(crate) use rounds::{Measured, Plan, measure};
pub(crate) use translation::{Core, Translation, Workload};
