//! The plan of a barrier for pages that several nodes wrote: which node keeps a page, which sends diffs to which, and which
//! drop their copies.
//!
//! Each home plans for its pages once every node has told it which of them it wrote, in one message. The orders go back in one
//! message to each node, so all invalidations of a region are batched. `copy.rs` defines what an order does to a copy.
//!
//! Source: the Popcorn paper, sections 3.1 and 4.1 (the merging phase). There the default owner (here: the origin) merges every
//! page that several nodes wrote; here, if the origin did not write a page itself, one of the writers merges it, which saves a
//! diff.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::directory::{Entry, State};
use crate::nodes::{Node, Nodes};
use crate::table::Impossible;

/// A page's number.
pub type Page = u64;

/// The orders of a home to a node at the end of a region of many writers. Pages ascend in each list.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Orders {
    /// Pages that others wrote: drop them.
    pub drop: Vec<Page>,
    /// Pages that only this node wrote: it is now the only node that has them.
    pub keep: Vec<Page>,
    /// Pages that others wrote, too: send the diff to that node, and drop the page.
    pub send: Vec<(Page, Node)>,
    /// Pages that this number of other nodes wrote, too: their diffs come here, and then only this node has the page.
    pub merge: Vec<(Page, u32)>,
}

impl Orders {
    /// The number of copies that the orders invalidate.
    #[must_use]
    pub fn invalidations(&self) -> usize {
        self.drop.len() + self.send.len()
    }
}

/// Plans for one page that `writers` wrote, adding to the `orders` of each node. The `origin` merges if it wrote the page itself.
/// Updates the entry to its state after the barrier.
pub fn plan(
    page: Page,
    entry: &mut Entry,
    writers: Nodes,
    origin: Node,
    orders: &mut [Orders],
) -> Result<(), Impossible> {
    // Nobody waits for a page when all workers are at the barrier, and every writer had a copy.
    let holders = entry.holders();
    let settled = matches!(entry.state(), State::Owned | State::Shared);
    let owner = if writers.has(origin) { Some(origin) } else { writers.first() };
    let (true, true, Some(owner)) = (settled, writers.minus(holders).is_empty(), owner) else {
        return Err(Impossible { state: entry.state().name(), event: "Written" });
    };
    for node in holders.minus(writers).iter() {
        orders[usize::from(node)].drop.push(page);
    }
    let others = writers.without(owner);
    for node in others.iter() {
        orders[usize::from(node)].send.push((page, owner));
    }
    match others.count() {
        0 => orders[usize::from(owner)].keep.push(page),
        count => orders[usize::from(owner)].merge.push((page, count)),
    }
    entry.merged(owner);
    Ok(())
}

/// The writers of each page, from every node's list. A list names a page at most once.
#[must_use]
pub fn writers<'a>(lists: impl IntoIterator<Item = (Node, &'a [Page])>) -> BTreeMap<Page, Nodes> {
    let mut written = BTreeMap::new();
    for (node, pages) in lists {
        for page in pages {
            let writers = written.entry(*page).or_insert(Nodes::NONE);
            *writers = writers.with(node);
        }
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::Want;

    fn shared(by: &[Node]) -> Entry {
        let mut entry = Entry::owned(0);
        for &node in by {
            entry.ask(0, node, Want::Read, &mut Vec::new()).unwrap();
            entry.installed(0, node, false, &mut Vec::new()).unwrap();
        }
        entry
    }

    #[test]
    fn a_page_that_one_node_wrote_moves_no_data() {
        let mut entry = shared(&[1, 2]);
        let mut orders = vec![Orders::default(); 3];
        plan(7, &mut entry, Nodes::one(2), 0, &mut orders).unwrap();
        assert_eq!((orders[0].drop.as_slice(), orders[1].drop.as_slice()), (&[7][..], &[7][..]));
        assert_eq!(orders[2], Orders { keep: vec![7], ..Orders::default() });
        assert_eq!(entry.holders(), Nodes::one(2));
        assert_eq!(entry.state(), State::Owned);
    }

    #[test]
    fn the_default_owner_merges_if_it_wrote_and_a_writer_if_not() {
        let mut orders = vec![Orders::default(); 3];
        plan(1, &mut shared(&[1, 2]), [0, 1, 2].into_iter().collect(), 0, &mut orders).unwrap();
        plan(2, &mut shared(&[1, 2]), [1, 2].into_iter().collect(), 0, &mut orders).unwrap();
        assert_eq!(orders[0], Orders { drop: vec![2], merge: vec![(1, 2)], ..Orders::default() });
        assert_eq!(orders[1], Orders { send: vec![(1, 0)], merge: vec![(2, 1)], ..Orders::default() });
        assert_eq!(orders[2], Orders { send: vec![(1, 0), (2, 1)], ..Orders::default() });
        assert_eq!(orders.iter().map(Orders::invalidations).sum::<usize>(), 4);
    }

    #[test]
    fn who_had_no_copy_did_not_write() {
        let mut orders = vec![Orders::default(); 3];
        assert!(plan(1, &mut shared(&[1]), Nodes::one(2), 0, &mut orders).is_err());
    }
}
