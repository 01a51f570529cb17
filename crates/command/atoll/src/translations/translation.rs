//! A translation of addresses to run a program under, and the command that does so.
//!
//! `rounds` runs them. The binary is the same for all translations except the segmentation cores, which want a static one.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use atoll_memory::segment::PageKind;

/// The kinds of segmentation cores of `atoll segment run`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Core {
    /// 32-bit segments in a Linux process.
    Ldt,
    /// 32-bit segments in a process of their own.
    Process,
    /// 32-bit protected mode without paging in a KVM virtual CPU.
    Kvm32,
    /// 64-bit code in a KVM virtual CPU.
    Kvm64,
    /// QEMU without acceleration.
    Qemu,
}

impl Core {
    fn word(self) -> &'static str {
        match self {
            Core::Ldt => "ldt",
            Core::Process => "process",
            Core::Kvm32 => "kvm32",
            Core::Kvm64 => "kvm64",
            Core::Qemu => "qemu",
        }
    }

    /// Returns the folder of the programs that these cores run.
    fn folder(self) -> &'static str {
        if self == Core::Kvm64 { "static" } else { "i386" }
    }
}

/// A translation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Translation {
    /// The program alone; `None`: 4K pages, with transparent huge pages switched off.
    Native(Option<PageKind>),
    /// The i386 build alone; `None`: 4K pages, with transparent huge pages switched off.
    Native32(Option<PageKind>),
    /// `atoll run --translation segment`.
    Segment(PageKind),
    /// `atoll segment run`.
    Core(Core),
}

/// A program to run, and the memory that it takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Workload {
    /// The program's name.
    pub(crate) program: &'static str,
    /// The program's arguments.
    pub(crate) arguments: Vec<String>,
    /// The most bytes that it has in use.
    pub(crate) bytes: u64,
    /// The number of blocks of the heap that these bytes are in: natively each is rounded up to whole pages.
    pub(crate) blocks: u64,
}

/// The bytes that a segment holds besides a program's data: small blocks and stacks of each worker, and what all share.
const OWN_BYTES: u64 = 192 << 20;
const WORKER_BYTES: u64 = 48 << 20;

impl Translation {
    /// Returns the translation's name in a table.
    pub(crate) fn name(self) -> String {
        match self {
            Translation::Native(None) => "4K pages".to_owned(),
            Translation::Native(Some(kind)) => kind.name().to_owned(),
            Translation::Native32(None) => "i386, 4K pages".to_owned(),
            Translation::Native32(Some(kind)) => format!("i386, {}", kind.name()),
            Translation::Segment(PageKind::Transparent) => "segment, transparent pages".to_owned(),
            Translation::Segment(kind) => format!("segment, {}", kind.name()),
            Translation::Core(core) => format!("core {}", core.word()),
        }
    }

    /// Returns the huge pages that must be free for the workload.
    pub(crate) fn pages(self, load: &Workload, workers: u32) -> Option<(PageKind, u64)> {
        match self {
            // The C library takes whole pages for each block, and some for each thread's small blocks.
            Translation::Native(Some(kind)) | Translation::Native32(Some(kind)) => {
                let page = kind.bytes() as u64;
                let arenas = u64::from(workers + 1) * (64_u64 << 20).div_ceil(page);
                Some((kind, load.bytes.div_ceil(page) + load.blocks + arenas))
            }
            Translation::Segment(kind) if kind.pool().is_some() => {
                Some((kind, segment_bytes(load, workers).div_ceil(kind.bytes() as u64)))
            }
            _ => None,
        }
    }

    /// Returns the program's file.
    pub(crate) fn file(self, programs: &Path, load: &Workload) -> PathBuf {
        match self {
            Translation::Core(core) => programs.join(core.folder()).join(load.program),
            Translation::Native32(_) => programs.join("i386").join(load.program),
            _ => programs.join(load.program),
        }
    }

    /// Returns the command that runs the program.
    pub(crate) fn command(self, programs: &Path, load: &Workload, workers: u32) -> Command {
        let file = self.file(programs, load);
        let mut command = match self {
            Translation::Native(_) | Translation::Native32(_) => Command::new(file),
            Translation::Segment(kind) => {
                let mut command = Command::new("/proc/self/exe");
                command.args(["run", "--summary", "json", "--translation", "segment", "--segment-page"]);
                command.arg(kind.word()).arg("--segment-size");
                command.arg(segment_bytes(load, workers).to_string());
                if kind.pool().is_some() {
                    command.arg("--strict");
                }
                command.arg("--workers").arg(workers.to_string()).arg("--").arg(file);
                command
            }
            Translation::Core(core) => {
                let mut command = Command::new("/proc/self/exe");
                let bytes = load.bytes + load.bytes / 8 + OWN_BYTES;
                command.args(["segment", "run", "--backend", core.word(), "--memory"]);
                command.arg(bytes.next_multiple_of(1 << 20).to_string()).arg("--").arg(file);
                command
            }
        };
        command.args(&load.arguments).env("OMP_NUM_THREADS", workers.to_string());
        command.env_remove("LD_PRELOAD").env_remove("GLIBC_TUNABLES");
        if let Translation::Native(Some(kind)) | Translation::Native32(Some(kind)) = self {
            command.env("GLIBC_TUNABLES", format!("glibc.malloc.hugetlb={}", kind.bytes()));
        }
        if matches!(self, Translation::Native(None) | Translation::Native32(None)) {
            // SAFETY: one system call between fork and exec, values only.
            unsafe {
                command.pre_exec(|| {
                    libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0);
                    Ok(())
                });
            }
        }
        command
    }
}

/// Returns the bytes of a segment for the workload.
fn segment_bytes(load: &Workload, workers: u32) -> u64 {
    let bytes = load.bytes + load.bytes / 32 + OWN_BYTES + u64::from(workers + 1) * WORKER_BYTES;
    bytes.next_multiple_of(2 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_enough_for_the_data() {
        let load = Workload { program: "randomaccess", arguments: vec![], bytes: 4 << 30, blocks: 1 };
        for translation in [
            Translation::Native(Some(PageKind::Huge1G)),
            Translation::Native(Some(PageKind::Huge2M)),
            Translation::Segment(PageKind::Huge1G),
        ] {
            let (kind, pages) = translation.pages(&load, 2).unwrap();
            assert!(pages * kind.bytes() as u64 > 4 << 30, "{translation:?}");
        }
        assert_eq!(Translation::Native(None).pages(&load, 1), None);
        assert_eq!(Translation::Segment(PageKind::Huge1G).pages(&load, 1), Some((PageKind::Huge1G, 5)));
    }
}
