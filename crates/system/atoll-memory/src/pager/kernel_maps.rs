//! Threads that share a page table: which near pages they used of late, where the kernel itself maps what is near.
//!
//! Used by `leaving`, where workers or threads of the program share a page table and near memory is limited. Such a page table is the
//! kernel's to fill where a page's memory is in the arena's file: only missing pages and writes to clean ones are faults of ours, and a
//! page that comes back costs 1 µs instead of a signal. So it is cheap to ask which pages are used: mappings are dropped by whole
//! stretches, which interrupts the other threads' CPUs once for many pages (one interruption takes 14 to 17 µs on a virtual machine), and
//! `page_map` says later which of them are mapped again. What is not mapped leaves without an interruption.
//!
//! No write is lost: a clean page stays write-protected in the page table while it is unmapped (the kernel keeps a marker in its place), so
//! the first write to it is told as ever, and a dirty page counts as written by this page table until it has left.
//!
//! Rules: no allocation, no locks the program could hold, no arena access, no printing.

use atoll_pages::policy::Wants;

use super::Pager;
use super::leaving::Leaving;
use super::page_word::State;
use super::unmap::{self, Stretches};
use crate::control::Settings;

/// Bytes whose mappings are dropped at once at most: the kernel interrupts other CPUs for each of its tables, of 2 MiB, anyway.
const DROP_BYTES: usize = 2 << 20;

/// Near pages that are worth unmapping between two that are to be unmapped, where other threads run. An interruption more takes as long as to map a dozen
/// pages again, and holds up the others as well; most of the pages between are not used again soon. Where what is used lies scattered, 64 halve the
/// interruptions that 12 need, and nothing measured takes longer.
const BRIDGE: u32 = 64;

/// The same where one thread makes all the room, so that only a system call is saved.
const BRIDGE_ALONE: u32 = 1;

/// Batches of victims after which a thread that made none of them is taken to run no more.
const ACTIVE: u32 = 16;

/// Whether several threads make room, which then run on several CPUs.
#[derive(Default)]
pub(super) struct Makers {
    /// Where the last one's executor lies.
    last: usize,
    several: u32,
}

impl Makers {
    /// The thread whose executor lies at that address makes room.
    pub(super) fn note(&mut self, executor: usize) {
        self.several = if executor == self.last { self.several.saturating_sub(1) } else { ACTIVE };
        self.last = executor;
    }

    fn are_several(&self) -> bool {
        self.several > 0
    }
}

/// Whether the kernel may map pages that are near without telling the pager.
///
/// A policy that counts who maps a page, and one that drops mappings by its own clock, must be told; so must a node, whose right to a page
/// may be gone. Larger pages than 64K are mapped one by one.
pub(super) fn are_possible(settings: &Settings, wants: Wants) -> bool {
    settings.shared_tables()
        && settings.near_bytes != u64::MAX
        && settings.page_shift < 21
        && settings.sample_period_ns == 0
        && !settings.several_nodes()
        && wants.second_chance
        && !wants.exact_counts
        && !wants.dropped_mappings
}

impl Pager {
    /// Drops the mappings of the queue's next pages until those of the first `ahead` are dropped, and of what lies between them where that
    /// is cheaper than to leave it.
    pub(super) fn drop_ahead(&self, queue: &mut Leaving, ahead: usize) {
        let most_bridged = if queue.makers.are_several() { BRIDGE } else { BRIDGE_ALONE };
        let most_bridged = (most_bridged >> (self.places.shift - 12)).max(1);
        let mut stretches = Stretches::new();
        while queue.dropped_pages() < ahead
            && let Some(first) = queue.next_to_drop()
        {
            let (at, end) = self.places.address_of(first);
            let most = first.saturating_add((DROP_BYTES >> self.places.shift) as u32 - 1);
            queue.was_dropped();
            if self.state_of_own(first).is_none() {
                continue;
            }
            // The first page after the stretch.
            let mut after = first + self.leaves_with(first) as u32;
            while let Some(next) = queue.next_to_drop() {
                let is_near = next >= after && next <= most && self.places.address_of(next).1 == end;
                let is_own = is_near && !self.huge.is_huge(next) && self.state_of_own(next).is_some();
                if !is_own || !self.is_bridged(after..next, most_bridged) {
                    break;
                }
                after = next + 1;
                queue.was_dropped();
            }
            stretches.push(at, ((after - first) as usize) << self.places.shift);
            if stretches.is_full() {
                // Where it fails, the pages count as used.
                stretches.unmap(unmap::DROP);
                stretches = Stretches::new();
            }
        }
        stretches.unmap(unmap::DROP);
    }

    /// Whether page table `table` may map the page in `frame`.
    #[inline]
    pub(super) fn may_map(&self, frame: u32, table: usize) -> bool {
        self.tables.kernel_maps.is_some() || self.pages.frames.mapped_by(frame, table)
    }

    /// Whether the mappings of these pages may be dropped as well, and `most` of them are near at most.
    fn is_bridged(&self, between: std::ops::Range<u32>, most: u32) -> bool {
        let mut near = 0;
        for page in between {
            let Some(state) = self.state_of_own(page) else { return false };
            near += u32::from(state == State::Resident);
            if near > most {
                return false;
            }
        }
        true
    }
}
