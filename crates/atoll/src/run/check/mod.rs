//! Is this a program that atoll can run? Looked at before anything starts.

mod elf;
mod libraries;
pub(crate) mod path;
pub(crate) mod program;
