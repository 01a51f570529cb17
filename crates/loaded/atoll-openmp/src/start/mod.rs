//! All that happens before the program's first own instruction: decide whether this is the program to manage, and move its
//! memory.
//!
//! `constructor` is called by the dynamic linker before any other (this library is linked `initfirst`), so nothing has run yet
//! but relocation. `again` has later programs of a run managed, too. `objects` knows the loaded libraries, and `imports` which of
//! them belong to interpreters. `share` moves globals, TLS and the main stack to memory that workers share; `late` does so for
//! libraries that are loaded later. `signal` handles the faults. `process` starts workers, whose stacks lie in `slots`, which hear
//! of the program's end by `lifeline`, and whose signals `forward` sends on. `own_threads` makes the program's own threads,
//! for whose stacks `growing_stacks` makes room.
//! `segment` is for programs that are not paged at all, `nodes` for runs on several nodes. `unmanaged` is about processes that are left
//! alone, `take_over` about those of them that need memory (`own_control`: later ones), `forked` about what these fork.
//! `newer_libc` looks up what only newer glibcs have.

mod again;
mod cancelling;
pub(crate) mod constructor;
pub(crate) mod copies_for_others;
pub(crate) mod forked;
pub(crate) mod forward;
pub(crate) mod growing_stacks;
mod imports;
pub(crate) mod late;
mod lifeline;
pub(crate) mod linker_state;
mod main_stack;
mod mappings;
pub(crate) mod newer_libc;
mod nodes;
pub(crate) mod objects;
mod own_control;
pub(crate) mod own_threads;
pub(crate) mod process;
mod program;
pub(crate) mod segment;
pub(crate) mod share;
pub(crate) mod signal;
pub(crate) mod slots;
mod stray;
pub(crate) mod take_over;
mod thread_list;
pub(crate) mod unmanaged;
