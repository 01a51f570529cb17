//! The flags of `atoll segment`.

use atoll_pages::Size;
use clap::{Args, Subcommand, ValueEnum};

use super::ProgramArgs;
use super::help::flow;

/// What `--help` prints below the flags.
const RUN: &str = "\
The program is a static Linux executable: for i386 with ldt, process, kvm32 and qemu (gcc -m32 -static), for x86-64 with kvm64 (gcc -static). Its code,
data, heap and stacks lie in one segment of --memory bytes, and atoll serves its system calls on the paging side. A system call with a pointer that leaves
the segment returns EFAULT. An access that leaves it ends the program, and a line names offset and limit. fork and exec are not served.

Exit status: the program's own. If a signal ends the program, the same signal ends atoll. Else 2 where the command line is wrong, 70 where this
machine has no such cores or the program cannot run on them, and 126 and 127 as for atoll run.";

/// The subcommands of `atoll segment`.
#[derive(Subcommand, Debug, Clone)]
pub(crate) enum Segment {
    /// Run a static program in a segment
    #[command(after_long_help = flow(RUN))]
    Run(SegmentRunArgs),
}

/// Flags of `atoll segment run`.
#[derive(Args, Debug, Clone)]
pub(crate) struct SegmentRunArgs {
    /// The kind of segmentation cores
    #[arg(long, value_enum, default_value_t = BackendArg::Auto)]
    pub(crate) backend: BackendArg,

    /// Bytes of the segment, which is all the memory the program has; for i386 programs at most 4G, less what atoll takes
    #[arg(long, value_name = "SIZE", default_value = "1G")]
    pub(crate) memory: Size,

    /// Use only cores that no program can leave, whatever its instructions; this excludes ldt
    ///
    /// ldt cores stop every access beyond the limit, but a program written for that can jump to 64-bit code of the process
    /// around it. On all cores system calls are served with your rights; only files that are memory (/proc/self/mem) are not
    /// opened.
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
    /// As ldt, in a process of its own that can make no system call, so that nothing leads out of it; delegated calls cost more
    Process,
    /// 64-bit code at user privilege in a KVM virtual CPU, on identity-mapped huge pages
    Kvm64,
    /// 32-bit protected mode without paging in a KVM virtual CPU
    Kvm32,
    /// As kvm32, in QEMU without acceleration: slow, and works on any machine
    Qemu,
}
