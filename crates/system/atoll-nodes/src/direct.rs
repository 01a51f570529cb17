//! Pages that a node reads where they lie, in another node's files: between nodes of one machine nothing but the word that it may
//! travels through the rings, where a page would fill sixty lines of them.
//!
//! `memory` lends and reads, `agent` brings what nodes tell each other of their files. A page that is lent stays as it is until who
//! reads it has told its home so (`atoll_coherence::agent::Memory::lend`). Only over transports in shared memory, where both ends are
//! one user's and one machine's, and only while nothing goes to far memory.

use atoll_coherence::nodes::{Node, Nodes};
use atoll_memory::arena_files::ArenaFiles;
use atoll_memory::control::{Consistency, Settings};
use atoll_memory::pager::Pager;

use crate::numbers::Numbers;
use crate::wire::Packet;
use crate::{ORIGIN, cpus, races};

/// Nodes at most that all lend to all: each opens the files of each.
const ALL_LEND: u32 = 8;

/// Whose files this node reads, and who reads its own.
pub(crate) struct Direct {
    /// This node offers its files to the others.
    lends: bool,
    theirs: Vec<Option<ArenaFiles>>,
    readers: Nodes,
}

impl Direct {
    pub(crate) fn new(settings: &Settings) -> Direct {
        Direct { lends: lends(settings), theirs: vec![None; settings.nodes as usize], readers: Nodes::NONE }
    }

    /// Does this node offer its files to the others?
    pub(crate) fn lends(&self) -> bool {
        self.lends
    }

    /// The message by which other nodes can read this node's files.
    pub(crate) fn offer(pager: &Pager) -> Packet {
        Packet::Files(Numbers::own(), pager.files().numbers())
    }

    /// Node `from` offers its files; true if this node can read them. It need not: what cannot be read is sent.
    pub(crate) fn offered(&mut self, from: u32, process: &Numbers, numbers: &[i32], pager: &Pager) -> bool {
        if cpus::is_apart() {
            return false;
        }
        let Some(process) = process.process_here() else { return false };
        let Some(place) = self.theirs.get_mut(from as usize) else { return false };
        if place.is_none() {
            *place = ArenaFiles::of_process(process, numbers, pager.files()).ok();
        }
        place.is_some()
    }

    /// Notes that node `from` can read this node's files.
    pub(crate) fn is_read_by(&mut self, from: u32) {
        self.readers = self.readers.with(from as Node);
    }

    /// May node `to` read a page in this node's files, instead of being sent it?
    pub(crate) fn may_lend(&self, to: Node) -> bool {
        self.lends && self.readers.has(to)
    }

    /// The files of node `from`.
    pub(crate) fn files(&self, from: Node) -> Option<ArenaFiles> {
        *self.theirs.get(usize::from(from))?
    }
}

/// May other nodes read this node's pages later than they hear of them? They may not where this node could have made twins by then,
/// while pages go to far memory, or where a worker cannot step the agent.
fn lends(settings: &Settings) -> bool {
    let never_many = settings.consistency == Consistency::Single as u32;
    let may = settings.node == ORIGIN || never_many && settings.nodes <= ALL_LEND;
    // Where races are looked for all nodes make twins.
    may && !races::wanted() && !cpus::is_apart()
}
