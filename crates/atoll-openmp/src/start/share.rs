//! Moving memory that exists already to where all workers share it, without changing an address or a byte.
//!
//! Used by the constructor for globals, the main thread's TLS and its stack. A stretch is copied to a file and the
//! file mapped over it; large globals get pages of the arena instead.

use std::arch::asm;
use std::io::{BufRead, BufReader};

use atoll_memory::layout;
use atoll_memory::pager::Pager;
use atoll_memory::sys::{self, Errno};

use super::objects;
use crate::heap;

/// The file of all pinned shared memory: heap, then stacks, then what is moved here.
pub(crate) struct PinnedFile {
    fd: i32,
    next: u64,
}

/// Offset of stacks in the pinned file.
const STACKS_OFFSET: u64 = layout::PINNED_BYTES as u64;
/// Offset of moved memory.
const MOVED_OFFSET: u64 = STACKS_OFFSET + layout::STACKS_BYTES as u64;
const MOVED_BYTES: u64 = 1 << 40;

/// So many bytes of the first small blocks are in core files.
const IN_CORES: usize = 64 << 20;

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
        // What of the stacks is used is added as workers start.
        sys::in_core_files(stacks.start, stacks.len(), false);
        sys::in_core_files(pinned.start + IN_CORES, pinned.len() - IN_CORES, false);
        Ok(PinnedFile { fd, next: MOVED_OFFSET })
    }

    /// Makes the file for what is moved alone: heap and stacks are in a segment.
    pub(crate) fn of_moved() -> Result<PinnedFile, Errno> {
        let fd = sys::memfd(c"atoll-pinned", 0, MOVED_OFFSET + MOVED_BYTES)?;
        Ok(PinnedFile { fd, next: MOVED_OFFSET })
    }

    /// Its descriptor.
    pub(crate) fn fd(&self) -> i32 {
        self.fd
    }

    /// Reserves file space for `len` bytes.
    fn reserve(&mut self, len: usize) -> u64 {
        let at = self.next;
        self.next += len.next_multiple_of(4096) as u64;
        at
    }

    /// Moves `start..end` (whole pages, one or several private writable mappings) to shared memory.
    /// Returns where in the file.
    pub(crate) fn move_here(&mut self, start: usize, end: usize) -> Result<u64, Errno> {
        let offset = self.reserve(end - start);
        move_to(self.fd, offset, start, end)?;
        Ok(offset)
    }

    /// Moves the main stack: the used part `used..top` and what it may grow to, down to `bottom`.
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

/// Stretches up to this size are copied as one piece: this library's own data, the stack in use and the main
/// thread's storage are, since they change while anything is done piece by piece. Larger ones are copied without
/// their holes, which would take memory.
const ONE_PIECE: usize = 1 << 20;

/// A word of this library's own data.
static OWN_DATA: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);

/// Does `start..end` hold what changes while it is copied?
fn is_in_use(start: usize, end: usize) -> bool {
    let local = 0u8;
    [&raw const OWN_DATA as usize, &raw const local as usize, thread_pointer()]
        .iter()
        .any(|a| (start..end).contains(a))
}

/// Address of the calling thread's control block.
pub(crate) fn thread_pointer() -> usize {
    let at: usize;
    // SAFETY: the first word of the thread control block is its own address.
    unsafe { asm!("mov {}, fs:0", out(reg) at, options(nostack, readonly)) };
    at
}

/// Copies the present pages of `start..end` to the file and maps the file over them.
pub(crate) fn move_to(fd: i32, offset: u64, start: usize, end: usize) -> Result<(), Errno> {
    let (runs, bits) = present_runs(start, end);
    let last = match (runs.first(), runs.last()) {
        (Some(&(a, _)), Some(&(_, b))) if b - a <= ONE_PIECE || is_in_use(start, end) => (a, b),
        (Some(_), Some(&last)) => {
            for &(a, b) in &runs[..runs.len() - 1] {
                let at = offset as usize + (a - start);
                // SAFETY: mapped and readable; the program's data, which nobody changes yet.
                unsafe { sys::syscall(libc::SYS_pwrite64, [fd as usize, a, b - a, at, 0, 0])? };
            }
            last
        }
        _ => (start, start),
    };
    // SAFETY: replaces memory by a copy of itself; see `copy_and_map`.
    let result = unsafe { copy_and_map(fd, offset, start, end, last) };
    drop((runs, bits));
    result
}

/// Writes `last` to the file and maps the file over `start..end`, with no instruction in between that could
/// write to memory.
///
/// # Safety
/// The rest of the stretch must have been copied and not written since.
#[inline(never)]
unsafe fn copy_and_map(
    fd: i32,
    offset: u64,
    start: usize,
    end: usize,
    last: (usize, usize),
) -> Result<(), Errno> {
    let result: isize;
    let prot = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    let flags = (libc::MAP_SHARED | libc::MAP_NORESERVE | libc::MAP_FIXED) as usize;
    // SAFETY: pwrite64, then (if it wrote something or there was nothing to write) mmap; registers only.
    unsafe {
        asm!(
            "syscall",
            "test rax, rax",
            "js 2f",
            "mov rdi, r12",
            "mov rsi, r13",
            "mov rdx, r14",
            "mov r10, r15",
            "mov eax, {mmap}",
            "syscall",
            "2:",
            mmap = const libc::SYS_mmap as i32,
            // r8 and r9 are mmap's last two arguments; pwrite64 leaves them alone.
            inout("rax") libc::SYS_pwrite64 as isize => result,
            inout("rdi") fd as usize => _,
            inout("rsi") last.0 => _,
            inout("rdx") last.1 - last.0 => _,
            inout("r10") offset as usize + (last.0 - start) => _,
            in("r8") fd as usize, in("r9") offset as usize,
            in("r12") start, in("r13") end - start, in("r14") prot, in("r15") flags,
            out("rcx") _, out("r11") _,
            options(nostack),
        );
    }
    if (-4095..0).contains(&result) { Err(Errno(-result as i32)) } else { Ok(()) }
}

/// The stretches of `start..end` that hold anything: pages that are mapped or swapped, joined. Pages never
/// touched read as zeros, as the file does. File-backed data that was not read yet counts as present.
///
/// From the moment the kernel is asked until the memory was copied nothing may be allocated or freed: that could
/// touch pages of the allocator's own which the kernel did not count. So there is room for all runs before, and the
/// kernel's answer comes back with them, to be dropped later.
fn present_runs(start: usize, end: usize) -> (Vec<(usize, usize)>, Vec<u64>) {
    let pages = (end - start) / 4096;
    let mut bits = vec![0u64; pages];
    let mut runs: Vec<(usize, usize)> = Vec::with_capacity(pages / 2 + 1);
    let backed = file_backed(start, end);
    let known = std::fs::File::open("/proc/self/pagemap").and_then(|f| {
        use std::os::unix::fs::FileExt;
        // SAFETY: u64 has no invalid bytes; the slice covers the vector.
        let raw = unsafe { std::slice::from_raw_parts_mut(bits.as_mut_ptr().cast::<u8>(), pages * 8) };
        f.read_exact_at(raw, (start / 4096 * 8) as u64)
    });
    for (i, bit) in bits.iter().enumerate() {
        let at = start + i * 4096;
        let present = known.is_err() || bit >> 62 != 0 || backed.iter().any(|&(a, b)| at >= a && at < b);
        if present {
            match runs.last_mut() {
                Some((_, b)) if *b == at => *b = at + 4096,
                _ => runs.push((at, at + 4096)),
            }
        }
    }
    (runs, bits)
}

/// One line of /proc/self/maps.
#[derive(Debug, Clone)]
pub(crate) struct Mapping {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) writable: bool,
    pub(crate) executable: bool,
    pub(crate) offset: u64,
    pub(crate) inode: u64,
}

impl Mapping {
    fn parse(line: &str) -> Option<Mapping> {
        let mut f = line.split_ascii_whitespace();
        let (a, b) = f.next()?.split_once('-')?;
        let permissions = f.next()?;
        let offset = u64::from_str_radix(f.next()?, 16).ok()?;
        let inode = f.nth(1)?.parse().ok()?;
        Some(Mapping {
            start: usize::from_str_radix(a, 16).ok()?,
            end: usize::from_str_radix(b, 16).ok()?,
            writable: permissions.as_bytes().get(1) == Some(&b'w'),
            executable: permissions.as_bytes().get(2) == Some(&b'x'),
            offset,
            inode,
        })
    }
}

/// The process's mappings outside the arena, whose stripes are many. Read a line at a time: what is allocated here is
/// pinned, and stays so.
pub(crate) fn mappings() -> Vec<Mapping> {
    let Ok(file) = std::fs::File::open("/proc/self/maps") else { return Vec::new() };
    let mut reader = BufReader::with_capacity(4096, file);
    let mut line = String::new();
    let mut mappings = Vec::new();
    while reader.read_line(&mut line).is_ok_and(|n| n > 0) {
        mappings.extend(Mapping::parse(&line).filter(|m| !layout::in_arena(m.start)));
        line.clear();
    }
    mappings
}

fn file_backed(start: usize, end: usize) -> Vec<(usize, usize)> {
    mappings()
        .iter()
        .filter(|m| m.inode != 0 && m.start < end && m.end > start)
        .map(|m| (m.start, m.end))
        .collect()
}

/// Initial content of a large global that must be written to its pages once faults are served.
pub(crate) struct Content {
    at: usize,
    /// A private mapping: pinned memory has no room for it.
    copy: usize,
    len: usize,
}

impl Content {
    /// Forgets it: the memory it was copied from is still there.
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
        // What handlers of faults look at cannot come by a fault.
        Vec::new()
    } else if pager.control().settings.several_nodes() {
        // All of it must be kept coherent between nodes.
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

/// Gives `start..end` pages of the arena; `false` if there are no numbers left for them.
fn share_global(pager: &Pager, start: usize, end: usize, contents: &mut Vec<Content>) -> Result<bool, Errno> {
    let reserved = if pager.is_segment() { None } else { pager.reserve_range(start, end) };
    if reserved.is_none() && !pager.is_segment() {
        return Ok(false);
    }
    let kept = contents.len();
    for (a, b) in present_runs(start, end).0 {
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

/// Forgets kept contents: another node has them.
pub(crate) fn forget(contents: Vec<Content>) {
    for c in contents {
        // SAFETY: a mapping of our own.
        let _ = unsafe { sys::syscall(libc::SYS_munmap, [c.copy, c.len, 0, 0, 0, 0]) };
    }
}

/// Writes kept contents to their places: ordinary stores, whose faults bring the pages.
pub(crate) fn restore(contents: Vec<Content>) {
    for c in contents {
        // SAFETY: a large global that was moved; nobody else runs yet.
        unsafe {
            std::ptr::copy_nonoverlapping(c.copy as *const u8, c.at as *mut u8, c.len);
            let _ = sys::syscall(libc::SYS_munmap, [c.copy, c.len, 0, 0, 0, 0]);
        }
    }
}
