//! The flags of `atoll segment`.

use atoll_pages::Size;
use atoll_segment::Kind;
use clap::{Args, Subcommand, ValueEnum};

use super::ProgramArgs;
use super::help::flow;

/// What `--help` says below the flags.
const RUN: &str = "\
The program is a static Linux executable: for i386 with ldt, process, kvm32 and qemu (gcc -m32 -static), for x86-64 with kvm64 (gcc -static). Its code,
data, heap and stacks lie in one segment of --memory bytes, and its system calls are served by atoll on the paging side; a
pointer that leaves the segment gives it EFAULT, an access that does ends it with offset and limit named. fork and exec are not served.

Exit status: the program's own; a program ended by a signal ends atoll by the same. Else 2 where the command line is wrong, 70 where this
machine has no such cores or the program cannot run on them, 126 and 127 as for atoll run.";

/// `atoll segment`.
#[derive(Subcommand, Debug, Clone)]
pub(crate) enum Segment {
    /// Run a static program in a segment
    #[command(after_long_help = flow(RUN))]
    Run(SegmentRunArgs),
}

/// `atoll segment run`.
#[derive(Args, Debug, Clone)]
pub(crate) struct SegmentRunArgs {
    /// What the segmentation cores are made of
    #[arg(long, value_enum, default_value_t = BackendArg::Auto)]
    pub(crate) backend: BackendArg,

    /// Bytes of the segment, which is all the memory the program has; at most 4G for i386 programs, less what atoll takes
    #[arg(long, value_name = "SIZE", default_value = "1G")]
    pub(crate) memory: Size,

    /// Only cores that no program can leave, whatever its instructions: not ldt
    ///
    /// ldt cores stop every access beyond the limit, but a program made to can jump to 64-bit code of the process around it. What a program
    /// asks for by system calls it gets with your rights on any cores; only files that are memory (/proc/self/mem) are not opened.
    #[arg(long)]
    pub(crate) strict: bool,

    /// Say on standard error which backend ran the program
    #[arg(long)]
    pub(crate) verbose: bool,

    #[command(flatten)]
    pub(crate) program: ProgramArgs,
}

#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BackendArg {
    /// ldt for i386 programs, kvm64 for x86-64 ones, qemu for i386 ones where the kernel has no 32-bit segments
    Auto,
    /// 32-bit segments in a Linux process, base and limit checked by the processor
    Ldt,
    /// The same in a process of its own that can make no system call, so that nothing leads out of it; calls cost more
    Process,
    /// 64-bit code at user privilege in a KVM virtual CPU, on identity-mapped huge pages
    Kvm64,
    /// 32-bit protected mode without paging in a KVM virtual CPU
    Kvm32,
    /// The same in QEMU without acceleration: slow, and on any machine
    Qemu,
}

impl BackendArg {
    /// What is named, if one is.
    pub(crate) fn kind(self) -> Option<Kind> {
        match self {
            Self::Auto => None,
            Self::Ldt => Some(Kind::Ldt),
            Self::Process => Some(Kind::Process),
            Self::Kvm64 => Some(Kind::Kvm64),
            Self::Kvm32 => Some(Kind::Kvm32),
            Self::Qemu => Some(Kind::Qemu),
        }
    }
}
