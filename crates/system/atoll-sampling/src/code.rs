//! Reads the program's code: from the program while it lives, from its files when it is gone.
//!
//! The recorder tells this module which files are mapped where; `timer` reads code through it.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::instruction::CodeBytes;

#[derive(Debug, Clone)]
struct Mapping {
    end: u64,
    offset: u64,
    path: String,
}

/// The code of all processes.
#[derive(Debug, Default)]
pub struct Code {
    processes: HashMap<u32, BTreeMap<u64, Mapping>>,
    files: HashMap<String, Option<File>>,
    seen: HashSet<(u32, u64)>,
    wanted: BTreeMap<String, BTreeSet<u64>>,
}

/// The most code addresses whose source is looked for; a program has fewer places that sample or allocate.
const MAX_WANTED: usize = 1 << 20;

impl Code {
    /// Notes that a process mapped code.
    pub fn map(&mut self, pid: u32, start: u64, bytes: u64, offset: u64, path: &str) {
        let mapping = Mapping { end: start.saturating_add(bytes), offset, path: path.to_owned() };
        self.processes.entry(pid).or_default().insert(start, mapping);
    }

    /// Notes that a process made another, whose code lies where the parent's does until it executes a program of its own.
    pub fn fork(&mut self, pid: u32, parent: u32) {
        if let Some(mappings) = self.processes.get(&parent).cloned() {
            self.processes.insert(pid, mappings);
        }
    }

    /// Notes that the name of what is at a code address will be wanted.
    pub fn want(&mut self, pid: u32, address: u64) {
        if address == 0 || self.seen.len() >= MAX_WANTED || !self.seen.insert((pid, address)) {
            return;
        }
        if let Some((path, offset)) = self.place(pid, address) {
            let path = path.to_owned();
            self.wanted.entry(path).or_default().insert(offset);
        }
    }

    /// Notes that a file was mapped whose variables will be wanted.
    pub fn want_file(&mut self, path: &str) {
        if path.starts_with('/') && !path.starts_with("//") && !self.wanted.contains_key(path) {
            self.wanted.insert(path.to_owned(), BTreeSet::new());
        }
    }

    /// Returns what is wanted: for each file, the offsets in it.
    pub fn wanted(&mut self) -> BTreeMap<String, BTreeSet<u64>> {
        std::mem::take(&mut self.wanted)
    }

    /// Returns the file that holds a code address, and the offset in it.
    fn place(&self, pid: u32, address: u64) -> Option<(&str, u64)> {
        let (start, mapping) = self.processes.get(&pid)?.range(..=address).next_back()?;
        let inside = address < mapping.end && mapping.path.starts_with('/');
        inside.then_some((&*mapping.path, mapping.offset.checked_add(address - start)?))
    }

    /// Notes that a process is gone, or executes another program.
    pub fn forget(&mut self, pid: u32) {
        self.processes.remove(&pid);
        self.seen.retain(|(of, _)| *of != pid);
    }

    fn read_file(&mut self, pid: u32, address: u64, to: &mut [u8]) -> Option<usize> {
        let (path, offset) = self.place(pid, address)?;
        let path = path.to_owned();
        let file = self.files.entry(path).or_insert_with_key(|path| File::open(path).ok());
        file.as_ref()?.read_at(to, offset).ok()
    }
}

impl CodeBytes for Code {
    fn read(&mut self, pid: u32, address: u64, to: &mut [u8]) -> usize {
        // Reads stop at the page's end, as the next page may not be there.
        let page = 4096 - (address % 4096) as usize;
        let n = from_process(pid, address, to);
        if n > 0 {
            return n;
        }
        let len = to.len().min(page);
        from_process(pid, address, &mut to[..len]).max(self.read_file(pid, address, to).unwrap_or(0))
    }
}

fn from_process(pid: u32, address: u64, to: &mut [u8]) -> usize {
    let local = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
    let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: to.len() };
    // SAFETY: local describes `to`; the remote address is only read, and a bad one is refused.
    let n = unsafe { libc::process_vm_readv(pid as i32, &raw const local, 1, &raw const remote, 1, 0) };
    usize::try_from(n).unwrap_or(0)
}
