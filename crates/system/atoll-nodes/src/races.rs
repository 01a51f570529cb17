//! `--check races`: words that two nodes wrote between two barriers of a region, as they are found where pages are merged.
//!
//! `memory` tells it of every page that is merged here, `agent` sends what was found to the origin, which counts it in the control
//! block for the launcher. What is compared is in `atoll_coherence::races`.

use atoll_coherence::diff;
use atoll_coherence::merge::Page;
use atoll_coherence::nodes::Node;
use atoll_coherence::races::Races;
use serde::{Deserialize, Serialize};

use atoll_memory::managed;

/// A word that nodes wrote in a region.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Found {
    function: u64,
    address: u64,
    nodes: u64,
}

/// Does the user want races to be looked for?
pub fn wanted() -> bool {
    managed::control().is_some_and(|control| control.settings.check_races != 0)
}

/// The races that this node's merges find.
#[derive(Default)]
pub(crate) struct Finder {
    races: Races,
    /// The code of the region that is under way.
    pub(crate) code: u64,
    found: Vec<Found>,
}

impl Finder {
    /// A difference from node `from` is about to be merged into `page` of node `me`, which is `now` and was `twin`.
    pub(crate) fn merging(
        &mut self,
        page: Page,
        (me, twin, now): (Node, Option<&[u8]>, &[u8]),
        (from, difference): (Node, &[u8]),
    ) {
        if self.races.is_new(page)
            && let Some(twin) = twin
        {
            self.races.changed(page, me, diff::masks(twin, now));
        }
        // What makes no sense is found when it is applied.
        if let Ok(masks) = diff::masks_of(difference, now.len() / diff::BLOCK) {
            self.races.changed(page, from, masks);
        }
    }

    /// `page`, which lies at `address`, is merged.
    pub(crate) fn merged(&mut self, page: Page, address: usize) {
        let function = self.code;
        self.found.extend(self.races.merged(page).map(|(word, nodes)| Found {
            function,
            address: (address + word * diff::WORD) as u64,
            nodes: nodes.iter().fold(0, |bits, node| bits | 1 << node),
        }));
    }

    /// Takes the races that were found since the last call.
    pub(crate) fn take(&mut self) -> Vec<Found> {
        std::mem::take(&mut self.found)
    }
}

/// On the origin: counts what any node found.
pub(crate) fn count(found: &[Found]) {
    let Some(control) = managed::control() else { return };
    for Found { function, address, nodes } in found {
        control.races.found(*function, *address, *nodes);
    }
}
