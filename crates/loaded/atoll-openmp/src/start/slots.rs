//! Slots: stretches of shared memory for threads' stacks, at addresses that are unique among all processes and nodes.
//!
//! A slot holds, from its upper end down, a thread's thread-local storage, where glibc puts it, the thread's stack, a guard,
//! the stack on which the thread handles signals, and the stack on which a worker's process begins. `process` takes slots for
//! workers, `threads` for the program's own threads. In a segment a slot is one of the segment's large blocks.

use std::sync::atomic::{AtomicBool, Ordering};

use atoll_memory::spin::Spin;
use atoll_memory::sys;

use super::{segment, signal};
use crate::heap::{large, place};
use crate::state::SignalsBlocked;

/// Bytes of the stack on which a worker's process begins, at the slot's lower end.
pub(super) const BOOT_BYTES: usize = 128 << 10;
/// The offset in a slot of the stack for signals.
const ALTERNATE: usize = 1 << 20;
/// The offset in a slot of the guard, which is followed by the stack proper.
const GUARD: usize = ALTERNATE + signal::STACK_BYTES;
const STACK: usize = 2 << 20;

/// The power of two of the smallest slot's bytes; larger slots are powers of two, too, which costs address space only.
const LEAST_SHIFT: u32 = 24;
const SHIFTS: usize = 24;

/// Whether stacks may hold code, as the program's executable says.
static EXECUTABLE: AtomicBool = AtomicBool::new(false);

/// The addresses of free slots, by size.
struct Free {
    next: usize,
    by_shift: [Vec<usize>; SHIFTS],
}

static FREE: Spin<Free> = Spin::new(Free { next: 0, by_shift: [const { Vec::new() }; SHIFTS] });

/// A thread's slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    start: usize,
    /// The bytes in use: all that comes before the stack, and the stack.
    bytes: usize,
}

impl Slot {
    /// Takes a slot whose stack has `stack_bytes` besides thread-local storage; `None` where there is no room.
    pub(crate) fn take(stack_bytes: usize) -> Option<Slot> {
        let stack = stack_bytes.checked_add(tls_bytes())?.checked_next_multiple_of(4096)?;
        Slot::with_bytes(STACK.checked_add(stack)?)
    }

    /// Takes a slot without a stack of its own, for a thread that brings one.
    pub(crate) fn without_stack() -> Option<Slot> {
        Slot::with_bytes(STACK)
    }

    fn with_bytes(bytes: usize) -> Option<Slot> {
        let start = if segment::is_on() {
            large::allocate(bytes, 4096, large::Content::Zeros)?
        } else {
            Slot::find(bytes)?
        };
        sys::in_core_files(start, bytes, true);
        Some(Slot { start, bytes })
    }

    fn find(bytes: usize) -> Option<usize> {
        let shift = bytes.checked_next_power_of_two()?.trailing_zeros().max(LEAST_SHIFT);
        let _blocked = SignalsBlocked::new();
        let mut free = FREE.lock();
        if let Some(start) = free.by_shift.get_mut((shift - LEAST_SHIFT) as usize)?.pop() {
            return Some(start);
        }
        let area = place::stacks();
        let start = free.next.max(area.start).next_multiple_of(4096);
        let end = start.checked_add(1 << shift).filter(|end| *end <= area.end)?;
        free.next = end;
        Some(start)
    }

    /// Frees the slot of a thread that has ended.
    pub(crate) fn give_back(self) {
        if segment::is_on() {
            large::free(self.start);
            return;
        }
        let shift = self.bytes.next_power_of_two().trailing_zeros().max(LEAST_SHIFT);
        let _blocked = SignalsBlocked::new();
        if let Some(free) = FREE.lock().by_shift.get_mut((shift - LEAST_SHIFT) as usize) {
            free.push(self.start);
        }
    }

    /// The upper end of the stack on which a worker's process begins.
    pub(super) fn boot_top(self) -> usize {
        self.start + BOOT_BYTES
    }

    /// The address of the thread's signal stack of [`signal::STACK_BYTES`].
    pub(crate) fn alternate(self) -> usize {
        self.start + ALTERNATE
    }

    /// The stack proper: address and bytes, in whole pages.
    pub(crate) fn stack(self) -> (usize, usize) {
        (self.start + STACK, self.bytes - STACK)
    }

    /// Gives the pages of guard and stack the protection that a thread of the calling process needs. Makes system calls only.
    pub(crate) fn protect(self) {
        let (stack, bytes) = self.stack();
        // Every page of a segment is entered in page tables before it is used, a guard's too.
        if !segment::is_on() {
            protect(self.start + GUARD, STACK - GUARD, libc::PROT_NONE);
        }
        if EXECUTABLE.load(Ordering::Relaxed) {
            protect(stack, bytes, libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC);
        }
    }
}

/// Whether a stack from `start` on is a slot's, with a guard below it.
pub(crate) fn is_stack(start: usize) -> bool {
    place::stacks().contains(&start) && !segment::is_on()
}

/// Makes all stacks executable from now on, the moved main stack at `start..end` among them. Called when the main stack's
/// protection shows that the program keeps code on its stacks.
pub(crate) fn make_executable(start: usize, end: usize) {
    EXECUTABLE.store(true, Ordering::Relaxed);
    protect(start, end - start, libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC);
}

fn protect(at: usize, len: usize, prot: i32) {
    // SAFETY: stacks of this runtime's, whose users expect this protection. If it is refused, a stack that overflows meets no
    // guard, and code on a stack ends the program by SIGSEGV.
    let _ = unsafe { sys::syscall(libc::SYS_mprotect, [at, len, prot as usize, 0, 0, 0]) };
}

/// The bytes that a thread's stack must hold besides the stack proper: static thread-local storage, and glibc's own data.
fn tls_bytes() -> usize {
    // SAFETY: the symbol, where glibc has it, takes attributes and returns bytes.
    unsafe {
        let f =
            libc::dlvsym(libc::RTLD_DEFAULT, c"__pthread_get_minstack".as_ptr(), c"GLIBC_PRIVATE".as_ptr());
        if f.is_null() {
            return 4 << 20;
        }
        let f: unsafe extern "C" fn(*const libc::pthread_attr_t) -> usize = std::mem::transmute(f);
        let mut attributes = std::mem::MaybeUninit::<libc::pthread_attr_t>::uninit();
        libc::pthread_attr_init(attributes.as_mut_ptr());
        f(attributes.as_ptr())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_that_was_given_back_is_taken_again_and_others_lie_apart() {
        let (a, b) = (Slot::with_bytes(STACK + (8 << 20)), Slot::with_bytes(STACK + (20 << 20)));
        let (Some(a), Some(b)) = (a, b) else { panic!("there is room") };
        assert!(a.start + (1 << LEAST_SHIFT) <= b.start);
        assert!(a.alternate() + signal::STACK_BYTES <= a.stack().0);
        a.give_back();
        assert_eq!(Slot::with_bytes(STACK + (9 << 20)).map(|slot| slot.start), Some(a.start));
    }
}
