//! A 32-bit machine without paging in QEMU without acceleration: slow, but on any machine.
//!
//! `machine.rs` has its memory, which is a file in memory that QEMU maps as the guest's. No disk keeps any of it.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use super::machine::{Machine, Sizes};
use super::monitor;
use crate::backend::{Cores, End, Kind, Program, SegmentError, machine};
use crate::memory::{Memory, file};
use crate::stage::Stage;

/// Names of the emulator, either of which will do.
const NAMES: [&str; 2] = ["qemu-system-i386", "qemu-system-x86_64"];

/// The arguments that have the kernel refuse what QEMU does not need, new privileges and other programs, where QEMU is built
/// with that.
const SANDBOX: [&str; 2] = ["-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny"];

/// A core that QEMU emulates.
#[derive(Debug)]
pub struct QemuCores {
    emulator: &'static str,
    /// Whether QEMU takes [`SANDBOX`].
    sandbox: bool,
    stage: Stage<Loaded, Running>,
}

#[derive(Debug)]
struct Loaded {
    machine: Machine,
    program: Program,
    memory: File,
    bytes: u64,
}

#[derive(Debug)]
struct Running {
    machine: Machine,
    emulator: Emulator,
    /// Kept open, as its number is hidden from the program.
    _memory: File,
}

/// QEMU's process, which is killed with this value.
#[derive(Debug)]
struct Emulator(Child);

impl Drop for Emulator {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns why QEMU is no longer there, if it is not.
fn gone(child: &mut Child) -> Option<String> {
    match child.try_wait() {
        Ok(None) => None,
        Ok(Some(status)) => Some(format!("QEMU ended under it ({status})")),
        Err(error) => Some(format!("QEMU cannot be waited for ({error})")),
    }
}

impl QemuCores {
    /// Makes cores without a program.
    ///
    /// # Errors
    /// QEMU is not installed.
    pub fn new() -> Result<QemuCores, SegmentError> {
        let takes = |name: &str, options: &[&str]| {
            let mut command = Command::new(name);
            command.args(options).arg("--version").stdin(Stdio::null());
            let tried = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
            tried.is_ok_and(|status| status.success())
        };
        match NAMES.iter().find(|name| takes(name, &[])) {
            Some(emulator) => {
                Ok(QemuCores { emulator, sandbox: takes(emulator, &SANDBOX), stage: Stage::default() })
            }
            None => {
                let why = "qemu-system-i386 is not installed (Debian: apt-get install qemu-system-x86)";
                Err(SegmentError::Unavailable { kind: Kind::Qemu, why: why.to_owned() })
            }
        }
    }
}

impl Cores for QemuCores {
    fn load(&mut self, program: &Program, bytes: u64) -> Result<(), SegmentError> {
        let sizes = Sizes::of(bytes)?;
        let file = file(c"atoll-segment")?;
        let refused = |error| SegmentError::Memory { bytes: sizes.all, error };
        file.set_len(sizes.all).map_err(refused)?;
        let memory = Memory::shared(file.as_raw_fd(), sizes.all as usize).map_err(refused)?;
        let machine = Machine::load(memory, sizes, program, Kind::Qemu)?;
        self.stage =
            Stage::Loaded(Loaded { machine, program: program.clone(), memory: file, bytes: sizes.all });
        Ok(())
    }

    fn start(&mut self) -> Result<(), SegmentError> {
        let Loaded { machine: mut guest, program, memory: file_of_guest, bytes } = self.stage.loaded()?;
        let mut image = file(c"atoll-monitor")?;
        image.write_all(&monitor::image(guest.monitor)).map_err(machine("writing the monitor"))?;
        let path = |file: &File| format!("/proc/self/fd/{}", file.as_raw_fd());
        let megabytes = bytes >> 20;
        let memory = path(&file_of_guest);
        let mut command = Command::new(self.emulator);
        command
            .args(["-accel", "tcg", "-cpu", "max", "-machine", "pc,memory-backend=ram"])
            .args(["-m", &format!("{megabytes}M")])
            .args([
                "-object",
                &format!("memory-backend-file,id=ram,size={megabytes}M,mem-path={memory},share=on"),
            ])
            .args(["-kernel", &path(&image)])
            .args(["-nodefaults", "-no-user-config", "-display", "none", "-vga", "none", "-no-reboot"])
            .args(if self.sandbox { &SANDBOX[..] } else { &[] })
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        // SAFETY: one system call without pointers; QEMU is not to outlive us, however we end.
        unsafe {
            command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            });
        }
        let mut emulator = Emulator(command.spawn().map_err(machine("starting QEMU"))?);
        guest.load_after_firmware(&program, || gone(&mut emulator.0))?;
        guest.delegate().hide(file_of_guest.as_raw_fd());
        self.stage = Stage::Running(Running { machine: guest, emulator, _memory: file_of_guest });
        Ok(())
    }

    fn serve(&mut self) -> Result<End, SegmentError> {
        let Running { machine, mut emulator, _memory } = self.stage.running()?;
        Ok(machine.serve(|| gone(&mut emulator.0)))
    }
}
