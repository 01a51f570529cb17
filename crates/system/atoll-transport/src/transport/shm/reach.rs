//! Access to another process's memory: mapped if it is a sealed file, else copied by the kernel.
//!
//! `mod.rs` puts and gets through it. The memory is found through the peer's process, which is known from the channel and not
//! from the key.
//!
//! Source: the barrelfish paper, section 6.10: who copies, and from where.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, SealFlags};

use crate::channel::Peer;
use crate::memory_file::{Mapping, PAGE, sealed_size};
use crate::transport::key::{Key, Kind, Reader};
use crate::transport::{KeyError, Memory};

/// A peer's memory.
pub(super) enum Reach {
    /// The memory is mapped here; the number is its offset in the mapping.
    Mapped(Mapping, usize),
    /// The memory is in that process, at that address.
    Process(i32, u64),
}

/// The file part of a key: the owner's descriptor of the file, the file's identity, and the memory's offset in it.
struct File {
    descriptor: i32,
    device: u64,
    inode: u64,
    offset: u64,
}

/// The key of `memory`.
pub(super) fn key(memory: &Arc<Memory>, owner: crate::Node, run: [u8; 16]) -> Vec<u8> {
    let mut extra = Vec::new();
    if let Some((file, offset)) = memory.file()
        && let Ok(about) = rustix::fs::fstat(file)
    {
        extra.extend_from_slice(&file.as_raw_fd().to_le_bytes());
        extra.extend_from_slice(&about.st_dev.to_le_bytes());
        extra.extend_from_slice(&about.st_ino.to_le_bytes());
        extra.extend_from_slice(&offset.to_le_bytes());
    }
    let (bytes, address) = (memory.len() as u64, memory.base().addr() as u64);
    Key { kind: Kind::Shm, owner, run, bytes, address, extra }.encode()
}

/// Opens the memory of `key` in the process `peer`.
pub(super) fn reach(key: &Key, peer: &Peer) -> Result<Reach, KeyError> {
    let unreachable = |why: String| KeyError::Unreachable(why);
    let process = peer.number().and_then(|number| i32::try_from(number).ok());
    let process = process.ok_or_else(|| unreachable("its process cannot be seen from here".into()))?;
    let bytes = usize::try_from(key.bytes).map_err(|_| KeyError::Damaged)?;
    if !key.extra.is_empty() {
        let mut rest = Reader(&key.extra);
        let file = File {
            descriptor: i32::from_le_bytes(rest.take()?),
            device: u64::from_le_bytes(rest.take()?),
            inode: u64::from_le_bytes(rest.take()?),
            offset: u64::from_le_bytes(rest.take()?),
        };
        if !rest.0.is_empty() {
            return Err(KeyError::TooLong);
        }
        if let Some((mapping, begin)) = map(process, &file, bytes) {
            return Ok(Reach::Mapped(mapping, begin));
        }
    }
    // Checks on the first and the last byte whether the kernel lets us, and whether the memory is there.
    let mut byte = [0];
    for at in [0, key.bytes.saturating_sub(1)] {
        copy(process, key.address + at, byte.as_mut_ptr(), 1, Direction::Get).map_err(|e| {
            unreachable(format!(
                "process_vm_readv on process {process}: {e}; sysctl kernel.yama.ptrace_scope may forbid it"
            ))
        })?;
    }
    Ok(Reach::Process(process, key.address))
}

/// Maps the file if it is the one that the key names, and cannot shrink under the mapping. Also returns the memory's offset in
/// the mapping.
fn map(process: i32, file: &File, bytes: usize) -> Option<(Mapping, usize)> {
    let path = format!("/proc/{process}/fd/{}", file.descriptor);
    let opened =
        rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty()).ok()?;
    let about = rustix::fs::fstat(&opened).ok()?;
    if (about.st_dev, about.st_ino) != (file.device, file.inode) {
        return None;
    }
    let size = sealed_size(opened.as_fd(), SealFlags::SHRINK).ok()?;
    if file.offset.checked_add(bytes as u64)? > size {
        return None;
    }
    // Mappings begin at pages.
    let before = file.offset % PAGE as u64;
    let length = bytes.checked_add(before as usize)?.max(1);
    let mapping = Mapping::part(&opened, file.offset - before, length).ok()?;
    Some((mapping, before as usize))
}

/// The direction in which bytes are copied.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Put,
    Get,
}

impl Reach {
    /// Copies `length` bytes between `local` and the memory at `offset`.
    ///
    /// # Safety
    ///
    /// `local` must be valid for reads and writes of `length` bytes, and `offset` and `length` inside of the memory.
    pub(super) unsafe fn copy(
        &self,
        offset: u64,
        local: *mut u8,
        length: usize,
        direction: Direction,
    ) -> std::io::Result<()> {
        match self {
            Reach::Mapped(mapping, begin) => {
                let remote = mapping.base().as_ptr().wrapping_add(begin + offset as usize);
                let (from, to) = if direction == Direction::Put { (local, remote) } else { (remote, local) };
                // SAFETY: the caller's promise, and the mapping is as long as the memory. `copy` is used because the two may
                // overlap.
                unsafe { std::ptr::copy(from, to, length) };
                Ok(())
            }
            Reach::Process(process, address) => copy(*process, address + offset, local, length, direction),
        }
    }
}

/// Copies by the kernel. The caller promises that `local` is valid for `length` bytes.
fn copy(
    process: i32,
    address: u64,
    local: *mut u8,
    length: usize,
    direction: Direction,
) -> std::io::Result<()> {
    let mut done = 0;
    while done < length {
        let here = libc::iovec { iov_base: local.wrapping_add(done).cast(), iov_len: length - done };
        let address = address as usize + done;
        let there =
            libc::iovec { iov_base: std::ptr::without_provenance_mut(address), iov_len: length - done };
        // SAFETY: the local part is valid; the kernel checks the remote one.
        let moved = unsafe {
            match direction {
                Direction::Put => {
                    libc::process_vm_writev(process, &raw const here, 1, &raw const there, 1, 0)
                }
                Direction::Get => libc::process_vm_readv(process, &raw const here, 1, &raw const there, 1, 0),
            }
        };
        match usize::try_from(moved) {
            Err(_) => return Err(std::io::Error::last_os_error()),
            Ok(0) => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            Ok(moved) => done += moved,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use rustix::fs::MemfdFlags;

    use super::*;
    use crate::Node;

    const RUN: [u8; 16] = [3; 16];

    /// A memory of 3,000 bytes in the middle of a mapping of `file`, registered as a part of `named`.
    fn middle(file: &OwnedFd, named: OwnedFd) -> Arc<Memory> {
        let mapping = std::mem::ManuallyDrop::new(Mapping::of(file, 16384, true).unwrap());
        // SAFETY: inside of the mapping, which is never unmapped.
        Arc::new(unsafe { Memory::existing(mapping.base().as_ptr().add(5000), 3000, Some((named, 5000))) })
    }

    /// Puts and gets through the memory's key, in this process; returns whether it was mapped for that.
    fn reached(memory: &Arc<Memory>) -> bool {
        let key = key(memory, Node(1), RUN);
        let key = Key::decode(&key, Kind::Shm, Node(1), &RUN).unwrap();
        let reach = reach(&key, &Peer::this().unwrap()).unwrap();
        let mut bytes = *b"through the key";
        // SAFETY: the array has that many bytes, and the range is inside of the memory.
        unsafe { reach.copy(2985, bytes.as_mut_ptr(), bytes.len(), Direction::Put).unwrap() };
        let mut found = [0; 15];
        memory.read(2985, &mut found).unwrap();
        assert_eq!(&found, b"through the key");
        memory.write(0, b"and back").unwrap();
        // SAFETY: as above.
        unsafe { reach.copy(0, bytes.as_mut_ptr(), 8, Direction::Get).unwrap() };
        assert_eq!(&bytes[..8], b"and back");
        matches!(reach, Reach::Mapped(..))
    }

    #[test]
    fn only_the_sealed_file_that_is_meant_is_mapped() {
        let sealed = || crate::channel::create("atoll-test", 16384).unwrap();
        let file = sealed();
        assert!(reached(&middle(&file, file.try_clone().unwrap())));
        let open = rustix::fs::memfd_create("atoll-test", MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&open, 16384).unwrap();
        assert!(!reached(&middle(&open, open.try_clone().unwrap())));

        let memory = middle(&file, file.try_clone().unwrap());
        let good = Key::decode(&key(&memory, Node(1), RUN), Kind::Shm, Node(1), &RUN).unwrap();
        let this = Peer::this().unwrap();
        let mapped = |key: &Key| matches!(reach(key, &this), Ok(Reach::Mapped(..)));
        assert!(mapped(&good));
        // In turn: longer than the file; another file; no file at all. In all cases the process's memory is left.
        for (at, byte) in [(22, 0xff), (12, 0xff), (0, 0xff)] {
            let mut bad = good.clone();
            bad.extra[at] ^= byte;
            assert!(!mapped(&bad), "byte {at}");
        }
        let mut short = good.clone();
        short.extra.pop();
        assert_eq!(reach(&short, &this).err(), Some(KeyError::Truncated));
        let nowhere = Key { extra: Vec::new(), address: 16, ..good };
        assert!(matches!(reach(&nowhere, &this).err(), Some(KeyError::Unreachable(_))));
    }

    #[test]
    fn a_process_that_has_ended_is_not_reached() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let peer = Peer::process(child.id()).unwrap();
        child.wait().unwrap();
        let memory = Arc::new(Memory::new(10).unwrap());
        let key = Key::decode(&key(&memory, Node(1), RUN), Kind::Shm, Node(1), &RUN).unwrap();
        assert!(matches!(reach(&key, &peer).err(), Some(KeyError::Unreachable(_))));
    }
}
