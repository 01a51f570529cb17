//! What the end-to-end tests share: the places of atoll and the programs, and runs of a program under atoll. A run is bounded
//! in time, its output is captured, and nothing may be left after it.

pub mod build;
pub mod generated;
pub mod group;
pub mod habits;
mod hung;
pub mod left;
pub mod random;
pub mod recording;
pub mod run;
pub mod soak;
pub mod workloads;

pub use build::{built, helper};
pub use recording::recording;
pub use run::{Atoll, Outcome, Running, native};

pub use atoll_skips::{skip, skip_part};
