//! The trait of segmentation cores, whatever makes them: the talk's `init_core` and `load_core`.
//!
//! `ldt/`, `kvm64/` and, twice, `flat/` implement it. One conformance suite is run against each.

use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use crate::errno::Errno;
use crate::image::{Image, ImageError, Width};
use crate::start::Start;

/// A way to run programs without paging of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// 32-bit segments in this process.
    Ldt,
    /// 32-bit segments in a process of its own that can make no system call.
    Process,
    /// 64-bit code at user privilege in a KVM virtual CPU.
    Kvm64,
    /// 32-bit protected mode without paging in a KVM virtual CPU.
    Kvm32,
    /// 32-bit protected mode without paging in QEMU without acceleration.
    Qemu,
}

impl Kind {
    /// All kinds, nearest to the hardware first.
    pub const ALL: [Kind; 5] = [Kind::Ldt, Kind::Process, Kind::Kvm32, Kind::Kvm64, Kind::Qemu];

    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ldt => "ldt",
            Self::Process => "process",
            Self::Kvm64 => "kvm64",
            Self::Kvm32 => "kvm32",
            Self::Qemu => "qemu",
        }
    }

    /// Whether a program, whatever its instructions, stays in its segment, or in a process or machine of its own. With `Ldt` it
    /// need not: a far jump to Linux's 64-bit code segment leads to all of this process's memory.
    pub fn is_closed(self) -> bool {
        self != Self::Ldt
    }

    /// Returns the width of the programs that these cores run.
    pub fn width(self) -> Width {
        if self == Self::Kvm64 { Width::Bits64 } else { Width::Bits32 }
    }
}

/// How a program ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The program ended with this exit status.
    Status(i32),
    /// This signal ended the program, for this reason where more is known.
    Signal(i32, Option<String>),
}

/// The reason why no program is running.
#[derive(thiserror::Error, Debug)]
pub enum SegmentError {
    /// This machine cannot run such cores.
    #[error("no {} cores here: {why}", .kind.name())]
    Unavailable {
        /// The kind of cores.
        kind: Kind,
        /// The reason, and what to do.
        why: String,
    },
    /// The file is not a program for these cores.
    #[error("{path} cannot run in a segment: {error}", path = .0.display(), error = .1)]
    Image(PathBuf, ImageError),
    /// The file is for the other width.
    #[error("{path} is a {0} program, and {1} cores run {2} ones", path = .3.display())]
    Width(Width, &'static str, Width, PathBuf),
    /// The arguments and the environment are larger than the stack.
    #[error("the arguments and the environment do not fit the segment's stack")]
    Arguments(Errno),
    /// The segment's size is not possible.
    #[error("a segment of {asked} bytes is not possible: it must be {least} to {most} bytes ({why})")]
    Size {
        /// The bytes asked for.
        asked: u64,
        /// The smallest size in bytes.
        least: u64,
        /// The largest size in bytes.
        most: u64,
        /// The reason for these limits.
        why: &'static str,
    },
    /// The memory was refused.
    #[error("{bytes} bytes for the segment were refused ({error}): give it less with --memory")]
    Memory {
        /// The number of bytes.
        bytes: u64,
        /// The kernel's error.
        error: std::io::Error,
    },
    /// A part of the machine refused.
    #[error("{what} failed ({error})")]
    Machine {
        /// The part.
        what: &'static str,
        /// Its error.
        error: std::io::Error,
    },
}

/// Returns the bytes of a segment: the size asked for, as a multiple of `unit`.
///
/// # Errors
/// The size is not in `limits`, which are there because of `why`.
pub(crate) fn segment_bytes(
    asked: u64,
    unit: u64,
    limits: RangeInclusive<u64>,
    why: &'static str,
) -> Result<u64, SegmentError> {
    let (least, most) = (*limits.start(), *limits.end());
    let whole = asked.checked_next_multiple_of(unit).filter(|whole| limits.contains(whole));
    whole.ok_or(SegmentError::Size { asked, least, most, why })
}

/// Makes an error for `map_err`, with what failed.
pub(crate) fn machine(what: &'static str) -> impl Fn(std::io::Error) -> SegmentError {
    move |error| SegmentError::Machine { what, error }
}

/// A program to run.
#[derive(Clone, Debug)]
pub struct Program {
    /// The path of the program's file.
    pub path: PathBuf,
    /// The program's headers.
    pub image: Image,
    /// The program's arguments, the name first.
    pub arguments: Vec<OsString>,
    /// `NAME=value` of each variable.
    pub environment: Vec<OsString>,
}

impl Program {
    /// Opens a file and checks its headers.
    ///
    /// # Errors
    /// The file is no static program.
    pub fn open(
        path: &Path,
        arguments: Vec<OsString>,
        environment: Vec<OsString>,
    ) -> Result<Program, SegmentError> {
        let image = Image::open(path).map_err(|e| SegmentError::Image(path.to_owned(), e))?;
        Ok(Program { path: path.to_owned(), image, arguments, environment })
    }

    /// Returns what the program finds on its stack.
    pub(crate) fn start(&self) -> Start<'_> {
        Start { path: &self.path, arguments: &self.arguments, environment: &self.environment }
    }

    /// # Errors
    /// The program is for the other width.
    pub(crate) fn for_width(&self, kind: Kind) -> Result<(), SegmentError> {
        if self.image.width == kind.width() {
            return Ok(());
        }
        Err(SegmentError::Width(self.image.width, kind.name(), kind.width(), self.path.clone()))
    }
}

/// Segmentation cores of one kind, in the order its functions are called.
pub trait Cores {
    /// Reserves a segment of `bytes` and loads the program into it (the talk's `init_core`).
    ///
    /// # Errors
    /// The program or the size does not suit, or the machine refuses.
    fn load(&mut self, program: &Program, bytes: u64) -> Result<(), SegmentError>;

    /// Starts the first core.
    ///
    /// # Errors
    /// The machine refuses.
    fn start(&mut self) -> Result<(), SegmentError>;

    /// Serves the cores' calls until the program ends, and returns how it ended (the talk's `load_core`).
    ///
    /// # Errors
    /// The machine failed while the program ran.
    fn serve(&mut self) -> Result<End, SegmentError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_cannot_be_are_refused() {
        let of = |asked| segment_bytes(asked, 1 << 20, 4 << 20..=2 << 30, "a reason");
        for asked in [0, 1 << 20, (2 << 30) + 1, u64::MAX] {
            assert!(matches!(of(asked), Err(SegmentError::Size { .. })), "{asked}");
        }
        assert_eq!(of((4 << 20) + 1).unwrap(), 5 << 20);
    }
}
