//! What of a process's memory a forked process must get for itself: all that lies in files which the program's workers share.
//!
//! `mod.rs` makes the plan before the fork, `child` carries it out in the new process, and `serve` fills that process's memory. The
//! plan lies in memory that the fork itself copies, as the new process cannot use the heap while it exchanges the heap.

use std::io::{BufRead, BufReader};
use std::sync::atomic::{AtomicI32, AtomicU32};

use atoll_memory::layout;
use atoll_memory::pager::protections::Allowed;
use atoll_memory::sys::{self, Errno};

use crate::{arch, state};

/// Bytes of memory through which pages travel to the new process.
pub(super) const BOUNCE_BYTES: usize = 256 << 10;
/// Bytes of the stack on which the new process begins.
const STACK_BYTES: usize = 128 << 10;

/// What the new process does with a stretch of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum What {
    /// Maps private memory, which the parent fills with pages of the arena.
    Paged,
    /// Maps private memory, which the parent fills from this offset of the pinned file.
    Pinned(u64),
    /// Copies the memory itself from this offset of the pinned file, as the first instructions of the program need it.
    Copied(u64),
    /// Maps private memory, which stays empty: it is the pager's.
    Empty,
}

/// A stretch of memory with one protection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Range {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) prot: i32,
    pub(super) what: What,
}

/// What parent and new process tell each other, in a page that both have.
#[repr(C)]
pub(super) struct Meeting {
    /// 0 while the new process exchanges its memory, then 1, or an error's negative number.
    pub(super) state: AtomicI32,
    /// The new process's userfaultfd, by its number in the parent.
    pub(super) faults: AtomicI32,
    /// Not 0 once the new process has all its memory.
    pub(super) complete: AtomicU32,
    /// Not 0 if the new process waits for that.
    pub(super) hurry: AtomicU32,
}

/// The plan of one fork.
pub(super) struct Plan {
    ranges: *const Range,
    count: usize,
    /// The descriptor of the pinned file; negative where there is none.
    pub(super) pinned: i32,
    /// A descriptor that stands for the parent.
    pub(super) parent: i32,
    /// Descriptors that the new process closes.
    pub(super) closed: [i32; 12],
    pub(super) meeting: *const Meeting,
    /// Whether the new process waits until all its memory is there, because other threads go on changing the parent's.
    pub(super) waits: bool,
    /// The signal action for SIGSYS that the program has set.
    pub(super) action: [u64; 4],
    /// The number of the new process, in the parent.
    pub(super) process: AtomicI32,
    /// Where libc keeps the number of its thread.
    pub(super) number_at: usize,
    bounce: usize,
    /// Upper end of the stack on which the new process begins.
    pub(super) stack: usize,
    size: usize,
}

impl Plan {
    pub(super) fn ranges(&self) -> &[Range] {
        // SAFETY: they lie behind the plan, in the same mapping.
        unsafe { std::slice::from_raw_parts(self.ranges, self.count) }
    }

    pub(super) fn meeting(&self) -> &'static Meeting {
        // SAFETY: a page that is unmapped by nobody but the parent, when it has no more use for the plan.
        unsafe { &*self.meeting }
    }

    /// Memory of [`BOUNCE_BYTES`].
    pub(super) fn bounce(&self) -> *mut u8 {
        self.bounce as *mut u8
    }

    /// Makes the plan; `waits` as in the field.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn make(
        pinned: i32,
        paged: &[i32],
        others: &[(usize, usize)],
        near_stack: &[usize],
        waits: bool,
    ) -> Result<*mut Plan, Errno> {
        let ranges = ranges(others, near_stack)?;
        let head = (size_of::<Plan>() + size_of_val(&ranges[..])).next_multiple_of(4096);
        let size = head + BOUNCE_BYTES + STACK_BYTES;
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let anonymous = libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: new mappings.
        let (at, meeting) = unsafe {
            let at = sys::mmap(0, size, prot, libc::MAP_PRIVATE | anonymous, -1, 0)?;
            (at, sys::mmap(0, 4096, prot, libc::MAP_SHARED | anonymous, -1, 0)?)
        };
        let list = (at + size_of::<Plan>()) as *mut Range;
        let parent = match sys::open_self() {
            Ok(parent) => parent,
            Err(e) => {
                // SAFETY: the mappings of just now.
                unsafe { unmap(at, size, Some(meeting)) };
                return Err(e);
            }
        };
        let mut closed = [-1; 12];
        for (place, fd) in closed.iter_mut().zip(paged.iter().chain([&pinned, &parent])) {
            *place = *fd;
        }
        let plan = Plan {
            ranges: list,
            count: ranges.len(),
            pinned,
            parent,
            closed,
            meeting: meeting as *const Meeting,
            waits,
            action: [0; 4],
            process: AtomicI32::new(0),
            number_at: 0,
            bounce: at + head,
            stack: at + size,
            size,
        };
        // SAFETY: the new mapping has room for the plan and, behind it, the ranges, which are plain data.
        unsafe {
            std::ptr::copy_nonoverlapping(ranges.as_ptr(), list, ranges.len());
            (at as *mut Plan).write(plan);
        }
        Ok(at as *mut Plan)
    }

    /// Frees the plan; the page of the meeting, too, if `meeting`, and the parent's descriptor.
    ///
    /// # Safety
    /// Nobody uses them any more.
    pub(super) unsafe fn free(plan: *mut Plan, meeting: bool) {
        // SAFETY: mappings of `make`.
        unsafe {
            let (size, page) = ((*plan).size, (*plan).meeting as usize);
            if meeting {
                sys::close((*plan).parent);
            }
            unmap(plan as usize, size, meeting.then_some(page));
        }
    }
}

/// Unmaps a plan at `plan`, and the page of the meeting at `meeting`.
///
/// # Safety
/// Nobody uses them any more.
unsafe fn unmap(plan: usize, size: usize, meeting: Option<usize>) {
    // SAFETY: the caller's mappings.
    unsafe {
        if let Some(meeting) = meeting {
            let _ = sys::syscall(libc::SYS_munmap, [meeting, 4096, 0, 0, 0, 0]);
        }
        let _ = sys::syscall(libc::SYS_munmap, [plan, size, 0, 0, 0, 0]);
    }
}

/// A line of /proc/self/maps that is about memory shared with workers.
fn parse(line: &str) -> Option<Range> {
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let permissions = fields.next()?.as_bytes();
    let offset = u64::from_str_radix(fields.next()?, 16).ok()?;
    let name = fields.nth(2)?;
    let what = match name {
        _ if permissions.get(3) != Some(&b's') => return None,
        "/memfd:atoll-arena" => What::Paged,
        "/memfd:atoll-pinned" => What::Pinned(offset),
        _ => return None,
    };
    let bit = |at: usize, letter: u8, prot: i32| if permissions[at] == letter { prot } else { 0 };
    let prot = bit(0, b'r', libc::PROT_READ) | bit(1, b'w', libc::PROT_WRITE) | bit(2, b'x', libc::PROT_EXEC);
    // Paged memory that allows no access is a far huge page, which the new process will have as all else, or what the program allows itself no access to,
    // which `divided` knows.
    let is_far = what == What::Paged && prot == libc::PROT_NONE;
    Some(Range {
        start: usize::from_str_radix(start, 16).ok()?,
        end: usize::from_str_radix(end, 16).ok()?,
        prot: if is_far { libc::PROT_READ | libc::PROT_WRITE } else { prot },
        what,
    })
}

/// The parts of a stretch that differ in what the program allows.
fn divided(range: Range) -> impl Iterator<Item = Range> {
    let pager = state::pager().filter(|_| range.what == What::Paged);
    let mut at = range.start;
    std::iter::from_fn(move || {
        let start = at;
        at = pager.map_or(range.end, |pager| pager.end_of_like(start, range.end));
        let allowed = pager.map_or(Allowed::Usual, |pager| pager.allowed_at(start));
        let prot = if allowed == Allowed::Usual { range.prot } else { allowed.prot() };
        (start < range.end).then_some(Range { start, end: at, prot, ..range })
    })
}

/// Whether `next` goes on where `last` ends.
fn continues(last: &Range, next: &Range) -> bool {
    let content = match (last.what, next.what) {
        (What::Paged, What::Paged) => true,
        (What::Pinned(a), What::Pinned(b)) => a + (last.end - last.start) as u64 == b,
        _ => false,
    };
    content && last.end == next.start && last.prot == next.prot
}

/// The stretches, in the order in which the new process goes through them: what lies within others comes after them.
fn ranges(others: &[(usize, usize)], near_stack: &[usize]) -> Result<Vec<Range>, Errno> {
    let file = std::fs::File::open("/proc/self/maps")
        .map_err(|e| Errno(e.raw_os_error().unwrap_or(libc::EAGAIN)))?;
    let mut reader = BufReader::with_capacity(16384, file);
    let mut line = String::new();
    let mut found: Vec<Range> = Vec::new();
    while reader.read_line(&mut line).is_ok_and(|n| n > 0) {
        for range in parse(&line).into_iter().flat_map(divided) {
            match found.last_mut() {
                Some(last) if continues(last, &range) => last.end = range.end,
                _ => found.push(range),
            }
        }
        line.clear();
    }
    let mut copied = Vec::new();
    for range in &mut found {
        let What::Pinned(offset) = range.what else { continue };
        let is_stack = range.start.wrapping_sub(layout::STACKS) < layout::STACKS_BYTES;
        if !is_stack && !layout::in_pinned(range.start) {
            range.what = What::Copied(offset);
            continue;
        }
        // The calling thread's own stacks are needed at once, from the address in use on.
        let in_use = near_stack.iter().filter(|at| is_stack && (range.start..range.end).contains(at)).min();
        if let Some(at) = in_use {
            let start = at & !4095;
            copied.push(Range { start, what: What::Copied(offset + (start - range.start) as u64), ..*range });
        }
    }
    found.extend(copied);
    found.extend(others.iter().map(|&(start, bytes)| Range {
        start,
        end: start + bytes,
        prot: libc::PROT_READ | libc::PROT_WRITE,
        what: What::Empty,
    }));
    Ok(found)
}

/// Addresses on the stacks that the calling thread uses: its stack, its thread-local storage, and the stack for its signals.
pub(super) fn stacks_in_use() -> [usize; 3] {
    let mut alternate = libc::stack_t { ss_sp: std::ptr::null_mut(), ss_flags: 0, ss_size: 0 };
    let at = (&raw mut alternate) as usize;
    // SAFETY: valid for writes.
    let _ = unsafe { sys::syscall(libc::SYS_sigaltstack, [0, at, 0, 0, 0, 0]) };
    // What the calls between here and the fork put on the stack lies below.
    const BELOW: usize = 64 << 10;
    [at - BELOW, arch::thread_pointer(), alternate.ss_sp as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_shared_files_are_understood_and_others_left_out() {
        let (start, end) = (layout::ARENA, layout::ARENA + 0x40_0000);
        let arena = format!("{start:x}-{end:x} rw-s 00000000 00:01 1026   /memfd:atoll-arena (deleted)");
        let range = parse(&arena).unwrap();
        assert_eq!(range.what, What::Paged);
        assert_eq!((range.start, range.end - range.start), (layout::ARENA, 0x40_0000));
        assert_eq!(range.prot, libc::PROT_READ | libc::PROT_WRITE);
        let guard = "240000140000-240000200000 ---s 10000140000 00:01 1025 /memfd:atoll-pinned (deleted)";
        assert_eq!(
            parse(guard).map(|range| (range.prot, range.what)),
            Some((0, What::Pinned(0x100_0014_0000)))
        );
        assert_eq!(parse(&arena.replace("rw-s", "---s")).map(|range| range.prot), Some(range.prot));
        for other in [
            "555555554000-555555556000 r--p 00000000 fe:00 123 /bin/true",
            "7ffff7fc1000-7ffff7fc5000 r--p 00000000 00:00 0  [vvar]",
            "7ffff0000000-7ffff0021000 rw-p 00000000 00:00 0",
            "7ffff0000000-7ffff0021000 rw-s 00000000 00:01 99 /memfd:atoll-tables (deleted)",
            "7ffff0000000-7ffff0021000 rw-p 00000000 00:01 99 /memfd:atoll-pinned (deleted)",
        ] {
            assert_eq!(parse(other), None, "{other}");
        }
    }

    #[test]
    fn stretches_join_where_content_and_protection_go_on() {
        let range = |start, end, what| Range { start, end, prot: 3, what };
        let first = range(0x1000, 0x3000, What::Pinned(0x8000));
        assert!(continues(&first, &range(0x3000, 0x4000, What::Pinned(0xa000))));
        assert!(!continues(&first, &range(0x3000, 0x4000, What::Pinned(0xb000))));
        assert!(!continues(&first, &range(0x4000, 0x5000, What::Pinned(0xa000))));
        assert!(!continues(&first, &Range { prot: 1, ..range(0x3000, 0x4000, What::Pinned(0xa000)) }));
        assert!(continues(&range(0, 4096, What::Paged), &range(4096, 8192, What::Paged)));
    }
}
