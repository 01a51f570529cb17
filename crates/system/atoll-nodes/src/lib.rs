//! A node of a program that runs on several nodes which share no memory: its pages are kept coherent with the other nodes'.
//!
//! On node 0, the origin, the program begins; the others wait for its regions. Each node has an agent, a thread of its first
//! process (`agent`), which moves pages by the protocols of `atoll-coherence` (`memory`) over a transport of `atoll-transport`
//! (`peers`). Workers ask the agent through `mail` (`ask` and `files`, `futexes` and `calls` are what they ask), and step it
//! themselves while they wait (`duty`), for which it has a heap of its own (`heap`). `meeting` finds the other nodes, over a
//! `messenger`. What a node wants of the program is one trait, [`Program`]: this crate knows nothing of OpenMP, which decides
//! where regions run.
//!
//! Within the agent: `phases` learns what to fetch ahead, `hold` how long a page is kept, `together` what is done at once, `direct`
//! what is read where it lies, `kept` whose memory stays; `twins` is where twins lie, `races` finds words that two nodes write;
//! `locks` (with `quick_locks`) and `futexes` are tables of the origin, `files` are those that the program maps.
//!
//! Source: the Popcorn paper, sections 2 to 4; the barrelfish paper, chapter 7.

pub mod agent;
mod arch;
pub mod ask;
pub mod calls;
pub mod clock;
pub mod cpus;
mod direct;
mod duty;
pub mod files;
pub mod futexes;
pub mod heap;
mod hold;
mod identity;
mod join;
mod kept;
mod locks;
mod mail;
pub mod meeting;
mod memory;
mod messenger;
pub mod numbers;
mod peers;
mod phases;
pub mod program;
mod quick_locks;
pub mod races;
pub mod region;
pub mod stack;
pub mod stall;
mod together;
mod twins;
mod wire;

pub use program::Program;

use atoll_memory::control::{EXIT_NODE, EXIT_SETUP};
use atoll_memory::ending::give_up;
use atoll_memory::managed;

/// The node on which the program's `main` runs.
pub const ORIGIN: u32 = 0;

/// This node's number and how many there are, if there are several.
#[inline]
pub fn several() -> Option<(u32, u32)> {
    let settings = &managed::control()?.settings;
    settings.several_nodes().then_some((settings.node, settings.nodes))
}

/// Are there several nodes?
#[inline]
pub fn active() -> bool {
    several().is_some()
}

/// Is this node the origin? It is where there is one node.
pub fn on_origin() -> bool {
    several().is_none_or(|(node, _)| node == ORIGIN)
}

/// Ends the run, as another node says what makes no sense: whatever it is, that node is none to go on with.
pub(crate) fn nonsense(what: &str) -> ! {
    give_up(EXIT_NODE, what)
}

/// Ends a program that does in a region over several nodes what cannot be done there.
pub fn unsupported(what: &str) -> ! {
    let text = format!("{what} cannot be spread over several nodes yet: run this program without --nodes");
    give_up(EXIT_SETUP, &text)
}
