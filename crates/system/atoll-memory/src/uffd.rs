//! userfaultfd: the one kernel interface by which pages come into a worker's page table and leave it.
//!
//! Used by the pager; set up by whoever starts a worker. Debian 12's headers stop before some of it, so the
//! constants are written here.
//!
//! Rules: no allocation, no locks, no arena access.

use crate::sys::{self, Errno};

const API: u64 = 0xAA;
const USER_MODE_ONLY: usize = 1;

const fn ior(nr: u64, size: usize) -> u64 {
    (2 << 30) | ((size as u64) << 16) | (0xAA << 8) | nr
}
const fn iowr(nr: u64, size: usize) -> u64 {
    (3 << 30) | ((size as u64) << 16) | (0xAA << 8) | nr
}

#[repr(C)]
struct ApiArgument {
    api: u64,
    features: u64,
    ioctls: u64,
}
#[repr(C)]
struct RangeArgument {
    start: u64,
    len: u64,
}
#[repr(C)]
struct RegisterArgument {
    start: u64,
    len: u64,
    mode: u64,
    ioctls: u64,
}
#[repr(C)]
struct CopyArgument {
    dst: u64,
    src: u64,
    len: u64,
    mode: u64,
    copied: i64,
}
#[repr(C)]
struct FillArgument {
    start: u64,
    len: u64,
    mode: u64,
    done: i64,
}
#[repr(C)]
struct WriteProtectArgument {
    start: u64,
    len: u64,
    mode: u64,
}

/// `struct uffd_msg` for a page fault: event, flags and address are at these offsets.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Message {
    /// `0x12` for a page fault.
    pub event: u8,
    reserved: [u8; 7],
    /// Bit 0: write; bit 1: write-protected; bit 2: minor.
    pub flags: u64,
    /// The faulting address.
    pub address: u64,
    thread: u64,
}

/// [`Message::event`] of a page fault.
pub const EVENT_PAGEFAULT: u8 = 0x12;

const UFFDIO_API: u64 = iowr(0x3F, size_of::<ApiArgument>());
const UFFDIO_REGISTER: u64 = iowr(0x00, size_of::<RegisterArgument>());
const UFFDIO_UNREGISTER: u64 = ior(0x01, size_of::<RangeArgument>());
const UFFDIO_WAKE: u64 = ior(0x02, size_of::<RangeArgument>());
const UFFDIO_COPY: u64 = iowr(0x03, size_of::<CopyArgument>());
const UFFDIO_ZEROPAGE: u64 = iowr(0x04, size_of::<FillArgument>());
const UFFDIO_WRITEPROTECT: u64 = iowr(0x06, size_of::<WriteProtectArgument>());
const UFFDIO_CONTINUE: u64 = iowr(0x07, size_of::<FillArgument>());

const REGISTER_MISSING: u64 = 1;
const REGISTER_WP: u64 = 2;
const REGISTER_MINOR: u64 = 4;

const FEATURE_PAGEFAULT_FLAG_WP: u64 = 1 << 0;
const FEATURE_MISSING_HUGETLBFS: u64 = 1 << 4;
const FEATURE_MISSING_SHMEM: u64 = 1 << 5;
const FEATURE_SIGBUS: u64 = 1 << 7;
const FEATURE_MINOR_HUGETLBFS: u64 = 1 << 9;
const FEATURE_MINOR_SHMEM: u64 = 1 << 10;
const FEATURE_EXACT_ADDRESS: u64 = 1 << 11;
const FEATURE_WP_HUGETLBFS_SHMEM: u64 = 1 << 12;

const MODE_DONTWAKE: u64 = 1;
const COPY_MODE_WP: u64 = 2;
const CONTINUE_MODE_WP: u64 = 2;
const WRITEPROTECT_MODE_WP: u64 = 1;

/// How a fault reaches the pager.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Delivery {
    /// SIGBUS in the faulting worker, which resolves it itself. System calls that meet an absent page fail.
    Signal,
    /// A message to whoever reads the descriptor; the faulting thread sleeps, also inside system calls.
    Message,
}

/// One page table's userfaultfd; the descriptor is valid in every worker (CLONE_FILES), the table it acts on
/// is that of the process which opened it.
#[derive(Clone, Copy, Debug)]
pub struct Uffd(pub i32);

impl Uffd {
    /// Opens a descriptor for the calling process's page table.
    ///
    /// # Errors
    /// `EPERM` where the kernel allows the caller no userfaultfd, `ENOSYS` where there is none, `EINVAL` where a
    /// feature is missing (minor faults and write protection on shared memory: Linux 5.19).
    pub fn open(delivery: Delivery) -> Result<Uffd, Errno> {
        // Messages can only be waited for where reading does not block.
        let flags = libc::O_CLOEXEC as usize
            | if delivery == Delivery::Signal { USER_MODE_ONLY } else { libc::O_NONBLOCK as usize };
        let fd = Self::descriptor(flags)?;
        let features = FEATURE_PAGEFAULT_FLAG_WP
            | FEATURE_MISSING_HUGETLBFS
            | FEATURE_MISSING_SHMEM
            | FEATURE_MINOR_HUGETLBFS
            | FEATURE_MINOR_SHMEM
            | FEATURE_EXACT_ADDRESS
            | FEATURE_WP_HUGETLBFS_SHMEM
            | if delivery == Delivery::Signal { FEATURE_SIGBUS } else { 0 };
        Self::with(fd, features)
    }

    /// Opens a descriptor by which another process fills the calling one's private memory, which is a copy of its own. Also tells
    /// whether system calls of this process's may meet missing memory: they sleep until it is there, as instructions do. Where the
    /// kernel does not allow that, they fail.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn of_copy() -> Result<(Uffd, bool), Errno> {
        let flags = (libc::O_CLOEXEC | libc::O_NONBLOCK) as usize;
        match Self::descriptor(flags) {
            Ok(fd) => Ok((Self::with(fd, 0)?, true)),
            Err(Errno(libc::EPERM)) => Ok((Self::with(Self::descriptor(flags | USER_MODE_ONLY)?, 0)?, false)),
            Err(e) => Err(e),
        }
    }

    fn descriptor(flags: usize) -> Result<i32, Errno> {
        // SAFETY: no pointers.
        match unsafe { sys::syscall(libc::SYS_userfaultfd, [flags, 0, 0, 0, 0, 0]) } {
            Ok(fd) => Ok(fd as i32),
            Err(Errno(libc::EPERM)) => Self::open_device(flags),
            Err(e) => Err(e),
        }
    }

    fn with(fd: i32, features: u64) -> Result<Uffd, Errno> {
        let fd = sys::out_of_the_way(fd);
        let mut api = ApiArgument { api: API, features, ioctls: 0 };
        // SAFETY: the structure UFFDIO_API takes.
        unsafe { sys::ioctl(fd, UFFDIO_API, &mut api)? };
        Ok(Uffd(fd))
    }

    /// `/dev/userfaultfd` hands descriptors to whoever may open it, whatever the sysctl says.
    fn open_device(flags: usize) -> Result<i32, Errno> {
        const USERFAULTFD_IOC_NEW: usize = 0xAA00;
        let path = c"/dev/userfaultfd";
        // SAFETY: path is a C string; the ioctl takes flags by value.
        unsafe {
            let device = sys::syscall(
                libc::SYS_openat,
                [
                    libc::AT_FDCWD as usize,
                    path.as_ptr() as usize,
                    (libc::O_RDWR | libc::O_CLOEXEC) as usize,
                    0,
                    0,
                    0,
                ],
            )
            .map_err(|_| Errno(libc::EPERM))?;
            let fd = sys::syscall(libc::SYS_ioctl, [device, USERFAULTFD_IOC_NEW, flags, 0, 0, 0]);
            let _ = sys::syscall(libc::SYS_close, [device, 0, 0, 0, 0, 0]);
            Ok(fd? as i32)
        }
    }

    /// From now on faults in `start..start + len` are ours: missing, minor and write-protected.
    pub fn register(self, start: usize, len: usize) -> Result<(), Errno> {
        self.register_for(start, len, REGISTER_MISSING | REGISTER_MINOR | REGISTER_WP)
    }

    /// From now on faults on missing and on write-protected pages in `start..start + len` are ours; the kernel itself maps a page whose
    /// memory is in the file.
    pub fn register_but_minor(self, start: usize, len: usize) -> Result<(), Errno> {
        self.register_for(start, len, REGISTER_MISSING | REGISTER_WP)
    }

    /// From now on missing pages in `start..start + len`, private memory, are ours.
    pub fn register_missing(self, start: usize, len: usize) -> Result<(), Errno> {
        self.register_for(start, len, REGISTER_MISSING)
    }

    /// Faults in `start..start + len` are the kernel's from now on.
    pub fn unregister(self, start: usize, len: usize) -> Result<(), Errno> {
        let mut a = RangeArgument { start: start as u64, len: len as u64 };
        // SAFETY: the structure UFFDIO_UNREGISTER takes; it only marks mappings.
        unsafe { sys::ioctl(self.0, UFFDIO_UNREGISTER, &mut a).map(drop) }
    }

    fn register_for(self, start: usize, len: usize, mode: u64) -> Result<(), Errno> {
        let mut a = RegisterArgument { start: start as u64, len: len as u64, mode, ioctls: 0 };
        // SAFETY: the structure UFFDIO_REGISTER takes; it only marks mappings.
        unsafe { sys::ioctl(self.0, UFFDIO_REGISTER, &mut a).map(drop) }
    }

    /// Allocates pages at `start`, fills them from `source` and maps them. Returns how many bytes were done
    /// before a page that is already there (`EEXIST`) or an interruption (`EAGAIN`) stopped it.
    ///
    /// # Safety
    /// `source` must be valid for reads of `len` bytes and not lie in a registered range.
    pub unsafe fn copy(
        self,
        start: usize,
        source: *const u8,
        len: usize,
        protect: bool,
    ) -> Result<(), (usize, Errno)> {
        let mode = MODE_DONTWAKE | if protect { COPY_MODE_WP } else { 0 };
        in_pieces(len, |done, len| {
            let (dst, src) = ((start + done) as u64, source as u64 + done as u64);
            let mut a = CopyArgument { dst, src, len: len as u64, mode, copied: 0 };
            // SAFETY: the structure UFFDIO_COPY takes; source by the caller.
            match unsafe { sys::ioctl(self.0, UFFDIO_COPY, &mut a) } {
                Ok(_) => Ok(()),
                Err(e) => Err((a.copied.max(0) as usize, e)),
            }
        })
    }

    /// Allocates zeroed pages at `start` and maps them writable.
    pub fn zero(self, start: usize, len: usize) -> Result<(), (usize, Errno)> {
        self.fill(UFFDIO_ZEROPAGE, start, len, MODE_DONTWAKE)
    }

    /// Maps pages that the file already holds.
    pub fn continue_(self, start: usize, len: usize, protect: bool) -> Result<(), (usize, Errno)> {
        self.fill(UFFDIO_CONTINUE, start, len, MODE_DONTWAKE | if protect { CONTINUE_MODE_WP } else { 0 })
    }

    fn fill(self, request: u64, start: usize, len: usize, mode: u64) -> Result<(), (usize, Errno)> {
        in_pieces(len, |done, len| {
            let mut a = FillArgument { start: (start + done) as u64, len: len as u64, mode, done: 0 };
            // SAFETY: the structure UFFDIO_ZEROPAGE and UFFDIO_CONTINUE take.
            match unsafe { sys::ioctl(self.0, request, &mut a) } {
                Ok(_) => Ok(()),
                Err(e) => Err((a.done.max(0) as usize, e)),
            }
        })
    }

    /// Forbids (`true`) or allows writes through this page table's mappings of the range. Does not wake.
    pub fn write_protect(self, start: usize, len: usize, protect: bool) -> Result<(), Errno> {
        // DONTWAKE is refused together with WP, and needless: protecting wakes nobody.
        let mode = if protect { WRITEPROTECT_MODE_WP } else { 2 };
        let mut a = WriteProtectArgument { start: start as u64, len: len as u64, mode };
        loop {
            // SAFETY: the structure UFFDIO_WRITEPROTECT takes.
            match unsafe { sys::ioctl(self.0, UFFDIO_WRITEPROTECT, &mut a) } {
                Ok(_) => return Ok(()),
                Err(Errno(libc::EAGAIN)) => sys::yield_now(),
                Err(e) => return Err(e),
            }
        }
    }

    /// Wakes threads that sleep in a fault in the range ([`Delivery::Message`]).
    pub fn wake(self, start: usize, len: usize) {
        let mut a = RangeArgument { start: start as u64, len: len as u64 };
        // SAFETY: the structure UFFDIO_WAKE takes.
        let _ = unsafe { sys::ioctl(self.0, UFFDIO_WAKE, &mut a) };
    }

    /// Reads the next message.
    ///
    /// # Errors
    /// `EAGAIN` if there is none.
    pub fn read(self) -> Result<Message, Errno> {
        let mut m = std::mem::MaybeUninit::<Message>::uninit();
        // SAFETY: m is valid for writes of its size; a successful read fills all of it.
        unsafe {
            let n = sys::syscall(
                libc::SYS_read,
                [self.0 as usize, m.as_mut_ptr() as usize, size_of::<Message>(), 0, 0, 0],
            )?;
            if n == size_of::<Message>() { Ok(m.assume_init()) } else { Err(Errno(libc::EAGAIN)) }
        }
    }
}

/// Runs `work` on `len` bytes at once, given how many are done and how many to do; where the kernel finds no single mapping of
/// that length, 4K by 4K. A program may have divided the mapping, though none of its addresses changed: `mbind` (as OpenBLAS does
/// for its buffers) and `mprotect` do so at any 4K, in the middle of larger pages of ours. A part over which the program has
/// mapped a file is left out.
fn in_pieces(
    len: usize,
    work: impl Fn(usize, usize) -> Result<(), (usize, Errno)>,
) -> Result<(), (usize, Errno)> {
    const PIECE: usize = 4096;
    const NO_MAPPING: Result<(), (usize, Errno)> = Err((0, Errno(libc::ENOENT)));
    let whole = work(0, len);
    if whole != NO_MAPPING || len <= PIECE {
        return whole;
    }
    let mut any = false;
    for done in (0..len).step_by(PIECE) {
        match work(done, PIECE) {
            Ok(()) => any = true,
            NO_MAPPING => {}
            Err((more, e)) => return Err((done + more, e)),
        }
    }
    if any { Ok(()) } else { NO_MAPPING }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn a_divided_mapping_is_filled_4k_by_4k() {
        let calls = RefCell::new(Vec::new());
        let result = in_pieces(0x4000, |done, len| {
            calls.borrow_mut().push((done, len));
            match (done, len) {
                (0, 0x4000) => Err((0, Errno(libc::ENOENT))),
                (0x2000, _) => Err((0, Errno(libc::EEXIST))),
                _ => Ok(()),
            }
        });
        assert_eq!(result, Err((0x2000, Errno(libc::EEXIST))));
        assert_eq!(calls.into_inner(), [(0, 0x4000), (0, 4096), (4096, 4096), (8192, 4096)]);
    }

    #[test]
    fn what_is_mapped_over_is_left_out_unless_it_is_all() {
        let missing = |missing: fn(usize) -> bool| {
            move |done, len| if len > 4096 || missing(done) { Err((0, Errno(libc::ENOENT))) } else { Ok(()) }
        };
        assert_eq!(in_pieces(0x4000, missing(|done| done == 4096)), Ok(()));
        assert_eq!(in_pieces(0x4000, missing(|_| true)), Err((0, Errno(libc::ENOENT))));
    }
}
