//! The errors of registering memory and of transfers.
//!
//! Every engine uses them, so that the same mishap is the same error in all.

use std::io;

use atoll_transport::Node;

/// The reasons why memory cannot be made, mapped or registered.
#[derive(thiserror::Error, Debug)]
pub enum MemoryError {
    /// The size is 0, or more than an address space has.
    #[error("memory of {0} bytes cannot be registered: from 1 to 2^62")]
    Size(u64),
    /// The range ends beyond the last address.
    #[error("a range from {start:#x} of {bytes} bytes ends beyond the last address")]
    Overflow {
        /// The start: an address, or an offset in a file.
        start: u64,
        /// The size in bytes.
        bytes: u64,
    },
    /// The file's size is not sealed, so its maker could truncate it while it is mapped.
    #[error("the file's size is not sealed, so it could be cut while it is mapped: seal it (F_SEAL_SHRINK)")]
    NotSealed,
    /// The file is no ordinary shared memory.
    #[error("the file is not ordinary shared memory, so its pages could be missing when touched")]
    NotMemory,
    /// The memory is this process's own.
    #[error("the process is this one: its memory is registered as a mapping")]
    OwnProcess,
    /// The file is open for appending, so every write goes to its end.
    #[error("the file is open for appending, where offsets mean nothing: open it without O_APPEND")]
    Appending,
    /// The process has ended, or this one may not see it.
    #[error("the process has ended or cannot be seen from here")]
    NoProcess,
    /// The system refuses a call; the text names it.
    #[error("{0}: {1}")]
    Os(&'static str, #[source] io::Error),
}

/// The reasons why a transfer was refused or failed. After a failure, any part of the destination's range may have been
/// written, and nothing outside it.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Debug)]
pub enum CopyError {
    /// The range is not inside the memory.
    #[error("{bytes} bytes from offset {offset} of the {end} are more than its {size} bytes")]
    OutOfRange {
        /// `destination` or `source`.
        end: &'static str,
        /// The start of the range.
        offset: u64,
        /// The bytes of the range.
        bytes: u64,
        /// The bytes of the memory.
        size: u64,
    },
    /// The memory was registered without the necessary right.
    #[error("the {end} was not registered for {needed}")]
    NotAllowed {
        /// The end whose memory it is: `destination` or `source`.
        end: &'static str,
        /// The missing right: `writing` or `reading`.
        needed: &'static str,
    },
    /// Source and destination share bytes.
    #[error("source and destination overlap: copy through a third range")]
    Overlap,
    /// No engine can copy between these two kinds of memory.
    #[error("no engine copies from {from} to {to}: copy through memory of this process")]
    Unreachable {
        /// The kind of the source.
        from: &'static str,
        /// The kind of the destination.
        to: &'static str,
    },
    /// The engine has as many transfers under way as it takes; nothing was begun.
    #[error("the engine takes no more transfers before one of them is finished")]
    Full,
    /// The process whose memory it is has ended.
    #[error("the process whose memory it is has ended")]
    Died,
    /// The process has nothing mapped there, or not with the necessary protection.
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
    /// The file may not grow so far. If that is the process's limit, a signal ends the process first, unless it ignores
    /// SIGXFSZ.
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
        /// The errno.
        code: i32,
    },
    /// The manager that started the transfer was dropped.
    #[error("the manager was dropped before the transfer was finished")]
    Abandoned,
    /// The node whose memory it is has ended, or cannot be reached any more.
    #[error("the memory's node is lost: {0}")]
    Lost(Node),
    /// The transport failed for another reason, or refused the transfer.
    #[error("the transport to the memory's node failed")]
    Transport,
}
