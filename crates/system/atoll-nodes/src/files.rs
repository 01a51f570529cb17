//! Files that the program maps shared: nodes of one machine map what one of them has mapped when they first touch it, and so have
//! the kernel's one copy of each page.
//!
//! The runtime tells what is mapped and unmapped here. Where another node touches such memory, its agent asks the one that has it
//! mapped (`agent::mapped`), takes the descriptor from that process and has its workers repeat the mapping
//! ([`Program::map_file`](crate::Program::map_file)). Each node maps files in a part of the addresses of its own, so that they tell whom to ask. What is unmapped,
//! or mapped over, is taken from those nodes before the call returns.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::ops::Range;

use atoll_memory::layout;
use atoll_memory::spin::Spin;
use atoll_memory::sys;
use serde::{Deserialize, Serialize};

use crate::mail::{self, Kind};
use crate::stack;

/// A file, or a part of one, as a node has it mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Mapped {
    /// Its address.
    pub at: u64,
    /// Its bytes.
    pub len: u64,
    /// Its protection, as `mmap` has it.
    pub prot: i32,
    /// Its flags, as `mmap` has them.
    pub flags: i32,
    /// A descriptor of the node's processes.
    pub fd: i32,
    /// The offset in the file at which it begins.
    pub offset: i64,
}

impl Mapped {
    fn end(&self) -> u64 {
        self.at + self.len
    }

    /// The part of the mapping that lies in `from..to`.
    fn part(&self, from: u64, to: u64) -> Option<Mapped> {
        let (at, end) = (self.at.max(from), self.end().min(to));
        let offset = self.offset + (at as i64 - self.at as i64);
        (at < end).then(|| Mapped { at, len: end - at, offset, ..*self })
    }
}

/// By address; with each the nodes that have it mapped, too, by bits.
struct Table(BTreeMap<u64, (Mapped, u64)>);

static TABLE: Spin<Table> = Spin::new(Table(BTreeMap::new()));

impl Table {
    /// Takes `from..to` out; returns which nodes have some of it, and descriptors that nobody needs any more.
    fn take_out(&mut self, from: u64, to: u64) -> (u64, Vec<i32>) {
        let touched: Vec<u64> =
            self.0.range(..to).filter(|(_, (map, _))| map.end() > from).map(|(at, _)| *at).collect();
        let (mut readers, mut unused) = (0, Vec::new());
        for at in touched {
            let Some((map, by)) = self.0.remove(&at) else { continue };
            readers |= by;
            let rest = [map.part(0, from), map.part(to, u64::MAX)];
            if rest == [None, None] && !self.0.values().any(|(other, _)| other.fd == map.fd) {
                unused.push(map.fd);
            }
            self.0.extend(rest.into_iter().flatten().map(|rest| (rest.at, (rest, by))));
        }
        (readers, unused)
    }

    fn find(&mut self, at: u64) -> Option<&mut (Mapped, u64)> {
        let (_, found) = self.0.range_mut(..=at).next_back()?;
        (found.0.end() > at).then_some(found)
    }
}

/// The addresses at which this node maps files that may lie anywhere, within the `bytes` bytes from [`layout::FILES`] on.
pub fn part(bytes: usize) -> Range<usize> {
    let (node, nodes) = crate::several().unwrap_or((0, 1));
    let (offset, len) = layout::part(bytes, node, nodes);
    layout::FILES + offset..layout::FILES + offset + len
}

/// The other node that has what lies at `address` mapped, if any has.
fn owner(address: usize) -> Option<u32> {
    let (node, nodes) = crate::several()?;
    let offset = address.wrapping_sub(layout::FILES);
    let owner = match offset < layout::FILES_BYTES / 2 {
        true => (offset / layout::part(layout::FILES_BYTES / 2, 0, nodes).1) as u32,
        // The program's own choice of addresses.
        false => crate::ORIGIN,
    };
    (owner != node && owner < nodes).then_some(owner)
}

/// The program has mapped a file.
pub fn mapped(at: usize, len: usize, prot: c_int, flags: c_int, fd: c_int, offset: i64) {
    /// A number that programs do not count on.
    const HIGH: usize = 512;
    if !crate::active() {
        return;
    }
    unmapped(at, len);
    // The program may close its own.
    // SAFETY: values only.
    let copy = unsafe {
        sys::syscall(libc::SYS_fcntl, [fd as usize, libc::F_DUPFD_CLOEXEC as usize, HIGH, 0, 0, 0])
    };
    let Ok(fd) = copy else {
        return sys::complain(
            "atoll: out of descriptors: a file that was mapped just now is mapped on one node only\n",
        );
    };
    let len = len.next_multiple_of(4096) as u64;
    let map = Mapped { at: at as u64, len, prot, flags, fd: fd as i32, offset };
    // The agent looks.
    stack::off_paged(move || TABLE.lock().0.insert(map.at, (map, 0)));
}

/// The program has unmapped `at..at + len`, or mapped something else there.
pub fn unmapped(at: usize, len: usize) {
    if !crate::active() {
        return;
    }
    let (from, to) = (at as u64, (at + len).next_multiple_of(4096) as u64);
    let (readers, unused) = stack::off_paged(move || TABLE.lock().take_out(from, to));
    unused.into_iter().for_each(sys::close);
    if readers != 0 {
        mail::post(Kind::Forget, [from, to - from, readers]);
    }
}

/// The program has moved a mapping, or changed its size.
pub fn moved(from: usize, old: usize, to: usize, new: usize) {
    if !crate::active() {
        return;
    }
    let at = from as u64;
    let known = stack::off_paged(move || TABLE.lock().find(at).map(|(map, _)| *map));
    if let Some(map) = known {
        let offset = map.offset + (at - map.at) as i64;
        mapped(to, new, map.prot, map.flags, map.fd, offset);
    }
    if to != from {
        unmapped(from, old);
    }
}

/// The program has changed what may be done with `at..at + len`.
pub fn protected(at: usize, len: usize, prot: c_int) {
    if !crate::active() {
        return;
    }
    let (from, to) = (at as u64, (at + len).next_multiple_of(4096) as u64);
    let readers = stack::off_paged(move || {
        let mut table = TABLE.lock();
        let parts: Vec<_> =
            table.0.values().filter_map(|(map, by)| Some((map.part(from, to)?, *by))).collect();
        let (readers, _) = table.take_out(from, to);
        table.0.extend(parts.into_iter().map(|(map, by)| (map.at, (Mapped { prot, ..map }, by))));
        readers
    });
    if readers != 0 {
        mail::post(Kind::Forget, [from, to - from, readers]);
    }
}

/// For this node's agent: what is mapped at `at`, which node `by` maps, too, from now on.
pub(crate) fn lend(at: u64, by: u32) -> Option<Mapped> {
    let mut table = TABLE.lock();
    let (map, readers) = table.find(at)?;
    *readers |= 1 << by;
    Some(*map)
}

/// The outcome of asking another node for what lies at an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fetched {
    /// Nothing lies there.
    Nothing,
    /// This node's workers are to map the file that lies there.
    Here,
    /// This node of another machine has a file mapped there, which cannot be mapped here.
    NotHere(u32),
}

/// Answers of the agent: nothing lies there.
pub(crate) const NOTHING: u64 = 0;
/// The workers are to map the file that lies there.
pub(crate) const HERE: u64 = 1;
/// The file that lies there cannot be mapped here.
pub(crate) const NOT_HERE: u64 = 2;

/// Asks the node that should know what lies at `address`, which a worker touched in vain.
pub fn fetch(address: usize) -> Fetched {
    let Some(owner) = owner(address) else { return Fetched::Nothing };
    match mail::post_touched([address as u64, owner.into(), 0])[0] {
        HERE => Fetched::Here,
        NOT_HERE => Fetched::NotHere(owner),
        _ => Fetched::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAP: Mapped = Mapped { at: 0x1000, len: 0x4000, prot: 3, flags: 1, fd: 7, offset: 0x100_0000 };

    #[test]
    fn what_is_left_of_a_mapping_keeps_its_file_and_place() {
        let mut table = Table(BTreeMap::from([(MAP.at, (MAP, 0))]));
        table.find(0x4fff).unwrap().1 |= 4;
        assert!(table.find(0x5000).is_none() && table.find(0xfff).is_none());
        assert_eq!(table.take_out(0x2000, 0x3000), (4, vec![]));
        assert_eq!(table.find(0x1000).unwrap().0, Mapped { len: 0x1000, ..MAP });
        assert!(table.find(0x2fff).is_none());
        let last = Mapped { at: 0x3000, len: 0x2000, offset: 0x100_2000, ..MAP };
        assert_eq!(table.find(0x3000).unwrap().0, last);
        assert_eq!(table.take_out(0x3000, 0x9000), (4, vec![]));
        assert_eq!(table.take_out(0, 0x9000), (4, vec![7]));
        assert_eq!(table.take_out(0, 0x9000), (0, vec![]));
    }
}
