//! System calls made without libc: no `errno`, no cancellation, nothing a preloaded library could interpose.
//!
//! The fault path, the far stores and the start of workers call these; everything else uses `libc` or `std`.
//!
//! Rules: no allocation, no locks, no arena access. Each call returns the kernel's value or the positive errno.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::arch;

/// A positive errno value as the kernel returned it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Errno(pub i32);

impl std::fmt::Display for Errno {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", std::io::Error::from_raw_os_error(self.0))
    }
}

impl std::error::Error for Errno {}

/// Makes system call `number` with six arguments.
///
/// # Safety
/// The arguments must be valid for that call; pointers must be valid for what the kernel does with them.
#[inline]
pub unsafe fn syscall(number: libc::c_long, a: [usize; 6]) -> Result<usize, Errno> {
    // SAFETY: forwarded to the caller.
    let result = unsafe { arch::syscall(number, a) };
    if (-4095..0).contains(&result) { Err(Errno(-result as i32)) } else { Ok(result as usize) }
}

/// The calling process, as the kernel calls it.
pub fn process() -> i32 {
    // SAFETY: no arguments.
    unsafe { syscall(libc::SYS_getpid, [0; 6]) }.map_or(0, |process| process as i32)
}

/// The process that started the calling one.
pub fn parent() -> i32 {
    // SAFETY: no arguments.
    unsafe { syscall(libc::SYS_getppid, [0; 6]) }.map_or(0, |process| process as i32)
}

/// The calling process's group.
pub fn group() -> i32 {
    // SAFETY: values only; 0 stands for the calling process.
    unsafe { syscall(libc::SYS_getpgid, [0; 6]) }.map_or(0, |process| process as i32)
}

/// `ioctl` with a pointer to `argument`, which the kernel may write.
///
/// # Safety
/// `argument` must be the structure `request` takes, and what it points to must be valid.
#[inline]
pub unsafe fn ioctl<T>(fd: i32, request: u64, argument: &mut T) -> Result<usize, Errno> {
    // SAFETY: forwarded to the caller.
    unsafe {
        syscall(
            libc::SYS_ioctl,
            [fd as usize, request as usize, std::ptr::from_mut(argument) as usize, 0, 0, 0],
        )
    }
}

/// Reads exactly `len` bytes at `offset` of `fd` into `to`; a short read is retried, end of file is `EIO`.
///
/// # Safety
/// `to` must be valid for writes of `len` bytes.
pub unsafe fn pread_exact(fd: i32, mut to: *mut u8, mut len: usize, mut offset: u64) -> Result<(), Errno> {
    while len > 0 {
        // SAFETY: the caller's buffer.
        match unsafe { pread_some(fd, to, len, offset) } {
            Ok(0) => return Err(Errno(libc::EIO)),
            Ok(n) => {
                // SAFETY: n ≤ len bytes were read.
                to = unsafe { to.add(n) };
                len -= n;
                offset += n as u64;
            }
            Err(Errno(libc::EINTR)) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// One read of at most `len` bytes at `offset` of `fd`.
///
/// # Safety
/// `to` must be valid for writes of `len` bytes.
pub unsafe fn pread_some(fd: i32, to: *mut u8, len: usize, offset: u64) -> Result<usize, Errno> {
    // SAFETY: the caller's buffer.
    unsafe { syscall(libc::SYS_pread64, [fd as usize, to as usize, len, offset as usize, 0, 0]) }
}

/// Writes exactly `len` bytes from `from` at `offset` of `fd`.
///
/// # Safety
/// `from` must be valid for reads of `len` bytes.
pub unsafe fn pwrite_exact(fd: i32, from: *const u8, len: usize, offset: u64) -> Result<(), Errno> {
    let mut done = 0;
    while done < len {
        // SAFETY: the caller's buffer.
        let a = unsafe { [fd as usize, from.add(done) as usize, len - done, offset as usize + done, 0, 0] };
        // SAFETY: as above.
        match unsafe { syscall(libc::SYS_pwrite64, a) } {
            Ok(0) => return Err(Errno(libc::EIO)),
            Ok(n) => done += n,
            Err(Errno(libc::EINTR)) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// One read of at most `len` bytes.
///
/// # Safety
/// `to` must be valid for writes of `len` bytes.
pub unsafe fn read(fd: i32, to: *mut u8, len: usize) -> Result<usize, Errno> {
    // SAFETY: the caller's buffer.
    unsafe { syscall(libc::SYS_read, [fd as usize, to as usize, len, 0, 0, 0]) }
}

/// Closes a descriptor.
pub fn close(fd: i32) {
    if let Some((word, bit)) = own_bit(fd) {
        word.fetch_and(!bit, Ordering::Relaxed);
    }
    // SAFETY: no pointers.
    let _ = unsafe { syscall(libc::SYS_close, [fd as usize, 0, 0, 0, 0, 0]) };
}

/// A pipe: the end to read from, the end to write to.
pub fn pipe() -> Result<[i32; 2], Errno> {
    let mut ends = [0i32; 2];
    // SAFETY: the kernel writes two descriptors.
    unsafe {
        syscall(libc::SYS_pipe2, [ends.as_mut_ptr() as usize, libc::O_CLOEXEC as usize, 0, 0, 0, 0])?;
    }
    Ok(ends)
}

/// Sets how many bytes a pipe can hold and returns how many it can now.
pub fn set_pipe_capacity(fd: i32, bytes: usize) -> Result<usize, Errno> {
    // SAFETY: no pointers.
    unsafe { syscall(libc::SYS_fcntl, [fd as usize, libc::F_SETPIPE_SZ as usize, bytes, 0, 0, 0]) }
}

/// Moves up to `len` bytes at `offset` of `fd` to a pipe, by reference where the file allows it; never waits.
pub fn splice(fd: i32, offset: u64, pipe: i32, len: usize) -> Result<usize, Errno> {
    let mut offset = offset as i64;
    // SAFETY: the kernel reads and writes the offset.
    unsafe {
        syscall(
            libc::SYS_splice,
            [
                fd as usize,
                std::ptr::from_mut(&mut offset) as usize,
                pipe as usize,
                0,
                len,
                libc::SPLICE_F_NONBLOCK as usize,
            ],
        )
    }
}

/// Opens a descriptor that stands for the calling process and can be read once that has ended.
///
/// # Errors
/// The kernel's: it has no such descriptors before Linux 5.3.
pub fn open_self() -> Result<i32, Errno> {
    // SAFETY: values only.
    let fd = unsafe { syscall(libc::SYS_pidfd_open, [process() as usize, 0, 0, 0, 0, 0])? };
    Ok(out_of_the_way(fd as i32))
}

/// Opens the kernel's account of the calling process's page table: 8 bytes for each page of the kernel.
///
/// # Errors
/// The kernel's: `/proc` may not be there.
pub fn open_page_map() -> Result<i32, Errno> {
    // SAFETY: a C string.
    unsafe { open(c"/proc/self/pagemap".as_ptr().cast(), libc::O_RDONLY) }
}

/// Opens the kernel's account of how much memory the calling process uses, for [`private_bytes_by`].
///
/// # Errors
/// The kernel's: `/proc` may not be there.
pub fn open_memory_use() -> Result<i32, Errno> {
    // SAFETY: a C string.
    unsafe { open(c"/proc/self/statm".as_ptr().cast(), libc::O_RDONLY) }
}

/// Opens the file `path`, with these `flags`.
///
/// # Safety
/// `path` must be a C string.
unsafe fn open(path: *const u8, flags: i32) -> Result<i32, Errno> {
    let (at, flags) = (libc::AT_FDCWD as usize, (flags | libc::O_CLOEXEC) as usize);
    // SAFETY: the caller's C string.
    let fd = unsafe { syscall(libc::SYS_openat, [at, path as usize, flags, 0, 0, 0])? };
    Ok(out_of_the_way(fd as i32))
}

/// Opens the file `path` to read it and [`close`] it at once: the descriptor may have a number that programs count on.
///
/// # Errors
/// The kernel's.
pub fn open_briefly(path: &std::ffi::CStr) -> Result<i32, Errno> {
    let (at, flags) = (libc::AT_FDCWD as usize, (libc::O_RDONLY | libc::O_CLOEXEC) as usize);
    // SAFETY: a C string.
    let fd = unsafe { syscall(libc::SYS_openat, [at, path.as_ptr() as usize, flags, 0, 0, 0])? };
    Ok(fd as i32)
}

/// Gives the same descriptor a number that programs do not count on: they expect the low ones for themselves, and
/// close ranges of them. Not much higher, as each fork copies the table up to the highest. The same number if there
/// is no room.
pub fn out_of_the_way(fd: i32) -> i32 {
    const HIGH: usize = 512;
    // SAFETY: no pointers.
    let moved =
        unsafe { syscall(libc::SYS_fcntl, [fd as usize, libc::F_DUPFD_CLOEXEC as usize, HIGH, 0, 0, 0]) };
    let fd = match moved {
        Ok(high) => {
            close(fd);
            high as i32
        }
        Err(_) => fd,
    };
    keep_open(fd);
    fd
}

/// Words of [`OWN`]: higher descriptors are not known as atoll's.
const OWN_WORDS: usize = 1024;
/// A bit for each descriptor that is atoll's and not the program's.
static OWN: [AtomicU64; OWN_WORDS] = [const { AtomicU64::new(0) }; OWN_WORDS];

fn own_bit(fd: i32) -> Option<(&'static AtomicU64, u64)> {
    Some((OWN.get(usize::try_from(fd).ok()? / 64)?, 1 << (fd % 64)))
}

/// Notes that a descriptor is atoll's, which a program that closes all descriptors must not close; until [`close`].
pub fn keep_open(fd: i32) {
    if let Some((word, bit)) = own_bit(fd) {
        word.fetch_or(bit, Ordering::Relaxed);
    }
}

/// Whether a descriptor is atoll's.
pub fn is_own_descriptor(fd: i32) -> bool {
    own_bit(fd).is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
}

/// The descriptors that are atoll's, ascending.
pub fn own_descriptors() -> impl Iterator<Item = u32> {
    OWN.iter().enumerate().flat_map(|(index, word)| {
        let word = word.load(Ordering::Relaxed);
        (0..64).filter(move |bit| word >> bit & 1 != 0).map(move |bit| index as u32 * 64 + bit)
    })
}

/// Runs `work` with as many open descriptors allowed as the hard limit says: a large team needs more than programs commonly may
/// have. The program finds its own limit again afterwards.
pub fn with_descriptors<R>(work: impl FnOnce() -> R) -> R {
    let limit = |new: Option<&[u64; 2]>, old: &mut [u64; 2]| {
        let new = new.map_or(0, |new| new.as_ptr() as usize);
        let number = libc::RLIMIT_NOFILE as usize;
        // SAFETY: two words each, soft limit first, as the kernel's structure is.
        unsafe { syscall(libc::SYS_prlimit64, [0, number, new, old.as_mut_ptr() as usize, 0, 0]) }
    };
    let mut before = [0; 2];
    let raised = limit(None, &mut before).is_ok() && limit(Some(&[before[1]; 2]), &mut [0; 2]).is_ok();
    let result = work();
    if raised {
        let _ = limit(Some(&before), &mut [0; 2]);
    }
    result
}

/// Frees the file's pages in `offset..offset + len`; they read as zeros (or fault as missing) afterwards.
pub fn punch_hole(fd: i32, offset: u64, len: u64) -> Result<(), Errno> {
    let mode = (libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE) as usize;
    loop {
        // SAFETY: no pointers.
        match unsafe {
            syscall(libc::SYS_fallocate, [fd as usize, mode, offset as usize, len as usize, 0, 0])
        } {
            Ok(_) => return Ok(()),
            Err(Errno(libc::EINTR)) => {}
            Err(e) => return Err(e),
        }
    }
}

/// Gives the CPU to whoever else is runnable.
#[inline]
pub fn yield_now() {
    // SAFETY: no arguments.
    let _ = unsafe { syscall(libc::SYS_sched_yield, [0; 6]) };
}

/// Sleeps `nanoseconds` (below one second), or shorter if a signal arrives.
pub fn sleep_ns(nanoseconds: i64) {
    let t = libc::timespec { tv_sec: 0, tv_nsec: nanoseconds };
    // SAFETY: t is valid; the second argument is null.
    let _ = unsafe { syscall(libc::SYS_nanosleep, [std::ptr::from_ref(&t) as usize, 0, 0, 0, 0, 0]) };
}

/// Writes a message to standard error, whatever happens to it.
pub fn complain(message: &str) {
    complain_whole([message]);
}

/// Writes a message in parts by one call, so that a process that is killed meanwhile has written all of it or nothing.
pub fn complain_whole<const PARTS: usize>(parts: [&str; PARTS]) {
    let parts = parts.map(|part| [part.as_ptr() as usize, part.len()]);
    // SAFETY: address and length of each string, as the kernel's `iovec` has them.
    let _ = unsafe { syscall(libc::SYS_writev, [2, parts.as_ptr() as usize, PARTS, 0, 0, 0]) };
}

/// Anonymous shared memory as a file, close-on-exec; `flags` adds to that (`MFD_HUGETLB`).
pub fn memfd(name: &std::ffi::CStr, flags: u32, size: u64) -> Result<i32, Errno> {
    // SAFETY: name is a C string.
    let fd = unsafe {
        syscall(
            libc::SYS_memfd_create,
            [name.as_ptr() as usize, (libc::MFD_CLOEXEC | flags) as usize, 0, 0, 0, 0],
        )?
    };
    // SAFETY: no pointers.
    unsafe { syscall(libc::SYS_ftruncate, [fd, size as usize, 0, 0, 0, 0])? };
    Ok(out_of_the_way(fd as i32))
}

/// Opens a memory file `name` that another process has as descriptor `number`, with these `flags`.
///
/// # Errors
/// The kernel's; `EINVAL` if that is another file.
pub fn open_of_process(process: i32, number: i32, name: &std::ffi::CStr, flags: i32) -> Result<i32, Errno> {
    use std::io::Write;
    let mut path = [0u8; 48];
    // Longer than any such path.
    let _ = write!(&mut path[..47], "/proc/{process}/fd/{number}");
    let at = libc::AT_FDCWD as usize;
    let mut target = [0u8; 64];
    // SAFETY: a C string, and memory that is valid for writes of its length.
    let length = unsafe {
        let (to, room) = (target.as_mut_ptr() as usize, target.len());
        syscall(libc::SYS_readlinkat, [at, path.as_ptr() as usize, to, room, 0, 0])?
    };
    let named =
        target[..length].strip_prefix(b"/memfd:").is_some_and(|rest| rest.starts_with(name.to_bytes()));
    if !named {
        return Err(Errno(libc::EINVAL));
    }
    // SAFETY: a C string, as the last byte was left zero.
    unsafe { open(path.as_ptr(), flags) }
}

/// `mmap`.
///
/// # Safety
/// With `MAP_FIXED` the caller owns whatever was mapped at `address`.
pub unsafe fn mmap(
    address: usize,
    len: usize,
    prot: i32,
    flags: i32,
    fd: i32,
    offset: u64,
) -> Result<usize, Errno> {
    // SAFETY: forwarded to the caller.
    unsafe {
        syscall(
            libc::SYS_mmap,
            [address, len, prot as usize, flags as usize, fd as isize as usize, offset as usize],
        )
    }
}

/// Leaves `len` bytes at `address` (whole pages) out of core files, or has them in: the kernel looks at every page of what it
/// is to write, untouched or not, so that terabytes of addresses would keep it busy for minutes after a crash.
pub fn in_core_files(address: usize, len: usize, wanted: bool) {
    let advice = if wanted { libc::MADV_DODUMP } else { libc::MADV_DONTDUMP };
    // SAFETY: advice on what a core file has changes no memory. Refused where nothing is mapped.
    let _ = unsafe { syscall(libc::SYS_madvise, [address, len, advice as usize, 0, 0, 0]) };
}

/// Bytes of memory a memfd holds now.
pub fn file_bytes(fd: i32) -> u64 {
    // SAFETY: stat is plain data, for which zeros are valid.
    let mut st: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: st is valid for writes.
    match unsafe { syscall(libc::SYS_fstat, [fd as usize, std::ptr::from_mut(&mut st) as usize, 0, 0, 0, 0]) }
    {
        Ok(_) => st.st_blocks as u64 * 512,
        Err(_) => 0,
    }
}

/// Bytes of this process's own memory that are resident: what no file holds, and what it changed of files. 0 if it cannot be asked.
pub fn private_bytes() -> u64 {
    private_bytes_in(c"/proc/self/statm")
}

/// Bytes of the own memory of process number `process` that are resident, as [`private_bytes`] counts them. 0 if there is no such process.
pub fn private_bytes_of(process: i32) -> u64 {
    std::ffi::CString::new(format!("/proc/{process}/statm")).map_or(0, |statm| private_bytes_in(&statm))
}

/// The same as [`private_bytes`], of the process that opened `statm` by [`open_memory_use`]: a fifth of the time.
pub fn private_bytes_by(statm: i32) -> u64 {
    let mut text = [0u8; 128];
    // SAFETY: a buffer of its size.
    let read = unsafe { pread_some(statm, text.as_mut_ptr(), text.len(), 0) };
    resident_and_shared(&text[..read.unwrap_or(0)])
        .map_or(0, |(resident, shared)| resident.saturating_sub(shared) * 4096)
}

fn private_bytes_in(statm: &std::ffi::CStr) -> u64 {
    open_briefly(statm).map_or(0, |fd| {
        let bytes = private_bytes_by(fd);
        close(fd);
        bytes
    })
}

/// The second and the third number of a `statm`, in pages.
fn resident_and_shared(text: &[u8]) -> Option<(u64, u64)> {
    let text = std::str::from_utf8(text).ok()?;
    let mut numbers = text.split_ascii_whitespace().skip(1).map(str::parse::<u64>);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// The first stretch of a file at or behind `from`, up to `to`, that takes memory, as two offsets.
pub fn next_data(fd: i32, from: u64, to: u64) -> Option<(u64, u64)> {
    let seek = |at: u64, whence: i32| {
        // SAFETY: values only. The files asked here are mapped, and nobody reads them by their position.
        unsafe { syscall(libc::SYS_lseek, [fd as usize, at as usize, whence as usize, 0, 0, 0]) }
    };
    let data = seek(from, libc::SEEK_DATA).ok()? as u64;
    let hole = seek(data, libc::SEEK_HOLE).ok()? as u64;
    (data < to).then_some((data, hole.min(to)))
}

/// Bytes of a file between two offsets that take memory; 0 if it cannot be asked.
pub fn bytes_between(fd: i32, from: u64, to: u64) -> u64 {
    let (mut at, mut bytes) = (from, 0);
    while let Some((data, hole)) = next_data(fd, at, to) {
        bytes += hole - data;
        at = hole;
    }
    bytes
}

/// What a clock of the kernel (`libc::CLOCK_…`) shows, in nanoseconds. The system call itself, as helper threads may not use libc.
pub fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: time is valid for writes.
    let _ =
        unsafe { syscall(libc::SYS_clock_gettime, [clock as usize, (&raw mut time) as usize, 0, 0, 0, 0]) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

pub use arch::ticks;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_was_written_is_private_and_files_are_not() {
        let before = private_bytes();
        let bytes = 64usize << 20;
        let written = std::hint::black_box(vec![1u8; bytes]);
        assert!(private_bytes() >= before + (bytes as u64) * 3 / 4, "{before} {}", private_bytes());
        drop(written);
        assert_eq!(resident_and_shared(b"9 7 3 1 0 4 0\n"), Some((7, 3)));
        assert_eq!(resident_and_shared(b"9 7"), None);
    }
}
