//! Finds, by disassembling it, what the code that a region can reach does to shared memory.
//!
//! Inline atomics, fences and loops that wait for another worker's store call no function that a runtime could interpose. Under
//! the multiple-writer protocol they would lose updates or wait for ever, so the runtime (`atoll-openmp`) asks this crate
//! before a region runs under it for the first time. `atoll-coherence` holds the protocols.
//!
//! [`Code::new`] takes the loaded objects. [`Code::reach`] follows a function through calls, tail calls, jump tables and
//! linkage tables, and returns a [`Verdict`], the [`Finding`]s behind it, and the library entry points that are called. Where
//! something cannot be followed or proved the verdict is [`Verdict::Unknown`], with the reason. [`elf`] makes objects from an
//! ELF file or a process's memory, [`loaded`] from the running process; [`link_map`] compares the objects of two nodes.
//!
//! Code of x86-64 and of aarch64 is examined: `isa` brings the instructions of both into one form. Elsewhere than on aarch64 that
//! needs the feature `aarch64`, which tests have: the runtime only examines code of its own processor.
//!
//! Everything but [`loaded`] is pure: bytes in, answers out, with bounded work whatever the bytes are.
//!
//! Source: the design's trap 20. The published systems do not mention the problem.

mod body;
pub mod elf;
mod finding;
mod graph;
mod input;
mod isa;
mod known;
pub mod link_map;
mod listing;
pub mod loaded;
mod loops;
mod phases;
mod reach;
mod table;
mod unwind;
mod value;

pub use finding::{Finding, Kind, Place, Verdict};
pub use input::{Function, Handlers, Object, Processor, Segment, Slot};
pub use known::Effect;
pub use phases::Phase;
pub use reach::{Code, Limits, Reach};
