//! Computes the memory that the machine can spare beside near memory: what the far store `auto` may take before it uses its
//! file.
//!
//! `launch` asks when it decides a run's settings. Source: proc(5), cgroups(7).

use atoll_memory::limits;

use crate::cgroup;

/// Returns the bytes of memory that each of `nodes` on this machine may take for far memory beside `near` bytes (`u64::MAX`: no
/// limit) of near memory.
pub(super) fn memory(near: u64, nodes: u32) -> u64 {
    limits::spare_bytes(cgroup::memory_available(), near, nodes)
}
