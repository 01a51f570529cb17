//! The parts that the libraries in front of libgomp and libomp share.
//!
//! `atoll-trace-hooks` and `atoll-profile-hooks` are loaded into programs and define functions with libgomp's names, which call
//! libgomp's own. [`real`](macro@real) finds these, [`for_each_region`] lists libgomp's entry points that run a region, [`frames`]
//! passes on the arguments of libomp's, and [`fork`](mod@fork) has libomp run a region. [`with_caller`] makes entry points that
//! learn their return address, and [`thread_word`] reads a thread-local word without a call. The runtime uses [`frames`],
//! [`with_caller`] and [`thread_word`].

mod arch;
mod callers;
mod entries;
pub mod fork;
pub mod frames;
mod real;

pub use real::Real;

/// A region's outlined function.
pub type Function = extern "C" fn(*mut u8);
