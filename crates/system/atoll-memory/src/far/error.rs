//! What can go wrong with far memory. Values are plain and `Copy`: they are made on the fault path, and put
//! into words elsewhere.

use std::fmt;

use super::hosts::LenderTrouble;
use super::hosts::lenders::Label;

/// The operation that the system refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FarOp {
    /// Mapping shared memory for tables and data.
    Map,
    /// Creating the file.
    Open,
    /// Writing pages to the file.
    Write,
    /// Reading pages from the file.
    Read,
}

impl FarOp {
    fn words(self) -> &'static str {
        match self {
            Self::Map => "mapping memory for far memory's tables",
            Self::Open => "creating the file for far memory",
            Self::Write => "writing pages to far memory",
            Self::Read => "reading pages from far memory",
        }
    }
}

/// Why far memory could not do as asked. After an error no page is lost: pages of a failed `store` must
/// stay near, their far copies (old or new) may be gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FarError {
    /// The limit is reached.
    #[error("far memory is full: raise --far-limit, or give the program more near memory")]
    Full,
    /// What came back is not what was stored.
    #[error(
        "page {page} came back damaged from far memory: its bytes are not those that were stored; check the disk or memory"
    )]
    Damaged {
        /// Index of the page.
        page: u64,
    },
    /// A load of a page that far memory does not hold.
    #[error(
        "page {page} is not in far memory: it was never stored, or was discarded; this is a fault in atoll"
    )]
    NotStored {
        /// Index of the page.
        page: u64,
    },
    /// A page index at or beyond the number of pages given when the store was made.
    #[error("page {page} is beyond the range of far memory; this is a fault in atoll")]
    OutOfRange {
        /// Index of the page.
        page: u64,
    },
    /// The system refused.
    #[error("{} failed: {}{}", op.words(), std::io::Error::from_raw_os_error(*errno), hint(*errno))]
    Io {
        /// The system's error number.
        errno: i32,
        /// What was being done.
        op: FarOp,
    },
    /// No lender has room for another page.
    #[error(
        "all lenders are full: lend more memory (`atoll lend`, `atoll lenders`), or give the program more near memory"
    )]
    LendersFull,
    /// A lender failed, and no other has the page.
    #[error("{}", LenderWords(*label, *why))]
    Lender {
        /// What messages call it.
        label: Label,
        /// What went wrong.
        why: LenderTrouble,
    },
    /// Cannot be used here; says why and what to do.
    #[error("far memory is not available: {0}")]
    Unavailable(&'static str),
}

/// The sentence about a lender that failed.
struct LenderWords(Label, LenderTrouble);

impl fmt::Display for LenderWords {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "far memory: the lender {} failed: ", self.0)?;
        self.1.write(out)?;
        out.write_str("; pages of this program were there and nowhere else (--far-copies 2 keeps two copies)")
    }
}

impl FarError {
    pub(crate) fn io(errno: rustix::io::Errno, op: FarOp) -> Self {
        Self::Io { errno: errno.raw_os_error(), op }
    }
}

fn hint(errno: i32) -> &'static str {
    match errno {
        libc::ENOSPC => "; free space there, or name another directory with --far file:DIR",
        libc::EFBIG => "; raise the file size limit (ulimit -f)",
        libc::EDQUOT => "; the disk quota is used up, name another directory with --far file:DIR",
        libc::EIO => "; the device reports an error",
        libc::ENOMEM => "; check vm.overcommit_memory and ulimit -v",
        libc::ENOENT | libc::ENOTDIR | libc::EACCES | libc::EROFS => {
            "; name a writable directory with --far file:DIR"
        }
        _ => "",
    }
}
