//! Tasks as LLVM's compilers see them: a block that they fill with the task's variables.
//!
//! `tasks` sends them off; the runtime's own task lies before the block, where no compiler looks.
//!
//! Source: LLVM's openmp/runtime/src/kmp.h, `kmp_task_t` and `kmp_tasking_flags_t`.

use super::super::spread::stacks;
use super::super::task::{DETACHABLE, Packing, Task};
use super::super::team::{Thread, me};
use super::super::{env, tasks};
use serde::{Deserialize, Serialize};
use std::mem::offset_of;
use std::ptr;
use std::sync::atomic::Ordering;

/// A task's outlined function, which gets the thread's number and the block.
pub(super) type Routine = extern "C" fn(i32, *mut Block) -> i32;

/// `kmp_task_t`; the task's own variables follow, then the addresses of shared ones. The words behind the first three exist
/// only where the task's flags ask for them: the compiler says how long the block is.
#[repr(C)]
pub(super) struct Block {
    shareds: *mut u8,
    routine: Option<Routine>,
    part: i32,
    destructors: Option<Routine>,
    priority: i32,
}

/// The header in front of each block.
#[repr(C, align(16))]
struct Header {
    task: *const Task,
    routine: Option<Routine>,
    /// The bytes of the block with all that follows it, and of the shared variables' addresses.
    bytes: usize,
    shareds: usize,
    flags: u32,
}

const TIED: u32 = 1;
const FINAL: u32 = 1 << 1;
const DESTRUCTORS: u32 = 1 << 3;
const PROXY: u32 = 1 << 4;
const PRIORITY: u32 = 1 << 5;

impl Block {
    fn header<'a>(block: *mut Block) -> &'a Header {
        // SAFETY: a block is from `make`, which put a header before it.
        unsafe { &*block.cast::<Header>().sub(1) }
    }

    /// The runtime's task.
    pub(super) fn task(block: *mut Block) -> &'static Task {
        // SAFETY: a task lives until it is complete, and the program does not name it after.
        unsafe { &*Block::header(block).task }
    }

    /// The bytes of the block with what follows it.
    pub(super) fn bytes(block: *mut Block) -> usize {
        Block::header(block).bytes
    }

    /// Takes over the task's priority, which the program has put in the block since the task was made.
    pub(super) fn settle(block: *mut Block) {
        if Block::header(block).flags & PRIORITY != 0 {
            // SAFETY: the program has filled the block.
            let asked = unsafe { (*block).priority };
            Block::task(block).priority.set(asked.clamp(0, env::max_task_priority()));
        }
    }

    /// Makes a child of the current task, whose block the program has yet to fill.
    pub(super) fn make(
        thread: &Thread,
        flags: u32,
        bytes: usize,
        shareds: usize,
        routine: Option<Routine>,
    ) -> *mut Block {
        let own = bytes.max(offset_of!(Block, destructors)).next_multiple_of(8);
        let parent = thread.task();
        let all = own + shareds;
        let room = (size_of::<Header>() + all, align_of::<Header>());
        // SAFETY: the task was just made, and lives until it completes.
        let task = unsafe { &*Task::explicit(thread, parent, room, stays(flags)) };
        let header = task.data.get().cast::<Header>();
        let block = header.wrapping_add(1).cast::<Block>();
        // SAFETY: the task's memory has room for the header and the block.
        unsafe {
            header.write(Header { task, routine, bytes: all, shareds, flags });
            let shareds = if shareds == 0 { ptr::null_mut() } else { block.cast::<u8>().add(own) };
            block.cast::<u8>().write_bytes(0, own.min(size_of::<Block>()));
            (*block).shareds = shareds;
            (*block).routine = routine;
        }
        task.data.set(block.cast());
        task.function.set(Some(run));
        task.is_final.set(parent.is_final.get() || flags & FINAL != 0);
        task.team.set(thread.state.get().team);
        task.home.set(thread.id());
        task.packing.set(Packing::Block);
        if flags & DESTRUCTORS != 0 {
            task.ending.set(Some(destroy));
        }
        if is_untied(flags) {
            task.untied.set(true);
        }
        if flags & PROXY != 0 {
            task.detach.store(DETACHABLE, Ordering::Relaxed);
        }
        block
    }

    /// Makes a copy of a task, with the content of its block.
    pub(super) fn copy(thread: &Thread, block: *mut Block) -> *mut Block {
        let header = Block::header(block);
        let new =
            Block::make(thread, header.flags, header.bytes - header.shareds, header.shareds, header.routine);
        // SAFETY: both blocks have that many bytes.
        unsafe { Block::fill(new, block.cast(), header.bytes) };
        Block::settle(new);
        new
    }

    /// Gives a new block the content of another. The pointer to the addresses of shared variables stays the new block's own.
    ///
    /// # Safety
    /// Both have `bytes` bytes, and the addresses of shared variables lie at the same place in both.
    unsafe fn fill(new: *mut Block, content: *const u8, bytes: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            let shareds = (*new).shareds;
            content.copy_to_nonoverlapping(new.cast::<u8>(), bytes);
            (*new).shareds = shareds;
        }
    }
}

/// The address of a task's code, which the block names.
pub(crate) fn code(task: &Task) -> u64 {
    Block::header(task.data.get().cast()).routine.map_or(0, |routine| routine as usize as u64)
}

/// A block on its way to another node.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Packed {
    flags: u32,
    /// The bytes of the block with what follows it, and of the shared variables' addresses among them.
    shareds: u64,
    #[serde(with = "serde_bytes")]
    content: Vec<u8>,
}

/// Copies the block of a task that nobody has begun, for another node.
pub(crate) fn pack(task: &Task) -> Packed {
    let block = task.data.get().cast::<Block>();
    let header = Block::header(block);
    // SAFETY: the block has so many bytes, and the program has filled it.
    let content = unsafe { std::slice::from_raw_parts(block.cast::<u8>(), header.bytes) }.to_vec();
    Packed { flags: header.flags, shareds: header.shareds as u64, content }
}

/// Makes a child of the current task with the block of a task that came from another node.
pub(crate) fn unpack(thread: &Thread, packed: &Packed) -> &'static Task {
    let (bytes, shareds) = (packed.content.len(), packed.shareds as usize);
    let new = Block::make(thread, packed.flags, bytes - shareds.min(bytes), shareds, None);
    // SAFETY: the new block has as many bytes, as both nodes round them the same.
    unsafe { Block::fill(new, packed.content.as_ptr(), bytes) };
    let task = Block::task(new);
    task.parts.store(1, Ordering::Relaxed);
    task
}

fn is_untied(flags: u32) -> bool {
    flags & (TIED | PROXY) == 0
}

/// Whether only the node that made the task may execute it.
fn stays(flags: u32) -> bool {
    flags & (DESTRUCTORS | PROXY) != 0 || is_untied(flags)
}

/// Executes a task's body, or its next part.
extern "C" fn run(place: *mut u8) {
    let block = place.cast::<Block>();
    let thread = me();
    let header = Block::header(block);
    // The task's own variables lie in its block, and tasks that it makes may use them on other nodes.
    if thread.team().sends_tasks() && !stays(header.flags) && Block::task(block).has_own_arguments() {
        let bytes = size_of::<Header>() + header.bytes;
        return stacks::with_room(bytes, align_of::<Header>(), |room| run_copy(thread, block, room));
    }
    run_in_place(thread, block);
}

fn run_in_place(thread: &Thread, block: *mut Block) {
    // SAFETY: the program has filled the block, before it sent the task off.
    if let Some(routine) = unsafe { (*block).routine } {
        routine(thread.kmp.number(), block);
    }
}

/// Executes the body of a task on a copy of its block, which all nodes see.
fn run_copy(thread: &Thread, block: *mut Block, room: *mut u8) {
    let header = Block::header(block);
    let copy = room.cast::<Header>().wrapping_add(1).cast::<Block>();
    // SAFETY: the room has that many bytes behind a header; the addresses of shared variables lie at the same place in both.
    unsafe {
        let begin = ptr::from_ref(header).cast::<u8>();
        ptr::copy_nonoverlapping(begin, room, size_of::<Header>() + header.bytes);
        if header.shareds != 0 {
            (*copy).shareds = copy.cast::<u8>().add(header.bytes - header.shareds);
        }
    }
    run_in_place(thread, copy);
}

/// Destroys the task's variables.
extern "C" fn destroy(place: *mut u8) {
    let block = place.cast::<Block>();
    // SAFETY: as above.
    if let Some(destructors) = unsafe { (*block).destructors } {
        destructors(me().kmp.number(), block);
    }
}

/// Whether the task waits for an event when its body is over.
pub(super) fn is_detachable(task: &Task) -> bool {
    task.detach.load(Ordering::Relaxed) & DETACHABLE != 0
}

/// Discards the task of a block.
pub(super) fn forget(thread: &Thread, block: *mut Block) {
    tasks::drop_unbegun(thread.team(), Block::task(block));
}
