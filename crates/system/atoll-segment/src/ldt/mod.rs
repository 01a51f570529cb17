//! 32-bit segments in a Linux process: code, data and stack with base and limit, checked by the processor.
//!
//! Of what runs on an ordinary kernel at native speed, this is nearest to the talk's segmentation cores. A core is a thread of
//! this process (`core.rs`) in compatibility mode. Descriptors are Linux's own (`descriptors.rs`). A program that makes a
//! system call through the gate (`gate.rs`), as libc does where it is told of one, leaves without entering the kernel. A
//! program that executes `int 0x80` is caught by syscall user dispatch (`signal.rs`), which costs some twenty times as much.
//!
//! The segment lies alone in the lowest 4 GiB, and everything of atoll's above. If a program loads Linux's flat 32-bit
//! segments, it reaches only a gate that it cannot write and a page of descriptors. Only a far jump to Linux's 64-bit code
//! segment leads out, and no limit can stop that. `process.rs` has the same segments in a process of its own, where the jump
//! leads to nothing. The limit is that of data and stack. Fetching instructions beyond it fails because nothing is mapped
//! there; a limit of the code segment below 4 GiB would halve the speed of loops.

mod core;
mod descriptors;
mod frame;
mod gate;
mod process;
mod signal;
mod switch;

pub use process::ProcessCores;

use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};

use self::core::{Beginning, Shared};
use self::descriptors::Mailbox;
use self::switch::MOST_CORES;
use crate::backend::{Cores, End, Kind, Program, SegmentError, machine, segment_bytes};
use crate::memory::Memory;
use crate::plan::{self, LEAST, Loaded};
use crate::stage::Stage;
use crate::violation::Registers;

/// The address of the segment's offset 0 in this process. Today's processors run code whose segment begins elsewhere many times
/// slower, and the data's segment must begin where the code's does.
const BASE: u32 = 0;
/// The offset of the program's side of the gate, with which the segment begins. Below it Linux maps nothing for ordinary users.
const GATE: u32 = 0x10000;
/// The lowest offset that belongs to the program, so that a null pointer does not.
const LOW: u64 = 0x20000;
/// The address, beyond any limit, of the gate's 64-bit side and of the mailbox.
const OUTSIDE: u32 = 0xffe0_0000;
const MAILBOX: u32 = OUTSIDE + 0x1000;
/// The largest segment in bytes.
const MOST: u64 = OUTSIDE as u64;
const PAGE: usize = 4096;

/// Cores of 32-bit segments in this process. A process can have this value once, and it takes over signals.
#[derive(Debug, Default)]
pub struct LdtCores {
    stage: Stage<Box<Loaded>, Receiver<End>>,
}

impl LdtCores {
    /// Makes cores without a program.
    ///
    /// # Errors
    /// The kernel has no 32-bit segments, or no syscall user dispatch.
    pub fn new() -> Result<LdtCores, SegmentError> {
        needs(Kind::Ldt)?;
        Ok(LdtCores::default())
    }
}

/// Checks that this kernel has what segments need.
///
/// # Errors
/// Says what is missing, for cores of that kind.
fn needs(kind: Kind) -> Result<(), SegmentError> {
    let unavailable = |why: String| SegmentError::Unavailable { kind, why };
    // SAFETY: reads no bytes of the table.
    if unsafe { libc::syscall(libc::SYS_modify_ldt, 0, std::ptr::null::<u8>(), 0) } == -1 {
        let error = std::io::Error::last_os_error();
        return Err(unavailable(format!(
            "the kernel has no modify_ldt ({error}; CONFIG_MODIFY_LDT_SYSCALL)"
        )));
    }
    if !calls_32() {
        let why = "the kernel runs no 32-bit code (CONFIG_IA32_EMULATION, or ia32_emulation=0 at boot)";
        return Err(unavailable(why.to_owned()));
    }
    Ok(())
}

/// Whether the kernel serves `int 0x80`. A process of its own tries it, and dies where the kernel does not.
fn calls_32() -> bool {
    const GETPID: u32 = 20;
    // SAFETY: the child calls nothing but system calls.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: in this child the fault of a refused call is to kill it, without a dump of core.
        unsafe {
            libc::signal(libc::SIGSEGV, libc::SIG_DFL);
            libc::prctl(libc::PR_SET_DUMPABLE, 0);
            let pid = switch::call_32(GETPID, 0);
            libc::_exit(i32::from(pid <= 0));
        }
    }
    let mut status = 0;
    // SAFETY: our child.
    pid > 0 && unsafe { libc::waitpid(pid, &raw mut status, 0) } == pid && status == 0
}

/// Writes `code` to one of atoll's mappings and makes it read-only.
fn place(at: usize, code: &[u8]) -> Result<(), SegmentError> {
    // SAFETY: a page that was just mapped for this.
    unsafe { std::ptr::copy_nonoverlapping(code.as_ptr(), at as *mut u8, code.len()) };
    protect(at, PAGE, libc::PROT_READ | libc::PROT_EXEC)
}

fn protect(at: usize, bytes: usize, protection: i32) -> Result<(), SegmentError> {
    // SAFETY: pages of ours that nothing uses yet.
    match unsafe { libc::mprotect(at as *mut libc::c_void, bytes, protection) } {
        0 => Ok(()),
        _ => Err(machine("protecting the gate")(std::io::Error::last_os_error())),
    }
}

impl Cores for LdtCores {
    fn load(&mut self, program: &Program, bytes: u64) -> Result<(), SegmentError> {
        program.for_width(Kind::Ldt)?;
        let why = "a 32-bit program reaches 4 GiB, less what the gate takes";
        let bytes = segment_bytes(bytes, PAGE as u64, LEAST..=MOST, why)?;
        let refused = |bytes: u64| move |error| SegmentError::Memory { bytes, error };
        // Both stay for the rest of the process's life, as cores are not stopped one by one at the program's end.
        let outside = Memory::private(Some(OUTSIDE as usize), 2 * PAGE).map_err(refused(2 * PAGE as u64))?;
        let memory =
            Memory::private(Some(GATE as usize), bytes as usize - GATE as usize).map_err(refused(bytes))?;
        place(OUTSIDE as usize, &gate::outside())?;
        protect(MAILBOX as usize, PAGE, libc::PROT_READ | libc::PROT_WRITE)?;
        place(GATE as usize, &gate::inside(OUTSIDE))?;
        protect(GATE as usize + PAGE, LOW as usize - GATE as usize - PAGE, libc::PROT_NONE)?;
        let pages = (bytes / PAGE as u64) as u32;
        descriptors::set_segments(BASE, pages).map_err(machine("modify_ldt"))?;
        let window = memory.window(-i64::from(GATE), LOW, bytes);
        let gate = Some((u64::from(GATE), u64::from(GATE + gate::CALL)));
        let loaded = plan::load(program, window, memory.discard(), gate, true)?;
        std::mem::forget((outside, memory));
        self.stage = Stage::Loaded(Box::new(loaded));
        Ok(())
    }

    fn start(&mut self) -> Result<(), SegmentError> {
        let Loaded { delegate, entry, stack, .. } = *self.stage.loaded()?;
        let delegate: &'static _ = Box::leak(Box::new(delegate));
        signal::install(delegate.signals());
        let (end, ended) = mpsc::channel();
        let shared = Arc::new(Shared {
            delegate,
            // SAFETY: mapped in `load`, for good.
            mailbox: unsafe { Mailbox::new(MAILBOX) },
            base: BASE,
            gate: GATE,
            end: Mutex::new(end),
            taken: [const { AtomicBool::new(false) }; MOST_CORES],
        });
        let registers =
            Registers { eip: entry as u32, esp: stack as u32, eflags: 0x202, ..Registers::default() };
        let begin = Beginning { registers, gs: 0, thread_pointer: None, clear_at_end: 0, mask: 0 };
        let (ready, told) = mpsc::channel();
        core::spawn(&shared, begin, move |made| {
            let _ = ready.send(made.map(|_| ()));
        })?;
        told.recv().map_err(|e| machine("a core's start")(std::io::Error::other(e)))??;
        self.stage = Stage::Running(ended);
        Ok(())
    }

    fn serve(&mut self) -> Result<End, SegmentError> {
        self.stage.wait()
    }
}
