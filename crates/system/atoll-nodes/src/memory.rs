//! A node's copies of pages, for the coherence protocol's agent: over the pager, with twins in memory of the agent's own.
//!
//! `agent` drives it. What cannot be done (no memory left) ends the run with its reason.

use std::collections::{HashMap, HashSet};

use atoll_coherence::agent::Memory;
use atoll_coherence::diff;
use atoll_coherence::merge::Page;
use atoll_coherence::nodes::Node;
use atoll_memory::control::{EXIT_SETUP, NodeCount, NodeFigures};
use atoll_memory::ending::{end, give_up};
use atoll_memory::managed;
use atoll_memory::pager::executor::Executor;
use atoll_memory::pager::node_runs::TOGETHER;
use atoll_memory::pager::{FaultError, Pager};

use crate::direct::Direct;
use crate::kept::Kept;
use crate::nonsense;
use crate::races::{self, Finder};
use crate::together::{Reads, Together};
use crate::twins::{Room, Twin};
use crate::wire::{Content, Diff};

/// Twins may take one part of so many of near memory.
const MOST_TWINS: u64 = 4;
/// Bytes of pages that were taken from this node, kept for when they come again.
const MOST_KEPT: usize = 256 << 20;
/// Buffers kept for twins to come, where near memory is limited.
const SPARE: usize = 16;

/// The node's pages.
pub(crate) struct Pages {
    pager: &'static Pager,
    x: &'static mut Executor,
    twins: HashMap<Page, Twin>,
    room: Room,
    /// Pages that are read where they lie, and need not travel.
    pub(crate) direct: Direct,
    /// The finder of races, where they are looked for.
    pub(crate) races: Option<Finder>,
    /// Twins have taken more of near memory than they may.
    pub(crate) crowded: bool,
    kept: Kept,
    /// Work that is put off until it is settled.
    together: Together,
    /// A buffer of [`TOGETHER`] pages, once it is used.
    run_buffer: Vec<u8>,
    /// Buffers of twins that are gone.
    spare: Vec<Vec<u8>>,
    /// Pages that workers used and that were taken from them since this was emptied.
    pub(crate) used: HashSet<Page>,
    /// Pages whose waiting workers may try again.
    pub(crate) resumed: Vec<Page>,
    /// This node's counters.
    pub(crate) counts: &'static NodeFigures,
    /// The orders of a barrier invalidate copies now.
    pub(crate) merging: bool,
}

impl Pages {
    pub(crate) fn new(pager: &'static Pager, x: &'static mut Executor) -> Pages {
        let control = pager.control();
        Pages {
            pager,
            x,
            twins: HashMap::new(),
            room: Room::new(pager.page_bytes(), control.settings.near_bytes != u64::MAX),
            direct: Direct::new(&control.settings),
            races: races::wanted().then(Finder::default),
            crowded: false,
            kept: Kept::new(MOST_KEPT / pager.page_bytes()),
            together: Together::default(),
            run_buffer: Vec::new(),
            spare: Vec::new(),
            used: HashSet::new(),
            resumed: Vec::new(),
            counts: &control.nodes[control.settings.node as usize],
            merging: false,
        }
    }

    /// The number of twins has changed: near memory is there for them, too, and for no more than a part of it.
    fn count_twins(&mut self) {
        let near = self.pager.control().settings.near_bytes;
        if near != u64::MAX {
            let bytes = (self.twins.len() * self.pager.page_bytes()) as u64;
            // What is more than that until the region ends is not taken from the program: it could not go on with nothing.
            self.pager.set_twin_bytes(bytes.min(near / MOST_TWINS));
            self.crowded |= bytes > near / MOST_TWINS;
            self.spare.truncate(SPARE);
        }
    }

    fn buffer(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_else(|| vec![0; self.pager.page_bytes()])
    }

    /// The page's content; none: zeros.
    fn content(&mut self, page: Page) -> Option<Vec<u8>> {
        self.settle();
        let mut buffer = self.buffer();
        if done(self.pager.read_copy(self.x, page as u32, &mut buffer)) {
            return Some(buffer);
        }
        self.spare.push(buffer);
        None
    }

    /// Puts a copy in place: `content`, or zeros.
    fn put(&mut self, page: Page, content: Option<&[u8]>, writable: bool) {
        self.settle();
        done(self.pager.install_copy(self.x, page as u32, content, writable));
    }

    /// A copy goes: takes it from the workers if its memory can be kept.
    fn unmap(&mut self, page: Page) -> bool {
        self.settle();
        self.counts.add(if self.merging { NodeCount::Batched } else { NodeCount::Single }, 1);
        if self.pager.is_used(page as u32) {
            self.used.insert(page);
        }
        let kept = self.pager.unmap_copy(page as u32, managed::table());
        if kept && let Some(other) = self.kept.keep(page as u32) {
            self.pager.free_kept(self.x, other);
        }
        kept
    }

    /// Does the work that was put off.
    pub(crate) fn settle(&mut self) {
        if self.together.is_empty() {
            return;
        }
        for Reads { from, writable, pages } in self.together.take_reads() {
            let Some(files) = self.direct.files(from) else {
                nonsense("another node says to read a page where this one cannot");
            };
            self.run_buffer.resize(TOGETHER * self.pager.page_bytes(), 0);
            done(self.pager.install_from(self.x, pages, files, writable, &mut self.run_buffer));
        }
        let most = if self.pager.control().settings.near_bytes == u64::MAX { TOGETHER } else { 1 };
        for pages in self.together.take_protected(most) {
            done(self.pager.protect_copies(self.x, pages));
        }
    }
}

/// Nothing is left to be done where a page of the program cannot be moved.
fn done<T>(result: Result<T, FaultError>) -> T {
    match result {
        Ok(value) => value,
        Err(e) => end(e),
    }
}

impl Memory for Pages {
    type Data = Content;
    type Diff = Diff;

    fn install(&mut self, page: Page, from: Node, data: &Content, writable: bool) {
        match data {
            Content::There => self.together.read(page as u32, from, writable),
            Content::Zeros => self.put(page, None, writable),
            Content::Bytes(bytes) if bytes.len() == self.pager.page_bytes() => {
                self.put(page, Some(bytes), writable);
            }
            Content::Bytes(_) => nonsense("another node sent a page of a different size"),
        }
    }

    fn protect(&mut self, page: Page, writable: bool) {
        if !writable {
            return self.together.protect(page as u32);
        }
        self.settle();
        self.pager.allow_writes(page as u32);
    }

    fn remove(&mut self, page: Page) {
        if !self.unmap(page) {
            self.pager.remove_copy(self.x, page as u32);
        }
    }

    fn seize_untouched(&mut self, page: Page) -> bool {
        self.settle();
        self.pager.seize_untouched(page as u32)
    }

    fn take(&mut self, page: Page) -> Content {
        if self.seize_untouched(page) {
            return Content::Zeros;
        }
        if self.unmap(page) {
            return self.read(page);
        }
        done(self.pager.protect_copies(self.x, page as u32..page as u32 + 1));
        let content = self.read(page);
        self.pager.remove_copy(self.x, page as u32);
        content
    }

    fn read(&mut self, page: Page) -> Content {
        self.counts.add(NodeCount::Sent, 1);
        self.content(page).map_or(Content::Zeros, Content::Bytes)
    }

    fn lend(&mut self, page: Page, to: Node) -> Content {
        if self.direct.may_lend(to) && self.pager.lies_in_file(page as u32) {
            self.counts.add(NodeCount::Sent, 1);
            return Content::There;
        }
        self.read(page)
    }

    fn read_twin(&mut self, page: Page) -> Content {
        self.counts.add(NodeCount::Sent, 1);
        let mut buffer = self.buffer();
        match self.twins.get(&page) {
            Some(twin) => {
                buffer.copy_from_slice(twin.bytes());
                Content::Bytes(buffer)
            }
            None => give_up(EXIT_SETUP, "a page that is written among many has no twin"),
        }
    }

    fn make_twin(&mut self, page: Page) {
        let twin = self.content(page).unwrap_or_else(|| vec![0; self.pager.page_bytes()]);
        let (twin, spare) = self.room.keep(twin);
        self.spare.extend(spare);
        self.twins.insert(page, twin);
        self.count_twins();
        self.counts.add(NodeCount::Twins, 1);
    }

    fn drop_twin(&mut self, page: Page) {
        if let Some(twin) = self.twins.remove(&page) {
            self.spare.extend(self.room.give_back(twin));
            self.count_twins();
        }
        if let Some(races) = &mut self.races {
            races.merged(page, self.pager.address_of(page as u32).0);
        }
    }

    fn diff(&mut self, page: Page) -> Diff {
        let now = self.content(page).unwrap_or_else(|| vec![0; self.pager.page_bytes()]);
        let mut out = Vec::new();
        if let Some(twin) = self.twins.get(&page) {
            diff::encode(twin.bytes(), &now, &mut out);
        }
        self.spare.push(now);
        self.counts.add(NodeCount::Diffs, 1);
        self.counts.add(NodeCount::DiffBytes, out.len() as u64);
        Diff(out)
    }

    fn apply(&mut self, page: Page, from: Node, change: &Diff) {
        let mut result = Ok(());
        let me = self.pager.control().settings.node as Node;
        self.settle();
        let (twin, races) = (self.twins.get(&page).map(Twin::bytes), &mut self.races);
        done(self.pager.change_copy(self.x, page as u32, |content| {
            if let Some(races) = races {
                races.merging(page, (me, twin, content), (from, &change.0));
            }
            result = diff::apply(&change.0, content);
        }));
        if result.is_err() {
            nonsense("another node sent changes of a page that make no sense");
        }
    }

    fn resume(&mut self, page: Page) {
        self.resumed.push(page);
    }
}
