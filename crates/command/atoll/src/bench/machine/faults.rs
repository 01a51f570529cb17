//! Measures the parts of a fault: its signal, mapping a page that is near, bringing one that is far, dropping mappings.
//!
//! It makes the same calls as `atoll-memory`'s pager, on a file of memory of its own.

use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::time::Instant;

use atoll_memory::sys;
use atoll_memory::uffd::{Delivery, Uffd};

use super::super::{BenchError, kernel};

const PAGE: usize = 4096;
/// The number of pages of one measurement.
const PAGES: usize = 4096;
/// The number of pages dropped by one call.
const DROPPED: usize = 64;

/// A file of memory whose pages are there only once they are put in.
pub(in crate::bench) struct Ground {
    fd: i32,
    at: usize,
    uffd: Uffd,
}

impl Ground {
    pub(in crate::bench) fn new() -> Result<Self, BenchError> {
        let len = PAGES * PAGE;
        let uffd = Uffd::open(Delivery::Signal).map_err(kernel("opening a userfaultfd"))?;
        let fd = sys::memfd(c"atoll-bench", 0, len as u64).map_err(kernel("making a file of memory"))?;
        let (read_write, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new mapping of a file of our own, where the kernel likes it.
        let at = unsafe { sys::mmap(0, len, read_write, shared, fd, 0) };
        let ground = Self { fd, at: at.map_err(kernel("mapping a file of memory"))?, uffd };
        uffd.register(ground.at, len).map_err(kernel("registering memory with userfaultfd"))?;
        Ok(ground)
    }

    pub(super) fn uffd(&self) -> Uffd {
        self.uffd
    }

    /// Returns the address of page `index`.
    pub(super) fn page(&self, index: usize) -> usize {
        self.at + index * PAGE
    }

    /// Unmaps every page, and removes every page from the file.
    fn clear(&self) -> Result<(), BenchError> {
        sys::punch_hole(self.fd, 0, (PAGES * PAGE) as u64).map_err(kernel("punching a hole"))
    }

    /// Unmaps every page; returns the nanoseconds a page.
    fn drop_mappings(&self) -> f64 {
        let begin = Instant::now();
        for index in (0..PAGES).step_by(DROPPED) {
            // SAFETY: drops mappings of our own file, whose content stays.
            unsafe { libc::madvise(self.page(index) as *mut _, DROPPED * PAGE, libc::MADV_DONTNEED) };
        }
        ns_each(begin)
    }

    /// Puts in and maps every page, one by one; returns the nanoseconds a page.
    pub(in crate::bench) fn bring(&self) -> Result<f64, BenchError> {
        let source = vec![1_u8; PAGE];
        self.clear()?;
        let begin = Instant::now();
        for index in 0..PAGES {
            // SAFETY: the source has a page, and is not registered.
            unsafe { self.uffd.copy(self.page(index), source.as_ptr(), PAGE, false) }
                .map_err(|(_, errno)| kernel("UFFDIO_COPY")(errno))?;
        }
        Ok(ns_each(begin))
    }

    /// Maps every page, one by one, which are in the file; returns the nanoseconds a page.
    pub(in crate::bench) fn map(&self) -> Result<f64, BenchError> {
        self.drop_mappings();
        let begin = Instant::now();
        for index in 0..PAGES {
            self.uffd
                .continue_(self.page(index), PAGE, false)
                .map_err(|(_, errno)| kernel("UFFDIO_CONTINUE")(errno))?;
        }
        Ok(ns_each(begin))
    }

    /// Drops mappings of pages that are in the file; returns the nanoseconds a page.
    pub(in crate::bench) fn unmap(&self) -> Result<f64, BenchError> {
        self.map()?;
        Ok(self.drop_mappings())
    }

    /// Touches every page, which a signal's handler then maps; returns the nanoseconds a page.
    pub(in crate::bench) fn touch(&self) -> Result<f64, BenchError> {
        let _handler = Handler::install(self.uffd);
        self.drop_mappings();
        let begin = Instant::now();
        for index in 0..PAGES {
            // SAFETY: our own mapping; the handler maps the page.
            unsafe { (self.page(index) as *const u8).read_volatile() };
        }
        Ok(ns_each(begin))
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        // SAFETY: made by `new`, used by nobody else.
        unsafe { libc::munmap(self.at as *mut _, PAGES * PAGE) };
        sys::close(self.fd);
        sys::close(self.uffd.0);
    }
}

fn ns_each(begin: Instant) -> f64 {
    begin.elapsed().as_secs_f64() * 1e9 / PAGES as f64
}

static UFFD: AtomicI32 = AtomicI32::new(-1);
/// The last address that faulted: endless faults at one address would hang the measurement.
static LAST: AtomicUsize = AtomicUsize::new(0);

/// The SIGBUS handler, for as long as it is needed.
struct Handler {
    before: libc::sigaction,
}

impl Handler {
    fn install(uffd: Uffd) -> Self {
        UFFD.store(uffd.0, Ordering::Relaxed);
        LAST.store(0, Ordering::Relaxed);
        // SAFETY: the handler only makes a system call; both structures are valid.
        unsafe {
            let mut action = std::mem::zeroed::<libc::sigaction>();
            let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) = on_sigbus;
            action.sa_sigaction = handler as usize;
            action.sa_flags = libc::SA_SIGINFO;
            let mut before = std::mem::zeroed::<libc::sigaction>();
            libc::sigaction(libc::SIGBUS, &raw const action, &raw mut before);
            Self { before }
        }
    }
}

impl Drop for Handler {
    fn drop(&mut self) {
        // SAFETY: puts back what was there.
        unsafe { libc::sigaction(libc::SIGBUS, &raw const self.before, std::ptr::null_mut()) };
    }
}

/// Maps the page that was touched. Async-signal-safe: one system call.
extern "C" fn on_sigbus(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel hands over a valid structure, which has an address for SIGBUS.
    let address = unsafe { (*info).si_addr() } as usize & !(PAGE - 1);
    let done = Uffd(UFFD.load(Ordering::Relaxed)).continue_(address, PAGE, false);
    if done.is_err() && LAST.swap(address, Ordering::Relaxed) == address {
        // SAFETY: nothing else can be done here.
        unsafe { libc::abort() };
    }
}
