//! Tests the merge of several nodes' stores to one page against an oracle: no store is lost where nobody else stored, and of a
//! race one node's value stays whole. The rule is in `docs/coherence.md`, "Data races".

#![allow(clippy::unwrap_used, reason = "tests")]

use atoll_coherence::diff::{self, BLOCK, WORD};
use proptest::prelude::*;

const PAGE: usize = 2 * BLOCK;

/// A store of 1, 2, 4 or 8 bytes, aligned.
#[derive(Clone, Copy, Debug)]
struct Store {
    node: usize,
    at: usize,
    size: usize,
    value: u64,
}

impl Store {
    fn bytes(self) -> impl Iterator<Item = (usize, u8)> {
        (self.at..self.at + self.size).zip(self.value.to_le_bytes())
    }
}

/// Random stores, close together so that they meet.
fn stores(most: usize) -> impl Strategy<Value = Vec<Store>> {
    let one = (0..3_usize, 0..PAGE, 0..4_u32, any::<u64>()).prop_map(|(node, at, size, value)| {
        let size = 1 << size;
        Store { node, at: at / size * size, size, value }
    });
    prop::collection::vec(one, 1..most)
}

/// The page of each of three nodes at the barrier, where all began with `base`.
fn pages(base: &[u8], stores: &[Store]) -> Vec<Vec<u8>> {
    let mut pages = vec![base.to_vec(); 3];
    for store in stores {
        for (at, byte) in store.bytes() {
            pages[store.node][at] = byte;
        }
    }
    pages
}

/// The page after node `owner` merged the others' diffs, in the order of `order`.
fn merged(base: &[u8], pages: &[Vec<u8>], owner: usize, order: [usize; 3]) -> Vec<u8> {
    let mut page = pages[owner].clone();
    for other in order.into_iter().filter(|node| *node != owner) {
        let mut diff = Vec::new();
        diff::encode(base, &pages[other], &mut diff);
        diff::apply(&diff, &mut page).unwrap();
    }
    page
}

const ORDERS: [[usize; 3]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// If every store changes all its bytes, each word is as if the nodes had stored one after the other.
    #[test]
    fn a_word_is_as_if_nodes_had_stored_one_after_the_other(
        mut stores in stores(60), owner in 0..3_usize, order in 0..6_usize, fill: u8
    ) {
        let base = vec![fill; PAGE];
        for store in &mut stores {
            let bytes = store.value.to_le_bytes().map(|byte| if byte == fill { !fill } else { byte });
            store.value = u64::from_le_bytes(bytes);
        }
        let page = merged(&base, &pages(&base, &stores), owner, ORDERS[order]);
        let after = |order: &[usize; 3], word: usize| {
            let mut page = base.clone();
            for node in order {
                for store in stores.iter().filter(|store| store.node == *node) {
                    store.bytes().for_each(|(at, byte)| page[at] = byte);
                }
            }
            page[word..word + WORD].to_vec()
        };
        for word in (0..PAGE).step_by(WORD) {
            let found = &page[word..word + WORD];
            prop_assert!(
                ORDERS.iter().any(|order| after(order, word) == found),
                "word {word}: {found:x?} of {:?}", stores
            );
        }
    }

    /// For any values, a byte that only one node changed has that node's value, and every byte has a value that some node
    /// wrote.
    #[test]
    fn what_one_node_changed_survives(
        stores in stores(60), base in prop::collection::vec(0..3_u8, PAGE), owner in 0..3_usize, order in 0..6_usize
    ) {
        let stores: Vec<Store> =
            stores.into_iter().map(|store| Store { value: store.value & 0x0303_0303_0303_0303, ..store }).collect();
        let pages = pages(&base, &stores);
        let page = merged(&base, &pages, owner, ORDERS[order]);
        for at in 0..PAGE {
            let values: Vec<u8> = pages.iter().map(|page| page[at]).filter(|byte| *byte != base[at]).collect();
            match values.as_slice() {
                [] => prop_assert_eq!(page[at], base[at]),
                [value] => prop_assert_eq!(page[at], *value),
                values => prop_assert!(values.contains(&page[at])),
            }
        }
    }

    /// Two nodes race for one variable, some bytes of which get their old value: the result is one of the two values, if the
    /// bytes that one changed include those that the other did.
    #[test]
    fn a_race_for_a_variable_leaves_one_value(
        size in 0..4_u32, base: u64, values in prop::array::uniform2(any::<u64>()), same in prop::array::uniform2(any::<u8>()),
        owner in 0..2_usize
    ) {
        let size = 1 << size;
        let base = base.to_le_bytes().repeat(PAGE / WORD);
        let store = |node: usize| {
            let mut bytes = values[node].to_le_bytes();
            // The second changes no byte that the first does not.
            for at in (0..WORD).filter(|at| (same[0] | same[node]) >> at & 1 != 0) {
                bytes[at] = base[at];
            }
            Store { node, at: 24, size, value: u64::from_le_bytes(bytes) }
        };
        let pages = pages(&base, &[store(0), store(1)]);
        let changed = |node: usize| (24..24 + size).filter(|at| pages[node][*at] != base[*at]).collect::<Vec<_>>();
        let (first, second) = (changed(0), changed(1));
        prop_assume!(second.iter().all(|at| first.contains(at)));
        let page = merged(&base, &pages, owner, [0, 1, 2]);
        let found = &page[24..24 + size];
        prop_assert!(found == &pages[0][24..24 + size] || found == &pages[1][24..24 + size]);
    }
}
