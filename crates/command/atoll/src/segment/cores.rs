//! Runs programs on segmentation cores, which `atoll-segment` has.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use atoll_memory::control::EXIT_SETUP;
use atoll_segment::{
    Cores, End, Kind, Kvm32Cores, Kvm64Cores, LdtCores, ProcessCores, Program, QemuCores, SegmentError, Width,
};

use crate::cli::{BackendArg, Segment, SegmentRunArgs};
use crate::run::check::path::{self, PathError};
use crate::run::signals;

/// The reason why no program ran, or not to its end.
#[derive(thiserror::Error, Debug)]
enum RunError {
    #[error("{0}")]
    Path(#[from] PathError),
    #[error("{0}")]
    Segment(#[from] SegmentError),
    #[error(
        "{} cores can be left by a far jump to 64-bit code: for --strict take process, kvm32 or qemu, or leave --backend out",
        .0.name()
    )]
    Strict(Kind),
}

impl RunError {
    fn status(&self) -> u8 {
        match self {
            Self::Path(PathError::NotFound(..)) => 127,
            Self::Path(PathError::NotExecutable(..)) => 126,
            Self::Segment(_) => EXIT_SETUP as u8,
            Self::Strict(_) => 2,
        }
    }
}

/// Does what the command line says.
pub(crate) fn segment(what: &Segment) -> ExitCode {
    let Segment::Run(args) = what;
    match run(args) {
        Ok(End::Status(status)) => ExitCode::from(status as u8),
        Ok(End::Signal(signal, why)) => {
            if let Some(why) = why {
                eprintln!("atoll: segment: the program was stopped: {why}");
            }
            signals::die_by(signal)
        }
        Err(error) => {
            eprintln!("atoll: {error}");
            ExitCode::from(error.status())
        }
    }
}

fn run(args: &SegmentRunArgs) -> Result<End, RunError> {
    let words = &args.program.words;
    let path = path::find(&words[0], std::env::var_os("PATH").as_deref())?;
    let path: PathBuf = std::fs::canonicalize(&path).unwrap_or(path);
    let environment = std::env::vars_os()
        .map(|(mut name, value): (OsString, OsString)| {
            name.push("=");
            name.push(value);
            name
        })
        .collect();
    let program = Program::open(&path, words.clone(), environment)?;
    let (kind, mut cores) = choose(args, program.image.width)?;
    cores.load(&program, args.memory.0)?;
    if args.verbose {
        eprintln!("atoll: segment: {} cores, {} of memory", kind.name(), args.memory);
    }
    cores.start()?;
    Ok(cores.serve()?)
}

/// Returns the kind that was named; `None` for `auto`.
fn kind(backend: BackendArg) -> Option<Kind> {
    match backend {
        BackendArg::Auto => None,
        BackendArg::Ldt => Some(Kind::Ldt),
        BackendArg::Process => Some(Kind::Process),
        BackendArg::Kvm64 => Some(Kind::Kvm64),
        BackendArg::Kvm32 => Some(Kind::Kvm32),
        BackendArg::Qemu => Some(Kind::Qemu),
    }
}

/// Returns the cores that are asked for, or those of this machine that are nearest to the hardware. Prints a line where those
/// are not the nearest kind, or where a program can leave them.
fn choose(args: &SegmentRunArgs, width: Width) -> Result<(Kind, Box<dyn Cores>), RunError> {
    let with = |kind| make(kind).map(|cores| (kind, cores));
    let or_qemu = |refused: SegmentError| {
        eprintln!("atoll: segment: {refused}: QEMU emulates some, slowly");
        with(Kind::Qemu).map_err(|_| refused)
    };
    let chosen = match (kind(args.backend), width) {
        (Some(kind), _) if args.strict && !kind.is_closed() => return Err(RunError::Strict(kind)),
        (Some(kind), _) => with(kind),
        (None, Width::Bits64) => with(Kind::Kvm64),
        (None, Width::Bits32) if args.strict => with(Kind::Process).or_else(or_qemu),
        (None, Width::Bits32) => with(Kind::Ldt).inspect(|_| eprintln!("{LEFT}")).or_else(or_qemu),
    };
    Ok(chosen?)
}

/// The line that is printed where the user did not choose cores that a program can leave.
const LEFT: &str = "atoll: segment: ldt cores stop what goes beyond the limit, but are not for programs that mean harm: those can leave them by a far \
    jump. --strict takes cores that none can leave";

fn make(kind: Kind) -> Result<Box<dyn Cores>, SegmentError> {
    match kind {
        Kind::Ldt => Ok(Box::new(LdtCores::new()?)),
        Kind::Process => Ok(Box::new(ProcessCores::new()?)),
        Kind::Kvm64 => Ok(Box::new(Kvm64Cores::new()?)),
        Kind::Kvm32 => Ok(Box::new(Kvm32Cores::new()?)),
        Kind::Qemu => Ok(Box::new(QemuCores::new()?)),
    }
}
