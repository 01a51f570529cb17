//! The formats of the files a run leaves, and their readers.
//!
//! Written by `atoll run`, read by the reporting commands. A record is a container of chunks
//! ([`container`]); what the chunks of a run hold is in [`run`] and [`figures`]. Both are described in
//! `docs/record-format.md`. What `atoll profile` leaves is such a container, too ([`profile`]). A trace of page accesses has a
//! format of its own ([`trace`]).
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
