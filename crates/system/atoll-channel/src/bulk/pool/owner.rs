//! A pool as one process has it: the memory, and the holder of each buffer.
//!
//! The owner of a pool makes it, others attach to it; `buffer.rs` has the buffers that are taken from it, `link.rs` joins it to a
//! channel. Taking, sending and dropping a buffer hold a lock of this process for some instructions.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::SealFlags;

use crate::bulk::error::MemoryError;
use crate::bulk::mapping::Writers;
use crate::bulk::memory::{Access, Memory};
use crate::bulk::pool::buffer::Buffer;
use crate::bulk::pool::error::PoolError;
use crate::bulk::pool::holders::{Holders, LinkId};
use crate::bulk::pool::link::Link;
use atoll_transport::Peer;

/// The most buffers of a pool.
pub const MOST_BUFFERS: u32 = 1 << 16;
/// The least and the most bytes of a buffer.
const BYTES: (u64, u64) = (4096, 1 << 30);
/// The bytes of the page at the file's begin that identifies it; buffers follow.
const HEAD: u64 = 4096;
/// The magic number, `ATOLLPOL` in the order of the bytes.
const MAGIC: u64 = u64::from_le_bytes(*b"ATOLLPOL");
const VERSION: u32 = 1;

/// The data that all buffers and links of a pool in one process share.
pub(crate) struct Shared {
    pub(crate) memory: Memory,
    pub(crate) count: u32,
    pub(crate) bytes: u64,
    access: Access,
    state: Mutex<State>,
}

pub(crate) struct State {
    pub(crate) holders: Holders,
    /// The buffers of links that are gone, kept until the process there has ended.
    stranded: Vec<(Peer, Vec<u32>)>,
    next_link: LinkId,
}

impl State {
    /// Takes back the buffers of processes that have ended.
    pub(crate) fn rescue(&mut self) {
        let holders = &mut self.holders;
        self.stranded.retain(|(peer, numbers)| {
            let died = peer.died();
            if died {
                numbers.iter().for_each(|number| holders.rescue(*number));
            }
            !died
        });
    }
}

impl Shared {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The part of the memory that is buffer `number`, kept with `keeper`.
    pub(crate) fn part(&self, number: u32, keeper: Arc<dyn std::any::Any + Send + Sync>) -> Option<Memory> {
        self.memory.part(HEAD + u64::from(number) * self.bytes, self.bytes, self.access, keeper)
    }

    /// Notes that a link is gone: buffers behind it come back when the process there has ended.
    pub(crate) fn cut(&self, link: LinkId, peer: &Peer) {
        let mut state = self.state();
        let stranded = state.holders.strand(link);
        if !stranded.is_empty() {
            state.stranded.push((peer.clone(), stranded));
            state.rescue();
        }
    }
}

/// A pool of buffers; see the module. Other processes attach to it by its descriptor.
pub struct Pool {
    shared: Arc<Shared>,
    file: OwnedFd,
}

impl Pool {
    /// Makes a pool of `count` buffers of `bytes` each, a power of two of at least a page; this process is its owner. All
    /// memory is allocated at once. `writers` tells whether others may write to buffers that they hold.
    pub fn new(count: u32, bytes: u64, writers: Writers) -> Result<Pool, PoolError> {
        let size = size(count, bytes)?;
        let (memory, file) = Memory::shared(size, writers)?;
        let mut head = [0; 24];
        head[..8].copy_from_slice(&MAGIC.to_le_bytes());
        head[8..12].copy_from_slice(&VERSION.to_le_bytes());
        head[12..16].copy_from_slice(&count.to_le_bytes());
        head[16..].copy_from_slice(&bytes.to_le_bytes());
        memory.write(0, &head).map_err(|_| MemoryError::Size(size))?;
        Ok(Pool::with(memory, file, count, bytes, true))
    }

    /// Attaches to a pool that another process made and handed over.
    pub fn attach(file: OwnedFd) -> Result<Pool, PoolError> {
        let seals = rustix::fs::fcntl_get_seals(&file).map_err(|_| MemoryError::NotSealed)?;
        let owners_alone = seals.intersects(SealFlags::FUTURE_WRITE | SealFlags::WRITE);
        let access = if owners_alone { Access::READ } else { Access::READ_WRITE };
        let memory = Memory::attach(file.as_fd(), access)?;
        let short = |least| PoolError::Truncated { bytes: memory.bytes(), least };
        // Read once, because its maker may change it at any time.
        let mut head = [0; 24];
        memory.read(0, &mut head).map_err(|_| short(HEAD))?;
        let [magic, second, bytes] =
            [0, 8, 16].map(|at| u64::from_le_bytes(std::array::from_fn(|i| head[at + i])));
        let (version, count) = (second as u32, (second >> 32) as u32);
        if magic != MAGIC {
            return Err(PoolError::NotAPool(magic));
        }
        if version != VERSION {
            return Err(PoolError::Version { theirs: version, ours: VERSION });
        }
        let least = size(count, bytes)?;
        if memory.bytes() < least {
            return Err(short(least));
        }
        Ok(Pool::with(memory, file, count, bytes, false))
    }

    fn with(memory: Memory, file: OwnedFd, count: u32, bytes: u64, owner: bool) -> Pool {
        let holders = Holders::new(count, owner);
        let state = Mutex::new(State { holders, stranded: Vec::new(), next_link: 0 });
        let access = memory.access();
        Pool { shared: Arc::new(Shared { memory, count, bytes, access, state }), file }
    }

    /// The descriptor by which others attach: inherited, or sent over a socket (`hand_over`).
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// The number of buffers.
    pub fn buffers(&self) -> u32 {
        self.shared.count
    }

    /// The bytes of each buffer.
    pub fn bytes(&self) -> u64 {
        self.shared.bytes
    }

    /// The number of buffers that the owner could take now; 0 in other processes.
    pub fn free(&self) -> usize {
        let mut state = self.shared.state();
        state.rescue();
        state.holders.free()
    }

    /// Takes a buffer of the owner's, with any content; `None` if all are in use, or in a process that is not the owner.
    pub fn take(&self) -> Option<Buffer> {
        let mut state = self.shared.state();
        let number = state.holders.take().or_else(|| {
            state.rescue();
            state.holders.take()
        })?;
        drop(state);
        Buffer::new(&self.shared, number)
    }

    /// Assigns the pool to a channel that leads away from its owner. Both ends choose the same `kind` for this pool's messages
    /// in the channel; `peer` is the process there (`Sender::peer`).
    pub fn link(&self, kind: u16, peer: &Peer) -> Link {
        let mut state = self.shared.state();
        let id = state.next_link;
        state.next_link += 1;
        drop(state);
        Link::new(self.shared.clone(), id, kind, peer.clone())
    }

    /// Assigns the pool to the channel that leads to its owner, or to the process that is nearer to it. There is one such
    /// channel for good: when it broke, the pool is attached to anew.
    pub fn link_home(&self, kind: u16, peer: &Peer) -> Result<Link, PoolError> {
        let mut state = self.shared.state();
        if state.holders.is_owner() || state.holders.home().is_some() {
            return Err(PoolError::HomeTaken);
        }
        let id = state.next_link;
        state.next_link += 1;
        state.holders.set_home(id);
        drop(state);
        Ok(Link::new(self.shared.clone(), id, kind, peer.clone()))
    }
}

/// The bytes of a pool's file.
fn size(count: u32, bytes: u64) -> Result<u64, PoolError> {
    if !(1..=MOST_BUFFERS).contains(&count) {
        return Err(PoolError::Count(count));
    }
    if !bytes.is_power_of_two() || !(BYTES.0..=BYTES.1).contains(&bytes) {
        return Err(PoolError::Bytes(bytes));
    }
    // The sum is at most 2^46 bytes.
    Ok(HEAD + u64::from(count) * bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_powers_of_two_of_a_page_and_more() {
        for bytes in [0, 1, 2048, 4095, 4097, 12288, 1 << 31, u64::MAX] {
            assert!(matches!(Pool::new(1, bytes, Writers::Everyone), Err(PoolError::Bytes(_))));
        }
        for count in [0, MOST_BUFFERS + 1, u32::MAX] {
            assert!(matches!(Pool::new(count, 4096, Writers::Everyone), Err(PoolError::Count(_))));
        }
    }

    #[test]
    fn a_file_that_is_no_pool_is_refused() {
        let attach = |memory: &[u8], bytes| {
            let (whole, file) = Memory::shared(bytes, Writers::Everyone).unwrap();
            whole.write(0, memory).unwrap();
            Pool::attach(file).err().unwrap()
        };
        let head = |version: u32, count: u32, bytes: u64| {
            let mut head = MAGIC.to_le_bytes().to_vec();
            head.extend_from_slice(&version.to_le_bytes());
            head.extend_from_slice(&count.to_le_bytes());
            head.extend_from_slice(&bytes.to_le_bytes());
            head
        };
        assert!(matches!(attach(&[1; 24], 8192), PoolError::NotAPool(_)));
        assert!(matches!(attach(&head(2, 1, 4096), 8192), PoolError::Version { theirs: 2, ours: 1 }));
        assert!(matches!(attach(&head(1, 2, 4096), 8192), PoolError::Truncated { least: 12288, .. }));
        assert!(matches!(attach(&head(1, u32::MAX, 1 << 30), 8192), PoolError::Count(_)));
        assert!(matches!(attach(&head(1, 1, 5000), 8192), PoolError::Bytes(5000)));
        assert!(matches!(attach(&[], 10), PoolError::Truncated { bytes: 10, .. }));
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        assert!(Pool::attach(file.into()).is_err());
    }

    #[test]
    fn buffers_are_taken_and_come_back() {
        let pool = Pool::new(2, 4096, Writers::Everyone).unwrap();
        let (one, other) = (pool.take().unwrap(), pool.take().unwrap());
        assert!(pool.take().is_none());
        one.memory().write(0, &[1; 4096]).unwrap();
        other.memory().write(0, &[2; 4096]).unwrap();
        assert!(one.memory().write(4096, &[3]).is_err());
        // A transfer would hold the memory like this.
        let held = one.memory().clone();
        drop(one);
        assert_eq!(pool.free(), 0);
        drop(held);
        assert_eq!(pool.free(), 1);
        drop((pool, other));
    }
}
