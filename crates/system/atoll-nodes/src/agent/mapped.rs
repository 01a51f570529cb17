//! Files that are mapped on several nodes (`files`): the agent asks who has one, has it mapped here, and has others forget it.

use std::collections::BTreeMap;

use atoll_memory::sys;

use super::Server;
use crate::files::{self, HERE, Mapped, NOT_HERE, NOTHING};
use crate::mail::{self, Number};
use crate::wire::Packet;

#[derive(Default)]
pub(super) struct Files {
    /// The processes of nodes on this machine, by number.
    processes: Vec<Option<i32>>,
    /// The mappings that this node's workers were told to make, by address.
    here: BTreeMap<u64, Mapped>,
    /// Workers that wait until so many nodes have forgotten something.
    forgetting: BTreeMap<Number, u32>,
}

impl Files {
    pub(super) fn new(processes: Vec<Option<i32>>) -> Files {
        Files { processes, ..Files::default() }
    }
}

impl Server {
    /// A worker touched `at`, which node `owner` may have mapped.
    pub(super) fn touched(&mut self, at: u64, owner: u32, by: Number) {
        self.peers.send(owner, Packet::Touched { at, by });
    }

    /// Node `from` says what it has mapped where a worker of this node touched it.
    pub(super) fn told(&mut self, from: u32, by: Number, found: Option<Mapped>) {
        let answer = match found {
            None => NOTHING,
            // Some worker was first.
            Some(map) if self.files.here.get(&map.at) == Some(&map) => HERE,
            Some(map) => match self.take_file(from, &map) {
                Some(fd) => {
                    self.program.map_file(&map, fd);
                    self.files.here.insert(map.at, map);
                    HERE
                }
                None => NOT_HERE,
            },
        };
        mail::answer(by, [answer, 0]);
    }

    /// The descriptor of another node's process, for this one's.
    fn take_file(&self, from: u32, map: &Mapped) -> Option<i32> {
        let process = (*self.files.processes.get(from as usize)?)? as usize;
        // SAFETY: values only.
        unsafe {
            let handle = sys::syscall(libc::SYS_pidfd_open, [process, 0, 0, 0, 0, 0]).ok()?;
            let taken = sys::syscall(libc::SYS_pidfd_getfd, [handle, map.fd as usize, 0, 0, 0, 0]);
            sys::close(handle as i32);
            Some(sys::out_of_the_way(taken.ok()? as i32))
        }
    }

    /// The program unmapped something that `readers` have mapped, too.
    pub(super) fn have_forgotten(&mut self, [at, len, readers]: [u64; 3], by: Number) {
        self.files.forgetting.insert(by, readers.count_ones());
        for node in (0..self.nodes).filter(|node| readers >> node & 1 != 0) {
            self.peers.send(node, Packet::Forget { at, len, by });
        }
    }

    /// Node `from` unmapped it.
    pub(super) fn forget(&mut self, from: u32, at: u64, len: u64, by: Number) {
        self.files.here.retain(|_, map| map.at + map.len <= at || at + len <= map.at);
        self.program.unmap_file(at as usize, len as usize);
        self.peers.send(from, Packet::Forgotten { by });
    }

    /// Another node has forgotten it.
    pub(super) fn forgotten(&mut self, by: Number) {
        if let Some(left) = self.files.forgetting.get_mut(&by) {
            *left -= 1;
            if *left == 0 {
                self.files.forgetting.remove(&by);
                mail::answer(by, [0; 2]);
            }
        }
    }

    /// For node `from`: what is mapped here.
    pub(super) fn lend_file(&mut self, from: u32, at: u64, by: Number) {
        let found = files::lend(at, from);
        self.peers.send(from, Packet::Mapped { by, found });
    }
}
