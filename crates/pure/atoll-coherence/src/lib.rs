//! How nodes that share no memory keep their copies of pages coherent: protocols as tables of state and event.
//!
//! The crate knows no clock, no thread and no system call: its driver moves the data and the messages. The simulator, the model
//! checker (`tests/model/`) and the runtime drive the same tables, which are printed in `docs/coherence.md`.
//!
//! Two protocols share one set of states. *Sequential consistency*: a page has many readers or one writer; its home keeps a
//! directory entry ([`directory`]) and serves one request at a time, and each node steps through the table of [`copy`].
//! *Multiple writers*, inside work-sharing regions: nodes write at once, each beside a twin, and the barrier merges the writes
//! ([`merge`], [`diff`]). [`agent`] is a node's part in both. [`region`] chooses between them, [`plan`] says which pages to
//! fetch when a region begins. [`placing`] chooses where regions run, and [`thrash`] notices pages that go to and fro.
//!
//! Source: the Popcorn paper (`papers/popcorn-dsm.txt`), sections 2 to 4.

pub mod agent;
pub mod copy;
pub mod diff;
pub mod directory;
mod drift;
pub mod merge;
pub mod nodes;
pub mod parts;
pub mod placing;
pub mod plan;
pub mod races;
pub mod recent;
pub mod region;
mod table;
pub mod thrash;

pub use table::Impossible;
