//! The page tables of a run: through which descriptor each is served, and whether threads of the program share them.
//!
//! Used by whoever maps, unmaps or protects pages. A worker's process attaches its own table; its descriptor is valid in all workers.
//!
//! Rules: no allocation, no locks, no arena access.

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use super::frames::CoreMap;
use super::page_map::Mapped;
use crate::control::MAX_WORKERS;
use crate::sys::Errno;
use crate::uffd::Uffd;

/// All page tables, by the numbers of their workers.
pub(super) struct Tables {
    uffds: [AtomicI32; MAX_WORKERS],
    are_shared: AtomicBool,
    /// Where the kernel itself maps pages that are near: which pages are mapped. See `kernel_maps`.
    pub(super) kernel_maps: Option<Mapped>,
}

impl Tables {
    /// No tables yet. `are_shared`: several threads of the program run on one. `kernel_maps`: it is served without faults on pages that
    /// are near.
    pub(super) const fn new(are_shared: bool, kernel_maps: Option<Mapped>) -> Tables {
        Tables {
            uffds: [const { AtomicI32::new(-1) }; MAX_WORKERS],
            are_shared: AtomicBool::new(are_shared),
            kernel_maps,
        }
    }

    /// Faults in `start..start + len` are ours on page table `table` from now on.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub(super) fn register(&self, uffd: Uffd, start: usize, len: usize) -> Result<(), Errno> {
        if self.kernel_maps.is_some() {
            uffd.register_but_minor(start, len)
        } else {
            uffd.register(start, len)
        }
    }

    /// The descriptor of page table `table`.
    #[inline]
    pub(super) fn uffd(&self, table: usize) -> Uffd {
        // Acquire: pairs with the Release in `attach`: the table's stretches are registered by then.
        Uffd(self.uffds[table].load(Ordering::Acquire))
    }

    /// Page table `table` is served through `uffd` from now on.
    pub(super) fn attach(&self, table: usize, uffd: Uffd) {
        // Release: pairs with the Acquire in `uffd`.
        self.uffds[table].store(uffd.0, Ordering::Release);
    }

    /// Forbids writes to `at..at + len` in these page tables.
    ///
    /// # Errors
    /// The kernel's refusal, as it needs memory to do so: some tables may still be written through.
    pub(super) fn protect(&self, tables: &CoreMap, at: usize, len: usize) -> Result<(), Errno> {
        let mut result = Ok(());
        tables.for_each(|table| match self.uffd(table).write_protect(at, len, true) {
            // The table's process is gone, or has nothing of the arena there any more: nobody writes through it.
            Ok(()) | Err(Errno(libc::ESRCH | libc::ENOENT | libc::EBADF)) => {}
            Err(e) => result = Err(e),
        });
        result
    }

    /// Several threads of the program run on one page table from now on.
    pub(super) fn share(&self) {
        self.are_shared.store(true, Ordering::SeqCst);
    }

    /// Whether several threads of the program run on one page table.
    #[inline]
    pub(super) fn are_shared(&self) -> bool {
        self.are_shared.load(Ordering::Relaxed)
    }
}
