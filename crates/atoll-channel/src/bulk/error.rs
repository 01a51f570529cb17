//! Why memory cannot be registered and why a transfer fails.
//!
//! Used by every engine, so that the same mishap is the same error whichever of them meets it.

use std::io;

use atoll_transport::Node;

/// Why memory cannot be made, mapped or registered.
#[derive(thiserror::Error, Debug)]
pub enum MemoryError {
    /// No bytes, or more than an address space has.
    #[error("memory of {0} bytes cannot be registered: from 1 to 2^62")]
    Size(u64),
    /// A range that ends beyond what can be addressed.
    #[error("a range from {start:#x} of {bytes} bytes ends beyond the last address")]
    Overflow {
        /// Address, or offset in a file.
        start: u64,
        /// Its size.
        bytes: u64,
    },
    /// The file's size is not sealed, so its maker could cut it while it is mapped.
    #[error("the file's size is not sealed, so it could be cut while it is mapped: seal it (F_SEAL_SHRINK)")]
    NotSealed,
    /// The file is no ordinary shared memory.
    #[error("the file is no ordinary shared memory, so its pages could be missing when touched")]
    NotMemory,
    /// It is this process's own memory.
    #[error("the process is this one: its memory is registered as a mapping")]
    OwnProcess,
    /// Whatever is written to the file goes to its end.
    #[error("the file is open for appending, where offsets mean nothing: open it without O_APPEND")]
    Appending,
    /// The process has ended, or this one may not see it.
    #[error("the process has ended or cannot be seen from here")]
    NoProcess,
    /// The system refuses something: what, and why.
    #[error("{0}: {1}")]
    Os(&'static str, #[source] io::Error),
}

/// Why a transfer was refused, or failed. After one that failed, any part of the destination's range may have
/// been written, and nothing outside it.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Debug)]
pub enum CopyError {
    /// The range is not inside the memory.
    #[error("{bytes} bytes from offset {offset} of the {end} are more than its {size} bytes")]
    OutOfRange {
        /// `destination` or `source`.
        end: &'static str,
        /// Where the range begins.
        offset: u64,
        /// How long it is.
        bytes: u64,
        /// How long the memory is.
        size: u64,
    },
    /// The memory was registered without the right that is needed.
    #[error("the {end} was not registered for {needed}")]
    NotAllowed {
        /// `destination` or `source`.
        end: &'static str,
        /// `writing` or `reading`.
        needed: &'static str,
    },
    /// Source and destination share bytes.
    #[error("source and destination overlap: copy through a third range")]
    Overlap,
    /// No engine can copy between these two kinds of memory.
    #[error("no engine copies from {from} to {to}: copy through memory of this process")]
    Unreachable {
        /// Kind of the source.
        from: &'static str,
        /// Kind of the destination.
        to: &'static str,
    },
    /// As many transfers are under way as the engine takes; nothing was begun.
    #[error("the engine takes no more transfers before one of them is finished")]
    Full,
    /// The process whose memory it is has ended.
    #[error("the process whose memory it is has ended")]
    Died,
    /// The process has nothing mapped there, or not for this.
    #[error("the process has no memory mapped there that allows it")]
    NotMapped,
    /// The kernel does not let this process touch the other's memory.
    #[error(
        "this process may not touch the other's memory: the same user, and kernel.yama.ptrace_scope 0 or a parent, are needed"
    )]
    Denied,
    /// The file is shorter than the range read.
    #[error("the file ends within the range")]
    EndOfFile,
    /// The disk, or the user's share of it, is full.
    #[error("no space is left for the file")]
    NoSpace,
    /// The file may not grow so far. Where it is the process's limit, a signal ends the process before this is
    /// seen, unless it ignores SIGXFSZ.
    #[error("the file may not grow so far: a limit of the process (ulimit -f), of the file system or a seal")]
    TooLarge,
    /// Reading or writing the medium failed.
    #[error("reading or writing the file's medium failed (EIO)")]
    Medium,
    /// The system refuses for another reason.
    #[error("{call} failed with error {code} of errno(3)")]
    Os {
        /// The system call.
        call: &'static str,
        /// The error's number.
        code: i32,
    },
    /// The manager that made it is gone.
    #[error("the manager was dropped before the transfer was finished")]
    Abandoned,
    /// The node whose memory it is has ended, or cannot be reached any more.
    #[error("the memory's node is lost: {0}")]
    Lost(Node),
    /// The transport that carries it failed for another reason, or refused it.
    #[error("the transport to the memory's node failed")]
    Transport,
}
