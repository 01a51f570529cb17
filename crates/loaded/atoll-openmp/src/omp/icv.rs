//! Internal control variables: the values that `omp_set_*` and the environment set and regions inherit.
//!
//! Every task carries a copy; `env` gives the first one.

use serde::{Deserialize, Serialize};

/// The schedule kinds, `omp_sched_static` and its siblings.
pub(crate) const SCHED_STATIC: u32 = 1;
pub(crate) const SCHED_DYNAMIC: u32 = 2;
pub(crate) const SCHED_GUIDED: u32 = 3;
pub(crate) const SCHED_AUTO: u32 = 4;
/// Guided in multiples of the chunk, which programs cannot name.
pub(crate) const SCHED_GUIDED_EVEN: u32 = 5;
/// The modifier bit of a schedule.
pub(crate) const SCHED_MONOTONIC: u32 = 0x8000_0000;
/// The bit that is added to a loop's schedule where its chunks may come in any order; no program sees it.
pub(crate) const SCHED_ANY_ORDER: u32 = 0x4000_0000;

/// The greatest number of active levels that nest, as in libgomp.
pub(crate) const SUPPORTED_ACTIVE_LEVELS: u32 = 255;

/// The values of `omp_proc_bind_t`.
pub(crate) const BIND_FALSE: u8 = 0;
pub(crate) const BIND_TRUE: u8 = 1;
pub(crate) const BIND_PRIMARY: u8 = 2;
pub(crate) const BIND_CLOSE: u8 = 3;
pub(crate) const BIND_SPREAD: u8 = 4;

/// The control variables of one task.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Icv {
    pub(crate) threads: u32,
    pub(crate) thread_limit: u32,
    /// The schedule with its modifier bit, as `omp_get_schedule` returns it.
    pub(crate) schedule: u32,
    pub(crate) chunk: i32,
    pub(crate) max_active_levels: u32,
    pub(crate) default_device: i32,
    pub(crate) dynamic: bool,
    pub(crate) bind: u8,
    pub(crate) allocator: usize,
}

impl Icv {
    /// The values when the environment sets none, on a machine with `cpus` CPUs.
    pub(crate) const fn initial(cpus: u32) -> Self {
        Icv {
            threads: cpus,
            thread_limit: u32::MAX,
            schedule: SCHED_DYNAMIC,
            chunk: 1,
            max_active_levels: 1,
            default_device: 0,
            dynamic: false,
            bind: BIND_FALSE,
            allocator: 1,
        }
    }
}
