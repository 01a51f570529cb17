//! Bulk transfer: copies between registered memories, wherever they are, by whichever engine is fastest there.
//!
//! Stands on `channel/` for who a process is; capabilities, transports and `atoll bench throughput` stand on it. Memory is registered
//! ([`Memory`]), a [`Transfer`] names a range of each of two, an [`Engine`] makes it.
//!
//! Source: the barrelfish paper (`papers/barrelfish-xeon-phi.txt`), sections 5.4, 6.9 and 6.10.2, appendix A.3 to A.5.

mod engine;
mod error;
mod file;
mod kernel;
mod mapping;
mod memcpy;
mod memory;
mod process;
mod transfer;
mod uring;

pub use self::{
    engine::{Engine, Finished, Started},
    error::{CopyError, MemoryError},
    file::FileIo,
    mapping::Writers,
    memcpy::Memcpy,
    memory::{Access, Kind, Memory},
    process::ProcessVm,
    transfer::Transfer,
    uring::Uring,
};
