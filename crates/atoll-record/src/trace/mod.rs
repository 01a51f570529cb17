//! Traces: which worker touched which page, in what order, with the marks of regions and barriers between.
pub mod event;

pub use event::Event;
