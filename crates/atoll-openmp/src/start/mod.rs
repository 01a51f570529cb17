//! What happens before the program's first own instruction: decide whether it is ours, and move its memory.
//!
//! `constructor` is called by the dynamic linker before any other (this library is linked `initfirst`), so nothing
//! has run yet but relocation. `objects` knows the loaded libraries, `share` moves globals, TLS and the main stack to
//! memory that workers share, `signal` takes the faults, `process` starts
//! workers, `segment` is for programs that are not paged at all, `late` is for libraries that are loaded later, `nodes` for
//! runs on several nodes.

pub(crate) mod constructor;
pub(crate) mod late;
mod nodes;
pub(crate) mod objects;
pub(crate) mod process;
pub(crate) mod segment;
pub(crate) mod share;
pub(crate) mod signal;
