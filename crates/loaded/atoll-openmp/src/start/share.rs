//! Moving existing memory to where all workers share it, without changing an address or a byte.
//!
//! Used by the constructor for globals, the main thread's TLS and its stack. A stretch is copied to a file and the file mapped
//! over it; large globals get pages of the arena instead.

use atoll_memory::layout;
use atoll_memory::pager::Pager;
use atoll_memory::sys::{self, Errno};

use super::mappings;
use super::objects;
use crate::arch;
use crate::heap;

/// The file of all pinned shared memory: the heap, then stacks, then moved memory.
pub(crate) struct PinnedFile {
    fd: i32,
    next: u64,
}

/// Offset of stacks in the pinned file.
const STACKS_OFFSET: u64 = layout::PINNED_BYTES as u64;
/// Offset of moved memory.
const MOVED_OFFSET: u64 = STACKS_OFFSET + layout::STACKS_BYTES as u64;
const MOVED_BYTES: u64 = 1 << 40;

/// The bytes of the first small blocks that are included in core files.
const IN_CORES: usize = 64 << 20;

/// Leaves heap and stacks out of core files, but for the first small blocks. The used parts of the stacks are added as workers start.
fn leave_out_of_cores() {
    let (pinned, stacks) = (heap::place::pinned(), heap::place::stacks());
    sys::in_core_files(stacks.start, stacks.len(), false);
    sys::in_core_files(pinned.start + IN_CORES, pinned.len() - IN_CORES, false);
}

impl PinnedFile {
    /// Makes the file and maps heap and stacks.
    pub(crate) fn create() -> Result<PinnedFile, Errno> {
        let fd = sys::memfd(c"atoll-pinned", 0, MOVED_OFFSET + MOVED_BYTES)?;
        let (pinned, stacks) = (heap::place::pinned(), heap::place::stacks());
        let flags = libc::MAP_SHARED | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: NOREPLACE: nothing that exists is touched.
        unsafe {
            sys::mmap(pinned.start, pinned.len(), prot, flags, fd, (pinned.start - layout::PINNED) as u64)?;
            let offset = STACKS_OFFSET + (stacks.start - layout::STACKS) as u64;
            sys::mmap(stacks.start, stacks.len(), prot, flags, fd, offset)?;
        }
        leave_out_of_cores();
        Ok(PinnedFile { fd, next: MOVED_OFFSET })
    }

    /// Maps heap and stacks as private memory of this process, which a forked process gets a copy of. There is no file.
    pub(crate) fn none_but_private() -> Result<(), Errno> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
        for part in [heap::place::pinned(), heap::place::stacks()] {
            // SAFETY: NOREPLACE: nothing that exists is touched.
            unsafe {
                sys::mmap(part.start, part.len(), libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)?;
            }
        }
        leave_out_of_cores();
        Ok(())
    }

    /// Makes the file for moved memory only, as heap and stacks are in a segment.
    pub(crate) fn of_moved() -> Result<PinnedFile, Errno> {
        let fd = sys::memfd(c"atoll-pinned", 0, MOVED_OFFSET + MOVED_BYTES)?;
        Ok(PinnedFile { fd, next: MOVED_OFFSET })
    }

    /// The file's descriptor.
    pub(crate) fn fd(&self) -> i32 {
        self.fd
    }

    /// Reserves file space for `len` bytes.
    fn reserve(&mut self, len: usize) -> u64 {
        let at = self.next;
        self.next += len.next_multiple_of(4096) as u64;
        at
    }

    /// Moves `start..end` (whole pages, one or several private writable mappings) to shared memory. Returns the offset in the
    /// file.
    pub(crate) fn move_here(&mut self, start: usize, end: usize) -> Result<u64, Errno> {
        let offset = self.reserve(end - start);
        move_to(self.fd, offset, start, end)?;
        Ok(offset)
    }

    /// Moves the main stack: the used part `used..top` and the range it may grow to, down to `bottom`.
    pub(crate) fn move_stack(&mut self, bottom: usize, used: usize, top: usize) -> Result<(), Errno> {
        let offset = self.reserve(top - bottom);
        if bottom < used {
            let flags = libc::MAP_SHARED | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
            let prot = libc::PROT_READ | libc::PROT_WRITE;
            // SAFETY: NOREPLACE: the free addresses below the stack.
            unsafe { sys::mmap(bottom, used - bottom, prot, flags, self.fd, offset)? };
            super::segment::map_stack(bottom, used);
        }
        move_to(self.fd, offset + (used - bottom) as u64, used, top)
    }
}

/// A word of this library's own data.
static OWN_DATA: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);

/// Copies the present pages of `start..end` to the file and maps the file over them.
pub(crate) fn move_to(fd: i32, offset: u64, start: usize, end: usize) -> Result<(), Errno> {
    let runs = present_runs(start, end)?;
    // SAFETY: replaces memory by a copy of itself, and there is no other thread yet that could change it.
    let result = unsafe { copy_and_map(fd, offset, start, end, &runs) };
    drop(runs);
    result
}

/// Writes `runs` of `start..end` to the file and maps the file over the stretch, with no instruction in between that writes to
/// memory: this library's own data, the stack in use and the main thread's storage may lie in it.
///
/// # Safety
/// Memory outside `runs` reads as zeros, and nobody else changes the stretch meanwhile.
#[inline(never)]
unsafe fn copy_and_map(fd: i32, offset: u64, start: usize, end: usize, runs: &[Run]) -> Result<(), Errno> {
    let runs = runs.as_ptr_range();
    // SAFETY: the caller's promise; a run is two addresses.
    let result = unsafe {
        arch::copy_and_map(
            fd as usize,
            offset as usize,
            runs.start.cast(),
            runs.end.cast(),
            start,
            end - start,
        )
    };
    if (-4095..0).contains(&result) { Err(Errno(-result as i32)) } else { Ok(()) }
}

/// A stretch of memory: its first address, and the one behind its last.
#[repr(C)]
#[derive(Clone, Copy)]
struct Run {
    start: usize,
    end: usize,
}

/// The stretches of `start..end` that hold anything: pages that are mapped or swapped, joined. Pages never touched read as
/// zeros, as the file does. File-backed data that was not read yet counts as present.
///
/// From the moment the kernel is asked until the memory was copied, nothing may be allocated or freed: that could touch pages
/// of the allocator's which the kernel did not count. So the answer lies in a mapping of its own. That also keeps it out of
/// pinned memory, which counts against the near limit: for a large array it has a word for each page.
fn present_runs(start: usize, end: usize) -> Result<Runs, Errno> {
    let mut runs = Runs::with_room((end - start) / 4096 / 2 + 1)?;
    let backed = mappings::file_backed(start, end);
    let map = std::fs::File::open("/proc/self/pagemap");
    let mut words = [0u64; 512];
    let mut at = start;
    while at < end {
        let pages = ((end - at) / 4096).min(words.len());
        let known = map.as_ref().is_ok_and(|map| {
            use std::os::unix::fs::FileExt;
            // SAFETY: u64 has no invalid bytes; the slice covers the first `pages` words.
            let raw = unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast::<u8>(), pages * 8) };
            map.read_exact_at(raw, (at / 4096 * 8) as u64).is_ok()
        });
        for word in &words[..pages] {
            if !known || word >> 62 != 0 || backed.iter().any(|&(a, b)| at >= a && at < b) {
                runs.add(at);
            }
            at += 4096;
        }
    }
    runs.later = Some((backed, map));
    Ok(runs)
}

/// A list of runs in a mapping of its own.
struct Runs {
    at: *mut Run,
    room: usize,
    len: usize,
    /// The means by which the runs were found, freed together with them.
    later: Option<Means>,
}

/// Mappings with a file behind them, and the kernel's table of pages.
type Means = (Vec<(usize, usize)>, std::io::Result<std::fs::File>);

impl Runs {
    fn with_room(room: usize) -> Result<Runs, Errno> {
        let (bytes, prot) = (room * size_of::<Run>(), libc::PROT_READ | libc::PROT_WRITE);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a fresh mapping.
        let at = unsafe { sys::mmap(0, bytes, prot, flags, -1, 0)? };
        Ok(Runs { at: at as *mut Run, room, len: 0, later: None })
    }

    /// Adds one page behind the last.
    fn add(&mut self, page: usize) {
        let run = Run { start: page, end: page + 4096 };
        // SAFETY: the elements below `len` were written, and `len` stays at most `room`.
        unsafe {
            match self.len.checked_sub(1).map(|last| &mut *self.at.add(last)) {
                // There is room for a run in every second page. Should it be full, the last run takes the pages between.
                Some(last) if last.end == page || self.len == self.room => last.end = run.end,
                _ => {
                    self.at.add(self.len).write(run);
                    self.len += 1;
                }
            }
        }
    }
}

impl std::ops::Deref for Runs {
    type Target = [Run];

    fn deref(&self) -> &[Run] {
        // SAFETY: written by `add`.
        unsafe { std::slice::from_raw_parts(self.at, self.len) }
    }
}

impl Drop for Runs {
    fn drop(&mut self) {
        let bytes = self.room * size_of::<Run>();
        // SAFETY: a mapping of our own, to which no reference is left.
        let _ = unsafe { sys::syscall(libc::SYS_munmap, [self.at as usize, bytes, 0, 0, 0, 0]) };
    }
}

/// The initial content of a large global, to be written to its pages once faults are served.
pub(crate) struct Content {
    at: usize,
    /// The address of the copy, a private mapping because pinned memory has no room for it.
    copy: usize,
    len: usize,
}

impl Content {
    /// Drops the copy: the memory it was made of is still there.
    fn give_up(self) {
        // SAFETY: a mapping made for this copy.
        let _ = unsafe { sys::syscall(libc::SYS_munmap, [self.copy, self.len, 0, 0, 0, 0]) };
    }
}

/// Moves an object's data: large globals to the arena, the rest to pinned memory.
pub(crate) fn share_object(
    object: &objects::Object,
    pager: &Pager,
    file: &mut PinnedFile,
    contents: &mut Vec<Content>,
) -> Result<(), Errno> {
    let page = pager.page_bytes();
    let own = &raw const OWN_DATA as usize;
    let is_own = object.data.iter().any(|(a, b)| (*a..*b).contains(&own));
    let large = if is_own {
        // Memory that handlers of faults read cannot itself fault.
        Vec::new()
    } else if pager.control().settings.several_nodes() {
        // All of the data must be kept coherent between nodes.
        object.data.clone()
    } else {
        objects::large_globals(object, heap::large::LEAST)
    };
    let large: Vec<(usize, usize)> = large
        .into_iter()
        .map(|(a, b)| (a.next_multiple_of(page), b & !(page - 1)))
        .filter(|(a, b)| a < b)
        .collect();
    for &(start, end) in &object.data {
        let mut at = start;
        for &(a, b) in large.iter().filter(|&&(a, b)| a >= start && b <= end) {
            if at < a {
                file.move_here(at, a)?;
            }
            if share_global(pager, a, b, contents)? {
                at = b;
            } else {
                at = a;
            }
        }
        if at < end {
            file.move_here(at, end)?;
        }
    }
    Ok(())
}

/// Gives `start..end` pages of the arena; `false` if there are no page numbers left for them.
fn share_global(pager: &Pager, start: usize, end: usize, contents: &mut Vec<Content>) -> Result<bool, Errno> {
    let reserved = if pager.is_segment() { None } else { pager.reserve_range(start, end) };
    if reserved.is_none() && !pager.is_segment() {
        return Ok(false);
    }
    let kept = contents.len();
    for &Run { start: a, end: b } in present_runs(start, end)?.iter() {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a fresh mapping of the same length; the source is mapped and readable.
        let copy = unsafe {
            let copy = sys::mmap(0, b - a, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)?;
            std::ptr::copy_nonoverlapping(a as *const u8, copy as *mut u8, b - a);
            copy
        };
        contents.push(Content { at: a, copy, len: b - a });
    }
    let Some((first, offset)) = reserved else {
        let mapped = super::segment::map_global(start, end);
        if !mapped {
            contents.drain(kept..).for_each(Content::give_up);
        }
        return Ok(mapped);
    };
    // SAFETY: replaces the global's memory, whose content was kept, by pages of the arena's files.
    unsafe { pager.files().map(start, offset, end - start, libc::MAP_FIXED)? };
    pager.publish_range(start, end, first);
    Ok(true)
}

/// Drops kept contents, which another node has.
pub(crate) fn forget(contents: Vec<Content>) {
    for c in contents {
        // SAFETY: a mapping of our own.
        let _ = unsafe { sys::syscall(libc::SYS_munmap, [c.copy, c.len, 0, 0, 0, 0]) };
    }
}

/// Writes kept contents to their places by ordinary stores, whose faults bring the pages.
pub(crate) fn restore(contents: Vec<Content>) {
    for c in contents {
        // SAFETY: a large global that was moved; nobody else runs yet.
        unsafe {
            std::ptr::copy_nonoverlapping(c.copy as *const u8, c.at as *mut u8, c.len);
            let _ = sys::syscall(libc::SYS_munmap, [c.copy, c.len, 0, 0, 0, 0]);
        }
    }
}
