//! Descriptors of segments: code and data in the local table, thread pointers in the thread's own three entries of the global
//! table.
//!
//! `switch.rs` loads their selectors, and `core.rs` sets a thread's.

use std::io;

use super::switch::{MOST_CORES, call_32};
use crate::calls::THREAD_DESCRIPTOR;

/// The selectors of the local table's first two descriptors, at user privilege.
pub(super) const CODE: u32 = 7;
pub(super) const DATA: u32 = 8 | 7;

/// The descriptor whose limit is this core's number.
const IDENTITY_DESCRIPTOR: u32 = 14;

/// The kernel's `struct user_desc`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Descriptor {
    number: u32,
    base: u32,
    limit: u32,
    flags: u32,
}

const BITS_32: u32 = 1;
const CODE_KIND: u32 = 2 << 1;
const IN_PAGES: u32 = 1 << 4;
const USABLE: u32 = 1 << 6;

const MODIFY_LDT_WRITE: u64 = 0x11;

/// Makes a data segment of `pages` pages from `base`, for the whole process, and a code segment of 4 GiB.
pub(super) fn set_segments(base: u32, pages: u32) -> io::Result<()> {
    for (number, kind, limit) in [(0, CODE_KIND, 0xfffff), (1, 0, pages - 1)] {
        let d = Descriptor { number, base, limit, flags: BITS_32 | kind | IN_PAGES | USABLE };
        let bytes = size_of_val(&d);
        // SAFETY: the descriptor is ours; segments of user privilege give this process nothing it has not.
        let done = unsafe { libc::syscall(libc::SYS_modify_ldt, MODIFY_LDT_WRITE, &raw const d, bytes) };
        // The kernel returns its error in 32 bits, which libc does not recognise as one.
        match done as i32 {
            0 => {}
            -1 => return Err(io::Error::last_os_error()),
            error => return Err(io::Error::from_raw_os_error(-error)),
        }
    }
    Ok(())
}

/// A word below 4 GiB through which descriptors are passed to the kernel's 32-bit calls.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mailbox(u32);

impl Mailbox {
    /// # Safety
    /// 16 bytes per core from `at` must be mapped, writable, and nobody else's.
    pub(super) unsafe fn new(at: u32) -> Mailbox {
        Mailbox(at)
    }

    fn set(self, core: usize, descriptor: Descriptor) -> io::Result<()> {
        let at = self.0 + 16 * core as u32;
        // SAFETY: this core's place in the mailbox.
        unsafe { (at as usize as *mut Descriptor).write(descriptor) };
        // SAFETY: set_thread_area reads and writes the descriptor there.
        match unsafe { call_32(SET_THREAD_AREA, at) } {
            0 => Ok(()),
            error => Err(io::Error::from_raw_os_error(-error)),
        }
    }

    /// Makes this thread core `core`.
    pub(super) fn set_identity(self, core: usize) -> io::Result<()> {
        assert!(core < MOST_CORES, "there is no such core");
        let flags = BITS_32 | USABLE;
        self.set(core, Descriptor { number: IDENTITY_DESCRIPTOR, base: 0, limit: core as u32, flags })
    }

    /// Makes `address` this thread's thread pointer. libc reaches below it, so its offsets wrap round all of 4 GiB, of which
    /// only the segment is mapped.
    pub(super) fn set_thread_pointer(self, core: usize, address: u32) -> io::Result<()> {
        self.set(core, thread_pointer(address))
    }
}

/// Makes the descriptor of a thread pointer.
pub(super) fn thread_pointer(address: u32) -> Descriptor {
    let flags = BITS_32 | IN_PAGES | USABLE;
    Descriptor { number: THREAD_DESCRIPTOR, base: address, limit: 0xfffff, flags }
}

/// The number of set_thread_area among the 32-bit calls.
const SET_THREAD_AREA: u32 = 243;
