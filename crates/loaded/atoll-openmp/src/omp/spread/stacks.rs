//! Stacks that all nodes see, for workers of regions whose tasks travel: a task may use a variable on the stack of whoever made it.
//!
//! `crew`, `parallel` and `tasks` call the program's functions through this. The main stack is such a stack already, and
//! `atoll_nodes::stack` moves between the two.

use std::mem::MaybeUninit;

use atoll_memory::sys;
use atoll_nodes::stack;

use crate::heap::exports;
use crate::omp::env;
use crate::omp::team::{Function, Team, Thread};

/// The bytes of a stack where `OMP_STACKSIZE` does not say.
const BYTES: usize = 8 << 20;
/// The least bytes of a stack.
const LEAST: usize = 128 << 10;
/// The bytes below a stack that nobody may use.
const GUARD: usize = 4096;

/// Calls `function(data)` in a member of `team`: if the team's tasks travel, on a stack that all nodes see.
#[inline]
pub(crate) fn call(thread: &Thread, team: &Team, function: Function, data: *mut u8) {
    if !team.sends_tasks() || thread.first || stack::is_given() {
        return function(data);
    }
    let top = match thread.paged_stack.get() {
        0 => make(thread),
        top => top,
    };
    // SAFETY: the stack is this thread's, which is not on it.
    unsafe { stack::call_paged(function, data, top) };
}

/// A call of `function` with a copy of `size` bytes at `data`.
struct Call {
    function: Function,
    data: *const u8,
    size: usize,
    align: usize,
}

/// As [`call`], with a copy on the stack of `size` bytes at `data`, to be aligned to `align`: tasks that the function makes may use
/// what lies there on other nodes.
pub(crate) fn call_with_copy(
    thread: &Thread,
    team: &Team,
    function: Function,
    (data, size, align): (*mut u8, usize, usize),
) {
    let mut all = Call { function, data, size, align };
    call(thread, team, copy_and_call, (&raw mut all).cast());
}

extern "C" fn copy_and_call(all: *mut u8) {
    // SAFETY: `call_with_copy` waits meanwhile.
    let Call { function, data, size, align } = unsafe { all.cast::<Call>().read() };
    with_room(size, align, |room| {
        // SAFETY: the room has that many bytes.
        unsafe { data.copy_to_nonoverlapping(room, size) };
        function(room);
    });
}

/// Bytes for which there is room on the stack, and their greatest alignment.
const SMALL: usize = 256;
const MIDDLE: usize = 4096;
const ALIGN: usize = 64;

#[repr(align(64))]
struct Room<const N: usize>(MaybeUninit<[u8; N]>);

/// Is there room for `size` bytes on the stack, aligned to `align`?
pub(crate) fn has_room(size: usize, align: usize) -> bool {
    align <= ALIGN && size <= MIDDLE
}

/// Calls `work` with room for `size` bytes, aligned to `align`: on the stack, or what is more than that in the program's memory.
pub(crate) fn with_room(size: usize, align: usize, work: impl FnOnce(*mut u8)) {
    if align <= ALIGN && size <= SMALL {
        on_stack::<SMALL>(work);
    } else if has_room(size, align) {
        on_stack::<MIDDLE>(work);
    } else {
        let Some(block) = exports::program_block(size.saturating_add(align)) else {
            crate::omp::fatal("Out of memory allocating a task")
        };
        let room = block.cast::<u8>();
        work(room.wrapping_add(room.align_offset(align.max(1))));
        // SAFETY: made here, and nobody uses it any more.
        unsafe { exports::free(block) };
    }
}

#[inline(never)]
fn on_stack<const N: usize>(work: impl FnOnce(*mut u8)) {
    let mut room = Room::<N>(MaybeUninit::uninit());
    work(room.0.as_mut_ptr().cast());
}

/// Makes the thread's stack; returns its end.
#[cold]
fn make(thread: &Thread) -> usize {
    let asked = if env::stack_bytes() == 0 { BYTES } else { env::stack_bytes() };
    let bytes = (asked.max(LEAST) + GUARD).next_multiple_of(GUARD);
    let Some(block) = exports::program_block(bytes) else {
        crate::omp::fatal("Out of memory allocating a stack for a worker whose tasks travel")
    };
    // The thread's heap is made here: what it asks the kernel for as it begins would be fetched by way of the heap on a paged stack.
    drop(std::hint::black_box(Box::new(0_u64)));
    let begin = (block as usize).next_multiple_of(GUARD);
    // In this worker's page table, the only one in which the stack is used so deep. Where the kernel refuses it there is no guard.
    // SAFETY: the page is the block's, and nobody uses it.
    let _ = unsafe { sys::syscall(libc::SYS_mprotect, [begin, GUARD, libc::PROT_NONE as usize, 0, 0, 0]) };
    let top = (block as usize + bytes) & !15;
    thread.paged_stack.set(top);
    top
}
