//! What the libraries that stand in front of libgomp and libomp share.
//!
//! `atoll-trace-hooks` and `atoll-profile-hooks` are loaded into programs and have functions of libgomp's names, from which they call
//! libgomp's own: [`real`](macro@real) finds these, [`for_each_region`] lists libgomp's entry points that run a region, [`frames`] passes on
//! the arguments of libomp's.

mod entries;
pub mod frames;
mod real;

pub use real::Real;

/// A region's outlined function.
pub type Function = extern "C" fn(*mut u8);
