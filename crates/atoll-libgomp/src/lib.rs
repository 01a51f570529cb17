//! What the libraries that stand in front of libgomp share.
//!
//! `atoll-trace-hooks` and `atoll-profile-hooks` are loaded into programs and have functions of libgomp's names, from which they call
//! libgomp's own: [`real`](macro@real) finds these, [`for_each_region`] lists the entry points that run a region.

mod entries;
mod real;

pub use real::Real;

/// A region's outlined function.
pub type Function = extern "C" fn(*mut u8);
