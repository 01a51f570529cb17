//! How a program is ended that cannot go on: a sentence on standard error, and the exit status for the launcher.
//!
//! The fault path and a node's agent come here, so nothing is allocated. The launcher reads the status in the control block.
//!
//! Rules: no allocation, no locks, no arena access.

use std::sync::atomic::Ordering;

use crate::control::{EXIT_FAR, EXIT_NEAR, EXIT_SETUP, MAX_THREADS};
use crate::managed::control;
use crate::pager::FaultError;
use crate::sys;

/// Nanoseconds that whoever gives up later leaves to the first for its sentence.
const FIRST_NS: i64 = 200_000_000;

/// Ends the program: what happened on standard error, the exit status for the launcher, SIGKILL for the rest. Of several that give
/// up at once, the first says why. A program without a launcher ends with the exit status itself.
pub fn give_up(status: i32, message: &str) -> ! {
    let first = control().is_none_or(|control| {
        control.failure.compare_exchange(0, status, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    });
    if first {
        sys::complain_whole(["atoll: ", message, "\n"]);
    } else {
        // The first ends all of the program once it has said why.
        sys::sleep_ns(FIRST_NS);
    }
    if let Some(control) = control() {
        let master = control.program.load(Ordering::Relaxed);
        if master > 0 && control.settings.has_no_launcher == 0 {
            // SAFETY: no pointers; the master is this program.
            let _ = unsafe {
                sys::syscall(libc::SYS_kill, [master as usize, libc::SIGKILL as usize, 0, 0, 0, 0])
            };
        }
    }
    loop {
        // SAFETY: ends this process.
        let _ = unsafe { sys::syscall(libc::SYS_exit_group, [status as usize, 0, 0, 0, 0, 0]) };
    }
}

/// Ends the program after a fault that could not be resolved.
pub fn end(error: FaultError) -> ! {
    match error {
        FaultError::Far(e) => {
            let mut text = Text::new();
            let _ = std::fmt::Write::write_fmt(&mut text, format_args!("{e}"));
            give_up(EXIT_FAR, std::str::from_utf8(&text.bytes[..text.len]).unwrap_or("far memory failed"))
        }
        FaultError::NearTooSmall { pinned, tables, least } => {
            let mut text = Text::new();
            let _ = std::fmt::Write::write_fmt(
                &mut text,
                format_args!(
                    "--near is less than what must stay near: the program's small blocks, stacks and small globals \
                     ({}K) and atoll's tables ({}K); this needs --near {}K at least",
                    pinned >> 10,
                    tables >> 10,
                    least.div_ceil(1024)
                ),
            );
            give_up(EXIT_NEAR, std::str::from_utf8(&text.bytes[..text.len]).unwrap_or("--near is too small"))
        }
        FaultError::NoRoom => give_up(
            EXIT_NEAR,
            "near memory is full of pages that must stay: raise --near (or lower the number of workers)",
        ),
        FaultError::Kernel(sys::Errno(libc::ENOMEM)) | FaultError::Lost(sys::Errno(libc::ENOMEM)) => give_up(
            EXIT_NEAR,
            "this machine has no memory left for a page that --near allows: lower --near, or with --page 2M \
             reserve more huge pages (/proc/sys/vm/nr_hugepages)",
        ),
        FaultError::Kernel(e) | FaultError::Lost(e) => {
            let mut text = Text::new();
            let _ = std::fmt::Write::write_fmt(
                &mut text,
                format_args!("the kernel refused to map a page (userfaultfd: {e}): see `atoll doctor`"),
            );
            give_up(EXIT_SETUP, text.as_str())
        }
        FaultError::TooManyThreads => {
            let mut text = Text::new();
            let _ = std::fmt::Write::write_fmt(
                &mut text,
                format_args!(
                    "the program has more than {MAX_THREADS} threads of its own at once that use paged memory: run it without atoll, or with fewer"
                ),
            );
            give_up(EXIT_SETUP, text.as_str())
        }
        FaultError::NotOurs => give_up(EXIT_SETUP, "a page that should be paged memory is none"),
        FaultError::Interrupted => give_up(EXIT_SETUP, "a fault outside of the handler was interrupted"),
    }
}

/// A message under construction, without an allocator.
#[derive(Debug)]
pub struct Text {
    bytes: [u8; 512],
    len: usize,
}

impl Text {
    /// A message that is still empty.
    #[expect(clippy::new_without_default, reason = "nobody asks for one by default")]
    pub fn new() -> Text {
        Text { bytes: [0; 512], len: 0 }
    }

    /// The message so far.
    pub fn as_str(&self) -> &str {
        // What does not fit may be cut within a character.
        std::str::from_utf8(&self.bytes[..self.len]).unwrap_or("a page could not be mapped")
    }
}

impl std::fmt::Write for Text {
    fn write_str(&mut self, s: &str) -> std::fmt::Result {
        let n = s.len().min(self.bytes.len() - self.len);
        self.bytes[self.len..self.len + n].copy_from_slice(&s.as_bytes()[..n]);
        self.len += n;
        Ok(())
    }
}
