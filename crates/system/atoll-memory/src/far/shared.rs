//! Memory that the master maps once and every worker inherits at the same address, and a lock that lives in it.
//!
//! Fault path: no allocation, no lock the program could hold, no arena access, no panic.
//! (`Mapping::new` is set-up code: it runs in the master before workers exist.)

use std::ffi::CStr;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

use rustix::mm::{self, Advice, MapFlags, ProtFlags};

use super::{FarError, FarOp};

/// The most mappings that [`mapped`] tells of. A store has fewer.
const MOST: usize = 64;
/// Address and bytes of the mappings that were made; 0 bytes where there is none.
static MAPPED: [[AtomicUsize; 2]; MOST] = [const { [const { AtomicUsize::new(0) }; 2] }; MOST];
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Address and bytes of all memory of stores that this process has mapped, for a process that is forked and has no use for it.
pub fn mapped() -> Vec<(usize, usize)> {
    let count = COUNT.load(Relaxed).min(MOST);
    MAPPED[..count].iter().map(|[at, bytes]| (at.load(Relaxed), bytes.load(Relaxed))).collect()
}

/// The kernel's base page: mappings, punched holes and scratch areas are multiples of it.
pub(crate) const BASE_PAGE: usize = 4096;

/// Shared anonymous memory: zero at first, taking real memory only where it is touched, the same bytes in
/// every process forked afterwards. It has no descriptor that the program could close or limit
/// (`RLIMIT_FSIZE` and `closefrom` do not reach it).
pub(crate) struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a Mapping is an address range; what is in it is reached through atomics or raw pointers only.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `bytes` (rounded up to base pages, at least one). `name` shows in `/proc/PID/maps`; `huge` asks
    /// for transparent huge pages.
    pub(crate) fn new(bytes: u64, name: &CStr, huge: bool) -> Result<Self, FarError> {
        let too_large =
            FarError::Unavailable("the address range is too large for one mapping: lower the arena size");
        let bytes = bytes.max(1).checked_next_multiple_of(BASE_PAGE as u64).ok_or(too_large)?;
        let bytes = usize::try_from(bytes).map_err(|_| too_large)?;
        // SAFETY: a new mapping at an address of the kernel's choice disturbs no other memory.
        let base = unsafe {
            mm::mmap_anonymous(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::NORESERVE,
            )
        }
        .map_err(|e| FarError::io(e, FarOp::Map))?;
        let base = NonNull::new(base.cast::<u8>()).ok_or(too_large)?;
        // SAFETY: the range was just mapped; the slice is used for its address and length only.
        let region = unsafe { std::slice::from_raw_parts(base.as_ptr(), bytes) };
        crate::sys::in_core_files(base.as_ptr().addr(), bytes, false);
        // A name and huge pages are niceties: kernels that refuse them lose nothing else.
        let _ = rustix::process::set_virtual_memory_region_name(region, Some(name));
        if huge {
            // SAFETY: advice on our own mapping; it changes no contents.
            let _ = unsafe { mm::madvise(base.as_ptr().cast(), bytes, Advice::LinuxHugepage) };
        }
        // Stores are made once, and stay.
        if let Some([place, size]) = MAPPED.get(COUNT.fetch_add(1, Relaxed)) {
            place.store(base.as_ptr().addr(), Relaxed);
            size.store(bytes, Relaxed);
        }
        Ok(Self { base, bytes })
    }

    pub(crate) fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// The `T` at byte `offset`; offsets beyond the end are clamped to the start, so that a wrong one
    /// reads a wrong value but never memory that is not ours.
    pub(crate) fn get<T: SharedWord>(&self, offset: usize) -> &T {
        let fits = offset.checked_add(size_of::<T>()).is_some_and(|end| end <= self.bytes);
        debug_assert!(fits && offset.is_multiple_of(align_of::<T>()));
        let offset = if fits { offset } else { 0 };
        // SAFETY: in bounds by the line above (every mapping holds at least one base page, more than any T),
        // aligned by the callers' layouts; T is made of atomics, valid for any bytes.
        unsafe { &*self.base.as_ptr().add(offset).cast::<T>() }
    }

    /// Gives the memory of a range back to the system; it reads as zeros afterwards. Keeps whole base pages.
    pub(crate) fn release(&self, offset: usize, bytes: usize) {
        let end = offset.saturating_add(bytes).min(self.bytes);
        if offset >= end {
            return;
        }
        // SAFETY: the range is inside our mapping and the caller gave up its contents. A refusal only
        // means that the memory is not returned.
        let _ =
            unsafe { mm::madvise(self.base.as_ptr().add(offset).cast(), end - offset, Advice::LinuxRemove) };
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: we own the range; references into it borrow from self. Other processes keep their own view.
        let _ = unsafe { mm::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// A type made of atomics alone, for which any bytes (zeros at first) are a valid value.
///
/// # Safety
/// Only for types that fit a base page and consist of integer atomics and arrays of them.
pub(crate) unsafe trait SharedWord {}
// SAFETY: integer atomics.
unsafe impl SharedWord for AtomicU32 {}
// SAFETY: integer atomics.
unsafe impl SharedWord for std::sync::atomic::AtomicU64 {}

/// A spin lock in shared memory (all-zero: free). Spins briefly, then yields: its holder may be a process that
/// is not running. Held for tens of nanoseconds; never while a system call is made.
#[repr(transparent)]
pub(crate) struct Spin(AtomicU32);

pub(crate) struct SpinGuard<'a>(&'a Spin);

impl Spin {
    pub(crate) fn lock(&self) -> SpinGuard<'_> {
        let mut turns = 0_u32;
        // Pairs with the Release store in SpinGuard::drop: the new holder sees all the last one wrote.
        while self.0.compare_exchange_weak(0, 1, Acquire, Relaxed).is_err() {
            while self.0.load(Relaxed) != 0 {
                turns = turns.wrapping_add(1);
                if turns.is_multiple_of(128) {
                    rustix::thread::sched_yield();
                } else {
                    std::hint::spin_loop();
                }
            }
        }
        SpinGuard(self)
    }
}

impl Drop for SpinGuard<'_> {
    fn drop(&mut self) {
        // Pairs with the Acquire in Spin::lock.
        self.0.0.store(0, Release);
    }
}
