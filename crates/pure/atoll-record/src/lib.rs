//! The formats of the files that a run leaves, and their readers.
//!
//! `atoll run` writes them, and the reporting commands read them. A record is a container of chunks ([`container`]); [`run`]
//! and [`figures`] define the chunks of a run. Both are described in `docs/record-format.md`. `atoll profile` writes such a
//! container, too ([`profile`]). A trace of page accesses has a format of its own ([`trace`]).
#![forbid(unsafe_code)]

pub mod container;
pub mod figures;
pub mod profile;
pub mod record;
pub mod run;
pub mod segment;
mod source;
pub mod trace;

pub use figures::Figures;
pub use record::{Record, RecordError};
pub use run::Run;
