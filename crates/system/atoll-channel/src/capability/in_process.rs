//! Memory of another process of this machine, which the system copies without a mapping and without help of the owner.
//!
//! `import.rs` makes it. It goes through `/proc/PID/mem`, which once opened means the memory of that one program for ever. A
//! process number that is used again, or a new program in the same process, can never be read or written by mistake, as it
//! could with `process_vm_writev`, which names the process by number in each call. The necessary permission is the same (that
//! of a debugger), checked once.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;

use rustix::io::Errno;

use crate::Peer;
use crate::capability::access::AccessError;
use crate::capability::import::ImportError;
use crate::capability::rights::Rights;

/// A range of another process's memory.
pub struct InProcess {
    memory: File,
    address: u64,
    length: u64,
    rights: Rights,
    process: u32,
}

impl InProcess {
    pub(super) fn new(
        owner: &Peer,
        address: u64,
        length: u64,
        rights: Rights,
    ) -> Result<InProcess, ImportError> {
        // Offsets of files are signed; no address of a program is negative.
        let end = address.checked_add(length).filter(|end| i64::try_from(*end).is_ok());
        if end.is_none() {
            return Err(ImportError::Address { address, length });
        }
        let process = owner.number().ok_or(ImportError::OwnerGone)?;
        let memory = OpenOptions::new()
            .read(true)
            .write(rights.contains(Rights::WRITE))
            .open(format!("/proc/{process}/mem"))
            .map_err(|e| match e.kind() {
                io::ErrorKind::PermissionDenied => ImportError::NotAllowed,
                io::ErrorKind::NotFound => ImportError::OwnerGone,
                _ => ImportError::Os("the owner's memory", e),
            })?;
        // The process still lives, so the number was its own when the file was opened.
        if owner.died() {
            return Err(ImportError::OwnerGone);
        }
        Ok(InProcess { memory, address, length, rights, process })
    }

    /// The owner's process number, for engines that need one. It may be another process's once the owner has ended.
    pub fn process(&self) -> u32 {
        self.process
    }

    /// The start address in the owner.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// The length in bytes.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// The rights: reading, writing, or both.
    pub fn rights(&self) -> Rights {
        self.rights
    }

    /// Copies the bytes from `offset` on into this process.
    pub fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), AccessError> {
        AccessError::check(self.rights, Rights::READ, self.length, offset, into.len())?;
        let length = into.len();
        self.copy(length, |at| self.memory.read_at(&mut into[at as usize..], self.address + offset + at))
    }

    /// Copies `from` to the memory, from `offset` on. After an error a part may have been copied.
    pub fn write_at(&self, offset: u64, from: &[u8]) -> Result<(), AccessError> {
        AccessError::check(self.rights, Rights::WRITE, self.length, offset, from.len())?;
        self.copy(from.len(), |at| self.memory.write_at(&from[at as usize..], self.address + offset + at))
    }

    fn copy(&self, length: usize, mut once: impl FnMut(u64) -> io::Result<usize>) -> Result<(), AccessError> {
        let mut done = 0;
        while done < length {
            match once(done as u64) {
                // The kernel returns 0 when the program is gone.
                Ok(0) => return Err(AccessError::OwnerGone),
                Ok(count) => done += count,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.raw_os_error() == Some(Errno::IO.raw_os_error()) => {
                    return Err(AccessError::Unmapped);
                }
                Err(e) => return Err(AccessError::Os("the owner's memory", e)),
            }
        }
        Ok(())
    }
}
