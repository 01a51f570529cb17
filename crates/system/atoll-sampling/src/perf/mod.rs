//! The kernel's perf interface: opening events, their ring buffers, and the records in these.
//!
//! `timer`, `faults` and `hardware` use it, and `threads` follows a program with it.

mod attached;
pub mod event;
pub mod record;
mod ring;

pub use attached::Attached;
pub use event::{Event, Setup, Who};
pub use record::{Layout, Record};

/// Returns `kernel.perf_event_paranoid` as text.
pub fn paranoid() -> String {
    let text = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
    if text.is_empty() { "not there".to_owned() } else { text.trim().to_owned() }
}
