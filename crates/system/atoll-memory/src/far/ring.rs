//! An io_uring for batches of vectored reads or writes of one file: all submitted and awaited by one system call.
//!
//! Fault path: no allocation, no lock the program could hold, no arena access, no panic.
//! (`Ring::new` is set-up code; it runs in the process that will use the ring.)

use std::ffi::c_void;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicU32, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

use super::descriptor::Descriptor;
use crate::layout;
use rustix::io::Errno;
use rustix::io_uring::{
    IORING_OFF_SQ_RING, IORING_OFF_SQES, IoringEnterFlags, IoringFeatureFlags, IoringOp, IoringSetupFlags,
    addr_or_splice_off_in_union, io_uring_cqe, io_uring_enter, io_uring_params, io_uring_ptr, io_uring_setup,
    io_uring_sqe, io_uring_user_data, iovec, len_union, off_or_addr2_union,
};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// One vectored read or write.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Op {
    /// Byte offset in the file.
    pub(crate) offset: u64,
    /// Index of the first buffer and their number, at most 1024.
    pub(crate) first: u32,
    pub(crate) count: u32,
    /// Bytes moved, or a negated error number.
    pub(crate) result: i32,
}

/// Reading or writing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Read,
    Write,
}

struct Region {
    base: *mut u8,
    bytes: usize,
}

impl Region {
    /// Maps it at `at`, which is kept for it; where something is there already (several stores in one process), at an
    /// address of the kernel's choice.
    fn new(fd: &Descriptor, at: usize, bytes: usize, offset: u64) -> rustix::io::Result<Self> {
        let map = |at: usize, fixed: MapFlags| {
            let flags = MapFlags::SHARED | MapFlags::POPULATE | fixed;
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            // SAFETY: a new mapping where nothing is.
            unsafe { mmap(at as *mut c_void, bytes, protection, flags, fd, offset) }
        };
        let base = map(at, MapFlags::FIXED_NOREPLACE).or_else(|_| map(0, MapFlags::empty()))?;
        Ok(Self { base: base.cast(), bytes })
    }

    /// A word of the ring.
    fn word(&self, offset: u32) -> &AtomicU32 {
        // SAFETY: the kernel gave the offset of a 32-bit word in this mapping, which lives as long as self.
        unsafe { &*self.base.add(offset as usize).cast() }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: we mapped it and nobody refers to it any more.
        let _ = unsafe { munmap(self.base.cast(), self.bytes) };
    }
}

/// A ring of one worker.
pub(crate) struct Ring {
    rings: Region,
    entries: Region,
    fd: Descriptor,
    params: io_uring_params,
}

// SAFETY: the mappings are reached through &mut Ring only, from whichever thread has it.
unsafe impl Send for Ring {}

impl Ring {
    /// A ring of `entries` submissions for lane `index`. Fails with ENOSYS or EPERM where io_uring is not permitted.
    pub(crate) fn new(index: u32, entries: u32) -> rustix::io::Result<Self> {
        let mut params = io_uring_params::default();
        // Completions wait until the worker asks: no interrupt for a worker that computes.
        params.flags = IoringSetupFlags::COOP_TASKRUN;
        // SAFETY: params is ours; the call makes a descriptor and fills params in.
        let fd = unsafe { io_uring_setup(entries, &mut params) }?;
        if !params.features.contains(IoringFeatureFlags::SINGLE_MMAP) {
            return Err(Errno::NOSYS);
        }
        let fd = super::file::out_of_the_way(fd);
        crate::sys::keep_open(fd.as_raw_fd());
        let submissions = params.sq_off.array as usize + params.sq_entries as usize * 4;
        let completions =
            params.cq_off.cqes as usize + params.cq_entries as usize * size_of::<io_uring_cqe>();
        let at = layout::RINGS + index as usize * layout::RING_BYTES;
        let rings = Region::new(&fd, at, submissions.max(completions), IORING_OFF_SQ_RING)?;
        let bytes = params.sq_entries as usize * size_of::<io_uring_sqe>();
        let entries = Region::new(&fd, at + layout::RING_BYTES / 2, bytes, IORING_OFF_SQES)?;
        let ring = Self { entries, rings, fd, params };
        for i in 0..ring.params.sq_entries {
            ring.rings.word(ring.params.sq_off.array + i * 4).store(i, Relaxed);
        }
        Ok(ring)
    }

    /// Runs the operations and waits for all of them. True: each has its result. False: none was
    /// begun; the ring cannot be used now.
    ///
    /// # Safety
    /// `buffers` covers every operation's; the memory behind them stays valid during the call, which
    /// returns only when the kernel has let go of it.
    pub(crate) unsafe fn run(
        &mut self,
        file: BorrowedFd<'_>,
        direction: Direction,
        ops: &mut [Op],
        buffers: *const iovec,
    ) -> bool {
        let (sq, cq) = (&self.params.sq_off, &self.params.cq_off);
        let (sq_head, sq_tail) = (self.rings.word(sq.head), self.rings.word(sq.tail));
        let start = sq_tail.load(Relaxed);
        let mask = self.params.sq_entries.wrapping_sub(1);
        if ops.len() > self.params.sq_entries as usize || sq_head.load(Acquire) != start {
            return false;
        }
        for (op, i) in ops.iter().zip(0_u32..) {
            // SAFETY: the operation's buffers are within `buffers`.
            let vector = unsafe { buffers.add(op.first as usize) };
            let entry = io_uring_sqe {
                opcode: if direction == Direction::Read { IoringOp::Readv } else { IoringOp::Writev },
                fd: file.as_raw_fd(),
                off_or_addr2: off_or_addr2_union { off: op.offset },
                addr_or_splice_off_in: addr_or_splice_off_in_union {
                    addr: io_uring_ptr::new(vector.cast_mut().cast::<c_void>()),
                },
                len: len_union { len: op.count },
                user_data: io_uring_user_data { u64_: u64::from(i) },
                ..Default::default()
            };
            let at = start.wrapping_add(i) & mask;
            // SAFETY: masked, so inside the entries' mapping; the kernel is done with this entry (head == tail).
            unsafe { self.entries.base.cast::<io_uring_sqe>().add(at as usize).write(entry) };
        }
        let mut wanted = ops.len() as u32;
        // Pairs with the kernel's acquire of the tail.
        sq_tail.store(start.wrapping_add(wanted), Release);
        let (cq_head, cq_tail) = (self.rings.word(cq.head), self.rings.word(cq.tail));
        let cq_mask = self.params.cq_entries.wrapping_sub(1);
        let (mut done, mut broken) = (0, false);
        while done < wanted {
            if broken {
                rustix::thread::sched_yield();
            } else {
                let submitted = sq_head.load(Acquire).wrapping_sub(start);
                // SAFETY: entries and their buffers are valid until their completions are seen below.
                let entered = unsafe {
                    io_uring_enter(&self.fd, wanted - submitted, wanted - done, IoringEnterFlags::GETEVENTS)
                };
                match entered {
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(Errno::AGAIN | Errno::BUSY) => rustix::thread::sched_yield(),
                    Err(_) => {
                        // Take back what was not begun; what was completes without our help.
                        let begun = sq_head.load(Acquire).wrapping_sub(start);
                        sq_tail.store(start.wrapping_add(begun), Release);
                        if begun == 0 {
                            return false;
                        }
                        for op in ops.iter_mut().skip(begun as usize) {
                            op.result = 0;
                        }
                        (wanted, broken) = (begun, true);
                    }
                }
            }
            let mut head = cq_head.load(Relaxed);
            // Pairs with the kernel's release of the tail: the completions are written.
            let tail = cq_tail.load(Acquire);
            while head != tail {
                let at = cq.cqes as usize + (head & cq_mask) as usize * size_of::<io_uring_cqe>();
                // SAFETY: masked, so inside the mapping; completion entries are 16 bytes, plain.
                let (index, result) = unsafe {
                    let entry = self.rings.base.add(at).cast::<io_uring_cqe>();
                    ((*entry).user_data.u64_, (*entry).res)
                };
                if let Some(op) = ops.get_mut(index as usize) {
                    op.result = result;
                }
                head = head.wrapping_add(1);
                done += 1;
            }
            // Pairs with the kernel's acquire: the entries may be used again.
            cq_head.store(head, Release);
        }
        true
    }
}
