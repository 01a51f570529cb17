//! What segmentation cores are, whatever makes them: the talk's `init_core` and `load_core` as one trait.
//!
//! Implemented by `ldt/`, `kvm64/` and, twice, by `flat/`; one conformance suite is run against each.

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
    /// The same in a process of its own that can make no system call.
    Process,
    /// 64-bit code at user privilege in a KVM virtual CPU.
    Kvm64,
    /// 32-bit protected mode without paging in a KVM virtual CPU.
    Kvm32,
    /// The same in QEMU without acceleration.
    Qemu,
}

impl Kind {
    /// All of them, nearest to the hardware first.
    pub const ALL: [Kind; 5] = [Kind::Ldt, Kind::Process, Kind::Kvm32, Kind::Kvm64, Kind::Qemu];

    /// As the command line names it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ldt => "ldt",
            Self::Process => "process",
            Self::Kvm64 => "kvm64",
            Self::Kvm32 => "kvm32",
            Self::Qemu => "qemu",
        }
    }

    /// Whatever a program's instructions are, they stay in its segment, or in a process or machine of its own. Not so in this process, where a far jump to
    /// Linux's 64-bit code segment leads to all of the process's memory.
    pub fn is_closed(self) -> bool {
        self != Self::Ldt
    }

    /// The programs it runs.
    pub fn width(self) -> Width {
        if self == Self::Kvm64 { Width::Bits64 } else { Width::Bits32 }
    }
}

/// How a program ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// With this exit status.
    Status(i32),
    /// By this signal, and why where more is known.
    Signal(i32, Option<String>),
}

/// Why there is no program running.
#[derive(thiserror::Error, Debug)]
pub enum SegmentError {
    /// This machine cannot run such cores.
    #[error("no {} cores here: {why}", .kind.name())]
    Unavailable {
        /// Which.
        kind: Kind,
        /// The reason, and what to do.
        why: String,
    },
    /// The file is no program for them.
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
        /// What was asked for.
        asked: u64,
        /// The smallest.
        least: u64,
        /// The largest.
        most: u64,
        /// What sets the limits.
        why: &'static str,
    },
    /// The memory was refused.
    #[error("{bytes} bytes for the segment were refused ({error}): give it less with --memory")]
    Memory {
        /// How much.
        bytes: u64,
        /// What the kernel said.
        error: std::io::Error,
    },
    /// Something of the machine refused.
    #[error("{what} failed ({error})")]
    Machine {
        /// What.
        what: &'static str,
        /// What it said.
        error: std::io::Error,
    },
}

/// The bytes of a segment: what was asked for, as a multiple of `unit`.
///
/// # Errors
/// It is not in `limits`, which are there because of `why`.
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

/// For `map_err`: what failed.
pub(crate) fn machine(what: &'static str) -> impl Fn(std::io::Error) -> SegmentError {
    move |error| SegmentError::Machine { what, error }
}

/// What is to run.
#[derive(Clone, Debug)]
pub struct Program {
    /// The file.
    pub path: PathBuf,
    /// What it says of itself.
    pub image: Image,
    /// Its arguments, the name first.
    pub arguments: Vec<OsString>,
    /// `NAME=value` of each variable.
    pub environment: Vec<OsString>,
}

impl Program {
    /// Looks at a file.
    ///
    /// # Errors
    /// It is no static program.
    pub fn open(
        path: &Path,
        arguments: Vec<OsString>,
        environment: Vec<OsString>,
    ) -> Result<Program, SegmentError> {
        let image = Image::open(path).map_err(|e| SegmentError::Image(path.to_owned(), e))?;
        Ok(Program { path: path.to_owned(), image, arguments, environment })
    }

    /// What it finds on its stack.
    pub(crate) fn start(&self) -> Start<'_> {
        Start { path: &self.path, arguments: &self.arguments, environment: &self.environment }
    }

    /// # Errors
    /// It is for the other width.
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

    /// Serves the cores' calls until the program ends, and says how it did (the talk's `load_core`).
    ///
    /// # Errors
    /// The machine failed under it.
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
