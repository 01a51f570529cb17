//! What the end-to-end tests share: where atoll and the programs are, and a run of a program under atoll that is bounded
//! in time, whose output is captured, and after which nothing may be left.

pub mod build;
pub mod generated;
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
