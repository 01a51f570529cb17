//! A 32-bit machine without paging in QEMU without acceleration: slow, but on any machine.
//!
//! `machine.rs` has its memory, which is a file in memory that QEMU maps as the guest's; nothing is left of it on any disk.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use super::machine::{Machine, Sizes};
use super::monitor;
use crate::backend::{Cores, End, Kind, Program, SegmentError, machine};
use crate::memory::Memory;

/// Names of the emulator, either of which will do.
const NAMES: [&str; 2] = ["qemu-system-i386", "qemu-system-x86_64"];

/// A core that QEMU emulates.
#[derive(Debug)]
pub struct QemuCores {
    emulator: &'static str,
    state: Option<State>,
}

#[derive(Debug)]
struct State {
    machine: Machine,
    program: Program,
    memory: File,
    bytes: u64,
    child: Option<Child>,
}

impl Drop for State {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // It may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A file in memory that a child may open by its number.
fn file(name: &std::ffi::CStr) -> Result<File, SegmentError> {
    // SAFETY: a C string; no flags, as the child is to have it.
    let fd = unsafe { libc::memfd_create(name.as_ptr(), 0) };
    if fd < 0 {
        return Err(machine("making a file in memory")(std::io::Error::last_os_error()));
    }
    // SAFETY: a fresh descriptor.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// Why QEMU is no longer there, if so.
fn gone(child: &mut Child) -> Option<String> {
    match child.try_wait() {
        Ok(None) => None,
        Ok(Some(status)) => Some(format!("QEMU ended under it ({status})")),
        Err(error) => Some(format!("QEMU cannot be waited for ({error})")),
    }
}

impl QemuCores {
    /// Nothing yet.
    ///
    /// # Errors
    /// QEMU is not installed.
    pub fn new() -> Result<QemuCores, SegmentError> {
        let runs = |name: &&&str| {
            let tried =
                Command::new(name).arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).status();
            tried.is_ok_and(|status| status.success())
        };
        match NAMES.iter().find(runs) {
            Some(emulator) => Ok(QemuCores { emulator, state: None }),
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
        self.state =
            Some(State { machine, program: program.clone(), memory: file, bytes: sizes.all, child: None });
        Ok(())
    }

    fn start(&mut self) -> Result<(), SegmentError> {
        let Some(state) = &mut self.state else {
            return Err(machine("starting cores")(std::io::Error::other("no program is loaded")));
        };
        let mut image = file(c"atoll-monitor")?;
        image.write_all(&monitor::image(state.machine.monitor)).map_err(machine("writing the monitor"))?;
        let path = |file: &File| format!("/proc/self/fd/{}", file.as_raw_fd());
        let megabytes = state.bytes >> 20;
        let memory = path(&state.memory);
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
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        // SAFETY: one system call without pointers; QEMU is not to outlive us, however we end.
        unsafe {
            command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            });
        }
        let child = state.child.insert(command.spawn().map_err(machine("starting QEMU"))?);
        state.machine.load_after_firmware(&state.program, || gone(child))?;
        state.machine.delegate().hide(state.memory.as_raw_fd());
        Ok(())
    }

    fn serve(&mut self) -> Result<End, SegmentError> {
        let Some(State { machine: memory, child: Some(child), .. }) = &mut self.state else {
            return Err(machine("serving cores")(std::io::Error::other("none was started")));
        };
        let end = memory.serve(|| gone(child));
        // Ends QEMU.
        self.state = None;
        Ok(end)
    }
}
