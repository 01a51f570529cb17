//! Delegated system calls: the paging side serves what programs ask for, on the program's memory.
//!
//! Backends bring calls here from their cores; `list.rs` is the one list of calls, with their numbers for both
//! widths. The talk's `load_core` (and IHK/McKernel's proxy process) does the same.

mod files;
pub(crate) mod list;
mod memory;
mod opening;
mod pass;
mod process;
mod signals;
mod threads;
mod time;

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

pub(crate) use list::{CALLS, Call};
pub(crate) use signals::{Action, Signals, bit};
pub(crate) use threads::{CloneRequest, THREAD_DESCRIPTOR};

use crate::errno::Errno;
use crate::image::Width;
use crate::memory::Discard;
use crate::space::Space;
use crate::window::Window;

/// What the core does after a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The core goes on with this value, as the kernel would return it.
    Value(u64),
    /// The core's thread pointer becomes this offset.
    ThreadPointer { base: u64 },
    /// Another core begins.
    Clone(CloneRequest),
    /// The frame that a signal's handler ran on is taken back; `old` is set for the older of i386's two forms.
    SignalReturn { old: bool },
    /// This core ends.
    EndCore(i32),
    /// The program ends with this status.
    End(i32),
    /// The program ends by this signal.
    Kill(i32),
}

/// The state of one core that the paging side keeps.
#[derive(Debug, Default)]
pub(crate) struct Caller {
    /// The offset of the word that is cleared when the core ends, which wakes the threads waiting there.
    pub(crate) clear_at_end: u64,
    /// The signals that are blocked, bit 0 for signal 1.
    pub(crate) mask: u64,
    /// The stack for handlers that ask for one: offset and bytes.
    pub(crate) signal_stack: Option<(u64, u64)>,
    /// The offset of the program's thread pointer.
    pub(crate) thread_pointer: u64,
    /// A mask to return to when the interrupting handler returns (`sigsuspend`).
    pub(crate) mask_after: Option<u64>,
}

/// The way in which a call is served.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Serve {
    /// By the same call of this machine, with its pointers translated.
    Pass(libc::c_long, &'static [pass::Kind]),
    /// By a function.
    By(fn(&Delegate, &mut Caller, [u64; 6]) -> Result<u64, Errno>),
    /// By a function that decides what the core does next.
    To(fn(&Delegate, &mut Caller, [u64; 6]) -> Result<Outcome, Errno>),
    /// Not served, and the user is told.
    Refuse,
    /// Not served; programs do without it.
    Absent,
}

/// The paging side of one program.
#[derive(Debug)]
pub(crate) struct Delegate {
    width: Width,
    window: Window,
    discard: Discard,
    /// Whether cores can be added while the program runs.
    threads: bool,
    program: PathBuf,
    space: Mutex<Space>,
    signals: Signals,
    hidden: Mutex<BTreeSet<i32>>,
    told: Mutex<BTreeSet<u32>>,
    by_number: HashMap<u32, &'static Call>,
}

/// What a delegate is made for.
#[derive(Debug)]
pub(crate) struct About {
    pub(crate) width: Width,
    pub(crate) window: Window,
    pub(crate) discard: Discard,
    pub(crate) threads: bool,
    pub(crate) program: PathBuf,
    pub(crate) space: Space,
}

/// Takes a lock whose holder cannot leave things half done.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Delegate {
    /// Makes the paging side of a program that has just been loaded.
    pub(crate) fn new(about: About) -> Delegate {
        let About { width, window, discard, threads, program, space } = about;
        let number = |call: &'static Call| match width {
            Width::Bits32 => call.i386,
            Width::Bits64 => call.x86_64,
        };
        let by_number = CALLS.iter().filter_map(|call| Some((number(call)?, call))).collect();
        Delegate {
            width,
            window,
            discard,
            threads,
            program,
            space: Mutex::new(space),
            signals: Signals::default(),
            hidden: Mutex::default(),
            told: Mutex::default(),
            by_number,
        }
    }

    /// Returns the program's memory.
    pub(crate) fn window(&self) -> &Window {
        &self.window
    }

    /// Returns what the program wants done about signals.
    pub(crate) fn signals(&self) -> &Signals {
        &self.signals
    }

    /// Keeps one of atoll's descriptors out of the program's reach.
    pub(crate) fn hide(&self, fd: i32) {
        lock(&self.hidden).insert(fd);
    }

    /// Serves call `number` of a core; blocks for as long as the call does.
    pub(crate) fn serve(&self, caller: &mut Caller, number: u32, arguments: [u64; 6]) -> Outcome {
        let Some(call) = self.by_number.get(&number) else {
            self.tell(number, "a system call that atoll does not know");
            return Outcome::Value(Errno(libc::ENOSYS).returned());
        };
        let served = match call.serve {
            Serve::Pass(host, kinds) => pass::pass(self, host, kinds, arguments).map(Outcome::Value),
            Serve::By(serve) => serve(self, caller, arguments).map(Outcome::Value),
            Serve::To(serve) => serve(self, caller, arguments),
            Serve::Refuse => {
                self.tell(number, call.name);
                Err(Errno(libc::ENOSYS))
            }
            Serve::Absent => Err(Errno(libc::ENOSYS)),
        };
        served.unwrap_or_else(|errno| Outcome::Value(errno.returned()))
    }

    /// Whether another thread than the core's own may serve this call.
    pub(crate) fn is_quick(&self, number: u32) -> bool {
        self.by_number.get(&number).is_some_and(|call| list::QUICK.contains(&call.name))
    }

    /// Says once on standard error that a call could not be delegated.
    fn tell(&self, number: u32, name: &str) {
        if lock(&self.told).insert(number) {
            eprintln!("atoll: segment: call {number} ({name}) cannot be delegated, the program gets ENOSYS");
        }
    }

    /// Says once that a program asked for a thread from a backend that has none.
    fn tell_no_threads(&self) {
        if lock(&self.told).insert(u32::MAX) {
            eprintln!("atoll: segment: clone cannot be delegated by this backend, the program gets ENOSYS");
        }
    }

    /// Says once that the program asked for a file that is memory.
    fn tell_memory(&self) {
        if lock(&self.told).insert(u32::MAX - 1) {
            eprintln!(
                "atoll: segment: a file that is memory cannot be opened from a segment, the program gets EACCES"
            );
        }
    }

    /// Returns the descriptor if it is one of the program's.
    ///
    /// # Errors
    /// EBADF if the descriptor is atoll's.
    fn fd(&self, fd: u64) -> Result<u64, Errno> {
        let fd = u64::from(fd as u32);
        if lock(&self.hidden).contains(&(fd as i32)) { Err(Errno(libc::EBADF)) } else { Ok(fd) }
    }

    /// Returns the lowest offset and the first offset beyond the segment, for messages.
    pub(crate) fn limit(&self) -> u64 {
        self.window.limit()
    }

    fn is_32(&self) -> bool {
        self.width == Width::Bits32
    }
}

#[cfg(test)]
mod tests;
