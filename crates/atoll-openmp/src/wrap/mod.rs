//! libc, interposed: what a program may expect of its C library although its workers are processes and its memory
//! may be absent.
//!
//! Called by the program and its libraries (libc's own internal calls do not come here). Every function passes
//! through with one branch while the program is not managed, and calls the real one in libc else.
//!
//! `paged` pins memory for the kernel, `lend` gives it strings and structures; `io` reads and writes with it; `table` is
//! the long list of calls that need no more than that; `stdio` makes streams common to all workers; `sync` makes pthread
//! objects wake workers in other processes; `signals` keeps SIGBUS ours; `process` is about beginning and ending
//! processes; `random` and `environment` replace state that libc keeps privately; `replay` repeats mappings in
//! the other workers.

#[macro_use]
mod real;

pub(crate) mod elsewhere;
mod environment;
mod io;
mod lend;
mod paged;
pub(crate) mod process;
mod program_break;
mod random;
pub(crate) mod replay;
mod signals;
pub(crate) mod stdio;
mod sync;
mod table;
mod threads;

use crate::state;

pub(crate) use environment::begin as begin_environment;
pub(crate) use io::pread64;
pub(crate) use process::{end_by_node, end_node, serve_request};

/// Prepares what must be done before the program's first instruction: shared streams, the last exit handler.
/// Called at the end of the constructor's set-up.
pub(crate) fn init() {
    sync::init();
    stdio::init();
    process::init();
}

/// Are the program's workers processes, so that libc's own data is private to each?
#[inline]
fn separate() -> bool {
    state::control().is_some_and(|c| !c.settings.shared_tables())
}

/// Has the program been started under atoll? For `variadic.c`.
#[unsafe(no_mangle)]
extern "C" fn atoll_managed() -> libc::c_int {
    libc::c_int::from(state::pager().is_some())
}
