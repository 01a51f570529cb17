//! What happens before the program's first own instruction: decide whether it is ours, and move its memory.
//!
//! `constructor` is called by the dynamic linker before any other (this library is linked `initfirst`), so nothing
//! has run yet but relocation. `objects` knows the loaded libraries, `share` moves globals, TLS and the main stack to
//! memory that workers share, `signal` takes the faults, `process` starts
//! workers, whose stacks lie in `slots` and who end by `lifeline`, `forward` sends on signals that reach them, `segment` is for
//! programs that are not paged at all, `unmanaged` for processes that are left alone, `take_over` for those of them that need memory, `imports` for what tells interpreters, and `forked` for what they fork, `late` for libraries that are loaded later, `own_threads` for threads that the
//! program makes, `nodes` for
//! runs on several nodes, `newer_libc` has what only newer glibcs have.

pub(crate) mod constructor;
pub(crate) mod copies_for_others;
pub(crate) mod forked;
pub(crate) mod forward;
mod imports;
pub(crate) mod late;
mod lifeline;
pub(crate) mod linker_state;
pub(crate) mod newer_libc;
mod nodes;
pub(crate) mod objects;
pub(crate) mod own_threads;
pub(crate) mod process;
pub(crate) mod segment;
pub(crate) mod share;
pub(crate) mod signal;
pub(crate) mod slots;
mod stray;
pub(crate) mod take_over;
mod thread_list;
pub(crate) mod unmanaged;
