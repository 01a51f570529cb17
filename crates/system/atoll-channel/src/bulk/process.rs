//! The engine for another process's memory: `process_vm_readv` and `process_vm_writev`, finished when `start` returns.
//!
//! The kernel copies directly between the two address spaces. Nothing is shared or mapped in advance, but this process must be
//! allowed to trace the other one (`ptrace(2)`: same user, and Yama permitting).

use crate::bulk::engine::{Engine, Started};
use crate::bulk::error::CopyError;
use crate::bulk::memory::{Kind, Memory};
use crate::bulk::transfer::Transfer;

/// The most bytes of one call; the kernel's own limit is a little below 2 GiB.
const MOST: u64 = 1 << 30;

/// The engine: copies between a mapping and another process's memory, in either direction.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessVm;

impl Engine for ProcessVm {
    fn name(&self) -> &'static str {
        "process_vm"
    }

    fn reaches(&self, to: &Memory, from: &Memory) -> bool {
        matches!((to.kind(), from.kind()), (Kind::Mapping, Kind::Process) | (Kind::Process, Kind::Mapping))
    }

    fn start(&mut self, transfer: &Transfer<'_>, _number: u64) -> Result<Started, CopyError> {
        let unreachable = || CopyError::unreachable(transfer);
        let ends = transfer.ends().ok_or_else(unreachable)?;
        let (peer, number, address) = ends.far.in_process().ok_or_else(unreachable)?;
        let reading = ends.reading;
        // The number can belong to another process once this one has ended and was waited for. Bytes read from another process
        // are discarded below; writing to one is avoided as far as possible.
        if !reading && peer.died() {
            return Err(CopyError::Died);
        }
        let call = if reading { "process_vm_readv" } else { "process_vm_writev" };
        let pid = i32::try_from(number).map_err(|_| CopyError::Died)?;
        let mut done = 0;
        while done < transfer.bytes() {
            let bytes = (transfer.bytes() - done).min(MOST) as usize;
            let here =
                libc::iovec { iov_base: ends.address.wrapping_add(done as usize).cast(), iov_len: bytes };
            let there = (address + ends.far_offset + done) as usize;
            let there = libc::iovec { iov_base: std::ptr::without_provenance_mut(there), iov_len: bytes };
            // SAFETY: a checked transfer: `here` is inside a mapping that it borrows, writable where it is
            // written; `there` is an address the kernel checks, in another process or in memory that this one
            // registered as if it were.
            let copied = unsafe {
                if reading {
                    libc::process_vm_readv(pid, &raw const here, 1, &raw const there, 1, 0)
                } else {
                    libc::process_vm_writev(pid, &raw const here, 1, &raw const there, 1, 0)
                }
            };
            // A short count is not an error yet: the next call tells whether the rest can be copied.
            done += match u64::try_from(copied) {
                Ok(0) => return Err(CopyError::NotMapped),
                Ok(copied) => copied,
                Err(_) => {
                    let code = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
                    return Err(match code {
                        libc::ESRCH => CopyError::Died,
                        _ if peer.died() => CopyError::Died,
                        libc::EFAULT => CopyError::NotMapped,
                        libc::EPERM => CopyError::Denied,
                        _ => CopyError::Os { call, code },
                    });
                }
            };
        }
        if peer.died() { Err(CopyError::Died) } else { Ok(Started::Done) }
    }
}
