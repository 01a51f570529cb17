//! Bulk transfer: copies between registered memories, wherever they are, by whichever engine is fastest there.
//!
//! Stands on `atoll-transport`, which identifies processes; capabilities, transports and `atoll bench throughput` stand on it.
//! Memory is registered ([`Memory`]), a [`Transfer`] names a range of each of two, and an [`Engine`] makes it. The [`Manager`]
//! knows which memory each engine reaches and how fast it is on this machine, and chooses. A [`Pool`] has buffers that are
//! handed over instead of copied.
//!
//! ```no_run
//! use atoll_channel::bulk::{Access, Manager, Memory};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut manager = Manager::new();
//! let file = Memory::of_file(std::fs::File::open("matrix")?, 0, 64 << 20, Access::READ)?;
//! let near = Memory::new(64 << 20)?;
//! println!("{}", manager.why(&near, &file, 64 << 20)?);
//! let copying = manager.start(&near, 0, &file, 0, 64 << 20)?;
//! // Something else in the meantime; then:
//! manager.wait(&copying, None).unwrap_or(Ok(()))?;
//! # Ok(())
//! # }
//! ```
//!
//! Source: the barrelfish paper (`papers/barrelfish-xeon-phi.txt`), sections 5.4, 6.9 and 6.10.2, appendix
//! A.3 to A.5.

mod choice;
mod cost_file;
mod costs;
mod engine;
mod error;
mod file;
mod helper;
mod jobs;
mod kernel;
mod manager;
mod mapping;
mod measure;
mod memcpy;
mod memory;
pub mod pool;
mod process;
mod remote;
mod transfer;
mod uring;

pub use self::{
    choice::Choice,
    costs::{Costs, Curve},
    engine::{Engine, Finished, Started},
    error::{CopyError, MemoryError},
    file::FileIo,
    helper::Helper,
    jobs::Copying,
    manager::Manager,
    mapping::Writers,
    memcpy::Memcpy,
    memory::{Access, Kind, Memory},
    pool::{Arrival, Buffer, Link, MOST_BUFFERS, Pool, PoolError, ProtocolError, Unsent, UnsentReason},
    process::ProcessVm,
    remote::PutGet,
    transfer::Transfer,
    uring::Uring,
};
