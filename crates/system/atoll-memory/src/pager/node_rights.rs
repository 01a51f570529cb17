//! What this node may do with each page, in runs on several nodes: nothing, read it, or write it.
//!
//! The fault path asks before it maps a page (`fault`); the node's agent changes rights together with the copy
//! (`node_copies`). A right is changed before the page is locked and looked at while it is: who maps a page with rights
//! that are just being taken holds its lock, and whoever takes them undoes the mapping once it has the lock.
//!
//! Rules: no allocation, no locks, no arena access, no printing.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

use atoll_coherence::agent::{Area, Layout};
use atoll_coherence::nodes::Node;

use super::Pager;
use crate::layout::{self, ARENA_BYTES, part};
use crate::sys::Errno;

/// As at first: everything for the node that has the page first, nothing for others.
const FIRST: u8 = 0;
const NOTHING: u8 = 1;
const READ: u8 = 2;
const WRITE: u8 = 3;

/// What may be done with a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Right {
    /// There is no copy here.
    Nothing,
    /// Others may have copies, too.
    Read,
    /// As on a machine of its own.
    Write,
}

/// Whom a worker asks that may not do what it does with a page: the node's agent.
pub trait AskNode: Sync {
    /// Waits until the agent says that the worker should try again to read `page`, or to write it. False: the worker is to leave its
    /// fault handler before, as a signal waits for it.
    fn ask(&self, page: u32, write: bool) -> bool;
}

/// The rights of all pages.
pub struct NodeRights {
    table: &'static [AtomicU8],
    me: Node,
    layout: Layout,
    /// Set once there is an agent.
    agent: OnceLock<&'static dyn AskNode>,
    /// Must leave be asked for to write what this node has at first? But for pages from the first to before the second of these.
    watched: AtomicBool,
    free: [AtomicU32; 2],
}

/// The part of the arena that large blocks lie in: the rest is small blocks'.
pub const LARGE_BYTES: usize = ARENA_BYTES / 8 * 7;

impl NodeRights {
    /// Rights as they are before anybody did anything; `table` is zeroed and has a byte for each page.
    pub(crate) fn new(table: &'static [AtomicU8], node: u32, nodes: u32, shift: u32) -> NodeRights {
        let mut layout = Layout::new(nodes as Node, 0, 0);
        let area = |first: usize, bytes: usize| Area {
            first: (first >> shift) as u64,
            each: (part(bytes, 0, nodes).1 >> shift) as u64,
        };
        layout.areas = [area(0, LARGE_BYTES), area(LARGE_BYTES, ARENA_BYTES - LARGE_BYTES)];
        let (agent, watched, free) = (OnceLock::new(), AtomicBool::new(false), Default::default());
        NodeRights { table, me: node as Node, layout, agent, watched, free }
    }

    /// Who has which page at first.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// What may be done with `page` here.
    #[inline]
    pub fn get(&self, page: u32) -> Right {
        match self.table[page as usize].load(Ordering::Acquire) {
            FIRST if self.layout.first_owner(page.into()) == self.me => {
                let free = self.free.each_ref().map(|page| page.load(Ordering::Relaxed));
                let watched = self.watched.load(Ordering::Acquire) && !(free[0]..free[1]).contains(&page);
                if watched { Right::Read } else { Right::Write }
            }
            FIRST | NOTHING => Right::Nothing,
            READ => Right::Read,
            _ => Right::Write,
        }
    }

    /// From now on leave must be asked for to write what this node has at first, but the pages of `free`.
    pub fn watch(&self, free: std::ops::Range<u32>) {
        self.free[0].store(free.start, Ordering::Relaxed);
        self.free[1].store(free.end, Ordering::Relaxed);
        self.watched.store(true, Ordering::Release);
    }

    pub(super) fn set(&self, page: u32, right: Right) {
        let value = match right {
            Right::Nothing => NOTHING,
            Right::Read => READ,
            Right::Write => WRITE,
        };
        self.table[page as usize].store(value, Ordering::Release);
    }
}

impl Pager {
    pub(crate) fn set_rights(&self, rights: NodeRights) {
        // Set once, where the pager is made.
        let _ = self.rights.set(rights);
    }

    /// The rights, in runs on several nodes.
    pub fn rights(&self) -> Option<&NodeRights> {
        self.rights.get()
    }

    /// From now on workers that may not do what they do ask `agent` and try again. Once.
    pub fn serve_by(&self, agent: &'static dyn AskNode) {
        if let Some(rights) = self.rights.get() {
            // There is one agent.
            let _ = rights.agent.set(agent);
        }
    }

    /// May this node read `page`, or write it?
    #[inline]
    pub(super) fn may(&self, page: u32, write: bool) -> bool {
        match self.rights.get() {
            None => true,
            Some(rights) => match rights.get(page) {
                Right::Nothing => false,
                Right::Read => !write,
                Right::Write => true,
            },
        }
    }

    /// Has the node's agent see to it that this worker may; see [`AskNode::ask`].
    pub(super) fn ask_node(&self, page: u32, write: bool) -> bool {
        // The agent starts before anything runs that could fault.
        self.rights.get().and_then(|rights| rights.agent.get()).is_none_or(|agent| agent.ask(page, write))
    }

    /// In runs on several nodes, lets the agent see `len` bytes of pages outside the arena from `first` on: as they are given
    /// out, for a view of all of them is thousands of mappings.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn map_alias(&self, first: u32, len: usize) -> Result<(), Errno> {
        if self.rights().is_none() {
            return Ok(());
        }
        // SAFETY: NOREPLACE: nothing that exists is touched.
        unsafe {
            self.places.files.map(
                self.alias(first) as usize,
                self.places.offset(first),
                len,
                libc::MAP_FIXED_NOREPLACE,
            )
        }
    }

    /// Where the agent sees `page`.
    #[inline]
    pub(super) fn alias(&self, page: u32) -> *mut u8 {
        (layout::ALIAS + self.places.offset(page) as usize) as *mut u8
    }
}
