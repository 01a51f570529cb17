//! LLVM's ABI: what programs of clang, flang, icx and ifx call instead of libomp once this library is preloaded.
//!
//! A thin layer: teams, loops, tasks, barriers and locks are those of the parent module, which gcc's programs use, too. Each
//! family of entry points has a file. The thread numbers that callers pass are ignored: the runtime knows its calling thread.

mod atomics;
pub(crate) mod block;
mod calls;
mod cancel;
mod dependences;
mod dispatch;
mod doacross;
mod fork;
mod kept;
mod kinds;
mod locks;
mod masks;
mod memory;
mod reduce;
mod routines;
mod sections;
mod static_loops;
mod sync;
mod task_reductions;
mod taskloop;
mod tasks;
mod teams;
mod threadprivate;

use super::env;
use crate::start::objects;
use crate::state;

pub(crate) use kept::{Kept, Present};
pub(crate) use task_reductions::{Reductions, finish as finish_reductions};

/// Whether the program uses LLVM's runtime only. If it also loads gcc's, the defaults of gcc's runtime hold.
pub(crate) fn is_alone() -> bool {
    let objects = objects::loaded();
    let with = |llvm: bool| objects.iter().any(|object| object.is_openmp() && object.is_llvm() == llvm);
    with(true) && !with(false)
}

/// Settings of LLVM's and Intel's runtimes that say how threads wait and where they run, and have no effect here.
const IGNORED: [&str; 5] = ["KMP_AFFINITY", "KMP_BLOCKTIME", "KMP_HW_SUBSET", "KMP_LIBRARY", "KMP_SETTINGS"];

/// Tells the user which settings have no effect, if the program is managed and LLVM's.
pub(crate) fn say_ignored() {
    if state::pager().is_none()
        || !objects::loaded().iter().any(|object| object.is_openmp() && object.is_llvm())
    {
        return;
    }
    let set: Vec<&str> = IGNORED.into_iter().filter(|name| env::variable(name).is_some()).collect();
    if !set.is_empty() {
        let line = format!(
            "these settings have no effect: {}. OMP_WAIT_POLICY, OMP_PLACES and OMP_PROC_BIND have one",
            set.join(", ")
        );
        super::say(&line);
    }
}
