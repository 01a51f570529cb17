//! The parts that the measurements share: how a program is started and heard, what its run left, means, and tables.
//!
//! `benches/out-of-core` and `benches/nodes` use it. How long a run may take, and what is measured meanwhile, is theirs.

mod command;
mod mean;
mod output;
mod table;

pub use command::{Pipes, command};
pub use mean::geometric_mean;
pub use output::Output;
pub use table::table;
