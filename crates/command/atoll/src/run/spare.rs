//! Computes the memory that the machine can spare beside near memory: what the far store `auto` may take before it uses its
//! file.
//!
//! `launch` asks when it decides a run's settings. Source: proc(5), cgroups(7).

use crate::cgroup;

/// One part in this number of the available memory is left to other programs, and to what the program needs besides paged
/// memory.
const LEFT_PART: u64 = 8;

/// Returns the bytes of memory that each of `nodes` on this machine may take for far memory beside `near` bytes (`u64::MAX`: no
/// limit) of near memory.
pub(super) fn memory(near: u64, nodes: u32) -> u64 {
    spare(cgroup::memory_available(), near, nodes)
}

fn spare(available: u64, near: u64, nodes: u32) -> u64 {
    let nodes = u64::from(nodes.max(1));
    (available - available / LEFT_PART).saturating_sub(near.saturating_mul(nodes)) / nodes
}

#[cfg(test)]
mod tests {
    use super::spare;

    #[test]
    fn near_memory_and_a_part_for_others_come_first() {
        assert_eq!(spare(8 << 30, 2 << 30, 1), 5 << 30);
        assert_eq!(spare(8 << 30, 2 << 30, 2), 3 << 29);
        assert_eq!(spare(8 << 30, 7 << 30, 1), 0);
        assert_eq!(spare(8 << 30, u64::MAX, 2), 0);
    }
}
