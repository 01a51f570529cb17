//! The places of a table, and two kinds of lists through them: by derivation, and by holder.
//!
//! `table.rs` decides what is allowed; this module carries it out. A place is used again with a new generation. All operations
//! but cutting off descendants take constant time, and cutting takes constant time for each, without recursion: a hostile
//! holder can make a chain as long as the number of capabilities it may have.

use std::collections::HashMap;
use std::sync::Arc;

use crate::capability::given::Given;
use crate::capability::handle::{Holder, Span};
use crate::capability::rights::Rights;

/// A capability in a place.
pub(super) struct Entry<M> {
    pub(super) memory: Arc<M>,
    pub(super) span: Span,
    pub(super) rights: Rights,
    pub(super) holder: Holder,
    /// The holder that made it, and for which it counts.
    pub(super) maker: Holder,
    pub(super) given: Given,
}

/// The neighbours of a place in its lists.
#[derive(Clone, Copy, Default)]
struct Links {
    parent: Option<u32>,
    first_child: Option<u32>,
    /// The next child of the same parent; for a free place, the next free one.
    next: Option<u32>,
    previous: Option<u32>,
    /// The next place of the same holder.
    next_held: Option<u32>,
    previous_held: Option<u32>,
}

struct Place<M> {
    generation: u32,
    links: Links,
    entry: Option<Entry<M>>,
}

/// The data of one holder; kept while one of its numbers is not 0.
#[derive(Clone, Copy, Default)]
struct Account {
    first_held: Option<u32>,
    held: u32,
    made: u32,
}

/// The places with capabilities in them.
pub(super) struct Tree<M> {
    places: Vec<Place<M>>,
    first_free: Option<u32>,
    free: u32,
    used: u32,
    accounts: HashMap<Holder, Account>,
}

/// The state of a generation of a place.
pub(super) enum Found<'a, M> {
    /// The generation is in the place.
    Entry(&'a Entry<M>),
    /// The generation was in the place.
    Gone,
    /// The generation was never given out.
    Never,
}

impl<M> Tree<M> {
    pub(super) fn new() -> Tree<M> {
        Tree { places: Vec::new(), first_free: None, free: 0, used: 0, accounts: HashMap::new() }
    }

    /// The number of capabilities.
    pub(super) fn used(&self) -> u32 {
        self.used
    }

    pub(super) fn held(&self, holder: Holder) -> u32 {
        self.accounts.get(&holder).map_or(0, |account| account.held)
    }

    pub(super) fn made(&self, holder: Holder) -> u32 {
        self.accounts.get(&holder).map_or(0, |account| account.made)
    }

    /// The number of capabilities for which there is room if there may be `most` places. A worn-out place counts for ever,
    /// because `most` limits the memory.
    pub(super) fn room(&self, most: u32) -> u32 {
        let places = u32::try_from(self.places.len()).unwrap_or(u32::MAX);
        most.saturating_sub(places).saturating_add(self.free)
    }

    pub(super) fn find(&self, slot: u32, generation: u32) -> Found<'_, M> {
        let Some(place) = self.places.get(slot as usize) else { return Found::Never };
        match &place.entry {
            Some(entry) if generation == place.generation => Found::Entry(entry),
            _ if generation < place.generation => Found::Gone,
            _ => Found::Never,
        }
    }

    pub(super) fn entry_mut(&mut self, slot: u32) -> Option<&mut Entry<M>> {
        self.places.get_mut(slot as usize)?.entry.as_mut()
    }

    /// The capability from which the one in a place was derived.
    pub(super) fn parent(&self, slot: u32) -> Option<&Entry<M>> {
        let parent = self.places.get(slot as usize)?.links.parent?;
        self.places.get(parent as usize)?.entry.as_ref()
    }

    /// Any place of `holder`.
    pub(super) fn any_of(&self, holder: Holder) -> Option<u32> {
        self.accounts.get(&holder)?.first_held
    }

    /// Puts a capability in a place, below `parent`; returns the place and its generation. There must be room.
    pub(super) fn insert(&mut self, parent: Option<u32>, entry: Entry<M>) -> (u32, u32) {
        let (holder, maker) = (entry.holder, entry.maker);
        let slot = match self.first_free {
            Some(slot) => {
                self.first_free = self.links(slot).next;
                self.free -= 1;
                slot
            }
            None => {
                // `room` counts in 32 bits, and the last number is never a place's.
                let slot = self.places.len() as u32;
                self.places.push(Place { generation: 0, links: Links::default(), entry: None });
                slot
            }
        };
        self.used += 1;
        self.accounts.entry(maker).or_default().made += 1;
        let account = self.accounts.entry(holder).or_default();
        account.held += 1;
        let next_held = account.first_held.replace(slot);
        let next = parent.and_then(|parent| self.links(parent).first_child.replace(slot));
        for (next, back) in [(next_held, true), (next, false)] {
            if let Some(next) = next {
                let links = self.links(next);
                *(if back { &mut links.previous_held } else { &mut links.previous }) = Some(slot);
            }
        }
        let place = &mut self.places[slot as usize];
        place.links = Links { parent, next, next_held, ..Links::default() };
        place.entry = Some(entry);
        (slot, place.generation)
    }

    /// Removes all capabilities derived from `root`, and with `and_root` that one as well; calls `gone` for each with its place
    /// and generation, for children before their parents.
    pub(super) fn cut(&mut self, root: u32, and_root: bool, mut gone: impl FnMut(u32, u32, Entry<M>)) {
        let mut at = root;
        loop {
            while let Some(child) = self.links(at).first_child {
                at = child;
            }
            if at == root && !and_root {
                return;
            }
            let parent = self.links(at).parent;
            let generation = self.places[at as usize].generation;
            if let Some(entry) = self.remove_leaf(at) {
                gone(at, generation, entry);
            }
            match parent {
                Some(parent) if at != root => at = parent,
                _ => return,
            }
        }
    }

    /// Empties a place from which nothing is derived.
    fn remove_leaf(&mut self, slot: u32) -> Option<Entry<M>> {
        let entry = self.places[slot as usize].entry.take()?;
        self.used -= 1;
        let links = *self.links(slot);
        match (links.previous, links.parent) {
            (Some(previous), _) => self.links(previous).next = links.next,
            (None, Some(parent)) => self.links(parent).first_child = links.next,
            (None, None) => {}
        }
        if let Some(next) = links.next {
            self.links(next).previous = links.previous;
        }
        if let Some(next) = links.next_held {
            self.links(next).previous_held = links.previous_held;
        }
        if let Some(previous) = links.previous_held {
            self.links(previous).next_held = links.next_held;
        }
        self.charge(entry.holder, |account| {
            account.held -= 1;
            if links.previous_held.is_none() {
                account.first_held = links.next_held;
            }
        });
        self.charge(entry.maker, |account| account.made -= 1);

        let place = &mut self.places[slot as usize];
        place.links = Links::default();
        // The last generation is never given out: every handle of a worn-out place is an old one.
        place.generation += 1;
        if place.generation < u32::MAX {
            place.links.next = self.first_free.replace(slot);
            self.free += 1;
        }
        Some(entry)
    }

    fn charge(&mut self, holder: Holder, change: impl FnOnce(&mut Account)) {
        if let Some(account) = self.accounts.get_mut(&holder) {
            change(account);
            if account.held == 0 && account.made == 0 {
                self.accounts.remove(&holder);
            }
        }
    }

    fn links(&mut self, slot: u32) -> &mut Links {
        &mut self.places[slot as usize].links
    }

    /// Wears out a free place, so that it can hold only one more capability.
    #[cfg(test)]
    pub(super) fn wear_out(&mut self, slot: u32) {
        self.places[slot as usize].generation = u32::MAX - 1;
    }

    /// Checks that all parts of the tree agree.
    #[cfg(test)]
    #[allow(clippy::unwrap_used, reason = "a check of tests")]
    pub(super) fn assert_sound(&self) {
        let mut accounts: HashMap<Holder, Account> = HashMap::new();
        for (slot, place) in self.places.iter().enumerate() {
            let Some(entry) = &place.entry else { continue };
            let slot = Some(slot as u32);
            accounts.entry(entry.holder).or_default().held += 1;
            accounts.entry(entry.maker).or_default().made += 1;
            let at = |slot: Option<u32>| slot.map(|slot| &self.places[slot as usize]);
            let links = &place.links;
            assert!(at(links.next).is_none_or(|next| next.links.previous == slot));
            assert!(at(links.previous).is_none_or(|previous| previous.links.next == slot));
            assert!(at(links.next_held).is_none_or(|next| next.links.previous_held == slot));
            assert!(at(links.previous_held).is_none_or(|previous| previous.links.next_held == slot));
            assert!(at(links.first_child).is_none_or(|child| child.links.parent == slot));
            let parent = at(links.parent);
            assert_eq!(
                parent.is_some_and(|parent| parent.links.first_child == slot),
                parent.is_some() && links.previous.is_none()
            );
            assert_eq!(self.any_of(entry.holder) == slot, links.previous_held.is_none());
            if let Some(parent) = parent {
                let parent = parent.entry.as_ref().unwrap();
                assert!(Arc::ptr_eq(&parent.memory, &entry.memory));
                assert!(parent.rights.contains(entry.rights));
                assert!(parent.span.offset <= entry.span.offset);
                let end = |span: Span| u128::from(span.offset) + u128::from(span.length);
                assert!(end(parent.span) >= end(entry.span));
            }
        }
        let free = std::iter::successors(self.first_free, |slot| self.places[*slot as usize].links.next);
        assert_eq!(free.count(), self.free as usize);
        assert_eq!(accounts.len(), self.accounts.len());
        assert_eq!(accounts.values().map(|account| account.held).sum::<u32>(), self.used);
        for (holder, account) in accounts {
            assert_eq!((self.held(holder), self.made(holder)), (account.held, account.made));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_takes_what_the_limits_say() {
        assert!(size_of::<Place<()>>() <= 150);
    }
}
