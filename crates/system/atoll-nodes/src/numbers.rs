//! The kernel's numbers for a node's first process: nodes of the same machine take its descriptors by them, and tell programs its
//! number.
//!
//! `meeting` sends it with the greeting, `direct` with the files of pages.

use atoll_memory::sys;
use serde::{Deserialize, Serialize};

/// The kernel's numbers for a node's process, for the other nodes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Numbers {
    /// The process itself.
    pub process: i32,
    /// The process that started it.
    pub parent: i32,
    /// Its group.
    pub group: i32,
    /// The place where these numbers mean something: a start of a machine, and a space of processes on it.
    machine: (String, String),
}

impl Numbers {
    /// The numbers of this node.
    pub fn own() -> Numbers {
        let start = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let space = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
        let machine = (start, space.to_string_lossy().into_owned());
        Numbers { process: sys::process(), parent: sys::parent(), group: sys::group(), machine }
    }

    /// The process, if its numbers mean the same here.
    pub fn process_here(&self) -> Option<i32> {
        (self.machine == Numbers::own().machine && !self.machine.0.is_empty()).then_some(self.process)
    }
}
