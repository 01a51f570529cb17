//! libc, interposed: it keeps its promises to the program although workers are processes and memory may be absent.
//!
//! Called by the program and its libraries (libc's own internal calls do not come here). While the program is not managed,
//! every function passes through with one branch; it then calls the real one in libc.
//!
//! `paged` pins memory for the kernel, `lend` lends it strings and structures. `io` reads and writes with paged buffers,
//! `several_messages` sends and receives with them, `asynchronous` makes libc's asynchronous transfers at once; `table` is the long list of calls that need no more than that, `contexts` has those
//! that return twice, `raw_calls` those by number. `rings` refuses `io_uring`, `soft_dirty` a file by which pages' writes would be missed. `closing` keeps atoll's descriptors open. `stdio` makes streams common to all workers,
//! `far_streams` to all nodes. `sync` makes pthread objects wake workers in other processes, `node_sync` on other nodes. `signals` keeps SIGBUS
//! ours; `process` is about beginning and ending processes, for which `growth` makes room and `preloads` keeps the runtime. `random` and `environment` replace state that libc keeps privately.
//! `limits` are those that the program sets for itself. `replay` repeats mappings in the other workers, and `keys` keys of thread-specific data. `travel` makes what libc
//! allocates for the program lie where other nodes see it.

#[macro_use]
mod real;

mod asynchronous;
mod closing;
mod contexts;
pub(crate) mod elsewhere;
mod environment;
mod far_streams;
mod free_locks;
pub(crate) mod growth;
mod io;
pub(crate) mod keys;
mod lend;
mod limits;
pub(crate) mod node_robust;
mod node_sync;
mod one_at_a_time;
mod other_processes;
pub(crate) mod paged;
pub(crate) mod preloads;
pub(crate) mod process;
mod program_break;
pub(crate) mod raise;
pub(crate) mod random;
mod raw_calls;
pub(crate) mod replay;
mod rings;
mod several_messages;
mod signals;
mod soft_dirty;
pub(crate) mod stdio;
mod stream_calls;
mod stream_lock;
mod sync;
mod system_v;
mod table;
mod threads;
mod travel;

use crate::start::newer_libc;
use crate::state;

pub(crate) use environment::begin as begin_environment;
pub(crate) use io::pread64;
pub(crate) use limits::make_room as make_room_in_limits;
pub(crate) use process::{end_by_node, end_node, serve_request};
pub(crate) use real::c_name;
pub(crate) use signals::keep_alternate_stack;

/// Carries out another node's call: on a stream of this node, or for a key of thread-specific data.
pub(crate) fn carry_out(words: [u64; 4], bytes: &[u8]) -> atoll_nodes::calls::Reply {
    keys::carry_out(words).unwrap_or_else(|| far_streams::carry_out(words, bytes))
}

/// Prepares shared streams and the last exit handler, before the program's first instruction.
/// Called at the end of the constructor's set-up.
pub(crate) fn init() {
    newer_libc::find();
    // The master may have no threads, but it has workers.
    newer_libc::not_single_threaded(real!("pthread_create", newer_libc::Create));
    stdio::init();
    process::init();
}

/// Registers the last exit handler, before the first instruction of a program that may be managed later.
pub(crate) fn begin_ends() {
    process::init();
}

/// Sets up what stands in for libc's state, in a process that the program forked, where no other thread is.
pub(crate) fn in_forked(streams: &stdio::Kept) {
    environment::in_forked();
    keys::in_forked();
    random::in_forked();
    stdio::free_locks(streams);
    process::in_forked();
}

/// Whether the program's workers are processes, so that libc's own data is private to each.
#[inline]
fn separate() -> bool {
    state::are_workers_processes()
}

/// Whether the program was started under atoll; for `variadic.c`.
#[unsafe(no_mangle)]
extern "C" fn atoll_managed() -> libc::c_int {
    libc::c_int::from(state::pager().is_some())
}
