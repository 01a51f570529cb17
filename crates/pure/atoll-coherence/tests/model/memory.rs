//! The memory of the model's nodes: pages of two words.

use std::collections::{BTreeMap, BTreeSet};

use atoll_coherence::agent::Memory;
use atoll_coherence::merge::Page;
use atoll_coherence::nodes::Node;

/// The number of words of a page.
pub(crate) const WORDS: usize = 2;

pub(crate) type Data = [u8; WORDS];
/// The words that changed, with their new values.
pub(crate) type Diff = [Option<u8>; WORDS];

/// One node's memory: the pages that are there, their permissions, and twins.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Pages {
    pages: BTreeMap<Page, Data>,
    twins: BTreeMap<Page, Data>,
    pub(crate) writable: BTreeMap<Page, bool>,
    /// The pages that no worker has used.
    pub(crate) untouched: BTreeSet<Page>,
    /// The pages whose waiting worker may try again.
    pub(crate) resumed: Vec<Page>,
}

impl Pages {
    /// Memory with `pages`, all zeros and writable.
    pub(crate) fn with(pages: impl IntoIterator<Item = Page>) -> Self {
        let mut all = Self::default();
        for page in pages {
            all.pages.insert(page, [0; WORDS]);
            all.writable.insert(page, true);
        }
        all
    }

    pub(crate) fn content(&self, page: Page) -> Option<Data> {
        self.pages.get(&page).copied()
    }

    pub(crate) fn load(&mut self, page: Page, word: usize) -> Option<u8> {
        self.untouched.remove(&page);
        self.pages.get(&page).map(|data| data[word])
    }

    pub(crate) fn store(&mut self, page: Page, word: usize, value: u8) -> bool {
        let may = self.writable.get(&page).copied().unwrap_or(false);
        self.untouched.remove(&page);
        if may {
            self.pages.get_mut(&page).unwrap()[word] = value;
        }
        may
    }
}

impl Memory for Pages {
    type Data = Data;
    type Diff = Diff;

    fn install(&mut self, page: Page, _: Node, data: &Data, writable: bool) {
        self.pages.insert(page, *data);
        self.writable.insert(page, writable);
    }

    fn protect(&mut self, page: Page, writable: bool) {
        assert!(self.pages.contains_key(&page), "protecting what is not there");
        self.writable.insert(page, writable);
    }

    fn remove(&mut self, page: Page) {
        self.pages.remove(&page).expect("removing what is not there");
        self.writable.remove(&page);
    }

    fn read(&mut self, page: Page) -> Data {
        self.pages[&page]
    }

    fn seize_untouched(&mut self, page: Page) -> bool {
        let untouched = self.untouched.remove(&page);
        if untouched {
            self.writable.insert(page, false);
        }
        untouched
    }

    fn read_twin(&mut self, page: Page) -> Data {
        self.twins[&page]
    }

    fn make_twin(&mut self, page: Page) {
        let before = self.twins.insert(page, self.pages[&page]);
        assert!(before.is_none(), "a second twin");
    }

    fn drop_twin(&mut self, page: Page) {
        self.twins.remove(&page);
    }

    fn diff(&mut self, page: Page) -> Diff {
        let (now, then) = (self.pages[&page], self.twins[&page]);
        std::array::from_fn(|word| (now[word] != then[word]).then_some(now[word]))
    }

    fn apply(&mut self, page: Page, _: Node, diff: &Diff) {
        let data = self.pages.get_mut(&page).expect("a diff for what is not there");
        for (word, new) in diff.iter().enumerate() {
            data[word] = new.unwrap_or(data[word]);
        }
    }

    fn resume(&mut self, page: Page) {
        self.resumed.push(page);
    }
}
