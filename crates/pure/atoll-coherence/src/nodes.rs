//! Sets of nodes.
//!
//! The directory keeps one for each page that has copies; `merge.rs` plans with them.

use std::fmt;

/// A node's number, below [`MOST`].
pub type Node = u8;

/// The most nodes of a job.
pub const MOST: usize = 64;

/// A set of nodes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Nodes(u64);

impl Nodes {
    /// The empty set.
    pub const NONE: Self = Self(0);

    /// The set of one node.
    #[must_use]
    pub fn one(node: Node) -> Self {
        debug_assert!(usize::from(node) < MOST);
        Self(1 << node)
    }

    /// Whether `node` is in the set.
    #[must_use]
    pub fn has(self, node: Node) -> bool {
        self.0 & Self::one(node).0 != 0
    }

    /// The set with `node` added.
    #[must_use]
    pub fn with(self, node: Node) -> Self {
        Self(self.0 | Self::one(node).0)
    }

    /// The set without `node`.
    #[must_use]
    pub fn without(self, node: Node) -> Self {
        Self(self.0 & !Self::one(node).0)
    }

    /// The set without any of `others`.
    #[must_use]
    pub fn minus(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }

    /// The number of nodes.
    #[must_use]
    pub fn count(self) -> u32 {
        self.0.count_ones()
    }

    /// Whether the set is empty.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The node with the smallest number.
    #[must_use]
    pub fn first(self) -> Option<Node> {
        (self.0 != 0).then(|| self.0.trailing_zeros() as Node)
    }

    /// The nodes, ascending.
    pub fn iter(self) -> impl Iterator<Item = Node> {
        let mut left = self;
        std::iter::from_fn(move || {
            let node = left.first()?;
            left = left.without(node);
            Some(node)
        })
    }
}

impl FromIterator<Node> for Nodes {
    fn from_iter<T: IntoIterator<Item = Node>>(nodes: T) -> Self {
        nodes.into_iter().fold(Self::NONE, Self::with)
    }
}

impl fmt::Debug for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_of_nodes() {
        let nodes: Nodes = [63, 0, 5].into_iter().collect();
        assert_eq!(nodes.iter().collect::<Vec<_>>(), [0, 5, 63]);
        assert!(nodes.has(63) && !nodes.has(62));
        assert_eq!(nodes.without(0).first(), Some(5));
        assert_eq!(nodes.minus(Nodes::one(5)).count(), 2);
        assert!(Nodes::NONE.is_empty() && Nodes::NONE.first().is_none());
    }
}
