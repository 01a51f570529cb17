//! The main stack on several nodes: paged memory as the rest, since regions' arguments and shared variables lie on it.
//!
//! On the origin it is moved while it is in use (`share`); elsewhere the first process's own stack lies at the same
//! addresses, so its thread sleeps for ever and the agent maps the origin's over it. How to leave it for a while: `atoll_nodes::stack`.

use std::sync::atomic::{AtomicU32, Ordering};

use atoll_memory::pager::Pager;
use atoll_memory::sys::{self, Errno};

use super::{share, slots};
use crate::arch;

/// The place of the main stack: the lowest address that it may grow to, the address from which it is used, and its end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stack {
    pub(crate) bottom: usize,
    pub(crate) used: usize,
    pub(crate) top: usize,
    /// The stack may hold code: the kernel's mapping, which the executable's header asks for, says so.
    pub(crate) executable: bool,
}

impl Stack {
    /// Gives the stack, once it was moved, and all stacks to come, the permission to hold code if it had it.
    pub(crate) fn keep_executable(self) {
        if self.executable {
            slots::make_executable(self.bottom, self.top);
        }
    }
}

/// On the origin: moves the stack to the arena's files; it is not registered yet.
pub(crate) fn move_here(pager: &Pager, stack: Stack) -> Result<(), Errno> {
    let (first, offset) = reserve(pager, stack)?;
    if stack.bottom < stack.used {
        // SAFETY: NOREPLACE: the free addresses below the stack.
        unsafe {
            pager.files().map(stack.bottom, offset, stack.used - stack.bottom, libc::MAP_FIXED_NOREPLACE)?;
        }
    }
    let used = offset + (stack.used - stack.bottom) as u64;
    // The used part is in one stripe: see `Pager::reserve_range_to_stripe`.
    share::move_to(pager.files().file(used), used, stack.used, stack.top)?;
    stack.keep_executable();
    pager.publish_range(stack.bottom, stack.top, first);
    Ok(())
}

/// Elsewhere: maps the stretch over the first thread's stack, which is never used again.
///
/// # Safety
/// No thread may use that stack any more.
pub(crate) unsafe fn map_over(pager: &Pager, stack: Stack) -> Result<(), Errno> {
    let (first, offset) = reserve(pager, stack)?;
    // SAFETY: by the caller.
    unsafe { pager.files().map(stack.bottom, offset, stack.top - stack.bottom, libc::MAP_FIXED)? };
    stack.keep_executable();
    pager.publish_range(stack.bottom, stack.top, first);
    Ok(())
}

fn reserve(pager: &Pager, stack: Stack) -> Result<(u32, u64), Errno> {
    pager.reserve_range_to_stripe(stack.bottom, stack.top).ok_or(Errno(libc::ENOMEM))
}

/// On the origin, once its pages are served: drops the mappings from before, and touches the part that is not in use yet, as
/// the kernel, which writes signal frames there, cannot fault.
pub(crate) fn settle(stack: Stack) {
    let len = stack.top - stack.bottom;
    // SAFETY: the content is in the file; the next touch maps it again.
    let _ = unsafe {
        sys::syscall(libc::SYS_madvise, [stack.bottom, len, libc::MADV_DONTNEED as usize, 0, 0, 0])
    };
    let least = stack.used.saturating_sub(PRESENT).max(stack.bottom);
    for at in (least..stack.used).step_by(4096) {
        // SAFETY: below the stack in use; a read faults the page in.
        unsafe { std::ptr::read_volatile(at as *const u8) };
    }
}

/// On another node than the origin: 1 once its first thread does not touch its stack any more.
static ASLEEP: AtomicU32 = AtomicU32::new(0);

/// The first thread of another node than the origin sleeps, without a stack.
pub(crate) fn sleep_for_ever() -> ! {
    // SAFETY: a static; all signals are blocked.
    unsafe { arch::sleep_for_ever(ASLEEP.as_ptr()) }
}

/// Waits until the first thread sleeps.
pub(crate) fn wait_for_sleep() {
    while ASLEEP.load(Ordering::Acquire) == 0 {
        sys::yield_now();
    }
}

/// Bytes below the stack in use that are made present.
const PRESENT: usize = 8 << 20;
