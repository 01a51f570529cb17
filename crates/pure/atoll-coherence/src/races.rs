//! Finds words that several nodes wrote between the same two barriers, which is how a program's data races show where pages are
//! merged.
//!
//! The merging node (`agent.rs` says when) reports what it changed itself and what each diff changes (`diff.rs`). For this,
//! every node must write beside a twin: `Layout::watched`. A store that does not change a byte is not noticed.

use std::collections::{BTreeMap, HashMap};

use crate::diff::{BLOCK, WORD};
use crate::merge::Page;
use crate::nodes::{Node, Nodes};

/// The number of words of a block.
const WORDS: usize = BLOCK / WORD;

/// The bytes of a page that a node changed: a mask for each block, bit i for byte i.
pub type Masks = Vec<u64>;

/// The changes to pages that are being merged.
#[derive(Debug, Default)]
pub struct Races {
    pages: HashMap<Page, Merging>,
}

#[derive(Debug, Default)]
struct Merging {
    changes: Vec<(Node, Masks)>,
    /// The words with a byte that several nodes changed, by their number in the page, with these nodes.
    words: BTreeMap<usize, Nodes>,
}

impl Races {
    /// Whether nothing was reported for `page` yet.
    #[must_use]
    pub fn is_new(&self, page: Page) -> bool {
        !self.pages.contains_key(&page)
    }

    /// Notes the bytes of `page` that `node` changed.
    pub fn changed(&mut self, page: Page, node: Node, masks: Masks) {
        let merging = self.pages.entry(page).or_default();
        for (other, before) in &merging.changes {
            for (block, (a, b)) in before.iter().zip(&masks).enumerate().filter(|(_, (a, b))| **a & **b != 0)
            {
                for (word, _) in (a & b).to_le_bytes().into_iter().enumerate().filter(|(_, byte)| *byte != 0)
                {
                    let nodes = merging.words.entry(block * WORDS + word).or_insert(Nodes::NONE);
                    *nodes = nodes.with(*other).with(node);
                }
            }
        }
        merging.changes.push((node, masks));
    }

    /// Ends the merge of `page`; returns the words that several nodes wrote, by their number in the page, ascending.
    pub fn merged(&mut self, page: Page) -> impl Iterator<Item = (usize, Nodes)> + use<> {
        self.pages.remove(&page).map(|merging| merging.words).into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_several_nodes_wrote_are_named_and_neighbours_are_not() {
        let mut races = Races::default();
        assert!(races.is_new(3));
        races.changed(3, 0, vec![0x0f, 0xff00]);
        races.changed(3, 1, vec![0xf0, 0x0100]);
        races.changed(3, 2, vec![0x1010, 0x8000]);
        races.changed(4, 2, vec![u64::MAX]);
        assert!(!races.is_new(3));
        let words: Vec<_> = races.merged(3).collect();
        assert_eq!(words, [(0, [1, 2].into_iter().collect()), (9, [0, 1, 2].into_iter().collect())]);
        assert_eq!(races.merged(3).count(), 0);
        assert_eq!(races.merged(4).count(), 0);
    }
}
