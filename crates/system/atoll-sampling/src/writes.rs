//! The write sampler: finds pages that a program writes, by asynchronous write-protection.
//!
//! It needs no PMU and no perf, but Linux 6.7. A random part of the program's pages is write-protected through a userfaultfd in
//! its asynchronous mode, where the kernel itself takes the protection off at a page's first write. PAGEMAP_SCAN then says
//! which pages lost it. The program makes the descriptor ([`atoll_profile_wire::userfault`]) and reports its number; everything
//! else is done from outside ([`pagemap`](crate::pagemap)). The sampler sees which pages are written and when. It does not see
//! by which thread, how often within an exposure, nor any reads.

use std::collections::HashMap;
use std::os::fd::OwnedFd;

use atoll_profile_wire::{Mark, What as Marked, userfault};
use atoll_record::profile::{Access, SamplerInfo};

use crate::clock;
use crate::instruction::CodeBytes;
use crate::pagemap::{PAGE, PageMap, Range, protectable, take_descriptor};
use crate::random::Random;
use crate::sampler::{Found, Harvest, Sampler, SamplerError};

/// The seconds that protecting a page and its first write cost, with its share of the interrupts that protecting makes;
/// measured on Linux 6.18 in a virtual machine of two processors.
pub const SECONDS_A_SAMPLE: f64 = 1.2e-6;

/// The least nanoseconds that pages stay protected. With a shorter time only the hottest pages lose their protection.
const EXPOSURE_NS: u64 = 40_000_000;
/// Nanoseconds between two looks at what the program has mapped, where it has reported no new blocks.
const REFRESH_NS: u64 = 500_000_000;
/// Where the program has reported new blocks, a look may take one part in this number of the time.
const SHARE: u64 = 50;
/// The number of pages protected together: each call interrupts the processors that the program runs on.
const WINDOW: u64 = 64;
/// The most pages protected at once, however long nobody harvested.
const MOST: u64 = 1 << 16;

/// The sampler of writes.
#[derive(Debug)]
pub struct Writes {
    period_ns: u64,
    /// The factor by which the period is changed for a while.
    factor: f64,
    processes: HashMap<u32, Process>,
    random: Random,
}

/// A process that is sampled.
#[derive(Debug)]
struct Process {
    /// The process's userfaultfd.
    fault: OwnedFd,
    map: PageMap,
    /// The ranges that can be protected and hold pages.
    populated: Vec<Range>,
    refreshed_ns: u64,
    /// The nanoseconds that the last look at the mappings took.
    refresh_took_ns: u64,
    /// Whether the process has reported a new block since that look.
    changed: bool,
    /// The ranges that are protected, with the time since when.
    windows: Vec<Range>,
    since_ns: u64,
}

impl Writes {
    /// Makes a sampler that protects a page every `period_ns`.
    ///
    /// # Errors
    /// This kernel cannot protect pages so, or it is forbidden; that is tried on this process.
    pub fn new(period_ns: u64) -> Result<Self, SamplerError> {
        let fault = userfault().map_err(|error| SamplerError::Kernel { what: "userfaultfd", error })?;
        crate::pagemap::begin(&fault)?;
        PageMap::open(std::process::id())?.try_out()?;
        let random = Random::new(clock::now_ns());
        Ok(Self { period_ns: period_ns.max(1), factor: 1.0, processes: HashMap::new(), random })
    }

    /// Samples process `pid`, whose userfaultfd has number `fd` there.
    ///
    /// # Errors
    /// The descriptor is not available.
    pub fn take(&mut self, pid: u32, fd: i32) -> Result<(), SamplerError> {
        let fault = take_descriptor(pid, fd)?;
        crate::pagemap::begin(&fault)?;
        let map = PageMap::open(pid)?;
        let now = clock::now_ns();
        let new = Process {
            fault,
            map,
            populated: Vec::new(),
            refreshed_ns: 0,
            refresh_took_ns: 0,
            changed: false,
            windows: Vec::new(),
            since_ns: now,
        };
        self.processes.insert(pid, new);
        Ok(())
    }
}

impl Process {
    /// Looks at what the process has mapped, once in a while; returns `false` once the process is gone.
    fn refresh(&mut self, now: u64) -> bool {
        let pause = if self.changed { REFRESH_NS.min(self.refresh_took_ns * SHARE) } else { REFRESH_NS };
        if self.refreshed_ns != 0 && now - self.refreshed_ns < pause {
            return true;
        }
        (self.refreshed_ns, self.changed) = (now, false);
        self.populated.clear();
        for range in protectable(self.map.pid()) {
            // Ranges that cannot be protected (another userfaultfd has them registered, or they have just gone) are left out.
            if crate::pagemap::register(&self.fault, range) && !self.map.populated(range, &mut self.populated)
            {
                return false;
            }
        }
        self.refresh_took_ns = clock::now_ns().saturating_sub(now);
        true
    }

    /// Calls `each` with the pages that were written; returns the number of pages that were protected.
    fn collect(&mut self, mut each: impl FnMut(u64)) -> u64 {
        let mut protected = 0;
        for window in std::mem::take(&mut self.windows) {
            protected += window.pages();
            self.map.written(window, &mut each);
        }
        protected
    }

    /// Protects about `pages` pages, chosen at random.
    fn protect(&mut self, mut pages: u64, random: &mut Random) {
        let all: u64 = self.populated.iter().map(Range::pages).sum();
        pages = pages.min(all);
        while pages > 0 {
            let mut at = random.below(all);
            let within = self.populated.iter().find(|range| {
                let inside = at < range.pages();
                if !inside {
                    at -= range.pages();
                }
                inside
            });
            let Some(range) = within else { return };
            let start = range.start + at * PAGE;
            let end = range.end.min(start + WINDOW.min(pages) * PAGE);
            let window = Range { start, end };
            pages -= window.pages();
            if self.map.protect(window) {
                self.windows.push(window);
            }
        }
    }
}

impl Sampler for Writes {
    fn info(&self) -> SamplerInfo {
        SamplerInfo {
            name: "writes".into(),
            meaning:
                "a page that was written, by whichever thread, while it was among those write-protected at random"
                    .into(),
            period: self.period_ns,
            period_unit: "ns between two pages protected".into(),
            writes: true,
            ..SamplerInfo::default()
        }
    }

    fn told(&mut self, mark: &Mark) {
        match mark.what {
            Marked::Userfault { fd } => {
                // A process whose descriptor is not available has no samples.
                let _ = self.take(mark.pid, fd);
            }
            Marked::Block { .. } => {
                if let Some(process) = self.processes.get_mut(&mark.pid) {
                    process.changed = true;
                }
            }
            _ => {}
        }
    }

    fn needs_perf(&self) -> bool {
        false
    }

    fn harvest(&mut self, _code: &mut dyn CodeBytes, found: &mut Vec<Found>) -> Harvest {
        let now = clock::now_ns();
        let mut harvest = Harvest::default();
        let period = (self.period_ns as f64 * self.factor).max(1.0) as u64;
        let random = &mut self.random;
        self.processes.retain(|&pid, process| {
            let exposed = now - process.since_ns;
            if exposed < EXPOSURE_NS {
                return true;
            }
            process.since_ns = now;
            let one = Found { time_ns: now, pid, tid: pid, access: Access::Write, ..Found::default() };
            harvest.records += process.collect(|address| found.push(Found { address, ..one }));
            let stays = process.refresh(now);
            process.protect((exposed / period).min(MOST), random);
            stays
        });
        harvest
    }

    fn detach(&mut self, tid: u32) {
        self.processes.remove(&tid);
    }

    fn period(&self) -> u64 {
        self.period_ns
    }

    fn set_period(&mut self, period: u64) {
        self.period_ns = period.max(1);
    }

    fn jitter(&mut self, factor: f64) {
        self.factor = factor;
    }

    fn seconds_a_sample(&self) -> f64 {
        SECONDS_A_SAMPLE
    }
}
