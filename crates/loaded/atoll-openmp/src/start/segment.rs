//! A program whose memory is a direct segment (`--translation segment`), in which nothing faults.
//!
//! `constructor` makes the segment here instead of a paged arena; `process` asks for workers' stacks and has each process's
//! page table filled (`atoll_memory::segment::fill`). Large blocks grow from the segment's start (`heap::large`), small ones
//! from its end (`heap::small`). Large globals keep their addresses, so they get huge pages of their own where they are, and so
//! does the range that the main stack may grow to. Small globals, the stack's first page and the main thread's TLS stay on 4K
//! pages, filled and locked like the rest.
//!
//! Source: `hybrid-segmentation.txt`, "Memory mapping" and "Limitation": one stretch of fixed size, no paging.

use std::fmt::Write;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};

use atoll_memory::control::{Control, MAX_WORKERS};
use atoll_memory::segment::faults::{self, Counter};
use atoll_memory::segment::figures::NOT_COUNTED;
use atoll_memory::segment::fill::{self, Which};
use atoll_memory::segment::make::{Refusal, Stretch};
use atoll_memory::segment::{PageKind, Segment};
use atoll_memory::{layout, sys};

use crate::heap::{bounds, os, small};
use crate::state;

/// The bytes for mimalloc's bookkeeping and the program break.
const OS_BYTES: usize = 16 << 20;
const BREAK_BYTES: usize = 4 << 20;
/// The program break gets at least the segment's bytes divided by this.
const BREAK_PART: usize = 32;
/// The least bytes of a worker's stack and signal stack, by which a segment is judged large enough.
const STACK_BYTES: usize = 12 << 20;

/// The segment's first address and its end.
static BOUNDS: [AtomicUsize; 2] = [AtomicUsize::new(0), AtomicUsize::new(0)];
/// The descriptor of each worker's fault counter, which all processes share; negative if there is none.
static COUNTERS: [AtomicI32; MAX_WORKERS] = [const { AtomicI32::new(-1) }; MAX_WORKERS];

/// Makes the segment and gives the heap its part of it.
pub(super) fn make(control: &'static Control) -> Result<Segment, String> {
    let settings = &control.settings.segment;
    let workers = control.settings.workers as usize;
    let first = PageKind::from_number(settings.first).unwrap_or(PageKind::Huge1G);
    let small = (workers + 1) * small::UNIT;
    // One unit of mimalloc more, since it wants its memory aligned to that.
    let least = small + small::UNIT + workers * STACK_BYTES + OS_BYTES + BREAK_BYTES;
    let least = least + 2 * least / BREAK_PART;
    let (segment, fallen) = Segment::make(first, settings.bytes, least as u64, settings.is_strict())
        .map_err(|e| e.to_string())?;
    if let Some(why) =
        fallen.or((segment.kind == PageKind::Small).then_some(Refusal::Collapse(segment.bytes as u64 >> 20)))
    {
        sys::complain(&format!(
            "atoll: the segment is made of {}, as for one of {} {why} (`atoll doctor` says how to reserve them)\n",
            segment.kind.name(),
            first.name()
        ));
    }
    let end = segment.start + segment.bytes;
    BOUNDS[0].store(segment.start, Ordering::Relaxed);
    BOUNDS[1].store(end, Ordering::Relaxed);
    bounds::set_end(end);
    let too_small = || "the segment is too small for atoll's own needs: raise --segment-size".to_owned();
    let break_bytes = BREAK_BYTES.max(segment.bytes / BREAK_PART) & !4095;
    let at = bounds::lower(break_bytes, 4096).ok_or_else(too_small)?;
    let program_break = at..at + break_bytes;
    let at = bounds::lower(OS_BYTES, 4096).ok_or_else(too_small)?;
    os::use_segment(at..at + OS_BYTES, program_break);
    if !small::init_in_segment(small, end) {
        return Err(too_small());
    }
    let figures = &control.segment;
    figures.bytes.store(segment.bytes as u64, Ordering::Relaxed);
    if let Some(pieces) = segment.pieces {
        figures.pieces.store(pieces.count, Ordering::Relaxed);
        figures.largest.store(pieces.largest, Ordering::Relaxed);
    }
    figures.kind.store(segment.kind as u32, Ordering::Relaxed);
    Ok(segment)
}

/// Whether the program's memory is a segment.
pub(crate) fn is_on() -> bool {
    BOUNDS[1].load(Ordering::Relaxed) != 0
}

/// Puts huge pages under the large global at `start..end` (multiples of 2M), whose content was kept. `false` if there are none,
/// and the global stays as it is.
pub(super) fn map_global(start: usize, end: usize) -> bool {
    let first = control_first();
    for kind in [PageKind::Huge2M, PageKind::Transparent].into_iter().filter(|kind| *kind >= first) {
        // Made elsewhere first, so that nothing is lost if it fails.
        let Ok(stretch) = Stretch::make(kind, FREE, end - start) else { continue };
        // SAFETY: replaces the global's memory, whose content was kept.
        if stretch.is_huge() && unsafe { stretch.map_over(start) }.is_ok() {
            if let Some(control) = CONTROL.get() {
                control.segment.globals.fetch_add((end - start) as u64, Ordering::Relaxed);
            }
            return true;
        }
    }
    false
}

/// Puts huge pages under the range that the main stack may grow to, `bottom..used`, where nothing is yet. Outside a segment,
/// and where there are no pages, the range stays as it is.
pub(super) fn map_stack(bottom: usize, used: usize) {
    /// The most bytes of an unlimited stack that are filled ahead; the rest waits until it is used.
    const MOST: usize = 64 << 20;
    let page = PageKind::Huge2M.bytes();
    let (start, end) = (bottom.max(used.saturating_sub(MOST)).next_multiple_of(page), used & !(page - 1));
    if is_on() && start < end {
        map_global(start, end);
    }
}

/// A free address range, where huge pages are made before they are moved to their place.
const FREE: usize = layout::PINNED;

static CONTROL: std::sync::OnceLock<&'static Control> = std::sync::OnceLock::new();

fn control_first() -> PageKind {
    let number = CONTROL.get().map_or(1, |control| control.settings.segment.first);
    PageKind::from_number(number).unwrap_or(PageKind::Huge1G)
}

/// Keeps the control block, before there is a pager.
pub(super) fn begin(control: &'static Control) {
    let _ = CONTROL.set(control);
}

/// Ranges that are not filled mapping by mapping: the segment, and tables that are not in use.
fn apart() -> [Range<usize>; 2] {
    let [start, end] = BOUNDS.each_ref().map(|bound| bound.load(Ordering::Relaxed));
    [start..end, layout::TABLES..layout::TABLES + layout::TABLES_BYTES]
}

/// Finishes the calling process's set-up as worker `index`: everything it may touch is entered in its page table, and its
/// faults are counted from here on.
pub(super) fn ready(control: &'static Control, index: usize) {
    let [start, end] = BOUNDS.each_ref().map(|bound| bound.load(Ordering::Relaxed));
    // The memory exists already; only this page table may lack it.
    let mapped = fill::write(start, end - start);
    let filled = fill::all(Which::All, &apart());
    let figures = &control.segment;
    if mapped.is_err() {
        sys::complain("atoll: a worker cannot map the whole segment, so there will be page faults\n");
    }
    // SAFETY: values only. Reserved pages are never swapped; others might be.
    let locked = unsafe { sys::syscall(libc::SYS_mlock, [start, end - start, 0, 0, 0, 0]) };
    let all_locked = locked.is_ok() && filled.unlocked == 0;
    if index == 0 {
        figures.locked.store(u32::from(all_locked), Ordering::Relaxed);
    } else if !all_locked {
        figures.locked.store(0, Ordering::Relaxed);
    }
    if let Ok(counter) = Counter::of_this_thread() {
        COUNTERS[index].store(counter.fd(), Ordering::Relaxed);
    }
    let worker = &figures.workers[index];
    for count in [&worker.minor, &worker.major, &worker.perf] {
        count.store(NOT_COUNTED, Ordering::Relaxed);
    }
    let now = faults::of_process();
    worker.before_minor.store(now.minor, Ordering::Relaxed);
    worker.before_major.store(now.major, Ordering::Relaxed);
    worker.ready.store(1, Ordering::Release);
}

/// A guard that marks the calling process's actions as set-up: it makes a worker, or maps a file and enters its pages. Faults
/// meanwhile do not count as the program's.
pub(crate) struct SetUp {
    control: &'static Control,
    fill: Option<Which>,
    index: usize,
    before: faults::Faults,
    counter: Option<Counter>,
}

impl SetUp {
    /// Begins set-up; at its end, the mappings that `fill` selects are filled. `None` outside a segment.
    pub(crate) fn begin(fill: Option<Which>) -> Option<SetUp> {
        if !is_on() {
            return None;
        }
        let control = state::control()?;
        let index = state::table();
        let fd = COUNTERS[index].load(Ordering::Relaxed);
        let counter = (fd >= 0).then(|| Counter::from_fd(fd));
        if let Some(counter) = &counter {
            counter.pause(true);
        }
        Some(SetUp { control, fill, index, before: faults::of_process(), counter })
    }
}

impl Drop for SetUp {
    fn drop(&mut self) {
        if let Some(which) = self.fill {
            fill::all(which, &apart());
        }
        let worker = &self.control.segment.workers[self.index];
        let spent = faults::of_process().since(self.before);
        worker.before_minor.fetch_add(spent.minor, Ordering::Relaxed);
        worker.before_major.fetch_add(spent.major, Ordering::Relaxed);
        if let Some(counter) = &self.counter {
            counter.pause(false);
        }
    }
}

/// Publishes the workers' fault counts just before the program ends.
pub(crate) fn publish(control: &Control) {
    if !is_on() {
        return;
    }
    let count = (control.workers.load(Ordering::Acquire) as usize).clamp(1, MAX_WORKERS);
    for (index, worker) in control.segment.workers[..count].iter().enumerate() {
        if worker.ready.load(Ordering::Acquire) == 0 {
            continue;
        }
        let fd = COUNTERS[index].load(Ordering::Relaxed);
        if fd >= 0
            && let Some(perf) = Counter::from_fd(fd).read()
        {
            worker.perf.store(perf, Ordering::Relaxed);
        }
        let pid = control.figures[index].pid.load(Ordering::Relaxed);
        let now = if index == 0 { Some(faults::of_process()) } else { faults::of_other(pid) };
        if let Some(now) = now {
            let minor = now.minor.saturating_sub(worker.before_minor.load(Ordering::Relaxed));
            let major = now.major.saturating_sub(worker.before_major.load(Ordering::Relaxed));
            worker.minor.store(minor, Ordering::Relaxed);
            worker.major.store(major, Ordering::Relaxed);
        }
    }
    let [start, end] = BOUNDS.each_ref().map(|bound| bound.load(Ordering::Relaxed));
    let (large, small) = bounds::now();
    control.segment.peak.store((large - start + (end - small)) as u64, Ordering::Relaxed);
}

/// Says once that a block of `bytes` did not fit.
pub(crate) fn say_full(bytes: usize) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !is_on() || SAID.swap(true, Ordering::Relaxed) {
        return;
    }
    let mut text = Text { bytes: [0; 160], len: 0 };
    let _ = writeln!(
        text,
        "atoll: the segment is full: a block of {} MiB was refused; give it more with --segment-size",
        bytes.div_ceil(1 << 20)
    );
    sys::complain(std::str::from_utf8(&text.bytes[..text.len]).unwrap_or("atoll: the segment is full\n"));
}

/// A line under construction, in a fixed buffer as there may be no memory to allocate.
struct Text {
    bytes: [u8; 160],
    len: usize,
}

impl Write for Text {
    fn write_str(&mut self, s: &str) -> std::fmt::Result {
        let n = s.len().min(self.bytes.len() - self.len);
        self.bytes[self.len..self.len + n].copy_from_slice(&s.as_bytes()[..n]);
        self.len += n;
        Ok(())
    }
}
