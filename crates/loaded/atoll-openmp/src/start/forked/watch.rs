//! Ends a forked process whose parent was killed before it had copied all memory: what is missing would read as zeros.
//!
//! `child` begins the watch, a thread of the new process that ends as soon as `serve` says that the copy is complete. The thread holds
//! the userfaultfd, too. So an instruction that touches missing memory goes on sleeping when the parent is gone, until the process ends.
//!
//! Rules for the thread: no allocation, no libc, no thread-local data: it has a stack, and descriptors of its own.

use std::sync::atomic::Ordering;

use atoll_memory::sys::{self, Errno};

use super::child;
use super::plan::Meeting;
use super::serve;
use crate::arch;

const STACK_BYTES: usize = 64 << 10;
/// The thread belongs to its process, but has a table of descriptors of its own: the program never sees what the thread holds.
const FLAGS: i32 =
    libc::CLONE_VM | libc::CLONE_FS | libc::CLONE_SIGHAND | libc::CLONE_THREAD | libc::CLONE_SYSVSEM;

/// What the thread knows; it lies at the upper end of its stack.
struct Watch {
    meeting: *const Meeting,
    /// The userfaultfd, and the descriptor that stands for the parent.
    held: [i32; 2],
    /// The lower end of the stack.
    stack: usize,
}

/// Begins to watch the process for which descriptor `parent` stands, in the new process. `faults`: its userfaultfd.
///
/// # Errors
/// The kernel's: there is no memory, or the user has too many threads.
pub(super) fn begin(meeting: *const Meeting, faults: i32, parent: i32) -> Result<(), Errno> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping, in whose upper end there is room for what the thread knows.
    unsafe {
        let stack = sys::mmap(0, STACK_BYTES, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)?;
        let place = (stack + STACK_BYTES - size_of::<Watch>()) & !15;
        (place as *mut Watch).write(Watch { meeting, held: [faults, parent], stack });
        let thread = clone_on(FLAGS as usize, place, place as *const Watch);
        if thread < 0 {
            let _ = sys::syscall(libc::SYS_munmap, [stack, STACK_BYTES, 0, 0, 0, 0]);
            return Err(Errno(-thread as i32));
        }
    }
    Ok(())
}

/// Makes the thread, which ends without a stack: it unmaps its own.
#[unsafe(naked)]
unsafe extern "C" fn clone_on(flags: usize, stack: usize, watch: *const Watch) -> isize {
    arch::thread_on!(run, STACK_BYTES)
}

/// Watches until the memory is complete. Returns the lower end of the thread's stack.
extern "C" fn run(watch: *const Watch) -> usize {
    // SAFETY: it lies on this thread's stack.
    let watch = unsafe { &*watch };
    // SAFETY: a page that stays in this process.
    let complete = unsafe { &(*watch.meeting).complete };
    let [faults, parent] = watch.held;
    close_others([libc::STDERR_FILENO, faults.min(parent), faults.max(parent)]);
    // Acquire: pairs with the Release in `serve`.
    while complete.load(Ordering::Acquire) == 0 {
        // The parent says that the memory is complete before it ends.
        if serve::wait(parent, 0) && complete.load(Ordering::Acquire) == 0 {
            end();
        }
        child::wait_while(complete.as_ptr() as usize, 0);
    }
    watch.stack
}

/// Closes this thread's descriptors but for three, which are given in ascending order.
fn close_others(kept: [i32; 3]) {
    let mut from = 0;
    for next in kept.map(|fd| fd as usize).into_iter().chain([1 << 31]) {
        if from < next {
            // SAFETY: this thread's table of descriptors is its own.
            let _ = unsafe { sys::syscall(libc::SYS_close_range, [from, next - 1, 0, 0, 0, 0]) };
        }
        from = next + 1;
    }
}

/// Ends this process.
fn end() -> ! {
    sys::complain(
        "atoll: a process that the program forked ends: its parent was killed before all memory was copied\n",
    );
    loop {
        // SAFETY: ends this process.
        unsafe {
            let _ =
                sys::syscall(libc::SYS_kill, [sys::process() as usize, libc::SIGKILL as usize, 0, 0, 0, 0]);
        }
    }
}
