//! The words that an engine which sees a program's accesses sends to `atoll trace` through a pipe, in blocks.
//!
//! An engine (`atoll-qemu-plugin`, `atoll-trace-hooks`) fills a [`Stream`] for each thread; `atoll`'s collector reads
//! the words ([`word`]) back and makes a trace of them. A block is at most [`BLOCK_BYTES`] long and written at once, so
//! the kernel keeps blocks of many threads whole without any lock between these.

mod filter;
mod stream;
pub mod word;

pub use filter::Filter;
pub use stream::{Stream, put};

/// The bytes of the largest block, which a pipe takes in one piece (PIPE_BUF).
pub const BLOCK_BYTES: usize = 4096;
/// The words of the largest block, its head included.
pub const BLOCK_WORDS: usize = BLOCK_BYTES / 8;

/// The number of the system call by which code inside a program that runs under an emulator makes a mark. No kernel has it, so
/// it does nothing where no engine looks. Arguments: a word of [`word::Kind`] and the number behind it.
pub const MARK_CALL: i64 = 0x0041_544c;

/// The environment variable that tells the hooks in the program what to do: `mark` (make marks by [`MARK_CALL`]) or `record`
/// (write accesses and marks themselves).
pub const ENVIRONMENT_MODE: &str = "ATOLL_TRACE_MODE";
/// The environment variable with the pipe's descriptor.
pub const ENVIRONMENT_PIPE: &str = "ATOLL_TRACE_PIPE";
/// The environment variable with the number of the filter's places; 0: no filter.
pub const ENVIRONMENT_FILTER: &str = "ATOLL_TRACE_FILTER";
/// The environment variable with the `LD_PRELOAD` that the program would have had.
pub const ENVIRONMENT_PRELOAD: &str = "ATOLL_TRACE_PRELOAD";

/// The number of instructions after which a filter forgets everything, so that a page in constant use is seen again.
pub const REFRESH_INSTRUCTIONS: u64 = 1 << 20;
