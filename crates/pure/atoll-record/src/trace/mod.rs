//! Traces: which worker touched which page, in what order, with the marks of regions and barriers between.
//!
//! `atoll trace` writes traces, and `atoll-machine` reads them. A file is a head, chunks of events and a trailer ([`frame`]);
//! [`codec`] defines an event's bytes on disk. `docs/trace-format.md` describes both. A reader holds one chunk at a time,
//! whatever the file's length.

pub mod codec;
pub mod error;
pub mod event;
pub mod frame;
pub mod header;
pub mod reader;
pub mod writer;

pub use error::TraceError;
pub use event::Event;
pub use header::{Filter, Header, Trailer};
pub use reader::Reader;
pub use writer::Writer;
