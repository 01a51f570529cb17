//! A node's copies of pages, for the coherence protocol's agent: over the pager, with twins in memory of the agent's own.
//!
//! `agent` drives it. What cannot be done (no memory left) ends the run with its reason.

use std::collections::HashMap;

use atoll_coherence::agent::Memory;
use atoll_coherence::diff;
use atoll_coherence::merge::Page;
use atoll_memory::control::{EXIT_SETUP, NodeCount, NodeFigures};
use atoll_memory::pager::executor::Executor;
use atoll_memory::pager::{FaultError, Pager};

use super::wire::{Content, Diff};
use crate::start::signal;
use crate::state;

/// The node's pages.
pub(super) struct Pages {
    pager: &'static Pager,
    x: &'static mut Executor,
    twins: HashMap<Page, Vec<u8>>,
    /// Buffers of twins that are gone.
    spare: Vec<Vec<u8>>,
    /// Pages whose waiting workers may try again.
    pub(super) resumed: Vec<Page>,
    /// This node's.
    pub(super) counts: &'static NodeFigures,
    /// Do a barrier's orders invalidate copies now?
    pub(super) merging: bool,
}

impl Pages {
    pub(super) fn new(pager: &'static Pager, x: &'static mut Executor) -> Pages {
        let control = pager.control();
        Pages {
            pager,
            x,
            twins: HashMap::new(),
            spare: Vec::new(),
            resumed: Vec::new(),
            counts: &control.nodes[control.settings.node as usize],
            merging: false,
        }
    }

    fn buffer(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_else(|| vec![0; self.pager.page_bytes()])
    }

    /// The page's content; none: zeros.
    fn content(&mut self, page: Page) -> Option<Vec<u8>> {
        let mut buffer = self.buffer();
        if done(self.pager.read_copy(self.x, page as u32, &mut buffer)) {
            return Some(buffer);
        }
        self.spare.push(buffer);
        None
    }
}

/// Nothing is left to be done where a page of the program cannot be moved.
fn done<T>(result: Result<T, FaultError>) -> T {
    match result {
        Ok(value) => value,
        Err(e) => signal::end(e),
    }
}

impl Memory for Pages {
    type Data = Content;
    type Diff = Diff;

    fn install(&mut self, page: Page, data: &Content, writable: bool) {
        if data.0.as_ref().is_some_and(|data| data.len() != self.pager.page_bytes()) {
            state::give_up(EXIT_SETUP, "another node sent a page of a different size");
        }
        done(self.pager.install_copy(self.x, page as u32, data.0.as_deref(), writable));
    }

    fn protect(&mut self, page: Page, writable: bool) {
        done(self.pager.protect_copy(self.x, page as u32, writable));
    }

    fn remove(&mut self, page: Page) {
        self.counts.add(if self.merging { NodeCount::Batched } else { NodeCount::Single }, 1);
        self.pager.remove_copy(self.x, page as u32);
    }

    fn read(&mut self, page: Page) -> Content {
        self.counts.add(NodeCount::Sent, 1);
        Content(self.content(page))
    }

    fn make_twin(&mut self, page: Page) {
        let twin = self.content(page).unwrap_or_else(|| vec![0; self.pager.page_bytes()]);
        self.twins.insert(page, twin);
        self.counts.add(NodeCount::Twins, 1);
    }

    fn drop_twin(&mut self, page: Page) {
        if let Some(twin) = self.twins.remove(&page) {
            self.spare.push(twin);
        }
    }

    fn diff(&mut self, page: Page) -> Diff {
        let now = self.content(page).unwrap_or_else(|| vec![0; self.pager.page_bytes()]);
        let mut out = Vec::new();
        if let Some(twin) = self.twins.get(&page) {
            diff::encode(twin, &now, &mut out);
        }
        self.spare.push(now);
        self.counts.add(NodeCount::Diffs, 1);
        self.counts.add(NodeCount::DiffBytes, out.len() as u64);
        Diff(out)
    }

    fn apply(&mut self, page: Page, change: &Diff) {
        let mut result = Ok(());
        done(self.pager.change_copy(self.x, page as u32, |content| result = diff::apply(&change.0, content)));
        if result.is_err() {
            state::give_up(EXIT_SETUP, "another node sent changes of a page that make no sense");
        }
    }

    fn resume(&mut self, page: Page) {
        self.resumed.push(page);
    }
}
