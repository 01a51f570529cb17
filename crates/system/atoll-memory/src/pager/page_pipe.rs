//! Holds pages that left the arena's file until their content is read: a pipe that takes whole pages by reference.
//!
//! Used by `evict` for pages that other page tables map. The plain order (write-protect, copy, unmap) interrupts
//! every CPU that runs one of those tables twice. With the pages in a pipe they can be unmapped first, by the hole
//! punch that must come anyway: what was written up to then is in the pages, and the pipe keeps them alive.
//!
//! This is not for a page that is a part of a large one: the kernel clears the part in which the hole lies, though the pipe has it.
//!
//! Rules: no allocation, no locks, no arena access.

use crate::sys::{self, Errno};

/// Bytes a page of the kernel has: each takes one of a pipe's slots.
const SLOT: usize = 4096;

/// A pipe of one executor, made when first needed. All zero is a pipe not made yet.
#[derive(Debug, Default)]
pub(super) struct PagePipe {
    /// Whether making it was tried.
    tried: bool,
    from: i32,
    to: i32,
    /// Bytes it can hold; 0 if there is none.
    capacity: usize,
}

/// Whether the kernel makes large pages of memory in files by itself, as far as it says.
pub(super) fn are_pages_joined() -> bool {
    let folder = std::path::Path::new("/sys/kernel/mm/transparent_hugepage");
    let is_never = |name: &str| {
        let state = std::fs::read_to_string(folder.join(name));
        state.map_or(true, |state| {
            ["[never]", "[deny]", "[inherit]"].iter().any(|never| state.contains(never))
        })
    };
    let sizes = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let sizes = sizes.filter_map(|entry| entry.file_name().into_string().ok());
    !is_never("shmem_enabled")
        || sizes
            .filter(|name| name.starts_with("hugepages-"))
            .any(|size| !is_never(&format!("{size}/shmem_enabled")))
}

impl PagePipe {
    /// Bytes of pages it can hold, at most `wanted`; 0 where there are no pipes to be had.
    pub(super) fn capacity(&mut self, wanted: usize) -> usize {
        if !self.tried {
            self.tried = true;
            if let Ok([from, to]) = sys::pipe() {
                (self.from, self.to) = (sys::out_of_the_way(from), sys::out_of_the_way(to));
                // Without privileges the sum over all pipes of a user is limited; then it stays at 16 slots.
                let made = sys::set_pipe_capacity(self.to, wanted);
                self.capacity = made.unwrap_or(16 * SLOT);
            }
        }
        self.capacity.min(wanted)
    }

    /// Takes references to the pages `offset..offset + len` of file `fd`.
    ///
    /// # Errors
    /// The kernel's; the pipe is empty then.
    pub(super) fn take(&mut self, fd: i32, offset: u64, len: usize) -> Result<(), Errno> {
        let mut done = 0;
        while done < len {
            match sys::splice(fd, offset + done as u64, self.to, len - done) {
                Ok(0) => return self.refused(Errno(libc::EIO)),
                Ok(n) => done += n,
                Err(Errno(libc::EINTR)) => {}
                Err(e) => return self.refused(e),
            }
        }
        Ok(())
    }

    /// Reads the next `len` bytes and lets go of their pages.
    ///
    /// # Safety
    /// `to` must be valid for writes of `len` bytes.
    ///
    /// # Errors
    /// The kernel's. Fewer bytes than were taken are `EIO`.
    pub(super) unsafe fn read(&mut self, to: *mut u8, len: usize) -> Result<(), Errno> {
        let mut done = 0;
        while done < len {
            // SAFETY: within the caller's buffer.
            match unsafe { sys::read(self.from, to.add(done), len - done) } {
                Ok(0) => return Err(Errno(libc::EIO)),
                Ok(n) => done += n,
                Err(Errno(libc::EINTR)) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Empties the pipe by giving it up: another is made next time.
    fn refused(&mut self, e: Errno) -> Result<(), Errno> {
        self.drop_pages();
        Err(e)
    }

    /// Lets go of all pages unread. Of a pipe that is not made, its descriptors' numbers are nothing but zeros.
    pub(super) fn drop_pages(&mut self) {
        if self.capacity > 0 {
            sys::close(self.from);
            sys::close(self.to);
            *self = PagePipe::default();
        }
    }
}
